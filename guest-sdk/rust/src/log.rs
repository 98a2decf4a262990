//! Logging. The host adds the component, the session and the run to each line.
//!
//! ```no_run
//! # let (city, days) = ("Oslo", 3);
//! hatchery_guest::log::info("looked up the weather", &[("city", &city), ("days", &days)]);
//! ```

use std::fmt::Display;

use crate::host::log::write;

/// Named values of a log line.
pub type Fields<'a> = &'a [(&'a str, &'a dyn Display)];

/// Logs a failure that needs attention.
pub fn error(message: impl AsRef<str>, fields: Fields<'_>) {
    line("error", message.as_ref(), fields);
}

/// Logs something unexpected.
pub fn warn(message: impl AsRef<str>, fields: Fields<'_>) {
    line("warn", message.as_ref(), fields);
}

/// Logs an event.
pub fn info(message: impl AsRef<str>, fields: Fields<'_>) {
    line("info", message.as_ref(), fields);
}

/// Logs a detail for debugging.
pub fn debug(message: impl AsRef<str>, fields: Fields<'_>) {
    line("debug", message.as_ref(), fields);
}

/// Logs a fine-grained detail for debugging.
pub fn trace(message: impl AsRef<str>, fields: Fields<'_>) {
    line("trace", message.as_ref(), fields);
}

fn line(level: &str, message: &str, fields: Fields<'_>) {
    let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
    // The host rejects lines beyond the component's limit and reports that itself.
    let _refused = write(level, message, &fields);
}
