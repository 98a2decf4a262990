//! `plugins`: look-up of the plugins of a run.

use hatchery_core::PluginInfo;

use crate::contract::bindings::hatchery::agent::plugins::Host;
use crate::contract::convert::wit;
use crate::runtime::store::HostState;

impl Host for HostState {
    fn list(&mut self) -> Result<Vec<wit::PluginInfo>, wit::Error> {
        let plugins = &self.context()?.invocation.plugins;
        Ok(plugins.iter().map(|plugin| info(plugin.info())).collect())
    }

    fn get(&mut self, name: String) -> Result<Option<wit::PluginInfo>, wit::Error> {
        let plugins = &self.context()?.invocation.plugins;
        Ok(plugins.iter().map(|plugin| plugin.info()).find(|plugin| plugin.name == name).map(info))
    }
}

fn info(PluginInfo { name, hooks, component, revision: _ }: PluginInfo) -> wit::PluginInfo {
    wit::PluginInfo { name, hooks, component }
}
