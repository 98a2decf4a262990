//! `code_executor`: who runs the code that an agent's model writes.

use hatchery_core::{CodeExecution, CodeRunner, ItemResolver, ResolveError};
use serde::Deserialize;
use serde_json::Value;

use super::config::parse;

/// The name that leaves it to the model.
const BUILT_IN: &str = "built_in";

/// The long form; the short one is just a name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeExecutorConfig {
    name: String,
    stateful: Option<bool>,
    #[serde(alias = "optimizeDataFile")]
    optimize_data_file: Option<bool>,
    #[serde(alias = "errorRetries")]
    error_retries: Option<u32>,
    #[serde(alias = "codeDelimiters")]
    code_delimiters: Option<Vec<(String, String)>>,
    #[serde(alias = "resultDelimiters")]
    result_delimiters: Option<(String, String)>,
}

/// What is wrong with a `code_executor`.
pub(super) enum Wrong {
    Value(String),
    Name(String, ResolveError),
}

/// Reads a `code_executor`.
pub(super) fn code_execution(config: &Value, lookup: &dyn ItemResolver) -> Result<CodeExecution, Wrong> {
    let config = match config {
        Value::String(name) => CodeExecutorConfig { name: name.clone(), ..CodeExecutorConfig::default() },
        Value::Object(_) => {
            parse(config.clone()).map_err(|message| Wrong::Value(format!("code_executor: {message}")))?
        }
        _ => return Err(Wrong::Value("`code_executor` is a name, or a map with a `name`".into())),
    };
    if config.name == BUILT_IN {
        return match config.has_settings() {
            false => Ok(CodeExecution::BuiltIn),
            true => Err(Wrong::Value(format!(
                "code_executor: `{BUILT_IN}` has no settings: the model runs its code itself"
            ))),
        };
    }
    config.check_delimiters().map_err(Wrong::Value)?;
    let executor = lookup.code_executor(&config.name).map_err(|error| Wrong::Name(config.name.clone(), error))?;
    let usual = CodeRunner::new(executor);
    Ok(CodeExecution::Host(Box::new(CodeRunner {
        stateful: config.stateful.unwrap_or(usual.stateful),
        optimize_data_file: config.optimize_data_file.unwrap_or(usual.optimize_data_file),
        error_retries: config.error_retries.unwrap_or(usual.error_retries),
        code_delimiters: config.code_delimiters.unwrap_or(usual.code_delimiters),
        result_delimiters: config.result_delimiters.unwrap_or(usual.result_delimiters),
        ..usual
    })))
}

impl CodeExecutorConfig {
    fn has_settings(&self) -> bool {
        let Self { name: _, stateful, optimize_data_file, error_retries, code_delimiters, result_delimiters } = self;
        stateful.is_some()
            || optimize_data_file.is_some()
            || error_retries.is_some()
            || code_delimiters.is_some()
            || result_delimiters.is_some()
    }

    /// Without delimiters, no code would ever be found; with empty ones, all text would be code.
    fn check_delimiters(&self) -> Result<(), String> {
        let Some(delimiters) = &self.code_delimiters else { return Ok(()) };
        if delimiters.is_empty() || delimiters.iter().any(|(open, close)| open.is_empty() || close.is_empty()) {
            return Err("code_executor: `code_delimiters` needs pairs of texts that are not empty".into());
        }
        Ok(())
    }
}
