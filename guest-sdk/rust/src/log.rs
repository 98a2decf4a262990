//! Lines for the host's log, where the component, the session and the run are added to them.
//!
//! ```no_run
//! # let (city, days) = ("Oslo", 3);
//! hatchery_guest::log::info("looked up the weather", &[("city", &city), ("days", &days)]);
//! ```

use std::fmt::Display;

use crate::host::log::write;

/// Named values of a line.
pub type Fields<'a> = &'a [(&'a str, &'a dyn Display)];

/// Something failed, and somebody should look at it.
pub fn error(message: impl AsRef<str>, fields: Fields<'_>) {
    line("error", message.as_ref(), fields);
}

/// Something is odd.
pub fn warn(message: impl AsRef<str>, fields: Fields<'_>) {
    line("warn", message.as_ref(), fields);
}

/// Something happened.
pub fn info(message: impl AsRef<str>, fields: Fields<'_>) {
    line("info", message.as_ref(), fields);
}

/// For the component's author.
pub fn debug(message: impl AsRef<str>, fields: Fields<'_>) {
    line("debug", message.as_ref(), fields);
}

/// For the component's author, in great detail.
pub fn trace(message: impl AsRef<str>, fields: Fields<'_>) {
    line("trace", message.as_ref(), fields);
}

fn line(level: &str, message: &str, fields: Fields<'_>) {
    let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
    // The host refuses lines beyond the component's limit and reports that itself; no caller could do better.
    let _refused = write(level, message, &fields);
}
