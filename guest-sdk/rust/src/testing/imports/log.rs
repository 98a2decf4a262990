//! Log lines.

use super::super::LogLine;
use super::super::scope::Scope;
use crate::bindings::wit::types;

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

pub(crate) fn write(level: &str, message: &str, fields: &[(String, String)]) -> Result<(), types::Error> {
    let level = LEVELS.into_iter().find(|known| *known == level).unwrap_or("info");
    let line = LogLine { level, message: message.to_owned(), fields: fields.to_vec() };
    Scope::current()?.mock.borrow_mut().log.push(line);
    Ok(())
}
