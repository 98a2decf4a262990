//! Execution of code that a model has written.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::base64_bytes;
use crate::call_context::CallContext;
use crate::error::ToolError;

/// The name of the default code executor. Agents of components may refer to it without a grant.
pub const DEFAULT_CODE_EXECUTOR: &str = "sandbox";

/// Executor of code that an agent's model writes.
#[derive(Clone)]
pub enum CodeExecution {
    /// In the model, if it supports that.
    BuiltIn,
    /// On the host, between two model calls.
    Host(Box<CodeRunner>),
}

/// The strings around code, or around its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delimiters {
    pub open: String,
    pub close: String,
}

impl Delimiters {
    /// Returns this pair of strings.
    pub fn new(open: impl Into<String>, close: impl Into<String>) -> Self {
        Self { open: open.into(), close: close.into() }
    }
}

/// Settings for extracting and running a model's code.
#[derive(Clone)]
pub struct CodeRunner {
    /// Runs the code.
    pub executor: Arc<dyn CodeExecutor>,
    /// Pairs of opening and closing delimiters of code in a model's response, tried in order.
    pub code_delimiters: Vec<Delimiters>,
    /// The delimiters of results that are sent to a model.
    pub result_delimiters: Delimiters,
    /// Maximum number of retries in one run after code of a model has failed.
    pub error_retries: u32,
    /// Whether code sees the variables and files that earlier code of the session has left.
    pub stateful: bool,
    /// Whether data files (CSV) in messages are passed to the code instead of the prompt.
    pub optimize_data_file: bool,
}

impl CodeRunner {
    /// Creates a runner with the default delimiters and two retries.
    pub fn new(executor: Arc<dyn CodeExecutor>) -> Self {
        Self {
            executor,
            code_delimiters: vec![Delimiters::new("```tool_code\n", "\n```"), Delimiters::new("```python\n", "\n```")],
            result_delimiters: Delimiters::new("```tool_output\n", "\n```"),
            error_retries: 2,
            stateful: false,
            optimize_data_file: false,
        }
    }
}

/// Runs code in isolation from the host.
///
/// Called in the agent's task after a model response that contains code; the agent waits for the result.
/// Implementations may await, but not block, and must enforce their own limits on time and memory. If the run is
/// cancelled, the future is dropped.
///
/// ```
/// use async_trait::async_trait;
/// use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ToolError};
///
/// /// "Runs" code that consists of numbers by adding them.
/// struct Adder;
///
/// #[async_trait]
/// impl CodeExecutor for Adder {
///     fn name(&self) -> &str {
///         "adder"
///     }
///
///     async fn execute(&self, input: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
///         let numbers: Result<Vec<i64>, _> = input.code.split_whitespace().map(str::parse).collect();
///         Ok(match numbers {
///             Ok(numbers) => CodeOutput { stdout: numbers.iter().sum::<i64>().to_string(), ..CodeOutput::default() },
///             // The model sees this and can correct its code.
///             Err(error) => CodeOutput { stderr: error.to_string(), ..CodeOutput::default() },
///         })
///     }
/// }
///
/// assert_eq!(Adder.name(), "adder");
/// ```
#[async_trait]
pub trait CodeExecutor: Send + Sync {
    /// Returns the name that messages use.
    fn name(&self) -> &str;

    /// Runs one piece of code to completion. Code that fails is not an error: its message is in [`CodeOutput::stderr`].
    ///
    /// # Errors
    /// If the code could not be run at all. [`ToolError::Recoverable`] is sent to the model, [`ToolError::Fatal`] ends
    /// the run.
    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError>;

    /// Releases resources that outlive calls, such as processes of sessions. No more code is run afterwards.
    async fn close(&self) {}
}

/// The input of [`CodeExecutor::execute`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeInput {
    /// The source text.
    pub code: String,
    /// Files that the code can read by name.
    pub input_files: Vec<CodeFile>,
    /// Identifies the execution context of the session; `None` if the code needs no state of earlier code.
    pub execution_id: Option<String>,
}

/// The output of [`CodeExecutor::execute`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeOutput {
    /// The standard output.
    pub stdout: String,
    /// The error message; empty if the code succeeded.
    pub stderr: String,
    /// Files that the code has written.
    pub output_files: Vec<CodeFile>,
}

/// An input or output file of code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeFile {
    /// The name, without a folder.
    pub name: String,
    /// The bytes; base64 in JSON.
    #[serde(with = "base64_bytes")]
    pub content: Bytes,
    /// Media type, such as `text/csv`.
    pub mime_type: String,
}
