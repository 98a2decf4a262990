//! Running code that a model has written.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::base64_bytes;
use crate::context::CallContext;
use crate::error::ToolError;

/// Who runs the code that an agent's model writes.
#[derive(Clone)]
pub enum CodeExecution {
    /// The model itself, if it can.
    BuiltIn,
    /// The host, between two model calls.
    Host(Box<CodeRunner>),
}

/// How the host finds and runs a model's code.
#[derive(Clone)]
pub struct CodeRunner {
    /// What runs it.
    pub executor: Arc<dyn CodeExecutor>,
    /// What is around code in a model's answer, tried in order.
    pub code_delimiters: Vec<(String, String)>,
    /// What is put around results that are sent to a model.
    pub result_delimiters: (String, String),
    /// How often in one run a model may try again after code that failed.
    pub error_retries: u32,
    /// Whether code of one session finds what earlier code of it has left.
    pub stateful: bool,
    /// Whether data files (CSV) in messages are kept out of the prompt and handed to the code instead.
    pub optimize_data_file: bool,
}

impl CodeRunner {
    /// This executor, with the usual delimiters and two retries.
    pub fn new(executor: Arc<dyn CodeExecutor>) -> Self {
        let pair = |open: &str, close: &str| (open.to_owned(), close.to_owned());
        Self {
            executor,
            code_delimiters: vec![pair("```tool_code\n", "\n```"), pair("```python\n", "\n```")],
            result_delimiters: pair("```tool_output\n", "\n```"),
            error_retries: 2,
            stateful: false,
            optimize_data_file: false,
        }
    }
}

/// Runs code in a place of its own.
#[async_trait]
pub trait CodeExecutor: Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// Runs one piece of code to its end. Code that fails is no error: what it says is in [`CodeOutput::stderr`].
    ///
    /// # Errors
    /// When the code could not be run at all: [`ToolError::Recoverable`] is shown to the model, [`ToolError::Fatal`] ends the run.
    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError>;
}

/// What is run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeInput {
    /// The source text.
    pub code: String,
    /// Files that the code can read by name.
    pub input_files: Vec<CodeFile>,
    /// Names the session's own place, when the code is to find what earlier code left there.
    pub execution_id: Option<String>,
}

/// What running it gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeOutput {
    /// What it printed.
    pub stdout: String,
    /// What it says went wrong; empty when all went well.
    pub stderr: String,
    /// Files that it has written.
    pub output_files: Vec<CodeFile>,
}

/// A file for code, or from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeFile {
    /// Its name, without a folder.
    pub name: String,
    /// The bytes; base64 in JSON.
    #[serde(with = "base64_bytes")]
    pub content: Bytes,
    /// Media type.
    pub mime_type: String,
}
