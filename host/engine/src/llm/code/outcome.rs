//! Runs the code that is due, and tells what it gave.

use std::sync::Arc;

use hatchery_core::{
    Blob, CallContext, Capability, CodeExecutionResult, CodeFile, CodeInput, CodeOutput, CodeRunner, Content, Event,
    EventData, LlmAgent, Part, PartData, RunError, StoreError, ToolError,
};

use super::{Record, due, on_host};
use crate::agents::resolve_model;
use crate::llm::{Step, request};

/// More of what code prints is not shown to a model.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// What a file is when its code does not say.
const PLAIN_TEXT: &str = "text/plain";

/// What running code came to.
struct Outcome {
    output: CodeOutput,
    failed: bool,
}

impl Step<'_> {
    /// Runs the code that `event` ends in. Gives the event with the result; it ends the agent's run when it says that the code has failed
    /// too often.
    pub(in crate::llm) async fn run_code(&self, event: &Event) -> Result<Arc<Event>, RunError> {
        let code = event.content.as_deref().and_then(due);
        let (Some(runner), Some(code)) = (on_host(self.llm), code) else {
            return Err(RunError::Internal("there is no code to run".into()));
        };
        let call = self.cx.call.for_call(None);
        let record = Record::new(&call);
        // The model of the request, so that the view is not arranged differently.
        let model =
            resolve_model(self.frame, self.id, &call).map(|(_, model)| model.capabilities()).unwrap_or_default();
        let input = CodeInput {
            code: code.into(),
            input_files: request::with_view(self, model, |view| view.data_files().to_vec()),
            execution_id: runner.stateful.then(|| record.execution_id()),
        };
        let Outcome { output, failed } = execute(runner, input, &call).await?;
        let files = save(self.llm, &output.output_files, &call).await?;
        record.note_result(code, &output);
        let failures = if failed { record.failures() + 1 } else { 0 };
        let gives_up = failures > u64::from(runner.error_retries);
        // Whoever runs code next in this run begins with a clean slate.
        record.set_failures(if gives_up { 0 } else { failures });
        let result = CodeExecutionResult {
            outcome: Some(if failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" }.into()),
            output: Some(shown(if failed { &output.stderr } else { &output.stdout }, &files)),
            ..CodeExecutionResult::default()
        };
        let content = Content::new("model", vec![PartData::CodeExecutionResult(result).into()]);
        let failure = gives_up.then(|| given_up(&call.agent, failures));
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
        Ok(output) => Ok(Outcome { failed: !output.stderr.is_empty(), output }),
        Err(ToolError::Recoverable(message)) => {
            Ok(Outcome { failed: true, output: CodeOutput { stderr: message, ..CodeOutput::default() } })
        }
        Err(error @ ToolError::Fatal { .. }) => Err(error.named(runner.executor.name()).into()),
    }
}

/// Saves files as artifacts. Gives a line for the model about each; a name that cannot be used is for it to mend.
async fn save(llm: &LlmAgent, files: &[CodeFile], call: &CallContext) -> Result<Vec<String>, RunError> {
    if let Some(denial) = files.first().and_then(|_| llm.check(call, Capability::WriteArtifacts).err()) {
        return Ok(vec![format!("Files not saved: {denial}")]);
    }
    let mut lines = Vec::with_capacity(files.len());
    for file in files {
        let mime_type = if file.mime_type.is_empty() { PLAIN_TEXT.into() } else { file.mime_type.clone() };
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
    Ok(lines)
}

/// What the model is shown: what the code said, and what became of its files.
fn shown(said: &str, files: &[String]) -> String {
    let kept = said.get(..said.floor_char_boundary(MAX_OUTPUT_BYTES)).unwrap_or_default();
    let mut lines = Vec::from_iter((!kept.is_empty()).then(|| kept.trim_end_matches('\n').to_owned()));
    if kept.len() < said.len() {
        lines.push(format!("(cut: these are the first {} bytes of {})", kept.len(), said.len()));
    }
    lines.extend_from_slice(files);
    lines.join("\n")
}

fn given_up(agent: &str, failures: u64) -> String {
    let times = if failures == 1 { "once".into() } else { format!("{failures} times in a row") };
    format!("the code of agent `{agent}` has failed {times}; raise `error_retries` to let its model try more often")
}
