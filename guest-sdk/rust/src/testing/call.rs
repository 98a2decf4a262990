//! Runs the exports of a component, except for callbacks, plugins and custom agents.

use std::future::Future;
use std::rc::Rc;

use futures::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::scope::{Call, Caller, Scope, block_on};
use super::{Host, misuse};
use crate::agent::{Agent, AgentKind, Instruction, Llm};
use crate::answer::Model;
use crate::code::{CodeExecutor, CodeInput, CodeOutput};
use crate::confirmation::ToolConfirmation;
use crate::content::Content;
use crate::context::{Context, ToolContext};
use crate::error::{Error, ToolError};
use crate::event::Event;
use crate::examples::{Example, ExampleProvider};
use crate::model::{LlmRequest, LlmResponse};
use crate::summarizer::Summarizer;
use crate::tool::Tool;
use crate::toolset::ToolsetExport;

/// Running items. Changes are applied when the call has ended, unless it failed in a way that ends the run.
impl Host {
    /// Calls a tool as a model would, with arguments as JSON or as any serializable value (`()` for none). A tool with
    /// `#[tool(confirm)]` only runs if a person agrees. Otherwise it fails with the message for the model.
    ///
    /// # Errors
    /// The error of the tool; also for invalid arguments, with the message for the model.
    ///
    /// # Panics
    /// If the arguments cannot be JSON, or the result is not a `T`.
    #[track_caller]
    pub fn call<T: DeserializeOwned>(&self, tool: impl FnOnce() -> Tool, args: impl Serialize) -> Result<T, ToolError> {
        let tool = tool();
        let args = match serde_json::to_value(args) {
            Ok(Value::Null) => "{}".to_owned(),
            Ok(args) => args.to_string(),
            Err(error) => misuse(&format!("the arguments for `{}` cannot be JSON: {error}", tool.name)),
        };
        let code = async {
            check_confirmation(&tool)?;
            (tool.run)(args, ToolContext::new()).await
        };
        let result = self.serve(self.function_call(), code, |error| matches!(error, ToolError::Recoverable(_)))?;
        match serde_json::from_str(&result) {
            Ok(result) => Ok(result),
            Err(error) => {
                misuse(&format!("`{}` gave `{result}`, which is not of the requested type: {error}", tool.name))
            }
        }
    }

    /// Returns the names of the tools of a toolset.
    ///
    /// # Errors
    /// The error of its code.
    pub fn toolset_tools(&self, toolset: impl FnOnce() -> ToolsetExport) -> Result<Vec<String>, Error> {
        let toolset = toolset();
        let call = Call { caller: Caller::Instruction, ..self.run_call() };
        let tools = self.serve(call, toolset.tools(), |_| false)?;
        Ok(tools.iter().map(|tool| tool.name().to_owned()).collect())
    }

    /// Calls a tool of a toolset with arguments as JSON.
    ///
    /// # Errors
    /// The error of the tool; also if the toolset has no such tool now.
    pub fn call_in(
        &self,
        toolset: impl FnOnce() -> ToolsetExport,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let toolset = toolset();
        let code = toolset.call(tool, args.to_string());
        let result = self.serve(self.function_call(), code, |error| matches!(error, ToolError::Recoverable(_)))?;
        Ok(serde_json::from_str(&result)?)
    }

    /// Returns the instruction of an LLM agent: its text with its placeholders, or the computed text. Empty if there is
    /// none.
    ///
    /// # Errors
    /// The error of the code that computes it.
    ///
    /// # Panics
    /// If it is not an LLM agent.
    #[track_caller]
    pub fn instruction<A: Into<Agent>>(&self, agent: impl FnOnce() -> A) -> Result<String, Error> {
        let (name, llm) = llm(agent);
        self.compute(name, llm.instruction)
    }

    /// Like [`Host::instruction`], for the global instruction.
    ///
    /// # Errors
    /// The error of the code that computes it.
    ///
    /// # Panics
    /// If it is not an LLM agent.
    #[track_caller]
    pub fn global_instruction<A: Into<Agent>>(&self, agent: impl FnOnce() -> A) -> Result<String, Error> {
        let (name, llm) = llm(agent);
        self.compute(name, llm.global_instruction)
    }

    /// Calls a model and returns its complete answer. A model has no session: its context can only log and read
    /// settings.
    ///
    /// # Errors
    /// The error of the model.
    pub fn answer(&self, model: impl FnOnce() -> Model, request: LlmRequest) -> Result<LlmResponse, Error> {
        let model = model();
        self.serve(self.model_call(), model.answer(request), |_| false)
    }

    /// Calls a model and returns its partial responses. An error is the last item.
    pub fn stream(&self, model: impl FnOnce() -> Model, request: LlmRequest) -> Vec<Result<LlmResponse, Error>> {
        let responses = model().responses(request).collect();
        block_on(self.scope(self.model_call()).run(responses))
    }

    /// Runs code with a code executor.
    ///
    /// # Errors
    /// The error of the executor.
    pub fn execute(&self, executor: impl FnOnce() -> CodeExecutor, input: CodeInput) -> Result<CodeOutput, ToolError> {
        let run = executor().run;
        let code = async { run(input, Context::new()).await };
        self.serve(self.run_call(), code, |error| matches!(error, ToolError::Recoverable(_)))
    }

    /// Summarizes events.
    ///
    /// # Errors
    /// The error of the summarizer.
    pub fn summarize(
        &self,
        summarizer: impl FnOnce() -> Summarizer,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<Option<Content>, Error> {
        let (run, events) = (summarizer().run, events.into_iter().collect());
        self.serve(self.run_call(), async { run(events, Context::new()).await }, |_| false)
    }

    /// Chooses examples for a user message.
    ///
    /// # Errors
    /// The error of the provider.
    pub fn examples(
        &self,
        provider: impl FnOnce() -> ExampleProvider,
        query: impl Into<String>,
    ) -> Result<Vec<Example>, Error> {
        let (run, query) = (provider().run, query.into());
        self.serve(self.run_call(), async { run(query, Context::new()).await }, |_| false)
    }

    fn compute(&self, agent: String, instruction: Instruction) -> Result<String, Error> {
        match instruction {
            Instruction::None => Ok(String::new()),
            Instruction::Text(text) => Ok(text),
            Instruction::Computed(compute) => {
                self.serve(Call::new(Caller::Instruction, agent), async { compute(Context::new()).await }, |_| false)
            }
        }
    }

    /// Creates a call for the host's agent.
    pub(super) fn run_call(&self) -> Call {
        Call::new(Caller::Run, self.0.borrow().info.agent.clone())
    }

    /// Creates a call for a model's function call.
    pub(super) fn function_call(&self) -> Call {
        let call = self.run_call();
        let mut mock = self.0.borrow_mut();
        let (hint, decision) = (mock.hint.clone(), mock.decision.clone());
        let decision = decision.map(|(confirmed, payload)| ToolConfirmation { hint, confirmed, payload });
        let (id, key) = (Some(mock.new_function_call_id()), Some(mock.new_idempotency_key()));
        Call { function_call_id: id, idempotency_key: key, decision, ..call }
    }

    fn model_call(&self) -> Call {
        Call::new(Caller::Model, self.0.borrow().info.agent.clone())
    }

    pub(super) fn scope(&self, call: Call) -> Scope {
        Scope { mock: self.0.clone(), call: Rc::new(call) }
    }

    /// Runs code to the end for a call. Keeps its changes if it succeeds or fails with an error that does not end the
    /// run.
    pub(super) fn serve<T, E>(
        &self,
        call: Call,
        code: impl Future<Output = Result<T, E>>,
        goes_on: fn(&E) -> bool,
    ) -> Result<T, E> {
        let scope = self.scope(call);
        let result = block_on(scope.run(code));
        if result.as_ref().err().is_none_or(goes_on) {
            let mut mock = self.0.borrow_mut();
            mock.apply(scope.call.actions.take());
            if let Some(confirmation) = scope.call.requested_confirmation.take() {
                mock.hint.clone_from(&confirmation.hint);
                mock.requested_confirmation = Some(confirmation);
            }
        }
        result
    }
}

/// Checks a person's decision about a tool that requires confirmation. Without a decision, requests confirmation.
fn check_confirmation(tool: &Tool) -> Result<(), ToolError> {
    if !tool.requires_confirmation {
        return Ok(());
    }
    let cx = ToolContext::new();
    match cx.confirmation()? {
        Some(ToolConfirmation { confirmed: true, .. }) => Ok(()),
        Some(_) => Err(ToolError::recoverable("This tool call is rejected.")),
        None => {
            let hint = format!(
                "Please approve or reject the tool call {}() by responding with a FunctionResponse with an expected \
                 ToolConfirmation payload.",
                tool.name
            );
            cx.request_confirmation(hint, ())?;
            Err(ToolError::recoverable("This tool call requires confirmation, please approve or reject."))
        }
    }
}

/// Returns an LLM agent with its name.
#[track_caller]
fn llm<A: Into<Agent>>(agent: impl FnOnce() -> A) -> (String, Llm) {
    let Agent { fields, kind } = agent().into();
    match kind {
        AgentKind::Llm(llm) => (fields.name, *llm),
        _ => misuse(&format!("agent `{}` is not an LLM agent, so it has no instruction", fields.name)),
    }
}
