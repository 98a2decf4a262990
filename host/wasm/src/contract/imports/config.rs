//! `config`: the settings of the component.

use crate::contract::bindings::hatchery::agent::config::Host;
use crate::contract::convert::{to_json, wit};
use crate::runtime::store::HostState;

impl Host for HostState {
    fn get(&mut self, key: String) -> Result<Option<String>, wit::Error> {
        Ok(self.config.get(&key).map(to_json))
    }

    fn arguments(&mut self) -> Result<Option<String>, wit::Error> {
        Ok(self.context()?.arguments().map(to_json))
    }
}
