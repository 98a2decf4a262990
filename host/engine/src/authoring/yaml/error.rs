//! Errors in agent configs, with their location.

use std::fmt;
use std::path::{Path, PathBuf};

use hatchery_core::GenerateContentConfig;
use hatchery_core::suggestion::explain_syntax_error;
use hatchery_core::type_schema::snake_case;

use super::config::without_package;

/// An error in a config file. Displays as `file:line:column: message`.
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
        // `Display` writes the location in front.
        let message = match text.rfind(" at line ") {
            Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
            None => text,
        };
        let explained =
            replaced_key(&message).unwrap_or_else(|| explain_syntax_error(&without_second_spellings(&message)));
        Self::at(file, location, explained)
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns line and column, from 1. `None` if they are unknown.
    pub fn location(&self) -> Option<(usize, usize)> {
        self.location
    }

    /// Returns the message without the location.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Returns the message for a key of ADK that the host does not have, or that belongs elsewhere, with the key to use
/// instead. `None` for other errors.
fn replaced_key(message: &str) -> Option<String> {
    let key = message.strip_prefix("unknown field `")?.split('`').next()?;
    if GenerateContentConfig::is_setting(key) {
        return Some(format!("`{key}` is a setting of model calls: write it below `generate_content_config`"));
    }
    let advice = "names code of Python, which the host cannot load; name a model with `model`, such as `openai/gpt-5`";
    (snake_case(key) == "model_code").then(|| format!("`{key}` {advice}"))
}

/// Removes names in camel case from a list of expected keys that has them in snake case too.
fn without_second_spellings(message: &str) -> String {
    let Some((problem, list)) = message.split_once("expected one of ") else { return message.to_owned() };
    let names: Vec<_> = list.split(", ").collect();
    let is_first = |name: &&str| snake_case(name) == **name || !names.contains(&snake_case(name).as_str());
    let names: Vec<_> = names.iter().filter(|name| is_first(name)).copied().collect();
    format!("{problem}expected one of {}", names.join(", "))
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

/// Returns line and column, from 1, of a key in either spelling with this value, or with any if `value` is empty. The
/// value in the file may have a package of ADK.
pub(super) fn find(text: &str, key: &str, value: &str) -> Option<(usize, usize)> {
    let normalized = |text: &str| text.replace('_', "").to_lowercase();
    let key = normalized(key);
    let is_wanted = |text: &str| value.is_empty() || text == value || without_package(text) == value;
    let matches = |(entry, text): (&str, &str)| normalized(entry) == key && is_wanted(text);
    let within = |keys: usize| {
        text.lines().enumerate().find_map(|(index, line)| {
            let (column, _) = entries(line).take(keys).find(|(_, entry)| matches(*entry))?;
            Some((index + 1, column))
        })
    };
    // Texts contain colons too, so the first key of a line has priority.
    within(1).or_else(|| within(usize::MAX))
}

/// Returns the keys of a line with their values and columns. A line with a map in braces has several.
fn entries(line: &str) -> impl Iterator<Item = (usize, (&str, &str))> {
    line.match_indices(':').filter_map(move |(colon, _)| {
        let (before, after) = (line.get(..colon)?.trim_end(), line.get(colon + 1..)?);
        let begin = before.rfind([' ', '{', '[', ',', '-']).map_or(0, |at| at + 1);
        let after = after.split(" #").next().unwrap_or_default();
        let value = after.split([',', '}', ']']).next().unwrap_or_default();
        let value = value.trim().trim_matches(['"', '\'']);
        Some((begin + 1, (before.get(begin..)?.trim_matches(['"', '\'']), value)))
    })
}
