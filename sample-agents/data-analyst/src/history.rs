//! The earlier code of a session. Starlark is deterministic, so running it again leads to what it has left: there is
//! nothing else to keep.

use hatchery_guest::prelude::*;
use hatchery_guest::serde_json;

/// The key in the state of the session.
const KEY: &str = "_starlark_history";

/// Maximum length of the code that is kept, since state is stored again with each change.
const MAX_BYTES: usize = 32 << 10;

/// The pieces of code that have succeeded.
pub struct History {
    id: String,
    pieces: Vec<String>,
}

impl History {
    /// Returns the history of this execution. The history of another one is dropped.
    pub fn load(cx: &Context, id: &str) -> Result<Self, ToolError> {
        let stored: Option<Value> = cx.state(KEY)?;
        let pieces = stored.filter(|stored| stored.get("execution_id").and_then(Value::as_str) == Some(id));
        let pieces = pieces.and_then(|stored| serde_json::from_value(stored.get("code")?.clone()).ok());
        Ok(Self { id: id.into(), pieces: pieces.unwrap_or_default() })
    }

    /// Returns the code, oldest first.
    pub fn pieces(&self) -> &[String] {
        &self.pieces
    }

    /// Adds code that has succeeded.
    ///
    /// # Errors
    /// If there is too much code. The model that wrote it reads the error.
    pub fn add(&mut self, code: String) -> Result<(), ToolError> {
        self.pieces.push(code);
        if self.pieces.iter().map(String::len).sum::<usize>() > MAX_BYTES {
            Err(ToolError::Recoverable(format!(
                "the code of this session is longer than {MAX_BYTES} bytes, so what this code has left is not kept; write less"
            )))
        } else {
            Ok(())
        }
    }

    /// Stores the history in the session.
    pub fn store(&self, cx: &Context) -> Result<(), ToolError> {
        Ok(cx.set_state(KEY, json!({"execution_id": self.id, "code": self.pieces}))?)
    }
}
