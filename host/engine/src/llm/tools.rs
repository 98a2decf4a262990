//! Runs the tools that a model has called, and puts their answers into one event.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Claim, Content, Event, EventActions, EventData, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData, RunError, Tool, ToolConfirmation, ToolError, ToolExecution, confirmation_hint,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Step;
use crate::agents::unknown_tool;
use crate::plugins::HookChain;
use crate::tasks::joined;
use crate::tools::arguments;
use crate::tools::confirmation::{self, ConfirmedCall, Consent, MAX_REQUESTS, Request};

/// The event with the answers of tools, if there are any yet, and the ids of the calls that the user has to answer.
type Answers = (Option<Arc<Event>>, Vec<String>);

/// A call, and what a person has decided about it, if they were asked.
type Due = (FunctionCall, Option<(ToolConfirmation, Request)>);

impl Step<'_> {
    /// Runs the tools that `answer` calls.
    pub(super) async fn call_tools(&self, answer: &Event) -> Result<Answers, RunError> {
        let calls: Vec<_> = answer.function_calls().map(|call| (call.clone(), None)).collect();
        self.answers(calls, &answer.long_running_tool_ids).await
    }

    /// Runs calls that a person has decided about.
    pub(super) async fn call_decided(&self, decided: Vec<ConfirmedCall>) -> Result<Answers, RunError> {
        let is_later = |call: &&FunctionCall| self.tool(&call.name).is_some_and(|tool| tool.is_long_running());
        let calls = decided.iter().map(|it| &it.call);
        let later: Vec<_> = calls.filter(is_later).filter_map(|call| call.id.clone()).collect();
        let due = decided.into_iter().map(|it| (it.call, Some((it.confirmation, it.request))));
        self.answers(due.collect(), &later).await
    }

    /// The answers to `calls`: as they are stored, or from the tools. They are one event, in the order of the calls; another one before it
    /// asks a person about those calls that need it. Those whose ids are in `later` have long-running tools.
    async fn answers(&self, calls: Vec<Due>, later: &[String]) -> Result<Answers, RunError> {
        let mut asked = self.recall(confirmation::is_request).await?;
        let answered = self.recall(is_answer).await?;
        if answered.is_none() && self.past.has_more() {
            self.past.check_failure(&self.cx.call.agent)?;
            return Ok((None, pending(asked.as_deref(), later, None)));
        }
        if let Some(answered) = answered {
            let pending = pending(asked.as_deref(), later, Some(&answered));
            return Ok((Some(answered), pending));
        }
        self.past.go_live(&self.cx.call.agent)?;
        let (content, actions, final_args) = self.run_tools(&calls).await?;
        // A person who has been asked before the run was interrupted is not asked again.
        let shown = calls.iter().map(|(call, _)| call).zip(&final_args);
        if asked.is_none()
            && let Some(request) = confirmation::request(shown, &actions)
        {
            asked = Some(self.cx.emit_with_proof(request, Claim::Confirmation).await?);
        }
        let nothing_yet = content.is_none() && actions.is_empty();
        if nothing_yet && !self.frame.app.settings.resumable {
            return Ok((None, pending(asked.as_deref(), later, None)));
        }
        // A run that goes on must find that its tools have run, also where they have nothing to say yet.
        let ids = calls.iter().filter(|_| nothing_yet).filter_map(|(call, _)| call.id.clone());
        let long_running_tool_ids = ids.collect();
        let hands_over = [&actions, &*self.cx.call.actions()].iter().any(|actions| actions.transfer_to_agent.is_some());
        let data = EventData { content, actions, long_running_tool_ids, ..EventData::default() };
        let event = match hands_over {
            true => self.cx.emit_with_proof(data, Claim::Transfer).await?,
            false => self.cx.emit(data).await?,
        };
        let pending = pending(asked.as_deref(), later, Some(&event));
        Ok((Some(event), pending))
    }

    /// The answers of the tools, what they change, and the arguments of each call after all callbacks.
    async fn run_tools(&self, calls: &[Due]) -> Result<(Option<Arc<Content>>, EventActions, Vec<JsonMap>), RunError> {
        let calls: Vec<_> = calls.iter().map(|(call, decision)| self.prepare(call, decision.clone())).collect();
        let results = match self.cx.call.invocation.run_config.tool_execution {
            ToolExecution::Parallel if calls.len() > 1 => at_once(calls).await?,
            ToolExecution::Parallel | ToolExecution::Sequential => in_order(calls).await?,
        };
        let mut parts = Vec::with_capacity(results.len());
        let mut final_args = Vec::with_capacity(results.len());
        let mut actions = EventActions::default();
        for result in results {
            parts.extend(result.response.map(|response| Part::from(PartData::FunctionResponse(response))));
            actions.merge(result.actions);
            final_args.push(result.args);
        }
        Ok(((!parts.is_empty()).then(|| Arc::new(Content::new("user", parts))), actions, final_args))
    }

    fn prepare(&self, call: &FunctionCall, decided: Option<(ToolConfirmation, Request)>) -> Call {
        let (decision, request) = decided.unzip();
        let cx = self.cx.call.for_call(call.id.as_deref()).with_confirmation(decision);
        let own = self.tool(&call.name);
        let tool = own.map(|tool| self.frame.plugins.tool(&cx, tool.clone()));
        let needs = |tool: &Arc<dyn Tool>| tool.requires_confirmation();
        Call {
            call: call.clone(),
            needs_confirmation: own.is_some_and(needs) || tool.as_ref().is_some_and(needs),
            request,
            tool: tool.ok_or_else(|| unknown_tool(&call.name, &self.tools)),
            hooks: self.hooks(),
            cx,
        }
    }
}

/// Ids of the calls that the user has to answer: the requests, and those of the calls in `later` that are not settled.
fn pending(asked: Option<&Event>, later: &[String], answered: Option<&Event>) -> Vec<String> {
    let requests = asked.into_iter().flat_map(|event| &event.long_running_tool_ids);
    let later = later.iter().filter(|id| !answered.is_some_and(|event| is_settled(event, id)));
    requests.chain(later).cloned().collect()
}

/// True when no result comes later: the call has failed, which the model may mend, or a person is asked about it first.
fn is_settled(answered: &Event, id: &str) -> bool {
    let has_failed = |response: &FunctionResponse| {
        response.id.as_deref() == Some(id) && response.response.get("error").is_some_and(|error| !error.is_null())
    };
    answered.actions.requested_tool_confirmations.contains_key(id) || answered.function_responses().any(has_failed)
}

/// True for the answers of tools, and for what tools change that answer later.
fn is_answer(event: &Event) -> bool {
    event.function_responses().next().is_some() || (event.content.is_none() && event.actions.end_of_agent != Some(true))
}

/// One call with all that it needs, so that it can run in a task of its own.
struct Call {
    call: FunctionCall,
    /// The tool, or what to tell the model that has called a tool which does not exist.
    tool: Result<Arc<dyn Tool>, String>,
    /// Whether a person has to agree, also when a plugin has put something else in the tool's place.
    needs_confirmation: bool,
    /// What a person has been asked about the call, if they have decided.
    request: Option<Request>,
    hooks: HookChain,
    cx: CallContext,
}

/// What a call gave.
struct Answered {
    /// Nothing when the tool answers later.
    response: Option<FunctionResponse>,
    actions: EventActions,
    /// The arguments after all callbacks.
    args: JsonMap,
}

async fn in_order(calls: Vec<Call>) -> Result<Vec<Answered>, RunError> {
    let mut results = Vec::with_capacity(calls.len());
    for call in calls {
        results.push(call.run().await?);
    }
    Ok(results)
}

async fn at_once(calls: Vec<Call>) -> Result<Vec<Answered>, RunError> {
    let mut tasks = JoinSet::new();
    for (place, call) in calls.into_iter().enumerate() {
        tasks.spawn(async move { call.run().await.map(|answered| (place, answered)) });
    }
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        match joined(ended) {
            Ok(answered) => results.push(answered),
            Err(error) => {
                // Until the others have really stopped, they might still do something.
                tasks.shutdown().await;
                return Err(error);
            }
        }
    }
    results.sort_by_key(|(place, _)| *place);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

impl Call {
    async fn run(self) -> Result<Answered, RunError> {
        let mut args = self.call.args.clone();
        let response = self.respond(&mut args).await?.map(|response| FunctionResponse {
            id: self.call.id.clone(),
            name: self.call.name.clone(),
            response,
            ..FunctionResponse::default()
        });
        let mut actions = self.cx.take_actions();
        if !actions.requested_tool_confirmations.is_empty() {
            // A call asks about itself only.
            actions.requested_tool_confirmations.retain(|id, _| self.call.id.as_ref() == Some(id));
        }
        Ok(Answered { response, actions, args })
    }

    /// What the call comes to. Callbacks may change `args`.
    async fn respond(&self, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        let tool = match &self.tool {
            Ok(tool) => tool,
            Err(message) => return Ok(Some(error_map(message))),
        };
        let name = &self.call.name;
        let response = match self.hooks.before_tool(&self.cx, name, args).await? {
            Some(response) => response,
            None => match self.call_tool(tool.as_ref(), args).await? {
                Some(response) => response,
                None => return Ok(None),
            },
        };
        Ok(Some(self.hooks.after_tool(&self.cx, name, args, &response).await?.unwrap_or(response)))
    }

    async fn call_tool(&self, tool: &dyn Tool, args: &JsonMap) -> Result<Option<JsonMap>, RunError> {
        let result = match arguments::checked(tool.declaration(), args.clone(), &self.cx).await? {
            Ok(args) => match self.withheld(&args)? {
                Some(reason) => return Ok(Some(error_map(reason))),
                None => {
                    let cancel = &self.cx.invocation.cancel;
                    let result = cancel.run_until_cancelled(tool.call(args, &self.cx)).await;
                    result.ok_or(RunError::Cancelled)?.map_err(|error| error.named(&self.call.name))
                }
            },
            Err(error) => Err(error),
        };
        if let Err(error) = &result
            && let Some(response) = self.hooks.on_tool_error(&self.cx, &self.call.name, args, error).await?
        {
            return Ok(Some(response));
        }
        match result {
            Ok(Value::Null) if tool.is_long_running() => Ok(None),
            Ok(result) => Ok(Some(as_map(result))),
            Err(ToolError::Recoverable(message)) => Ok(Some(error_map(&message))),
            Err(error @ ToolError::Fatal { .. }) => Err(error.into()),
        }
    }
}

/// A tool's result as a model gets it.
pub(crate) fn as_map(result: Value) -> JsonMap {
    match result {
        Value::Null => JsonMap::new(),
        Value::Object(map) => map,
        value => JsonMap::from_iter([("result".into(), value)]),
    }
}

impl Call {
    /// Why the tool does not run with these arguments: a person has not agreed to them, and is asked if they have not been yet.
    fn withheld(&self, args: &JsonMap) -> Result<Option<&'static str>, RunError> {
        let decision = self.cx.confirmation();
        if let (Some(decision), Some(request)) = (decision, &self.request) {
            let consent = match decision.confirmed {
                true if *args != request.args => Consent::Mismatch,
                true => Consent::Given,
                false => Consent::Denied,
            };
            consent.audit(&self.call.name, &self.cx);
            if matches!(consent, Consent::Mismatch) {
                return self.ask_again(request).map(Some);
            }
        }
        if !self.needs_confirmation {
            return Ok(None);
        }
        match decision {
            Some(decision) if decision.confirmed => Ok(None),
            Some(_) => Ok(Some("This tool call is rejected.")),
            None if self.cx.invocation.depth > 0 => Ok(Some(
                "This tool call requires confirmation, and nobody can be asked inside of an agent that is called as a tool.",
            )),
            None => {
                self.cx.request_confirmation(confirmation_hint(&self.call.name), None)?;
                Ok(Some("This tool call requires confirmation, please approve or reject."))
            }
        }
    }

    /// Asks about the arguments as they are now, unless they have changed too often.
    fn ask_again(&self, request: &Request) -> Result<&'static str, RunError> {
        if request.count >= MAX_REQUESTS {
            return Ok(
                "This tool call has not run: its arguments change each time after a person has agreed to them, who \
                       is not asked any more.",
            );
        }
        let ToolConfirmation { hint, payload, .. } = &request.question;
        self.cx.request_confirmation(hint.clone(), payload.clone())?;
        Ok(
            "This tool call has not run: its arguments have changed after a person agreed to them. Please approve or reject \
            it as it is now.",
        )
    }
}

fn error_map(message: &str) -> JsonMap {
    JsonMap::from_iter([("error".into(), json!(message))])
}
