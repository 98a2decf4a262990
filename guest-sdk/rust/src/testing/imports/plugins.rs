//! The plugins of the run.

use super::super::scope::Scope;
use crate::bindings::wit::types;
use crate::run_info::PluginInfo;

pub(crate) fn list() -> Result<Vec<types::PluginInfo>, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().plugins.iter().cloned().map(to_wit).collect())
}

pub(crate) fn get(name: &str) -> Result<Option<types::PluginInfo>, types::Error> {
    let scope = Scope::for_session()?;
    let mock = scope.mock.borrow();
    Ok(mock.plugins.iter().find(|plugin| plugin.name == name).cloned().map(to_wit))
}

fn to_wit(PluginInfo { name, hooks, component }: PluginInfo) -> types::PluginInfo {
    types::PluginInfo { name, hooks, component }
}
