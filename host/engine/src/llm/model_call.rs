//! One model call: the request, callbacks around it, streaming, and the event of the response.

use std::sync::Arc;

use futures::StreamExt;
use hatchery_core::{
    Aggregator, Capability, Claim, Content, Event, EventData, LlmAgent, LlmRequest, LlmResponse, Model, ModelError,
    ModelErrorKind, PartData, RunError, SpanOperation, StreamingMode, new_event_id, new_function_call_id,
};
use serde_json::Value;

use super::{LoopDriver, code, output_schema, planning, request, transfer};

impl LoopDriver<'_> {
    /// Calls the model, unless a callback answers instead. Returns the event of the complete response.
    pub(super) async fn call_model(&self) -> Result<Arc<Event>, RunError> {
        let (model, mut request) = request::build(self).await?;
        let call = &self.cx.call;
        // Clients join the chunks of a response with the complete one by the event's id.
        let event_id = new_event_id();
        if let Some(response) = self.hooks().before_model(call, &mut request).await? {
            call.invocation.count_llm_call(&call.agent)?;
            return self.emit_response(event_id, response).await;
        }
        let mut span = call.span().start(SpanOperation::Model, "");
        request.progress = span.begin_model_call();
        let request = Arc::new(request);
        span.record(|data| data.set("gcp.vertex.agent.event_id", event_id.clone()));
        span.set_request(&request);
        let mut aggregator = Aggregator::default();
        let streamed = self.stream_model(model.as_ref(), &request, &event_id, &mut aggregator).await;
        let result = streamed.and_then(|()| {
            let empty = || ModelError::new(ModelErrorKind::BadResponse, &request.model, "its response is empty");
            aggregator.finish().ok_or_else(|| empty().into())
        });
        span.end();
        span.set_progress(&request.progress);
        let response = match result.inspect_err(|error| span.set_error(error)) {
            Ok(response) => self.recover_blocked(&request, response).await?,
            Err(RunError::Model(error)) => self.recover_model_call(&request, error).await?,
            Err(error) => return Err(error),
        };
        let response = self.call_after_model(response).await?;
        let event = self.emit_response(event_id, response).await?;
        span.set_response(&event);
        span.finish();
        Ok(event)
    }

    /// Collects the model's response in `aggregator`, and emits its chunks if the run is streamed.
    async fn stream_model(
        &self,
        model: &dyn Model,
        request: &LlmRequest,
        event_id: &str,
        aggregator: &mut Aggregator,
    ) -> Result<(), RunError> {
        let call = &self.cx.call;
        let streaming_mode = call.invocation.run_config.streaming_mode;
        let mut responses = call.invocation.generate(&call.agent, model, request.clone(), streaming_mode).await?;
        let cancel = &call.invocation.cancel;
        let mut splitter = planning::StreamSplitter::new(self.llm.planner.as_ref());
        while let Some(response) = cancel.run_until_cancelled(responses.next()).await.ok_or(RunError::Cancelled)? {
            let mut response = response?;
            if response.partial {
                request.progress.set_responded();
            }
            assign_call_ids(&mut response);
            if streaming_mode == StreamingMode::On && response.partial {
                let chunk = self.call_after_model(response.clone()).await?;
                if let Some(chunk) = splitter.mark_thoughts(chunk) {
                    self.cx.emit(response_event(event_id.into(), LlmResponse { partial: true, ..chunk })).await?;
                }
            }
            aggregator.push(response);
        }
        Ok(())
    }

    /// Returns the response of the first callback that answers for a failed model call, or else the error.
    pub(super) async fn recover_model_call(
        &self,
        request: &LlmRequest,
        error: ModelError,
    ) -> Result<LlmResponse, RunError> {
        self.hooks().on_model_error(&self.cx.call, request, &error).await?.ok_or_else(|| error.into())
    }

    /// Returns the response of the first callback that answers for a blocked or malformed response, or else
    /// `response`.
    async fn recover_blocked(&self, request: &LlmRequest, response: LlmResponse) -> Result<LlmResponse, RunError> {
        let Some(code) = response.error_code.as_ref().filter(|_| response.content.is_none()) else {
            return Ok(response);
        };
        let message = response.error_message.as_ref().map_or(code.clone(), |message| format!("{code}: {message}"));
        let error = ModelError::new(ModelErrorKind::BadResponse, &request.model, message);
        Ok(self.hooks().on_model_error(&self.cx.call, request, &error).await?.unwrap_or(response))
    }

    pub(super) async fn call_after_model(&self, response: LlmResponse) -> Result<LlmResponse, RunError> {
        Ok(self.hooks().after_model(&self.cx.call, &response).await?.unwrap_or(response))
    }

    /// Emits a complete response. One without content, which the provider blocked or cannot read, ends the agent's
    /// turn.
    pub(super) async fn emit_response(
        &self,
        event_id: String,
        mut response: LlmResponse,
    ) -> Result<Arc<Event>, RunError> {
        assign_call_ids(&mut response);
        self.extract_code(&mut response);
        planning::mark_thoughts(self.llm.planner.as_ref(), &mut response);
        response.partial = false;
        let mut data = response_event(event_id, response);
        data.long_running_tool_ids = self.long_running_calls(&data);
        self.save_output(&mut data).await?;
        if data.error_code.is_some() && data.content.is_none() {
            data.actions.end_of_agent = Some(true);
        }
        let next_agent = self.cx.call.actions().transfer_to_agent.clone();
        if let Some(name) = &next_agent {
            transfer::find_target(self.run, self.id, name)?;
        }
        match (data.long_running_tool_ids.is_empty(), next_agent) {
            (false, _) => self.cx.emit_with_proof(data, Claim::Call).await,
            (true, Some(_)) => self.cx.emit_with_proof(data, Claim::Transfer).await,
            (true, None) => self.cx.emit(data).await,
        }
    }

    /// Returns the ids of the calls of long-running tools.
    fn long_running_calls(&self, data: &EventData) -> Vec<String> {
        let calls = data.content.iter().flat_map(|content| content.function_calls());
        calls
            .filter(|call| self.tool(&call.name).is_some_and(|tool| tool.is_long_running()))
            .filter_map(|call| call.id.clone())
            .collect()
    }

    /// Emits the answer that the model has given by a tool call.
    pub(super) async fn emit_answer(&self, answer: String) -> Result<Arc<Event>, RunError> {
        let mut data = response_event(new_event_id(), LlmResponse::text(answer));
        self.save_output(&mut data).await?;
        self.cx.emit(data).await
    }

    /// Saves the text of a final answer under the agent's `output_key`, as JSON if the agent has an output schema.
    async fn save_output(&self, data: &mut EventData) -> Result<(), RunError> {
        let LlmAgent { output_key, output_schema, .. } = self.llm;
        if output_key.is_none() && output_schema.is_none() {
            return Ok(());
        }
        let Some(content) = &data.content else { return Ok(()) };
        let text = content.text();
        let is_final = content.function_calls().next().is_none()
            && !code::has_pending_code(self.llm, content)
            && !code::ends_in_result(content);
        if !is_final || text.is_empty() {
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

/// Assigns ids to function calls that have none.
pub fn assign_call_ids(response: &mut LlmResponse) {
    for part in response.content.iter_mut().flat_map(|content| &mut content.parts) {
        if let PartData::FunctionCall(call) = &mut part.data
            && call.id.as_ref().is_none_or(String::is_empty)
        {
            call.id = Some(new_function_call_id());
        }
    }
}

pub(super) fn response_event(id: String, response: LlmResponse) -> EventData {
    let LlmResponse {
        content,
        partial,
        turn_complete,
        interrupted,
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
        turn_complete,
        interrupted,
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
