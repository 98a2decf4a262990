//! `log`: lines in the host's log.

use super::fault;
use crate::contract::bindings::hatchery::agent::log::Host;
use crate::contract::convert::wit;
use crate::runtime::store::HostState;

impl Host for HostState {
    fn write(&mut self, level: String, message: String, fields: Vec<(String, String)>) -> Result<(), wit::Error> {
        self.output.log(&level, &message, &fields).map_err(|hit| {
            self.output.report_limit("limits.log", &hit);
            fault("LIMIT_REACHED", hit.to_string())
        })
    }
}
