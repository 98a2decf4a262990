//! The imports of `wit/imports.wit`, implemented by the mock host: one module per interface, with the functions that
//! `wit-bindgen` generates for components. Whatever a test has not set up is an error that names the line to add.

pub(crate) use super::stream::{StreamReader, StreamWriter};

pub(crate) mod model {
    use futures::stream;

    use super::super::scope::{Caller, Scope};
    use super::StreamReader;
    use crate::bindings::wit::types;
    use crate::model::LlmRequest;

    pub(crate) async fn generate(
        request: types::LlmRequest,
        streamed: bool,
    ) -> Result<StreamReader<types::LlmResponse>, types::Error> {
        let scope = Scope::of_session()?;
        let own = match &scope.call.caller {
            Caller::Agent { model, .. } => model.as_deref(),
            Caller::Run | Caller::Model => None,
        };
        let model_call = scope.world.borrow_mut().record_request(LlmRequest::try_from(request)?, own)?;
        let responses = model_call.answer(streamed)?;
        Ok(StreamReader::new(stream::iter(responses.into_iter().map(Into::into))))
    }
}

pub(crate) mod session {
    use serde_json::Value;

    use super::super::scope::Scope;
    use crate::bindings::wit::session::Info;
    use crate::bindings::wit::types;
    use crate::confirmation::ToolConfirmation;
    use crate::convert::read;
    use crate::error::Error;

    /// Maximum number of events of one call, regardless of its `limit`.
    const MAX_EVENTS: u32 = 1000;

    pub(crate) fn current() -> Result<Info, types::Error> {
        let scope = Scope::of_session()?;
        let info = scope.world.borrow().info.clone();
        Ok(Info {
            app: info.app,
            user: info.user,
            session: info.session,
            invocation_id: info.invocation_id,
            agent: scope.call.agent.clone(),
            branch: info.branch,
            function_call_id: scope.call.function_call_id.clone(),
        })
    }

    pub(crate) fn user_content() -> Result<types::Content, types::Error> {
        let content = Scope::of_session()?.world.borrow().user_content.clone();
        let nothing = "there is no user message; add `.user_says(\"…\")` to the test's host";
        Ok(content.ok_or_else(|| Error::new("NOT_SET_UP", nothing))?.into())
    }

    pub(crate) fn get_state(key: &str) -> Result<Option<String>, types::Error> {
        let scope = Scope::of_session()?;
        let state = scope.world.borrow().state_for(&scope.call);
        Ok(state.get(key).map(Value::to_string))
    }

    pub(crate) fn all_state() -> Result<Vec<(String, String)>, types::Error> {
        let scope = Scope::of_session()?;
        let state = scope.world.borrow().state_for(&scope.call);
        Ok(state.into_iter().map(|(key, value)| (key, value.to_string())).collect())
    }

    pub(crate) fn set_state(key: &str, json: &str) -> Result<(), types::Error> {
        let scope = Scope::of_session()?;
        let value = read(json, "the state value")?;
        scope.call.actions.borrow_mut().state_delta.insert(key.to_owned(), value);
        Ok(())
    }

    pub(crate) fn confirmation() -> Result<Option<types::ToolConfirmation>, types::Error> {
        let decision = Scope::of_session()?.call.decision.clone();
        Ok(decision.map(|ToolConfirmation { hint, confirmed, payload }| types::ToolConfirmation {
            hint,
            confirmed,
            payload: payload.map(|payload| payload.to_string()),
        }))
    }

    pub(crate) fn request_confirmation(hint: &str, payload: Option<&str>) -> Result<(), types::Error> {
        let scope = Scope::of_session()?;
        let payload = payload.map(|json| read(json, "the payload of a confirmation")).transpose()?;
        if scope.call.function_call_id.is_none() {
            return Err(Error::new("BAD_INPUT", "a confirmation can only be requested in a tool call").into());
        }
        let confirmation = ToolConfirmation { hint: hint.to_owned(), confirmed: false, payload };
        *scope.call.requested_confirmation.borrow_mut() = Some(confirmation);
        Ok(())
    }

    pub(crate) fn event_count() -> Result<u64, types::Error> {
        Ok(Scope::of_session()?.world.borrow().events.len() as u64)
    }

    pub(crate) fn events(offset: u64, limit: u32) -> Result<Vec<types::Event>, types::Error> {
        let scope = Scope::of_session()?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let world = scope.world.borrow();
        let events = world.events.iter().skip(offset).take(limit.min(MAX_EVENTS) as usize);
        Ok(events.cloned().map(Into::into).collect())
    }
}

pub(crate) mod artifacts {
    use super::super::scope::Scope;
    use super::super::world::check_artifact_name;
    use crate::bindings::wit::types;
    use crate::content::Part;
    use crate::event::EventActions;

    pub(crate) async fn save(name: String, part: types::Part) -> Result<u64, types::Error> {
        let scope = Scope::of_session()?;
        check_artifact_name(&name)?;
        let part = Part::try_from(part)?;
        let mut world = scope.world.borrow_mut();
        let versions = world.artifacts.entry(name.clone()).or_default();
        versions.push(part);
        let version = versions.len() as u64 - 1;
        let saved = EventActions { artifact_delta: vec![(name, version)], ..EventActions::default() };
        super::super::world::merge(&mut scope.call.actions.borrow_mut(), saved);
        Ok(version)
    }

    pub(crate) async fn load(name: String, version: Option<u64>) -> Result<Option<types::Part>, types::Error> {
        let scope = Scope::of_session()?;
        check_artifact_name(&name)?;
        let world = scope.world.borrow();
        let Some(versions) = world.artifacts.get(&name) else { return Ok(None) };
        let part = match version {
            None => versions.last(),
            Some(version) => usize::try_from(version).ok().and_then(|version| versions.get(version)),
        };
        Ok(part.cloned().map(Into::into))
    }

    pub(crate) async fn list() -> Result<Vec<String>, types::Error> {
        Ok(Scope::of_session()?.world.borrow().artifacts.keys().cloned().collect())
    }

    pub(crate) async fn versions(name: String) -> Result<Vec<u64>, types::Error> {
        let scope = Scope::of_session()?;
        check_artifact_name(&name)?;
        let versions = scope.world.borrow().artifacts.get(&name).map_or(0, Vec::len);
        Ok((0..versions as u64).collect())
    }

    pub(crate) async fn delete(name: String) -> Result<(), types::Error> {
        let scope = Scope::of_session()?;
        check_artifact_name(&name)?;
        scope.world.borrow_mut().artifacts.remove(&name);
        Ok(())
    }
}

pub(crate) mod memory {
    use super::super::scope::Scope;
    use crate::bindings::wit::memory::Entry;
    use crate::bindings::wit::types;

    pub(crate) async fn search(query: String) -> Result<Vec<Entry>, types::Error> {
        let entries = Scope::of_session()?.world.borrow().search_memory(&query);
        let entries = entries.into_iter().map(|entry| Entry {
            content: entry.content.into(),
            author: entry.author,
            timestamp: entry.timestamp_micros,
        });
        Ok(entries.collect())
    }
}

pub(crate) mod tools {
    use serde_json::Value;

    use super::super::list;
    use super::super::scope::{Caller, Scope};
    use super::super::world::{AnyTool, merge};
    use crate::bindings::wit::types;
    use crate::callback::ToolCall;
    use crate::context::ToolContext;
    use crate::convert::read;
    use crate::error::ToolError;
    use crate::testing::scope::Call;
    use crate::tool::Tool;

    pub(crate) async fn call(name: String, args: String) -> Result<String, types::ToolError> {
        let scope = Scope::of_session().map_err(ToolError::fatal)?;
        let arguments = read(&args, "the arguments").map_err(ToolError::from)?;
        let tool = {
            let mut world = scope.world.borrow_mut();
            world.tool_calls.push(ToolCall { tool: name.clone(), args: arguments });
            let known = match &scope.call.caller {
                Caller::Agent { tools, .. } => tools.clone(),
                Caller::Run | Caller::Model => world.tools.keys().cloned().collect(),
            };
            world
                .tools
                .get(&name)
                .filter(|_| known.contains(&name))
                .cloned()
                .ok_or_else(|| unknown(&name, &known, &scope.call.caller))?
        };
        match tool {
            AnyTool::Mock(answer) => {
                let args: Value = read(&args, "the arguments").map_err(ToolError::from)?;
                Ok(answer(args)?.to_string())
            }
            AnyTool::Own(tool) => own(&scope, tool, args).await,
        }
    }

    /// Calls a tool of the component. It sees the changes of its caller, and its caller sees its changes.
    async fn own(scope: &Scope, tool: Tool, args: String) -> Result<String, types::ToolError> {
        if tool.requires_confirmation {
            let reason = "it requires confirmation, which only a tool call of an LLM agent's model can wait for";
            let message = format!("tool `{}` cannot be called here: {reason}", tool.name);
            return Err(types::ToolError::Model(message));
        }
        let call = Call::new(Caller::Run, scope.call.agent.clone());
        call.actions.borrow_mut().state_delta.clone_from(&scope.call.actions.borrow().state_delta);
        let call = Call { function_call_id: scope.call.function_call_id.clone(), ..call };
        let inner = scope.with_call(call);
        let result = inner.run(async { (tool.run)(args, ToolContext::new()).await }).await;
        merge(&mut scope.call.actions.borrow_mut(), inner.call.actions.take());
        if let Some(confirmation) = inner.call.requested_confirmation.take() {
            *scope.call.requested_confirmation.borrow_mut() = Some(confirmation);
        }
        Ok(result?)
    }

    /// Returns an error that says what to add: to the agent, if a real host would not find the tool either, or to the
    /// test.
    fn unknown(name: &str, known: &[String], caller: &Caller) -> ToolError {
        let what = match caller {
            Caller::Agent { tools, .. } if !tools.iter().any(|tool| tool == name) => {
                format!("add it to the agent's, as in `#[agent(tools = [{name}])]`")
            }
            Caller::Agent { .. } | Caller::Run | Caller::Model => {
                format!("add `.tool(\"{name}\", |args| Ok(json!({{}})))` to the test's host")
            }
        };
        ToolError::Recoverable(format!("there is no tool `{name}`; the tools are {}; {what}", list(known)))
    }
}

pub(crate) mod agents {
    use super::super::relay;
    use super::super::scope::Scope;
    use super::StreamReader;
    use crate::bindings::wit::types;
    use crate::event::EventActions;

    pub(crate) async fn run(name: String) -> Result<StreamReader<types::Event>, types::Error> {
        Ok(relay::start(&Scope::of_session()?, &name)?)
    }

    pub(crate) fn transfer(agent: &str) -> Result<(), types::Error> {
        change(|actions| actions.transfer_to_agent = Some(agent.to_owned()))
    }

    pub(crate) fn escalate() -> Result<(), types::Error> {
        change(|actions| actions.escalate = Some(true))
    }

    pub(crate) fn skip_summarization() -> Result<(), types::Error> {
        change(|actions| actions.skip_summarization = Some(true))
    }

    fn change(change: impl FnOnce(&mut EventActions)) -> Result<(), types::Error> {
        change(&mut Scope::of_session()?.call.actions.borrow_mut());
        Ok(())
    }
}

pub(crate) mod log {
    use super::super::LogLine;
    use super::super::scope::Scope;
    use crate::bindings::wit::types;

    const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

    pub(crate) fn write(level: &str, message: &str, fields: &[(String, String)]) -> Result<(), types::Error> {
        let level = LEVELS.into_iter().find(|known| *known == level).unwrap_or("info");
        let line = LogLine { level, message: message.to_owned(), fields: fields.to_vec() };
        Scope::current()?.world.borrow_mut().log.push(line);
        Ok(())
    }
}

pub(crate) mod config {
    use serde_json::Value;

    use super::super::scope::Scope;
    use crate::bindings::wit::types;

    pub(crate) fn get(key: &str) -> Result<Option<String>, types::Error> {
        Ok(Scope::current()?.world.borrow().config.get(key).map(Value::to_string))
    }
}

/// Part of `wasi:http`, not of the contract.
pub(crate) mod http {
    use super::super::scope::Scope;
    use super::super::{HttpRequest, HttpResponse};
    use crate::error::Error;

    pub(crate) fn exchange(request: HttpRequest) -> Result<HttpResponse, Error> {
        let scope = Scope::current()?;
        let (description, server) = {
            let mut world = scope.world.borrow_mut();
            world.http_requests.push(request.clone());
            (format!("{} {}", request.method, request.url), world.server.clone())
        };
        let nobody = || {
            let what = "add `.http(|request| Ok(HttpResponse::text(\"…\")))` to the test's host";
            Error::new("DENIED", format!("there is no response for {description}; {what}"))
        };
        server.ok_or_else(nobody)?(request)
    }
}
