//! `config`: the component's own settings.

use crate::bindings::hatchery::agent::config::Host;
use crate::convert::{text, wit};
use crate::store::HostState;

impl Host for HostState {
    fn get(&mut self, key: String) -> Result<Option<String>, wit::Error> {
        Ok(self.config.get(&key).map(text))
    }
}
