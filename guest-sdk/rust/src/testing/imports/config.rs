//! Configuration and arguments of the component.

use serde_json::Value;

use super::super::scope::Scope;
use crate::bindings::wit::types;

pub(crate) fn get(key: &str) -> Result<Option<String>, types::Error> {
    Ok(Scope::current()?.mock.borrow().config.get(key).map(Value::to_string))
}

pub(crate) fn arguments() -> Result<Option<String>, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().arguments.as_ref().map(Value::to_string))
}
