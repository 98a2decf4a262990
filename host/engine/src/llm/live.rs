//! A live conversation of an agent: the user's requests are sent to the model as they arrive, and the model's responses
//! to the client. Tools, hooks, limits and the event log are the same as for model calls.
//!
//! Chunks are sent and not stored. A stored event has the whole text, or the whole transcription of speech, once the
//! model calls a tool, is interrupted or has finished its turn.

mod outbox;
mod recording;
mod speech;
mod streams;
mod tools;
mod turn_end;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Content, Event, EventData, FunctionCall, LiveConnection, LiveRequest, LiveResponse, LlmRequest, LlmResponse,
    ModelError, ModelErrorKind, Part, PartData, QueuedRequest, RunError, Span, SpanOperation, UsageMetadata,
    new_event_id,
};
use serde_json::json;

use super::model_call::response_event;
use super::{LoopDriver, request};
use crate::run::{AgentOutcome, LiveInput, LiveMessage};
use outbox::Outbox;
use recording::Recording;
use speech::Speech;
use streams::RunningStreams;
use tools::{FinishedBatch, RunningBatches, RunningTools};
use turn_end::{ModelText, TurnEnd};

impl LoopDriver<'_> {
    /// Converses until the queue of `input` is closed, the agent transfers, or the user answers a call of a tool.
    pub(super) async fn converse(&self, input: &LiveInput) -> Result<AgentOutcome, RunError> {
        // Events from before an interruption of the run are history.
        while self.replay.next(self.cx, |_| true).await?.is_some() {}
        let (model, mut request) = request::build(self).await?;
        let call = &self.cx.call;
        let settings = call.invocation.run_config.live.clone().unwrap_or_default();
        request.live_connect_config = Some(settings.with_defaults());
        let first = input.first.lock_unpoisoned().take();
        if let Some(response) = self.hooks().before_model(call, &mut request).await? {
            call.invocation.count_llm_call(&call.agent)?;
            return self.answer_in_place(input, first.is_some(), response).await;
        }
        let recordings = self.recordings().await?;
        request.progress = call.span().begin_model_call();
        let request = Arc::new(request);
        let started = Instant::now();
        let error = match call.invocation.connect(&call.agent, model.as_ref(), LlmRequest::clone(&request)).await {
            Ok(connection) => {
                let _conversing = input.conversing.set();
                return Conversation::new(self, input, &*connection, &request, recordings).run(first).await;
            }
            Err(error) => error,
        };
        let mut span = call.span().start_at(SpanOperation::Model, "", Some(started));
        span.set_request(&request);
        span.set_progress(&request.progress);
        span.set_error(&error);
        span.finish();
        let RunError::Model(error) = error else { return Err(error) };
        let response = self.recover_model_call(&request, error).await?;
        self.answer_in_place(input, first.is_some(), response).await
    }

    /// Returns the recordings of a conversation; `None` if its speech is not saved.
    async fn recordings(&self) -> Result<Option<[Recording; 2]>, RunError> {
        let call = &self.cx.call;
        if !call.invocation.run_config.save_live_audio_as_artifacts {
            return Ok(None);
        }
        let known = call.list_artifacts().await?;
        Ok(Some(["input", "output"].map(|side| Recording::new(side, &call.invocation.id, &known))))
    }

    /// Emits the answer of a callback instead of the model's. Stops the queue if the user has begun to speak.
    async fn answer_in_place(
        &self,
        input: &LiveInput,
        is_speaking: bool,
        response: LlmResponse,
    ) -> Result<AgentOutcome, RunError> {
        if is_speaking {
            input.queue.stop();
        }
        self.emit_response(new_event_id(), LlmResponse { turn_complete: Some(true), ..response }).await?;
        Ok(AgentOutcome::Done)
    }
}

/// A live conversation in progress.
struct Conversation<'a> {
    driver: &'a LoopDriver<'a>,
    input: &'a LiveInput,
    connection: &'a dyn LiveConnection,
    request: &'a Arc<LlmRequest>,
    tools: RunningTools<'a>,
    outbox: Outbox<'a>,
    streams: RunningStreams,
    /// The user's speech that is not stored yet.
    user_speech: Speech,
    /// The model's speech that is not stored yet.
    model_speech: Speech,
    /// The model's text that is not stored yet.
    model_text: ModelText,
    /// The speech of the user and of the model; `None` if it is not saved.
    recordings: Option<[Recording; 2]>,
    usage: Option<UsageMetadata>,
    /// The current step of the model, which ends with tool calls or with the turn.
    span: Option<Span>,
    /// The number of turns that the model has begun.
    turns: u32,
    is_in_turn: bool,
    /// True once the conversation ends with the turn of the model.
    is_ending: bool,
}

impl<'a> Conversation<'a> {
    fn new(
        driver: &'a LoopDriver<'a>,
        input: &'a LiveInput,
        connection: &'a dyn LiveConnection,
        request: &'a Arc<LlmRequest>,
        recordings: Option<[Recording; 2]>,
    ) -> Self {
        Self {
            driver,
            input,
            connection,
            request,
            tools: RunningTools::default(),
            outbox: Outbox::new(connection),
            streams: RunningStreams::open(&driver.cx.call.invocation.live_streams),
            user_speech: Speech::default(),
            model_speech: Speech::default(),
            model_text: ModelText::new(),
            recordings,
            usage: None,
            span: None,
            turns: 0,
            is_in_turn: false,
            is_ending: false,
        }
    }

    /// Runs the conversation until its end. `first` is the first request.
    async fn run(mut self, first: Option<QueuedRequest>) -> Result<AgentOutcome, RunError> {
        let cancel = self.driver.cx.call.invocation.cancel.clone();
        let outcome = cancel.run_until_cancelled(self.exchange(first)).await.unwrap_or(Err(RunError::Cancelled));
        if let Err(error) = &outcome
            && let Some(mut span) = self.span.take()
        {
            span.set_error(error);
            span.finish();
        }
        let outcome = match outcome {
            Err(RunError::Model(error)) => {
                self.end_turn(TurnEnd::default()).await?;
                let response = self.driver.recover_model_call(self.request, error).await?;
                self.driver.emit_response(new_event_id(), response).await?;
                AgentOutcome::Done
            }
            Err(error) => {
                if !matches!(error, RunError::Cancelled | RunError::Stopped) {
                    // What was said is stored. The failure is the one to report, though.
                    let _ = self.end_turn(TurnEnd::default()).await;
                }
                return Err(error);
            }
            Ok(outcome) => outcome,
        };
        self.end_turn(TurnEnd::default()).await?;
        self.outbox.clear();
        self.connection.close().await;
        Ok(outcome)
    }

    /// Passes requests and responses on, until one of them ends the conversation.
    async fn exchange(&mut self, first: Option<QueuedRequest>) -> Result<AgentOutcome, RunError> {
        if let Some(first) = first {
            self.forward(first).await?;
        }
        let mut batches = RunningBatches::default();
        loop {
            batches.run_started(&mut self.tools);
            let has_sent_all = self.outbox.is_empty();
            let ended = tokio::select! {
                biased;
                batch = batches.next() => batches.run_during(self.respond(batch)).await?,
                sent = self.outbox.send_first() => {
                    sent?;
                    None
                }
                received = self.connection.receive() => batches.run_during(self.handle_received(received)).await?,
                request = self.input.queue.next(), if has_sent_all && !self.is_ending => match request {
                    Some(request) => batches.run_during(self.forward(request)).await?,
                    None => self.end_with_turn(),
                },
                message = self.streams.next(), if has_sent_all => {
                    self.outbox.push(message);
                    None
                }
            };
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
            if self.is_ending && !self.is_in_turn {
                return Ok(AgentOutcome::Done);
            }
        }
    }

    /// Ends the conversation after the queue: immediately if the client has closed it, after the current turn of the
    /// model if the host stops.
    fn end_with_turn(&mut self) -> Option<AgentOutcome> {
        self.is_ending = self.input.queue.is_stopped();
        (!self.is_ending).then_some(AgentOutcome::Done)
    }

    /// Handles a response of the model; `None` if it has closed the connection.
    async fn handle_received(
        &mut self,
        received: Option<Result<LiveResponse, ModelError>>,
    ) -> Result<Option<AgentOutcome>, RunError> {
        match received {
            Some(response) => self.handle(response?).await,
            None if self.input.queue.is_closed() => Ok(Some(AgentOutcome::Done)),
            None => Err(self.closed_by_model().into()),
        }
    }

    fn closed_by_model(&self) -> ModelError {
        let message = "the model has closed the live connection; connect again";
        ModelError::new(ModelErrorKind::Network, &self.request.model, message)
    }

    /// Adds a request to those that are sent to the model. A message is stored first. An answer to a call of a tool ends
    /// the conversation: the next run begins with it.
    async fn forward(&mut self, queued: QueuedRequest) -> Result<Option<AgentOutcome>, RunError> {
        let QueuedRequest { request, reservations } = queued;
        let (request, reservations) = match request {
            LiveRequest::Content { content, partial, state_delta } => {
                let message = {
                    let mut pending = self.input.pending.lock_unpoisoned();
                    pending.add(content.parts, state_delta, reservations)?;
                    if partial { None } else { pending.take() }
                };
                let Some(message) = message else { return Ok(None) };
                if message.content.function_responses().next().is_some() {
                    self.input.queue.put_back(message.into());
                    return Ok(Some(AgentOutcome::Done));
                }
                let LiveMessage { content, state_delta, reservations } = message;
                let stored = self.input.messages.append(self.driver.run, content, state_delta).await?;
                (LiveRequest::content(Arc::unwrap_or_clone(stored)), reservations)
            }
            LiveRequest::Blob(blob) => {
                let run = self.run_id();
                let recorded = self.recordings.as_mut().and_then(|[input, _]| input.add(&blob, run));
                self.save(recorded).await?;
                (LiveRequest::Blob(blob), reservations)
            }
            request => (request, reservations),
        };
        self.streams.pass_on(&request);
        self.outbox.push_from_client(request, reservations);
        Ok(None)
    }

    /// Handles a message of the model. Returns the outcome if it ends the conversation.
    async fn handle(&mut self, response: LiveResponse) -> Result<Option<AgentOutcome>, RunError> {
        match response {
            LiveResponse::Content(content) => {
                self.begin_turn()?;
                self.handle_content(content).await?;
            }
            LiveResponse::InputTranscription(chunk) => {
                let event = self.user_speech.add(&chunk);
                self.emit_user_speech(event).await?;
            }
            LiveResponse::OutputTranscription(chunk) => {
                self.begin_turn()?;
                let event = self.model_speech.add(&chunk);
                self.emit_model_speech(event, TurnEnd::default(), None).await?;
            }
            LiveResponse::ToolCalls(calls) => self.handle_calls(calls).await?,
            LiveResponse::ToolCallsCancelled(ids) => self.tools.cancel(&ids),
            LiveResponse::Interrupted => {
                self.end_turn(TurnEnd { interrupted: Some(true), ..TurnEnd::default() }).await?;
            }
            LiveResponse::TurnComplete => {
                self.end_turn(TurnEnd { turn_complete: Some(true), ..TurnEnd::default() }).await?;
            }
            LiveResponse::Usage(usage) => {
                let call = &self.driver.cx.call;
                call.invocation.count_live_tokens(&call.agent, &usage)?;
                self.usage.get_or_insert_default().add(&usage);
            }
        }
        Ok(None)
    }

    /// Starts tool calls. Calls that a callback has removed are answered, since the model waits for each response.
    async fn handle_calls(&mut self, calls: Vec<FunctionCall>) -> Result<(), RunError> {
        self.begin_turn()?;
        self.store_words(TurnEnd::default(), None).await?;
        let parts = calls.iter().cloned().map(|call| PartData::FunctionCall(call).into()).collect();
        let content = Some(Content::new("model", parts));
        let response = LlmResponse { content, usage_metadata: self.usage.take(), ..LlmResponse::default() };
        let response = self.driver.call_after_model(response).await?;
        let event = self.driver.emit_response(new_event_id(), response).await?;
        self.end_span(Some(&event));
        let kept: HashSet<_> = event.function_calls().filter_map(|call| call.id.as_deref()).collect();
        let is_removed = |call: &FunctionCall| call.id.as_deref().is_some_and(|id| !kept.contains(id));
        let removed: Vec<_> = calls.into_iter().filter(is_removed).map(tools::removal_response).collect();
        if !kept.is_empty() {
            self.tools.start(self.driver, event.clone());
        }
        if !removed.is_empty() {
            self.outbox.push(LiveRequest::ToolResponses(removed));
        }
        Ok(())
    }

    /// Begins a step of the model. A turn counts as a model call; the first one was counted with the connection.
    fn begin_turn(&mut self) -> Result<(), RunError> {
        if self.span.is_none() {
            let mut span = self.driver.cx.call.span().start(SpanOperation::Model, "");
            span.set_request(self.request);
            span.set_provider(&self.request.progress);
            self.span = Some(span);
        }
        if std::mem::replace(&mut self.is_in_turn, true) {
            return Ok(());
        }
        self.turns += 1;
        let call = &self.driver.cx.call;
        if self.turns > 1 { call.invocation.count_llm_call(&call.agent) } else { Ok(()) }
    }

    fn run_id(&self) -> &'a str {
        &self.driver.cx.call.invocation.id
    }

    /// Sends a chunk on. Speech is not kept.
    async fn handle_content(&mut self, content: Content) -> Result<(), RunError> {
        let is_media = |part: &Part| matches!(part.data, PartData::InlineData(_));
        let (media, other): (Vec<_>, Vec<_>) = content.parts.into_iter().partition(is_media);
        let chunk = |parts| LlmResponse {
            content: Some(Content { role: content.role.clone(), parts }),
            partial: true,
            ..LlmResponse::default()
        };
        for part in &media {
            if let PartData::InlineData(blob) = &part.data {
                let run = self.run_id();
                let recorded = self.recordings.as_mut().and_then(|[_, output]| output.add(blob, run));
                self.save(recorded).await?;
            }
        }
        if !media.is_empty() {
            self.driver.cx.emit(response_event(new_event_id(), chunk(media))).await?;
        }
        if !other.is_empty() {
            let chunk = chunk(other);
            let sent = self.driver.call_after_model(chunk.clone()).await?;
            let data = response_event(self.model_text.event_id.clone(), LlmResponse { partial: true, ..sent });
            self.driver.cx.emit(data).await?;
            self.model_text.text.push(chunk);
        }
        Ok(())
    }

    /// Ends the span of the model's step, with its last event.
    fn end_span(&mut self, event: Option<&Arc<Event>>) {
        let Some(mut span) = self.span.take() else { return };
        if let Some(event) = event {
            span.record(|data| data.set("gcp.vertex.agent.event_id", event.id.clone()));
            span.set_response(event);
        }
        span.finish();
    }

    /// Sends the results of tools to the model. A tool may have transferred to another agent.
    async fn respond(&mut self, batch: FinishedBatch) -> Result<Option<AgentOutcome>, RunError> {
        let event = match batch {
            FinishedBatch::Called(result) => result?,
            FinishedBatch::Cancelled(call) => {
                // The history needs a response to each call.
                let error = json!({"error": "the model has cancelled the call"});
                let content = tools::responses_to(&call, &error);
                let data = EventData { content: Some(Arc::new(content)), ..EventData::default() };
                tools::batch_context(self.driver.cx).emit(data).await?;
                self.tools.forget(&call);
                return Ok(None);
            }
        };
        let Some(event) = event else { return Ok(None) };
        if let Some(target) = &event.actions.transfer_to_agent {
            let target = super::transfer::find_target(self.driver.run, self.driver.id, target)?;
            return Ok(Some(AgentOutcome::Transfer(target)));
        }
        if event.actions.end_of_agent == Some(true) {
            return Ok(Some(AgentOutcome::Done));
        }
        let responses = self.tools.take_responses(&event);
        if !responses.is_empty() {
            self.outbox.push(LiveRequest::ToolResponses(responses));
        }
        self.streams.read_started();
        Ok(None)
    }
}
