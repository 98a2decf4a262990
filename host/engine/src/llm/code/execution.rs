//! Execution of pending code, and the event with its result.

use std::sync::Arc;

use hatchery_core::{
    Blob, CallContext, Capability, CodeExecutionResult, CodeFile, CodeInput, CodeOutput, CodeRunner, Content, Event,
    EventData, LlmAgent, Part, PartData, RunError, StoreError, ToolError,
};

use super::{CodeState, on_host, pending_code};
use crate::llm::{LoopDriver, request};

/// Maximum length of the output that is sent to a model.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Maximum number of files of one piece of code that become artifacts.
const MAX_FILES: usize = 100;

/// The media type of output files without one.
const DEFAULT_MEDIA_TYPE: &str = "text/plain";

struct Outcome {
    output: CodeOutput,
    has_failed: bool,
}

impl LoopDriver<'_> {
    /// Runs the code at the end of `event`. Returns the event with the result. It has an error code, which ends the
    /// agent's run, if the code has failed too often.
    pub(in crate::llm) async fn run_code(&self, event: &Event) -> Result<Arc<Event>, RunError> {
        let code = event.content.as_deref().and_then(pending_code);
        let (Some(runner), Some(code)) = (on_host(self.llm), code) else {
            return Err(RunError::Internal("there is no code to run".into()));
        };
        let call = self.cx.call.for_call(None);
        let state = CodeState::new(&call);
        // The model of the request, so that the view is not arranged differently.
        let model = self.run.resolve_model(self.id, &call).map(|(_, model)| model.capabilities()).unwrap_or_default();
        let input = CodeInput {
            code: code.into(),
            input_files: request::with_view(self, model, |view| view.data_files().to_vec()),
            execution_id: runner.stateful.then(|| state.execution_id()),
        };
        let Outcome { output, has_failed } = execute(runner, input, &call).await?;
        let files = save_files(self.llm, &output.output_files, &call).await?;
        state.add_result(code, &output);
        let failures = if has_failed { state.failures() + 1 } else { 0 };
        let exceeds_retries = failures > u64::from(runner.error_retries);
        // Reset for the next agent in this run that executes code.
        state.set_failures(if exceeds_retries { 0 } else { failures });
        let result = CodeExecutionResult {
            outcome: Some(if has_failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" }.into()),
            output: Some(format_output(if has_failed { &output.stderr } else { &output.stdout }, &files)),
            ..CodeExecutionResult::default()
        };
        let content = Content::new("model", vec![PartData::CodeExecutionResult(result).into()]);
        let failure = exceeds_retries.then(|| failure_message(&call.agent, failures));
        let data = EventData {
            content: Some(Arc::new(content)),
            error_code: failure.is_some().then(|| "CODE_FAILED".into()),
            error_message: failure,
            actions: call.take_actions(),
            ..EventData::default()
        };
        self.cx.emit(data).await
    }
}

async fn execute(runner: &CodeRunner, input: CodeInput, call: &CallContext) -> Result<Outcome, RunError> {
    let cancel = &call.invocation.cancel;
    let result = cancel.run_until_cancelled(runner.executor.execute(input, call)).await.ok_or(RunError::Cancelled)?;
    match result {
        Ok(output) => Ok(Outcome { has_failed: !output.stderr.is_empty(), output }),
        Err(ToolError::Recoverable(message)) => {
            Ok(Outcome { has_failed: true, output: CodeOutput { stderr: message, ..CodeOutput::default() } })
        }
        Err(error @ ToolError::Fatal { .. }) => Err(error.for_tool(runner.executor.name()).into()),
    }
}

/// Saves files as artifacts. Returns a line for the model about each file. An invalid name is reported to the model,
/// which can use another.
async fn save_files(llm: &LlmAgent, files: &[CodeFile], call: &CallContext) -> Result<Vec<String>, RunError> {
    if let Some(denial) = files.first().and_then(|_| llm.check(call, Capability::WriteArtifacts).err()) {
        return Ok(vec![format!("Files not saved: {denial}")]);
    }
    let mut lines = Vec::new();
    for file in files.iter().take(MAX_FILES) {
        let mime_type = if file.mime_type.is_empty() { DEFAULT_MEDIA_TYPE.into() } else { file.mime_type.clone() };
        let blob = Blob { mime_type, data: file.content.clone(), display_name: None };
        let part = Part::from(PartData::InlineData(blob));
        lines.push(match call.save_artifact(&file.name, &part).await {
            Ok(_) => format!("Saved artifact: `{}`", file.name),
            Err(
                error @ (StoreError::InvalidName { .. }
                | StoreError::InvalidRequest(_)
                | StoreError::QuotaExceeded { .. }),
            ) => {
                format!("File not saved: {error}")
            }
            Err(error) => return Err(error.into()),
        });
    }
    if files.len() > MAX_FILES {
        let rest = files.len() - MAX_FILES;
        lines.push(format!(
            "Files not saved: {rest} more than the {MAX_FILES} that code may write at a time; put them into an archive"
        ));
    }
    Ok(lines)
}

/// Formats the output of code and the lines about its files for the model.
fn format_output(output: &str, files: &[String]) -> String {
    let head = output.get(..output.floor_char_boundary(MAX_OUTPUT_BYTES)).unwrap_or_default();
    let mut lines = Vec::from_iter((!head.is_empty()).then(|| head.trim_end_matches('\n').to_owned()));
    if head.len() < output.len() {
        lines.push(format!("(cut: these are the first {} bytes of {})", head.len(), output.len()));
    }
    lines.extend_from_slice(files);
    lines.join("\n")
}

fn failure_message(agent: &str, failures: u64) -> String {
    let times = if failures == 1 { "once".into() } else { format!("{failures} times in a row") };
    format!("the code of agent `{agent}` has failed {times}; raise `error_retries` to let its model try more often")
}
