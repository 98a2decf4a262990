//! Code executors, which run the code that models write.

use crate::bindings::code_executors::exports::hatchery::agent::guest_code_executors as wit;
use crate::bindings::wit::types;
use crate::context::Context;
use crate::error::ToolError;
use crate::export::{ExportList, Handler, find};

/// A code executor, made from an async function by [`#[code_executor]`](macro@crate::code_executor).
#[derive(Debug, Clone, Copy)]
pub struct CodeExecutor {
    /// Name of the executor.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: Handler<CodeInput, CodeOutput, ToolError>,
}

impl CodeExecutor {
    /// Runs code. Unit tests of an executor that uses its context go through [a mock host](crate::testing).
    ///
    /// # Errors
    /// The error of the executor.
    pub async fn execute(&self, input: CodeInput) -> Result<CodeOutput, ToolError> {
        (self.run)(input, Context::new()).await
    }
}

/// A reference to a code executor: a function marked `#[code_executor]`, or a name (`calculator`, `python/starlark`).
pub trait CodeExecutorRef {
    /// Returns the name.
    fn executor_name(self) -> String;
}

impl<F: Fn() -> CodeExecutor> CodeExecutorRef for F {
    fn executor_name(self) -> String {
        self().name.into()
    }
}

impl CodeExecutorRef for &str {
    fn executor_name(self) -> String {
        self.into()
    }
}

/// Code to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeInput {
    /// The source text.
    pub code: String,
    /// Files that the code can read by name.
    pub input_files: Vec<CodeFile>,
    /// Identifies the session's state. `None` if the code is stateless.
    pub execution_id: Option<String>,
}

impl CodeInput {
    /// Creates an input without files.
    pub fn new(code: impl Into<String>) -> Self {
        Self { code: code.into(), ..Self::default() }
    }
}

/// The result of running code. Code that fails is not an error of the executor: `stderr` reports the failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeOutput {
    /// Standard output.
    pub stdout: String,
    /// Error output; empty on success.
    pub stderr: String,
    /// Files that the code wrote.
    pub output_files: Vec<CodeFile>,
}

/// An input or output file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeFile {
    /// File name without a folder.
    pub name: String,
    /// Media type.
    pub mime_type: String,
    /// The content of the file.
    pub content: Vec<u8>,
}

impl CodeFile {
    /// Creates a plain text file.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), mime_type: "text/plain".into(), content: text.into().into_bytes() }
    }
}

impl From<wit::CodeFile> for CodeFile {
    fn from(wit::CodeFile { name, mime_type, content }: wit::CodeFile) -> Self {
        Self { name, mime_type, content }
    }
}

impl From<CodeFile> for wit::CodeFile {
    fn from(CodeFile { name, mime_type, content }: CodeFile) -> Self {
        Self { name, mime_type, content }
    }
}

impl From<wit::CodeInput> for CodeInput {
    fn from(wit::CodeInput { code, input_files, execution_id }: wit::CodeInput) -> Self {
        Self { code, input_files: input_files.into_iter().map(Into::into).collect(), execution_id }
    }
}

impl From<CodeOutput> for wit::CodeOutput {
    fn from(CodeOutput { stdout, stderr, output_files }: CodeOutput) -> Self {
        Self { stdout, stderr, output_files: output_files.into_iter().map(Into::into).collect() }
    }
}

impl<S: ExportList<CodeExecutor>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|executor| executor.name.into()).collect()
    }

    async fn execute(name: String, input: wit::CodeInput) -> Result<wit::CodeOutput, types::ToolError> {
        let executor = find(S::items(), "code executor", &name, |executor| executor.name).map_err(ToolError::fatal)?;
        Ok(executor.execute(input.into()).await?.into())
    }
}
