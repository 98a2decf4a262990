//! What is wrong with an agent config, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error in a config file. It prints as `file:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    location: Option<(usize, usize)>,
    message: String,
}

impl ConfigError {
    pub(super) fn at(file: &Path, location: Option<(usize, usize)>, message: String) -> Self {
        Self { file: file.to_path_buf(), location, message }
    }

    pub(super) fn syntax(file: &Path, error: &serde_yaml::Error) -> Self {
        let location = error.location().map(|at| (at.line(), at.column()));
        let text = error.to_string();
        // The place is printed in front.
        let message = match text.rfind(" at line ") {
            Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
            None => text,
        };
        Self::at(file, location, message)
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Line and column, from 1, when they are known.
    pub fn location(&self) -> Option<(usize, usize)> {
        self.location
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.location {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Line and column, from 1, of a key in either spelling that has this value, or any where `value` is empty.
pub(super) fn find(text: &str, key: &str, value: &str) -> Option<(usize, usize)> {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let key = plain(key);
    let fits = |(found, given): (&str, &str)| plain(found) == key && (value.is_empty() || given == value);
    let within = |keys: usize| {
        text.lines().enumerate().find_map(|(index, line)| {
            let (column, _) = entries(line).take(keys).find(|(_, entry)| fits(*entry))?;
            Some((index + 1, column))
        })
    };
    // Texts hold colons too, so the first key of a line counts more.
    within(1).or_else(|| within(usize::MAX))
}

/// The keys of a line with their values, and the columns where they begin. A line has several when it holds a map in braces.
fn entries(line: &str) -> impl Iterator<Item = (usize, (&str, &str))> {
    line.match_indices(':').filter_map(move |(colon, _)| {
        let (before, after) = (line.get(..colon)?.trim_end(), line.get(colon + 1..)?);
        let begin = before.rfind([' ', '{', '[', ',', '-']).map_or(0, |at| at + 1);
        let after = after.split(" #").next().unwrap_or_default();
        let given = after.split([',', '}', ']']).next().unwrap_or_default();
        let given = given.trim().trim_matches(['"', '\'']);
        Some((begin + 1, (before.get(begin..)?.trim_matches(['"', '\'']), given)))
    })
}
