//! A span that has ended.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::content::SpanContent;
use super::log::SpanLog;
use super::{TimeKind, Trace};
use crate::event::UsageMetadata;
use crate::text::truncate_bytes;

/// The kind of operation that a span measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanOperation {
    /// A run, from its request to the end.
    Run,
    /// The run of one agent.
    Agent,
    /// A model call of an LLM agent.
    Model,
    /// A model call by code.
    CodeModel,
    /// One request to the provider of a model call.
    ModelAttempt,
    /// A tool call.
    Tool,
    /// A call into a component.
    Guest,
    /// An HTTP request of a component.
    Http,
}

/// The attribute with the provider of a model call.
pub(super) const PROVIDER_NAME: &str = "gen_ai.provider.name";

impl SpanOperation {
    /// Returns the value of `gen_ai.operation.name`; `None` for operations that the conventions do not have.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Run => Some("invoke_workflow"),
            Self::Agent => Some("invoke_agent"),
            Self::Model => Some("generate_content"),
            Self::CodeModel => Some("chat"),
            Self::Tool => Some("execute_tool"),
            Self::ModelAttempt | Self::Guest | Self::Http => None,
        }
    }

    /// Returns the number of attributes that most spans of this operation have.
    pub(super) fn usual_attributes(self) -> usize {
        match self {
            Self::Run | Self::Model | Self::CodeModel => 8,
            Self::ModelAttempt | Self::Agent | Self::Tool | Self::Guest | Self::Http => 4,
        }
    }

    /// Returns the kind of time that spans of this operation take.
    pub(super) fn time_kind(self) -> Option<TimeKind> {
        match self {
            Self::Model | Self::CodeModel => Some(TimeKind::Model),
            Self::Tool => Some(TimeKind::Tool),
            Self::Guest => Some(TimeKind::Guest),
            // An attempt is already counted by the span of the model call.
            Self::Run | Self::Agent | Self::ModelAttempt | Self::Http => None,
        }
    }

    /// Returns the name of a span. ADK's clients rely on the names of runs and of model calls,
    /// which have no subject.
    pub(super) fn span_name(self, subject: impl Display) -> Cow<'static, str> {
        let prefix = match self {
            Self::Run => return "invocation".into(),
            Self::Model => return "call_llm".into(),
            Self::Agent => "invoke_agent",
            Self::CodeModel => "chat",
            Self::ModelAttempt => "model_attempt",
            Self::Tool => "execute_tool",
            Self::Guest => "call_guest",
            Self::Http => return subject.to_string().into(),
        };
        format!("{prefix} {subject}").into()
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    Text(Cow<'static, str>),
    /// A text that spans share.
    Shared(Arc<str>),
    /// A whole number.
    Integer(u64),
    /// A floating-point number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// Several strings.
    Texts(Vec<String>),
}

impl AttributeValue {
    /// Returns the text; `None` if the value is not one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Shared(text) => Some(text),
            Self::Integer(_) | Self::Number(_) | Self::Boolean(_) | Self::Texts(_) => None,
        }
    }

    /// Returns the whole number; `None` if the value is not one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) | Self::Shared(_) | Self::Number(_) | Self::Boolean(_) | Self::Texts(_) => None,
        }
    }

    fn heap_size(&self) -> usize {
        match self {
            Self::Text(Cow::Owned(text)) => text.len(),
            Self::Texts(texts) => texts.iter().map(|text| text.len() + size_of::<String>()).sum(),
            Self::Text(Cow::Borrowed(_)) | Self::Shared(_) | Self::Integer(_) | Self::Number(_) | Self::Boolean(_) => 0,
        }
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Arc<str>> for AttributeValue {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(is_true: bool) -> Self {
        Self::Boolean(is_true)
    }
}

impl From<Vec<String>> for AttributeValue {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

/// Maximum size in bytes of the code of a failure in a span, before it is cut.
const MAX_CODE: usize = 256;

/// Maximum size in bytes of the message of a failure in a span, before it is cut. A message may quote data of a
/// component.
const MAX_MESSAGE: usize = 16 << 10;

/// The failure with which a span ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanError {
    /// The stable code.
    pub code: String,
    /// The failure as text, as clients get it.
    pub message: String,
}

impl SpanError {
    /// Creates the failure. A code of more than 256 bytes is cut, and a message of more than 16 KiB.
    pub(super) fn new(code: &str, message: &str) -> Self {
        Self { code: truncate_bytes(code, MAX_CODE), message: truncate_bytes(message, MAX_MESSAGE) }
    }
}

/// A span that has ended.
#[derive(Debug)]
pub struct SpanData {
    /// The operation and its subject, such as `execute_tool roll_die`.
    pub name: Cow<'static, str>,
    pub operation: SpanOperation,
    /// The trace of the run.
    pub trace: Arc<Trace>,
    /// Identifies the span.
    pub span_id: u64,
    /// The span that this one is part of; `None` for the span of the run.
    pub parent_span_id: Option<u64>,
    /// When it began.
    pub start: SystemTime,
    pub duration: Duration,
    /// `None` if it has not failed.
    pub error: Option<SpanError>,
    /// The ids of the events that the agent has emitted, at most 1000.
    pub event_ids: Vec<String>,
    /// The first log lines of guests, if content is captured.
    pub logs: Vec<SpanLog>,
    /// The input and the output, if content is captured.
    pub content: Option<SpanContent>,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) size: usize,
}

impl SpanData {
    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((key, value.into()));
    }

    /// Sets an attribute if it has a value.
    pub fn set_some(&mut self, key: &'static str, value: Option<impl Into<AttributeValue>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    pub(super) fn set_usage(&mut self, usage: Option<&UsageMetadata>) {
        let Some(usage) = usage else { return };
        self.attributes.retain(|(key, _)| !key.starts_with("gen_ai.usage."));
        let thoughts = usage.thoughts_token_count;
        let output = usage.candidates_token_count.map(|tokens| tokens.saturating_add(thoughts.unwrap_or_default()));
        self.set_some("gen_ai.usage.input_tokens", usage.input());
        self.set_some("gen_ai.usage.output_tokens", output);
        self.set_some("gen_ai.usage.reasoning.output_tokens", thoughts);
        self.set_some("gen_ai.usage.cache_read.input_tokens", usage.cached_content_token_count);
    }

    /// Returns an attribute that was set on this span; `None` for attributes of its trace.
    pub fn get(&self, key: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns the time of its end.
    pub fn end(&self) -> SystemTime {
        self.start + self.duration
    }

    /// Returns all attributes, without [`content`](Self::content).
    pub fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let Trace { session, invocation_id, .. } = &*self.trace;
        let mut attributes = Vec::with_capacity(self.attributes.len() + 8);
        attributes.extend(self.operation.name().map(|name| ("gen_ai.operation.name", name.into())));
        // The provider of a model call is known once it has begun.
        attributes.extend(self.get(PROVIDER_NAME).is_none().then(|| (PROVIDER_NAME, "hatchery".into())));
        attributes.extend([
            ("gen_ai.conversation.id", session.id.clone().into()),
            ("gcp.vertex.agent.session_id", session.id.clone().into()),
            ("gcp.vertex.agent.invocation_id", invocation_id.clone().into()),
        ]);
        attributes.extend(self.attributes.iter().cloned());
        if !self.event_ids.is_empty() {
            attributes.push(("gcp.vertex.agent.associated_event_ids", self.event_ids.clone().into()));
        }
        if let Some(SpanError { code, message }) = &self.error {
            attributes.extend([("error.type", code.clone().into()), ("error.message", message.clone().into())]);
        }
        attributes
    }

    /// Returns about how many bytes of memory the span takes.
    pub fn size(&self) -> usize {
        self.size
    }

    pub(super) fn measure(&self) -> usize {
        let attributes = self.attributes.iter().map(|(_, value)| value.heap_size() + size_of::<AttributeValue>());
        let event_ids = self.event_ids.iter().map(|id| id.len() + size_of::<String>());
        let error = self.error.iter().map(|error| error.code.len() + error.message.len());
        let content = self.content.as_ref().map_or(0, SpanContent::size);
        let logs = self.logs.iter().map(SpanLog::size);
        size_of::<Self>()
            + self.name.len()
            + attributes.chain(event_ids).chain(error).chain(logs).sum::<usize>()
            + content
    }
}
