//! Plugin that answers with the recorded events of a session instead of calling models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallContext, Callback, Event, EventActions, FunctionResponse, JsonMap, LlmRequest, LlmResponse, Model,
    ModelCapabilities, ModelError, ModelErrorKind, Plugin, ResponseStream, StreamingMode, Tool, ToolError, USER_AUTHOR,
};
use serde_json::Value;

use crate::intercepted_tool::{InterceptedTool, ToolInterceptor};

/// Answers for the models of agents, and for agents that are called as tools, whose own events are not part of the
/// session. Clones share the recording.
#[derive(Clone)]
pub(super) struct RecordedAnswers(Arc<Inner>);

struct Inner {
    /// The events of the agents.
    events: Vec<Arc<Event>>,
    /// The events with an answer, by agent.
    answers: BTreeMap<String, Vec<Arc<Event>>>,
    /// The first call that has no recorded answer.
    problem: Mutex<Option<String>>,
}

impl RecordedAnswers {
    pub(super) fn new(events: impl Iterator<Item = Arc<Event>>) -> Self {
        let events: Vec<_> = events.collect();
        let mut answers: BTreeMap<String, Vec<Arc<Event>>> = BTreeMap::new();
        for event in events.iter().filter(|event| is_answer(event)) {
            answers.entry(event.author.clone()).or_default().push(event.clone());
        }
        Self(Arc::new(Inner { events, answers, problem: Mutex::default() }))
    }

    /// Returns the first call since the last time that had no recorded answer.
    pub(super) fn take_problem(&self) -> Option<String> {
        self.0.problem.lock_unpoisoned().take()
    }

    fn report(&self, problem: String) -> String {
        self.0.problem.lock_unpoisoned().get_or_insert_with(|| problem.clone());
        problem
    }

    /// Returns the answer of an agent's model. The agent has as many answers in the recording before it as it has now:
    /// those of callbacks count, too.
    fn model_answer(&self, cx: &CallContext) -> Result<LlmResponse, String> {
        let agent = &*cx.agent;
        if cx.invocation.is_in_tool || cx.invocation.parent.is_some() {
            let problem = format!("agent `{agent}` called its model in a run of its own, which is not recorded");
            return Err(self.report(problem));
        }
        let events = cx.invocation.events();
        let before = events.iter().filter(|event| event.author == agent && is_answer(event)).count();
        match self.0.answers.get(agent).and_then(|answers| answers.get(before)) {
            Some(event) => Ok(response(event)),
            None => Err(self.report(format!("agent `{agent}` called its model, but has no more recorded answers"))),
        }
    }

    /// Returns the recorded response to a call, with its event: the one with this id, or else the first one of the tool.
    fn tool_response(&self, tool: &str, id: Option<&str>) -> Option<(&Event, &FunctionResponse)> {
        let responses = || {
            let responses = self.0.events.iter().flat_map(|event| {
                let event: &Event = event;
                event.function_responses().map(move |response| (event, response))
            });
            responses.filter(move |(_, response)| response.name == tool)
        };
        let same = responses().find(|(_, response)| id.is_some() && response.id.as_deref() == id);
        same.or_else(|| responses().next())
    }
}

/// Returns true for an event with an answer of a model, or of code in its place.
fn is_answer(event: &Event) -> bool {
    let has_answer = event.content.as_ref().is_some_and(|content| {
        // Results of tools have the role of the user.
        content.role.as_deref() != Some("user") && !content.parts.is_empty()
    });
    let is_refusal = event.error_code.is_some() && !event.is_run_failure();
    let is_of_agent = event.author != USER_AUTHOR && !event.partial && event.actions.compaction.is_none();
    is_of_agent && (has_answer || is_refusal)
}

fn response(event: &Event) -> LlmResponse {
    LlmResponse {
        content: event.content.as_deref().cloned(),
        finish_reason: event.finish_reason.clone(),
        error_code: event.error_code.clone(),
        error_message: event.error_message.clone(),
        grounding_metadata: event.grounding_metadata.as_deref().cloned(),
        ..LlmResponse::default()
    }
}

impl Callback for RecordedAnswers {
    fn name(&self) -> &str {
        "session_test"
    }
}

impl Plugin for RecordedAnswers {
    fn model(
        &self,
        cx: &CallContext,
        name: &str,
        resolved: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        // `resolved` may be an error: a test needs no API keys.
        let models = &cx.invocation.services.models;
        let capabilities = resolved.map_or_else(|_| models.capabilities(name), |model| model.capabilities());
        Ok(Arc::new(RecordedModel { answers: self.clone(), cx: cx.clone(), capabilities }))
    }

    fn tool(&self, _: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        if tool.agents().is_none() {
            return tool;
        }
        Arc::new(InterceptedTool { tool, interceptor: self.clone() })
    }
}

/// A model that answers from the recording.
struct RecordedModel {
    answers: RecordedAnswers,
    cx: CallContext,
    capabilities: ModelCapabilities,
}

#[async_trait]
impl Model for RecordedModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let answer = self.answers.model_answer(&self.cx);
        let answer = answer.map_err(|problem| ModelError::new(ModelErrorKind::BadRequest, &request.model, problem))?;
        let answer = LlmResponse { partial: streaming_mode == StreamingMode::On, ..answer };
        Ok(futures::stream::iter([Ok(answer)]).boxed())
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }
}

#[async_trait]
impl ToolInterceptor for RecordedAnswers {
    async fn call(&self, tool: &dyn Tool, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = &tool.declaration().name;
        let Some((event, response)) = self.tool_response(name, cx.function_call_id.as_deref()) else {
            let problem = format!("agent `{name}` was called as a tool, but has no recorded answer");
            return Err(ToolError::Recoverable(self.report(problem)));
        };
        cx.actions().merge(EventActions {
            state_delta: event.actions.state_delta.clone(),
            skip_summarization: event.actions.skip_summarization,
            ..EventActions::default()
        });
        Ok(Value::Object(response.response.clone()))
    }
}
