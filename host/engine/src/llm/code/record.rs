//! What a session's state holds about code. State is stored again with each change of it, so all of it is bounded: the files by their
//! names alone, and of results only the newest of the newest run.

use hatchery_core::{CallContext, CodeFile, CodeOutput, JsonMap, Timestamp, new_event_id};
use serde_json::{Value, json};

/// `{execution_session_id, processed_input_files}`: the place of the session's code, and names of the data files that the model knows of.
const CONTEXT: &str = "_code_execution_context";
/// `[{name, mime_type, size}]`: the data files that code finds.
const INPUT_FILES: &str = "_code_executor_input_files";
/// `{<invocation id>: n}`: how often in a row code has failed in the run.
const ERROR_COUNTS: &str = "_code_executor_error_counts";
/// `{<invocation id>: [{code, result_stdout, result_stderr, timestamp}]}`: what code has run, and what it gave.
const RESULTS: &str = "_code_execution_results";

/// Of more files than these, the newest are recorded.
const MAX_FILES: usize = 64;
/// Of more results than these, the newest of the run are recorded.
const MAX_RESULTS: usize = 3;
/// Code and outputs are recorded up to here.
const MAX_TEXT_BYTES: usize = 1024;

/// The state of a session, as far as it is about code.
pub(super) struct Record<'a>(&'a CallContext);

impl<'a> Record<'a> {
    pub(super) fn new(cx: &'a CallContext) -> Self {
        Self(cx)
    }

    /// The name of the session's own place for its code: made once, and of no use to anybody who guesses.
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

    /// Records those of the files that came after the last known one.
    pub(super) fn note_files(&self, files: &[CodeFile]) {
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

    /// How often in a row code has failed in this run.
    pub(super) fn failures(&self) -> u64 {
        self.object(ERROR_COUNTS).get(self.run()).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Sets how often in a row code has failed in this run. Earlier runs are over, and their counts with them.
    pub(super) fn set_failures(&self, count: u64) {
        if count > 0 {
            self.0.set_state(ERROR_COUNTS, json!({ self.run(): count }));
        } else if !self.object(ERROR_COUNTS).is_empty() {
            self.0.set_state(ERROR_COUNTS, json!({}));
        }
    }

    /// Records what code gave.
    pub(super) fn note_result(&self, code: &str, output: &CodeOutput) {
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

    /// An object in state. State can be set by clients, so it may be anything; what is no object counts as empty.
    fn object(&self, key: &str) -> JsonMap {
        match self.0.state(key) {
            Some(Value::Object(map)) => map,
            _ => JsonMap::new(),
        }
    }
}

/// The items of a list; what is no list counts as empty.
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The last so many items.
fn newest(mut items: Vec<Value>, most: usize) -> Value {
    items.drain(..items.len().saturating_sub(most));
    Value::Array(items)
}

fn head(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default()
}
