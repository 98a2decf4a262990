//! `code_executor`: the executor of the code that an agent's model writes.

use hatchery_core::{CodeExecution, CodeRunner, DEFAULT_CODE_EXECUTOR, Delimiters, ItemResolver, ResolveError};
use serde::Deserialize;
use serde_json::Value;

use super::config::parse;

/// The name for code execution by the model's provider.
const BUILT_IN: &str = "built_in";

/// The long form. The short form is a name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CodeExecutorConfig {
    name: Option<String>,
    stateful: Option<bool>,
    #[serde(alias = "optimizeDataFile")]
    optimize_data_file: Option<bool>,
    #[serde(alias = "errorRetries", alias = "error_retry_attempts", alias = "errorRetryAttempts")]
    error_retries: Option<u32>,
    #[serde(alias = "codeDelimiters", alias = "code_block_delimiters", alias = "codeBlockDelimiters")]
    code_delimiters: Option<Vec<(String, String)>>,
    #[serde(alias = "resultDelimiters", alias = "execution_result_delimiters", alias = "executionResultDelimiters")]
    result_delimiters: Option<(String, String)>,
}

pub(super) enum CodeExecutorError {
    Value(String),
    Name(String, ResolveError),
}

/// Reads a `code_executor`.
pub(super) fn code_execution(config: &Value, resolver: &dyn ItemResolver) -> Result<CodeExecution, CodeExecutorError> {
    let config = match config {
        Value::String(name) => CodeExecutorConfig { name: Some(name.clone()), ..CodeExecutorConfig::default() },
        Value::Object(_) => {
            parse(config.clone()).map_err(|message| CodeExecutorError::Value(format!("code_executor: {message}")))?
        }
        _ => return Err(CodeExecutorError::Value("`code_executor` is a name, or a map of settings".into())),
    };
    let name = config.name.as_deref().unwrap_or(DEFAULT_CODE_EXECUTOR);
    if name == BUILT_IN {
        return if config.has_settings() {
            Err(CodeExecutorError::Value(format!(
                "code_executor: `{BUILT_IN}` has no settings: the model runs its code itself"
            )))
        } else {
            Ok(CodeExecution::BuiltIn)
        };
    }
    config.check_delimiters().map_err(CodeExecutorError::Value)?;
    let executor = resolver.code_executor(name).map_err(|error| CodeExecutorError::Name(name.to_owned(), error))?;
    let defaults = CodeRunner::new(executor);
    Ok(CodeExecution::Host(Box::new(CodeRunner {
        stateful: config.stateful.unwrap_or(defaults.stateful),
        optimize_data_file: config.optimize_data_file.unwrap_or(defaults.optimize_data_file),
        error_retries: config.error_retries.unwrap_or(defaults.error_retries),
        code_delimiters: config
            .code_delimiters
            .map_or(defaults.code_delimiters, |pairs| pairs.into_iter().map(delimiters).collect()),
        result_delimiters: config.result_delimiters.map_or(defaults.result_delimiters, delimiters),
        ..defaults
    })))
}

fn delimiters((open, close): (String, String)) -> Delimiters {
    Delimiters { open, close }
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

    /// Refuses an empty list, which matches no code, and empty delimiters, which match all text.
    fn check_delimiters(&self) -> Result<(), String> {
        let Some(delimiters) = &self.code_delimiters else { return Ok(()) };
        if delimiters.is_empty() || delimiters.iter().any(|(open, close)| open.is_empty() || close.is_empty()) {
            return Err("code_executor: `code_delimiters` needs pairs of non-empty strings".into());
        }
        Ok(())
    }
}
