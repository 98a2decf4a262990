//! An LLM agent's run: asks the [`Machine`] what comes next, and does it.

mod aggregate;
pub(crate) mod code;
pub(crate) mod examples;
pub(crate) mod instructions;
pub mod machine;
mod output_schema;
mod planning;
mod request;
pub(crate) mod tool_resolution;
mod tools;
pub(crate) mod transfer;

use std::sync::Arc;

use futures::StreamExt;
use hatchery_core::{
    AgentContext, AgentId, Capability, Claim, Content, Event, EventData, LlmAgent, LlmRequest, LlmResponse, Model,
    ModelError, ModelErrorKind, PartData, RunError, RunLimit, StreamingMode, Tool, new_event_id, new_function_call_id,
};
use serde_json::Value;

pub use aggregate::Aggregator;
pub use instructions::{Placeholder, placeholders};
use machine::{Machine, Next};

use crate::agents::past::Past;
use crate::agents::{Ended, Frame, Outcome};
use crate::plugins::HookChain;

/// One run of an LLM agent.
pub(crate) async fn run(
    frame: &Arc<Frame>,
    id: AgentId,
    llm: &LlmAgent,
    cx: &AgentContext,
    past: &Past,
) -> Result<Ended, RunError> {
    output_schema::ensure_usable(llm, &cx.call).await?;
    let mut step = Step { frame, id, llm, cx, past, tools: tool_resolution::own_tools(frame, id, llm) };
    let mut machine = Machine::new(machine::Settings {
        max_steps: llm.max_steps,
        pauses: frame.app.settings.resumable,
        runs_code: code::on_host(llm).is_some(),
        answers_by_tool: llm.output_schema.is_some(),
    });
    machine.user_answered([], frame.take_decided(&cx.call.agent));
    loop {
        match machine.next() {
            Next::CallModel => {
                step.resolve_tools().await?;
                machine.model_answered(step.call_model().await?);
            }
            Next::CallTools(answer) => {
                let (answer, pending) = step.call_tools(&answer).await?;
                machine.tools_answered(answer, pending);
            }
            Next::CallDecided(calls) => {
                step.resolve_tools().await?;
                let (answer, pending) = step.call_decided(calls).await?;
                machine.tools_answered(answer, pending);
            }
            Next::Answer(answer) => {
                let answer = match step.recall(|_| true).await? {
                    Some(stored) => stored,
                    None => {
                        past.go_live(&cx.call.agent)?;
                        step.say_answer(answer).await?
                    }
                };
                machine.model_answered(answer);
            }
            Next::RunCode(event) => {
                let result = match step.recall(|_| true).await? {
                    Some(result) => result,
                    None => {
                        past.go_live(&cx.call.agent)?;
                        step.run_code(&event).await?
                    }
                };
                machine.code_answered(&result);
            }
            Next::Pause(calls) => match past.answer_to(&calls) {
                Some(answer) => {
                    let answered = answer.function_responses().filter_map(|response| response.id.as_deref());
                    machine.user_answered(answered, frame.decided(&answer, &cx.call.agent));
                }
                None => return Ok(Ended::With(Outcome::Paused)),
            },
            Next::Transfer(target) => match frame.app.tree.find_agent(&target) {
                Some(target) => return Ok(Ended::HandingOver(target)),
                None => return Err(RunError::NotFound { what: "Agent", name: target, hint: String::new() }),
            },
            Next::LimitReached(max_steps) => {
                return Err(RunError::Limit {
                    limit: RunLimit::Steps,
                    value: u64::from(max_steps),
                    agent: cx.call.agent.to_string(),
                });
            }
            Next::Done => return Ok(Ended::With(Outcome::Done)),
        }
    }
}

/// What a step of the loop works with.
struct Step<'a> {
    frame: &'a Arc<Frame>,
    id: AgentId,
    llm: &'a LlmAgent,
    cx: &'a AgentContext,
    /// What the agent has done already.
    past: &'a Past,
    /// The agent's tools, what toolsets gave for this step, the tool that hands over when there is somebody to hand over to, and the one
    /// that takes an answer of a schema.
    tools: Vec<Arc<dyn Tool>>,
}

impl Step<'_> {
    /// The hooks of the agent's model and tool calls.
    fn hooks(&self) -> HookChain {
        self.frame.plugins.chain(&self.llm.callbacks)
    }

    /// The final event of a model call: as it is stored, or from the model or the callbacks that answer for it.
    async fn call_model(&self) -> Result<Arc<Event>, RunError> {
        match self.recall(|_| true).await? {
            Some(event) => Ok(event),
            None => {
                self.past.go_live(&self.cx.call.agent)?;
                self.ask_model().await
            }
        }
    }

    /// The agent's next stored event, if it fits. Those around the agent see it as they did the first time.
    async fn recall(&self, fits: impl FnOnce(&Event) -> bool) -> Result<Option<Arc<Event>>, RunError> {
        match self.past.take(&self.cx.call.agent, fits) {
            Some(event) => self.cx.sink.emit(event).await.map(Some),
            None => Ok(None),
        }
    }

    async fn ask_model(&self) -> Result<Arc<Event>, RunError> {
        let (model, mut request) = request::build(self).await?;
        let call = &self.cx.call;
        // The pieces of an answer and the whole of it are one event to a client, so they share an id.
        let event_id = new_event_id();
        if let Some(response) = self.hooks().before_model(call, &mut request).await? {
            call.invocation.count_llm_call(&call.agent)?;
            return self.answer(event_id, response).await;
        }
        let mut whole = Aggregator::default();
        let response = match self.ask(model.as_ref(), &request, &event_id, &mut whole).await {
            Ok(()) => match whole.finish() {
                Some(response) => response,
                None => {
                    let message = "its answer ended before it began";
                    let error = ModelError::new(ModelErrorKind::BadResponse, &request.model, message);
                    self.mended(&request, error).await?
                }
            },
            Err(RunError::Model(error)) => self.mended(&request, error).await?,
            Err(error) => return Err(error),
        };
        let response = self.after_model(response).await?;
        self.answer(event_id, response).await
    }

    /// Adds the model's answer up in `whole`, yielding the pieces when pieces are wanted.
    async fn ask(
        &self,
        model: &dyn Model,
        request: &LlmRequest,
        event_id: &str,
        whole: &mut Aggregator,
    ) -> Result<(), RunError> {
        let call = &self.cx.call;
        let streaming_mode = call.invocation.run_config.streaming_mode;
        let mut responses = call.invocation.generate(&call.agent, model, request.clone(), streaming_mode).await?;
        let cancel = &call.invocation.cancel;
        let mut splitter = planning::StreamSplitter::new(self.llm.planner.as_ref());
        while let Some(response) = cancel.run_until_cancelled(responses.next()).await.ok_or(RunError::Cancelled)? {
            let mut response = response?;
            name_calls(&mut response);
            if streaming_mode == StreamingMode::On && response.partial {
                let piece = self.after_model(response.clone()).await?;
                if let Some(piece) = splitter.mark_thoughts(piece) {
                    self.cx.emit(event_of(event_id.into(), LlmResponse { partial: true, ..piece })).await?;
                }
            }
            whole.push(response);
        }
        Ok(())
    }

    /// What callbacks make of a failed model call.
    async fn mended(&self, request: &LlmRequest, error: ModelError) -> Result<LlmResponse, RunError> {
        self.hooks().on_model_error(&self.cx.call, request, &error).await?.ok_or_else(|| error.into())
    }

    async fn after_model(&self, response: LlmResponse) -> Result<LlmResponse, RunError> {
        Ok(self.hooks().after_model(&self.cx.call, &response).await?.unwrap_or(response))
    }

    /// Stores and yields a whole answer.
    async fn answer(&self, event_id: String, mut response: LlmResponse) -> Result<Arc<Event>, RunError> {
        name_calls(&mut response);
        self.extract_code(&mut response);
        planning::mark_thoughts(self.llm.planner.as_ref(), &mut response);
        response.partial = false;
        let mut data = event_of(event_id, response);
        data.long_running_tool_ids = self.long_running_calls(&data);
        self.keep_output(&mut data).await?;
        let event = match data.long_running_tool_ids.is_empty() {
            true => self.cx.emit(data).await?,
            false => self.cx.emit_with_proof(data, Claim::Call).await?,
        };
        match (&event.error_code, &event.content) {
            (Some(code), None) => Err(RunError::AlreadyReported {
                code: code.clone(),
                message: event.error_message.clone().unwrap_or_else(|| format!("the model answered with {code}")),
            }),
            _ => Ok(event),
        }
    }

    /// Ids of the calls whose tools answer later.
    fn long_running_calls(&self, data: &EventData) -> Vec<String> {
        let calls = data.content.iter().flat_map(|content| content.function_calls());
        calls
            .filter(|call| self.tool(&call.name).is_some_and(|tool| tool.is_long_running()))
            .filter_map(|call| call.id.clone())
            .collect()
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.is_callable() && tool.declaration().name == name)
    }

    /// Says the answer that a tool has taken.
    async fn say_answer(&self, answer: String) -> Result<Arc<Event>, RunError> {
        let mut data = event_of(new_event_id(), LlmResponse::text(answer));
        self.keep_output(&mut data).await?;
        self.cx.emit(data).await
    }

    /// Puts a final answer's text into the state key that the agent names; as JSON when the answer has a schema.
    async fn keep_output(&self, data: &mut EventData) -> Result<(), RunError> {
        let LlmAgent { output_key, output_schema, .. } = self.llm;
        if output_key.is_none() && output_schema.is_none() {
            return Ok(());
        }
        let Some(content) = &data.content else { return Ok(()) };
        let text = content.text();
        let goes_on = content.function_calls().next().is_some()
            || code::has_pending_code(self.llm, content)
            || code::ends_in_result(content);
        if goes_on || text.is_empty() {
            return Ok(());
        }
        let value = match output_schema {
            Some(schema) => output_schema::parse_answer(schema, text, &self.cx.call).await?,
            None => Value::String(text),
        };
        if let Some(key) = output_key {
            self.llm.check(&self.cx.call, Capability::WriteState(key))?;
            data.actions.state_delta.insert(key.clone(), value);
        }
        Ok(())
    }
}

/// Gives ids to the function calls that came without one.
pub fn name_calls(response: &mut LlmResponse) {
    for part in response.content.iter_mut().flat_map(|content| &mut content.parts) {
        if let PartData::FunctionCall(call) = &mut part.data
            && call.id.as_ref().is_none_or(String::is_empty)
        {
            call.id = Some(new_function_call_id());
        }
    }
}

fn event_of(id: String, response: LlmResponse) -> EventData {
    let LlmResponse {
        content,
        partial,
        finish_reason,
        error_code,
        error_message,
        usage_metadata,
        model_version,
        grounding_metadata,
        avg_logprobs,
        custom_metadata,
    } = response;
    EventData {
        id,
        content: content.map(with_model_role).map(Arc::new),
        partial,
        finish_reason,
        error_code,
        error_message,
        usage_metadata: usage_metadata.map(Box::new),
        model_version,
        grounding_metadata: grounding_metadata.map(Box::new),
        avg_logprobs,
        custom_metadata: custom_metadata.map(Box::new),
        ..EventData::default()
    }
}

fn with_model_role(mut content: Content) -> Content {
    content.role.get_or_insert_with(|| "model".into());
    content
}
