//! Session state of code execution. State is stored again with each change, so its size is bounded: files are stored by
//! name only, and results only of the newest run.

use hatchery_core::{CallContext, CodeFile, CodeOutput, JsonMap, Timestamp, new_event_id};
use serde_json::{Value, json};

/// `{execution_session_id, processed_input_files}`: the id of the stateful executor's session, and the names of the
/// data files in the prompt.
const CONTEXT: &str = "_code_execution_context";
/// `[{name, mime_type, size}]`: the data files that code can read.
const INPUT_FILES: &str = "_code_executor_input_files";
/// `{<invocation id>: n}`: the number of consecutive failures in the run.
const ERROR_COUNTS: &str = "_code_executor_error_counts";
/// `{<invocation id>: [{code, result_stdout, result_stderr, timestamp}]}`: executed code and its results.
const RESULTS: &str = "_code_execution_results";

/// Maximum number of files. The newest are stored.
const MAX_FILES: usize = 64;
/// Maximum number of results. The newest of the run are stored.
const MAX_RESULTS: usize = 3;
/// Maximum length of stored code and output.
const MAX_TEXT_BYTES: usize = 1024;

/// The session state of code execution.
pub(super) struct CodeState<'a>(&'a CallContext);

impl<'a> CodeState<'a> {
    pub(super) fn new(cx: &'a CallContext) -> Self {
        Self(cx)
    }

    /// Returns the id of the executor's session. It is created once per session, and cannot be guessed.
    pub(super) fn execution_id(&self) -> String {
        let mut context = self.object(CONTEXT);
        if let Some(id) = context.get("execution_session_id").and_then(Value::as_str) {
            return id.into();
        }
        let id = new_event_id();
        context.insert("execution_session_id".into(), json!(id));
        self.0.set_state(CONTEXT, Value::Object(context));
        id
    }

    /// Stores the files after the last one that is stored already.
    pub(super) fn add_files(&self, files: &[CodeFile]) {
        if files.is_empty() {
            return;
        }
        let mut context = self.object(CONTEXT);
        let mut names = list(context.remove("processed_input_files"));
        let is_new = |file: &&CodeFile| !names.iter().any(|name| *name == file.name);
        let new: Vec<_> = files.iter().rev().take_while(is_new).collect();
        if new.is_empty() {
            return;
        }
        let mut entries = list(self.0.state(INPUT_FILES));
        for file in new.into_iter().rev() {
            names.push(json!(file.name));
            entries.push(json!({"name": file.name, "mime_type": file.mime_type, "size": file.content.len()}));
        }
        context.insert("processed_input_files".into(), newest(names, MAX_FILES));
        self.0.set_state(CONTEXT, Value::Object(context));
        self.0.set_state(INPUT_FILES, newest(entries, MAX_FILES));
    }

    /// Returns the number of consecutive failures in this run.
    pub(super) fn failures(&self) -> u64 {
        self.object(ERROR_COUNTS).get(self.run()).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Sets the number of consecutive failures in this run. Drops the counts of earlier runs.
    pub(super) fn set_failures(&self, count: u64) {
        if count > 0 {
            self.0.set_state(ERROR_COUNTS, json!({ self.run(): count }));
        } else if !self.object(ERROR_COUNTS).is_empty() {
            self.0.set_state(ERROR_COUNTS, json!({}));
        }
    }

    /// Stores executed code and its result.
    pub(super) fn add_result(&self, code: &str, output: &CodeOutput) {
        let mut results = list(self.object(RESULTS).remove(self.run()));
        results.push(json!({
            "code": head(code),
            "result_stdout": head(&output.stdout),
            "result_stderr": head(&output.stderr),
            "timestamp": Timestamp::now(),
        }));
        self.0.set_state(RESULTS, json!({ self.run(): newest(results, MAX_RESULTS) }));
    }

    fn run(&self) -> &str {
        &self.0.invocation.id
    }

    /// Returns an object in the state. Clients can set state to any value, so another type counts as empty.
    fn object(&self, key: &str) -> JsonMap {
        match self.0.state(key) {
            Some(Value::Object(map)) => map,
            _ => JsonMap::new(),
        }
    }
}

/// Returns the items of a list. Another type counts as empty.
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Returns the last `count` items.
fn newest(mut items: Vec<Value>, count: usize) -> Value {
    items.drain(..items.len().saturating_sub(count));
    Value::Array(items)
}

fn head(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default()
}
