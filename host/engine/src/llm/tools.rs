//! Execution of the tool calls in a response, in parallel or sequentially. The results are one event.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{
    Claim, Content, Event, EventActions, EventData, FunctionCall, FunctionResponse, JsonMap, Part, PartData, RunError,
    ToolConfirmation, ToolExecution,
};
use tokio::task::JoinSet;

use super::LoopDriver;
use crate::run::unknown_tool;
use crate::tasks::{in_current_scope, propagate_panic};
use crate::tools::confirmation::{self, AnsweredCall, UserAnswer};
use crate::tools::credential;
use crate::tools::pipeline::{ToolCaller, ToolPipeline, ToolResponse, error_map};

/// The results of the calls in one response.
pub(super) struct CallResults {
    /// `None` if all results come later.
    pub(super) event: Option<Arc<Event>>,
    /// Ids of the calls whose results come later, or that wait for a person.
    pub(super) pending_ids: Vec<String>,
}

/// A call with a person's answer. `None` if nothing was requested.
type PendingCall = (FunctionCall, Option<UserAnswer>);

/// Returns the key of a call in the journal of the run: the id of the request that a person has answered, or the
/// position of the call in the model's response.
fn call_key((_, answer): &PendingCall, model_event: Option<&str>, index: usize) -> Option<String> {
    match answer {
        Some(answer) => Some(answer.request_id().to_owned()),
        None => model_event.map(|event| format!("{event}/{index}")),
    }
}

impl LoopDriver<'_> {
    /// Runs the tool calls in `answer`.
    pub(super) async fn call_tools(&self, answer: &Event) -> Result<CallResults, RunError> {
        let calls: Vec<_> = answer.function_calls().map(|call| (call.clone(), None)).collect();
        self.run_calls(calls, Some(&answer.id), &answer.long_running_tool_ids).await
    }

    /// Runs calls for which a person has answered a request.
    pub(super) async fn call_answered(&self, answered: Vec<AnsweredCall>) -> Result<CallResults, RunError> {
        let is_long_running = |call: &&FunctionCall| self.tool(&call.name).is_some_and(|tool| tool.is_long_running());
        let calls = answered.iter().map(|it| &it.call);
        let long_running: Vec<_> = calls.filter(is_long_running).filter_map(|call| call.id.clone()).collect();
        let due = answered.into_iter().map(|it| (it.call, Some(it.answer)));
        self.run_calls(due.collect(), None, &long_running).await
    }

    /// Runs `calls` and returns their results as one event, in call order. Confirmation and credential requests are
    /// emitted as a separate event first. `long_running` are the ids of calls of long-running tools. `model_event` is
    /// the id of the response with the calls. `None` if a person has answered for them.
    async fn run_calls(
        &self,
        calls: Vec<PendingCall>,
        model_event: Option<&str>,
        long_running: &[String],
    ) -> Result<CallResults, RunError> {
        let mut request = self.replay.next(self.cx, confirmation::is_request).await?;
        let live = || self.emit_answers(calls, model_event, &mut request);
        let event = self.replay.replay_or_run_optional(self.cx, is_answer, live).await?;
        let pending_ids = pending_ids(request.as_deref(), long_running, event.as_deref());
        Ok(CallResults { event, pending_ids })
    }

    /// Runs the calls and emits their results. `request` is the event with the requests from before the run was
    /// interrupted, which are not repeated.
    async fn emit_answers(
        &self,
        calls: Vec<PendingCall>,
        model_event: Option<&str>,
        request: &mut Option<Arc<Event>>,
    ) -> Result<Option<Arc<Event>>, RunError> {
        let (content, actions, final_args) = self.run_tools(&calls, model_event).await?;
        let final_calls = calls.iter().map(|(call, _)| call).zip(&final_args);
        if request.is_none()
            && let Some(data) = confirmation::request(final_calls, &actions)
        {
            *request = Some(self.cx.emit_with_proof(data, Claim::Confirmation).await?);
        }
        let is_empty = content.is_none() && actions.is_empty();
        if is_empty && !self.run.app.settings.resumable {
            return Ok(None);
        }
        // A resumed run must find that its tools have run, even if they have no results yet.
        let ids = calls.iter().filter(|_| is_empty).filter_map(|(call, _)| call.id.clone());
        let long_running_tool_ids = ids.collect();
        let transfers = [&actions, &*self.cx.call.actions()].iter().any(|actions| actions.transfer_to_agent.is_some());
        let data = EventData { content, actions, long_running_tool_ids, ..EventData::default() };
        let event =
            if transfers { self.cx.emit_with_proof(data, Claim::Transfer).await? } else { self.cx.emit(data).await? };
        Ok(Some(event))
    }

    /// Runs the calls. Returns the content with their results, their changes, and the final arguments of each call.
    async fn run_tools(
        &self,
        calls: &[PendingCall],
        model_event: Option<&str>,
    ) -> Result<(Option<Arc<Content>>, EventActions, Vec<JsonMap>), RunError> {
        let is_only = calls.len() == 1;
        let prepare = |(index, call): (usize, &PendingCall)| {
            let key = call_key(call, model_event, index);
            self.prepare(call.clone(), key, is_only)
        };
        let calls: Vec<_> = calls.iter().enumerate().map(prepare).collect();
        let invocation = &self.cx.call.invocation;
        let is_parallel = invocation.run_config.tool_execution == ToolExecution::Parallel && calls.len() > 1;
        let before = invocation.state();
        let results = if is_parallel { run_in_parallel(calls).await? } else { run_sequentially(calls).await? };
        let mut parts = Vec::with_capacity(results.len());
        let mut final_args = Vec::with_capacity(results.len());
        let mut actions = EventActions::default();
        for result in results {
            parts.extend(result.response.map(|response| Part::from(PartData::FunctionResponse(response))));
            if is_parallel {
                actions.merge_concurrent(result.actions, &before)
            } else {
                actions.merge(result.actions)
            }
            final_args.push(result.args);
        }
        Ok(((!parts.is_empty()).then(|| Arc::new(Content::new("user", parts))), actions, final_args))
    }

    fn prepare(&self, (call, answer): PendingCall, key: Option<String>, is_only: bool) -> PreparedCall {
        let (decision, decided) = match answer {
            Some(UserAnswer::Decision { confirmation, request }) => {
                // Clients need not repeat the question that the person was asked.
                let hint = request.question.hint.clone();
                (Some(ToolConfirmation { hint, ..confirmation }), Some(request))
            }
            // The tool finds the credential where it looks for it.
            Some(UserAnswer::Credential { .. }) | None => (None, None),
            Some(UserAnswer::CredentialDeclined { .. }) => {
                let pipeline = Err(credential::declined_message(&call.name));
                return PreparedCall { call, pipeline };
            }
        };
        let cx = self.cx.call.for_call(call.id.as_deref()).with_call_key(key).with_confirmation(decision);
        let cx = cx.with_progress_sink(self.cx.sink.clone());
        let plugins = &self.run.plugins;
        let pipeline = match self.tool(&call.name) {
            Some(tool) => {
                Ok(ToolPipeline::new(tool, plugins, self.hooks(), ToolCaller::Model { decided, is_only }, cx))
            }
            None => Err(unknown_tool(&call.name, &self.tools)),
        };
        PreparedCall { call, pipeline }
    }
}

/// Returns the ids of the calls that wait for the user: the requests, and the long-running calls for which a later result
/// is expected.
fn pending_ids(request: Option<&Event>, long_running: &[String], answered: Option<&Event>) -> Vec<String> {
    let requests = request.into_iter().flat_map(|event| &event.long_running_tool_ids);
    let closed: HashSet<&str> = answered.into_iter().flat_map(Event::closed_calls).collect();
    let unfinished = long_running.iter().filter(|id| !closed.contains(id.as_str()));
    requests.chain(unfinished).cloned().collect()
}

/// Returns true for an event with results of tools, or with the changes of tools whose results are pending.
fn is_answer(event: &Event) -> bool {
    event.function_responses().next().is_some() || (event.content.is_none() && event.actions.end_of_agent != Some(true))
}

/// A call that is ready to run.
struct PreparedCall {
    call: FunctionCall,
    /// The error message if there is no tool of this name, or it lacks a credential.
    pipeline: Result<ToolPipeline, String>,
}

/// The result of a call, with its changes and its arguments after all hooks.
struct CallResult {
    /// `None` if the result of a long-running tool is still pending.
    response: Option<FunctionResponse>,
    actions: EventActions,
    args: JsonMap,
}

impl PreparedCall {
    /// Runs the call. `state_delta` are the changes of the calls before it.
    async fn run(self, state_delta: JsonMap) -> Result<CallResult, RunError> {
        let FunctionCall { id, name, args, .. } = self.call;
        let ToolResponse { response, actions, args } = match self.pipeline {
            Ok(pipeline) => pipeline.respond(args, state_delta).await?,
            Err(message) => {
                ToolResponse { response: Some(error_map(&message)), actions: EventActions::default(), args }
            }
        };
        let response = response.map(|response| FunctionResponse { id, name, response, ..FunctionResponse::default() });
        Ok(CallResult { response, actions, args })
    }
}

/// Runs one call after the other. Each sees the state as the calls before it have changed it.
async fn run_sequentially(calls: Vec<PreparedCall>) -> Result<Vec<CallResult>, RunError> {
    let mut results = Vec::with_capacity(calls.len());
    let mut state_delta = JsonMap::new();
    for call in calls {
        let result = call.run(state_delta.clone()).await?;
        state_delta.extend(result.actions.state_delta.clone());
        results.push(result);
    }
    Ok(results)
}

/// Runs each call in a separate task. All see the state from before the calls. Returns the results in the order of
/// the calls.
async fn run_in_parallel(calls: Vec<PreparedCall>) -> Result<Vec<CallResult>, RunError> {
    let mut tasks = JoinSet::new();
    for (index, call) in calls.into_iter().enumerate() {
        let call = async move { call.run(JsonMap::new()).await.map(|result| (index, result)) };
        tasks.spawn(in_current_scope(call));
    }
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(task) = tasks.join_next().await {
        match propagate_panic(task) {
            Ok(result) => results.push(result),
            Err(error) => {
                // The other calls must not have effects after the run has failed.
                tasks.shutdown().await;
                return Err(error);
            }
        }
    }
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
