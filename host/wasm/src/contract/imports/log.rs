//! `log`: lines in the log of the host.

use super::wit_error;
use crate::contract::bindings::hatchery::agent::log::Host;
use crate::contract::convert::wit;
use crate::runtime::store::HostState;

impl Host for HostState {
    fn write(&mut self, level: String, message: String, fields: Vec<(String, String)>) -> Result<(), wit::Error> {
        self.log.log(&level, &message, &fields).map_err(|exceeded| {
            self.log.report_limit("limits.log", &exceeded);
            wit_error("LIMIT_REACHED", exceeded.for_callers())
        })
    }
}
