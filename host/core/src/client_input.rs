//! Input from the client of a run, during the run: answers of a person, messages of the client's model, its roots.
//!
//! Only some protocols have clients that can be asked, such as the Model Context Protocol.
//! [`CallContext::request_input`] asks; a confirmation ([`CallContext::request_confirmation`]) works with every client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::call_context::CallContext;
use crate::content::Content;
use crate::error::ToolError;
use crate::json::JsonMap;
use crate::model::LlmRequest;

/// A kind of input, which a client supports or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputKind {
    /// Answers of a person.
    Form,
    /// Messages of the client's model.
    Message,
    /// The folders that the client works on.
    Roots,
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "answers of a person",
            Self::Message => "messages of its model",
            Self::Roots => "its folders",
        })
    }
}

/// A request for input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputRequest {
    /// Asks a person. The schema describes an object whose properties are the fields of the form.
    Form { message: String, schema: Value },
    /// Asks the client's model. The name of the model and its tools are ignored.
    Message(Box<LlmRequest>),
    /// Asks for the folders that the client works on.
    Roots,
}

impl InputRequest {
    /// Returns the kind of the input.
    pub fn kind(&self) -> InputKind {
        match self {
            Self::Form { .. } => InputKind::Form,
            Self::Message(_) => InputKind::Message,
            Self::Roots => InputKind::Roots,
        }
    }
}

/// The response to an [`InputRequest`], of the same kind.
#[derive(Debug, Clone, PartialEq)]
pub enum InputResponse {
    /// The fields of the form. `None` if the person refuses.
    Form(Option<JsonMap>),
    /// The message of the model.
    Message(Content),
    /// The folders that the client gives access to.
    Roots(Vec<ClientRoot>),
}

/// A folder that a client works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRoot {
    /// Its URI, such as `file:///home/ada/notes`.
    pub uri: String,
    /// A human-readable name.
    pub name: Option<String>,
}

/// The reason why there is no input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The client does not support it.
    #[error("the client of this run cannot be asked for {0}")]
    Unsupported(InputKind),
    /// The client is being asked, and will make the call again with its answers. The tool should return this error.
    #[error("the client is being asked, and makes the call again with its answers")]
    Pending,
    /// The client has failed, or its response is invalid.
    #[error("the client has not answered: {0}")]
    Failed(String),
}

impl From<InputError> for ToolError {
    fn from(error: InputError) -> Self {
        Self::Recoverable(error.to_string())
    }
}

/// The client of a run, if its protocol lets the host ask it during the run.
#[async_trait]
pub trait InputClient: fmt::Debug + Send + Sync {
    /// Returns true if the client supports this kind of input.
    fn supports(&self, kind: InputKind) -> bool;

    /// Returns true if the client answers during the run, and false if it makes the call again with its answers.
    fn is_interactive(&self) -> bool;

    /// Asks for all input in one request. The keys name the requests: a call that is made again must use the same keys.
    ///
    /// # Errors
    /// If the client does not support one of the requests, does not answer, or answers later.
    async fn request(
        &self,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<BTreeMap<String, InputResponse>, InputError>;
}

impl CallContext {
    /// Returns true if the client of the run can be asked for this kind of input.
    pub fn can_request_input(&self, kind: InputKind) -> bool {
        self.input().is_some_and(|client| client.supports(kind))
    }

    /// Returns true if the client of the run can be asked for this kind of input, and answers during the run.
    pub fn has_interactive_input(&self, kind: InputKind) -> bool {
        self.input().is_some_and(|client| client.supports(kind) && client.is_interactive())
    }

    /// Asks the client of the run. A client of a stateless protocol is asked after the call: the first time this
    /// returns [`InputError::Pending`], and the call is made again with the answers.
    ///
    /// ```
    /// use hatchery_core::{CallContext, InputRequest, InputResponse, ToolError};
    /// use serde_json::{Value, json};
    ///
    /// /// Returns the seat that a person chooses, if there is one.
    /// async fn choose_seat(cx: &CallContext) -> Result<Option<Value>, ToolError> {
    ///     let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]});
    ///     let form = InputRequest::Form { message: "Which seat?".into(), schema };
    ///     let mut responses = cx.request_input([("seat".to_owned(), form)].into()).await?;
    ///     match responses.remove("seat") {
    ///         Some(InputResponse::Form(Some(mut fields))) => Ok(fields.remove("seat")),
    ///         _ => Ok(None),
    ///     }
    /// }
    /// # let _ = choose_seat;
    /// ```
    ///
    /// # Errors
    /// As [`InputClient::request`]; [`InputError::Unsupported`] if the run has no such client.
    pub async fn request_input(
        &self,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<BTreeMap<String, InputResponse>, InputError> {
        match (self.input(), requests.values().next()) {
            (_, None) => Ok(BTreeMap::new()),
            (None, Some(request)) => Err(InputError::Unsupported(request.kind())),
            (Some(client), Some(_)) => client.request(requests).await,
        }
    }

    fn input(&self) -> Option<&Arc<dyn InputClient>> {
        self.invocation.input.as_ref()
    }
}
