//! The tool-call pipeline: the one path of every tool call, whether a model or code makes it.
//!
//! 1. `before_tool` hooks may change the arguments, or return a response instead of the tool.
//! 2. The arguments are checked against the tool's JSON Schema.
//! 3. A call that requires confirmation waits until a person has confirmed exactly these arguments.
//! 4. The tool runs until it returns or the run is cancelled.
//! 5. `on_tool_error` hooks may replace an error by a response.
//! 6. `after_tool` hooks may replace the response.
//!
//! A call has its own [`EventActions`]. Only its changes are merged into the actions of its caller. [`HookChain`] and
//! [`ToolCaller`] hold all differences between calls by models and calls by code.

use std::sync::Arc;

use hatchery_core::{
    CallContext, EarlierCall, EventActions, JsonMap, RunError, RunJournal, Span, SpanOperation, Tool, ToolConfirmation,
    ToolError, confirmation_hint,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::plugins::{HookChain, Plugins};
use crate::tools::arguments;
use crate::tools::confirmation::{ConfirmationRequest, Consent, MAX_REQUESTS};

/// The key of a result that is not an object, in the object that models and hooks get.
const RESULT_KEY: &str = "result";
/// The error of a call that was interrupted and must not be repeated.
const INTERRUPTED: &str = "interrupted: the host died during this call, and it is unknown whether it had its effect; find \
                           that out, or ask, before you call the tool again";

/// The caller of a tool. It decides how confirmation, errors and results are handled.
pub(crate) enum ToolCaller {
    /// The model of an LLM agent. An error becomes a response with the key `error`, a result becomes an object, and a
    /// long-running tool may return its result later.
    Model {
        /// The request that a person has answered. The answer is in the call's context. `None` if no person has
        /// been asked yet.
        decided: Option<Box<ConfirmationRequest>>,
        /// True if the model makes no other call at the same time. The event with its response is stored right after
        /// it, so the journal of the run need not have the response too.
        is_only: bool,
    },
    /// Code of an agent or a component. It gets results and errors unchanged. A call that requires confirmation fails,
    /// because only the model of an LLM agent can wait for a person.
    Code,
}

/// One tool call. It owns everything that it needs, so that it can run in its own task.
pub(crate) struct ToolPipeline {
    /// The tool after plugins have replaced it.
    tool: Arc<dyn Tool>,
    name: String,
    /// True if the tool requires confirmation, with or without its replacement.
    requires_confirmation: bool,
    /// Plugins first, then the callbacks of the agent if its model calls.
    hooks: HookChain,
    caller: ToolCaller,
    cx: CallContext,
}

/// A finished call by a model, also as the journal has it.
#[derive(Deserialize)]
pub(crate) struct ToolResponse {
    /// `None` if the result of a long-running tool is still pending.
    pub(crate) response: Option<JsonMap>,
    /// The changes that the call has made.
    pub(crate) actions: EventActions,
    /// The arguments after all hooks.
    pub(crate) args: JsonMap,
}

/// The borrowed form of [`ToolResponse`] for the journal: a response can be large.
#[derive(Serialize)]
struct ToolRecord<'a> {
    response: Option<&'a JsonMap>,
    actions: EventActions,
    args: &'a JsonMap,
}

/// A finished call by code, as the journal has it.
#[derive(Serialize, Deserialize)]
struct CodeResponse {
    /// The result, or the error that the code may handle.
    result: Result<Value, String>,
    actions: EventActions,
}

/// The outcome of a call before it is converted for its caller.
enum Outcome {
    Completed(Value),
    Failed(ToolError),
    /// A long-running tool will return its result later.
    Pending,
}

impl ToolPipeline {
    /// Creates a call of `tool` in the context `cx`, which is the call's own.
    pub(crate) fn new(
        tool: &Arc<dyn Tool>,
        plugins: &Plugins,
        hooks: HookChain,
        caller: ToolCaller,
        cx: CallContext,
    ) -> Self {
        let name = tool.declaration().name.clone();
        let replaced = plugins.tool(&cx, tool.clone());
        let requires_confirmation = tool.requires_confirmation() || replaced.requires_confirmation();
        Self { tool: replaced, name, requires_confirmation, hooks, caller, cx }
    }

    /// Runs a call by a model. The tool sees `state_delta`, the changes of the calls before it.
    ///
    /// # Errors
    /// If a hook fails, the tool fails with a fatal error, or the run is cancelled.
    pub(crate) async fn respond(self, mut args: JsonMap, state_delta: JsonMap) -> Result<ToolResponse, RunError> {
        if let EarlierCall::Completed(response) = self.earlier() {
            return Ok(response);
        }
        self.cx.actions().state_delta.clone_from(&state_delta);
        let mut response = match self.run(&mut args).await? {
            Outcome::Completed(result) => Some(as_map(result)),
            Outcome::Failed(error) => return Err(error.into()),
            Outcome::Pending => None,
        };
        let mut actions = self.take_changes(&state_delta);
        if let Err(message) = self.check_transfer(&mut actions) {
            response = Some(error_map(&message));
        }
        // A call can only request confirmations and credentials for itself.
        let id = self.cx.function_call_id.as_deref();
        for requests in [&mut actions.requested_tool_confirmations, &mut actions.requested_auth_configs] {
            requests.retain(|requested, _| Some(requested.as_str()) == id);
        }
        let response = ToolResponse { response, actions, args };
        let is_stored_next =
            matches!(self.caller, ToolCaller::Model { is_only: true, .. }) && self.tool.is_idempotent();
        if let Some((journal, key)) = self.journal().filter(|_| !is_stored_next) {
            let ToolResponse { response, actions, args } = &response;
            let actions = without_temp_state(actions.clone());
            journal.complete(key, &ToolRecord { response: response.as_ref(), actions, args }).await?;
        }
        Ok(response)
    }

    /// Returns the journal's record of this call from before the run was interrupted.
    fn earlier<T: DeserializeOwned>(&self) -> EarlierCall<T> {
        self.journal().map_or(EarlierCall::Unknown, |(journal, key)| journal.earlier(key))
    }

    /// Returns the journal of the run and the key of the call. `None` if the call is not recorded.
    fn journal(&self) -> Option<(&RunJournal, &str)> {
        Some((self.cx.invocation.journal.as_deref()?, self.cx.call_key.as_deref()?))
    }

    /// Runs a call by the code whose context is `code_cx`. The tool sees the state as the code has changed it.
    ///
    /// # Errors
    /// As the tool. A failed hook and a cancelled run are fatal.
    pub(crate) async fn call(self, mut args: JsonMap, code_cx: &CallContext) -> Result<Value, ToolError> {
        let name = &self.name;
        if self.requires_confirmation {
            return Err(needs_person(name));
        }
        let (before, state_delta) = (code_cx.full_state(), code_cx.actions().state_delta.clone());
        if let EarlierCall::Completed(CodeResponse { result, actions }) = self.earlier() {
            code_cx.actions().merge_concurrent(actions, &before);
            return result.map_err(ToolError::Recoverable);
        }
        self.cx.actions().state_delta.clone_from(&state_delta);
        let result = self.run(&mut args).await;
        let mut actions = self.take_changes(&state_delta);
        let refusal = self.remove_refused(&mut actions);
        code_cx.actions().merge_concurrent(actions.clone(), &before);
        // Recorded as any other result, because the tool has run.
        let result = match (result, refusal) {
            (Ok(_), Some(refusal)) => Ok(Outcome::Failed(refusal)),
            (result, _) => result,
        };
        let completed = match &result {
            Ok(Outcome::Completed(result)) => Some(Ok(result.clone())),
            Ok(Outcome::Pending) => Some(Ok(Value::Null)),
            Ok(Outcome::Failed(ToolError::Recoverable(message))) => Some(Err(message.clone())),
            Ok(Outcome::Failed(ToolError::Fatal { .. })) | Err(_) => None,
        };
        if let (Some(result), Some((journal, key))) = (completed, self.journal()) {
            let response = CodeResponse { result, actions: without_temp_state(actions) };
            journal.complete(key, &response).await.map_err(|error| ToolError::from(error).for_tool(name))?;
        }
        match result {
            Ok(Outcome::Completed(result)) => Ok(result),
            Ok(Outcome::Pending) => Ok(Value::Null),
            Ok(Outcome::Failed(error)) => Err(error),
            Err(error) => Err(ToolError::Fatal {
                tool: name.clone(),
                code: error.code().to_owned().into(),
                message: error.redact(),
            }),
        }
    }

    /// Removes the actions that a call by code may not have. Returns the error of the first of them.
    fn remove_refused(&self, actions: &mut EventActions) -> Option<ToolError> {
        let transfer = self.check_transfer(actions);
        // A person would be asked under the id of the code's own call.
        let has_requested_confirmation = !std::mem::take(&mut actions.requested_tool_confirmations).is_empty();
        let has_requested_credential = !std::mem::take(&mut actions.requested_auth_configs).is_empty();
        if has_requested_confirmation {
            Some(needs_person(&self.name))
        } else if has_requested_credential {
            Some(needs_credential(&self.name))
        } else {
            transfer.err().map(ToolError::Recoverable)
        }
    }

    /// Takes the changes that the call has made, without the `state_delta` that it started with.
    fn take_changes(&self, state_delta: &JsonMap) -> EventActions {
        let mut actions = self.cx.take_actions();
        actions.state_delta.retain(|key, value| state_delta.get(key) != Some(value));
        actions
    }

    /// Removes a transfer that is not allowed: native code may have set the action without asking.
    fn check_transfer(&self, actions: &mut EventActions) -> Result<(), String> {
        let (Some(target), Ok(host)) = (&actions.transfer_to_agent, self.cx.host()) else { return Ok(()) };
        host.check_transfer(&self.cx, target).map_err(|error| {
            actions.transfer_to_agent = None;
            error.redact()
        })
    }

    async fn run(&self, args: &mut JsonMap) -> Result<Outcome, RunError> {
        let result = match self.hooks.before_tool(&self.cx, &self.name, args).await? {
            Some(response) => Value::Object(response),
            None => match self.execute(args).await? {
                Outcome::Completed(result) => result,
                outcome @ (Outcome::Failed(_) | Outcome::Pending) => return Ok(outcome),
            },
        };
        let is_object = result.is_object();
        let mut response = as_map(result);
        let replacement = self.hooks.after_tool(&self.cx, &self.name, args, &response).await?;
        Ok(Outcome::Completed(match replacement {
            Some(replacement) => Value::Object(replacement),
            None if is_object => Value::Object(response),
            None => response.remove(RESULT_KEY).unwrap_or_default(),
        }))
    }

    async fn execute(&self, args: &JsonMap) -> Result<Outcome, RunError> {
        let result = match arguments::check(self.tool.declaration(), args.clone(), &self.cx).await? {
            Ok(args) => {
                if let ToolCaller::Model { decided, .. } = &self.caller
                    && let Some(reason) = self.confirmation_block(decided.as_deref(), &args)?
                {
                    return Ok(Outcome::Completed(Value::Object(error_map(reason))));
                }
                self.call_tool(args).await?.map_err(|error| error.for_tool(&self.name))
            }
            Err(error) => Err(error),
        };
        let is_model = matches!(self.caller, ToolCaller::Model { .. });
        let error = match result {
            Ok(Value::Null) if is_model && self.tool.is_long_running() => return Ok(Outcome::Pending),
            Ok(result) if is_model => return Ok(Outcome::Completed(Value::Object(as_map(result)))),
            Ok(result) => return Ok(Outcome::Completed(result)),
            Err(error) => error,
        };
        if let Some(response) = self.hooks.on_tool_error(&self.cx, &self.name, args, &error).await? {
            return Ok(Outcome::Completed(Value::Object(response)));
        }
        match error {
            ToolError::Recoverable(message) if is_model => Ok(Outcome::Completed(Value::Object(error_map(&message)))),
            error => Ok(Outcome::Failed(error)),
        }
    }

    /// Calls the tool, unless it must not be called again.
    async fn call_tool(&self, args: JsonMap) -> Result<Result<Value, ToolError>, RunError> {
        let invocation = &self.cx.invocation;
        if let Some((journal, key)) = self.journal().filter(|_| !self.tool.is_idempotent()) {
            if self.earlier::<IgnoredAny>() == EarlierCall::Interrupted {
                return Ok(Err(ToolError::Recoverable(INTERRUPTED.into())));
            }
            journal.begin(key).await?;
        }
        invocation.ensure_turn().await?;
        let mut span = self.span(&args);
        let traced = span.is_recorded().then(|| self.cx.clone().with_span(span.context().clone()));
        let cx = traced.as_ref().unwrap_or(&self.cx);
        let result = invocation.cancel.run_until_cancelled(self.tool.call(args, cx)).await.ok_or(RunError::Cancelled);
        match &result {
            Ok(Ok(response)) => span.set_result(response),
            Ok(Err(error)) => span.set_error(&error.clone().into()),
            Err(error) => span.set_error(error),
        }
        span.finish();
        result
    }

    /// Begins the span of the call.
    fn span(&self, args: &JsonMap) -> Span {
        let mut span = self.cx.span().start(SpanOperation::Tool, &self.name);
        span.record(|data| {
            data.set("gen_ai.tool.name", self.name.clone());
            data.set("gen_ai.tool.type", "function");
            data.set("gen_ai.tool.description", self.tool.declaration().description.clone());
            data.set_some("gen_ai.tool.call.id", self.cx.function_call_id.clone());
            data.set("gen_ai.agent.name", self.cx.agent.clone());
        });
        span.set_arguments(args);
        span
    }

    /// Returns the reason why the tool does not run with these arguments: a person has not confirmed them. Requests the
    /// confirmation if no person was asked yet. `None` if the tool may run.
    fn confirmation_block(
        &self,
        decided: Option<&ConfirmationRequest>,
        args: &JsonMap,
    ) -> Result<Option<&'static str>, RunError> {
        let decision = self.cx.confirmation();
        if let (Some(decision), Some(request)) = (decision, decided) {
            let consent = if !decision.confirmed {
                Consent::Denied
            } else if *args == request.args {
                Consent::Given
            } else {
                Consent::Mismatch
            };
            consent.audit(&self.name, &self.cx);
            if matches!(consent, Consent::Mismatch) {
                return self.request_again(request).map(Some);
            }
        }
        if !self.requires_confirmation {
            return Ok(None);
        }
        match decision {
            Some(decision) if decision.confirmed => Ok(None),
            Some(_) => Ok(Some("This tool call is rejected.")),
            None if self.cx.invocation.is_in_tool => Ok(Some(
                "This tool call requires confirmation, which is not possible inside an agent that is called as a tool.",
            )),
            None => {
                self.cx.request_confirmation(confirmation_hint(&self.name), None)?;
                Ok(Some("This tool call requires confirmation, please approve or reject."))
            }
        }
    }

    /// Requests confirmation of the changed arguments, unless they have changed too often.
    fn request_again(&self, request: &ConfirmationRequest) -> Result<&'static str, RunError> {
        if request.count >= MAX_REQUESTS {
            return Ok(
                "This tool call has not run: its arguments changed again after a person had approved them, and no \
                       further confirmation is requested.",
            );
        }
        let ToolConfirmation { hint, payload, .. } = &request.question;
        self.cx.request_confirmation(hint.clone(), payload.clone())?;
        Ok(
            "This tool call has not run: its arguments have changed since a person approved it. Please approve or reject it \
            as it is now.",
        )
    }
}

/// Removes the state that is never stored.
fn without_temp_state(mut actions: EventActions) -> EventActions {
    actions.remove_temp_state();
    actions
}

/// Converts a tool's result to the object that a model gets.
pub(crate) fn as_map(result: Value) -> JsonMap {
    match result {
        Value::Null => JsonMap::new(),
        Value::Object(map) => map,
        value => JsonMap::from_iter([(RESULT_KEY.into(), value)]),
    }
}

/// Creates the response to a model whose call has failed.
pub(crate) fn error_map(message: &str) -> JsonMap {
    JsonMap::from_iter([("error".into(), json!(message))])
}

fn needs_credential(tool: &str) -> ToolError {
    let reason = "it needs a credential of the user, which only a tool call of an LLM agent's model can wait for";
    ToolError::Recoverable(format!("tool `{tool}` cannot be called here: {reason}"))
}

fn needs_person(tool: &str) -> ToolError {
    let reason = "it requires confirmation, which only a tool call of an LLM agent's model can wait for";
    ToolError::Recoverable(format!("tool `{tool}` cannot be called here: {reason}"))
}
