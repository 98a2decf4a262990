//! The imports of `wit/imports.wit`, implemented by the mock host: one module per interface, with the functions that
//! `wit-bindgen` generates for components. Whatever a test has not set up is an error that names the line to add.

pub(crate) use super::stream::{StreamReader, StreamWriter};

pub(crate) mod models {
    use futures::stream;

    use super::super::scope::{Caller, Scope};
    use super::StreamReader;
    use crate::bindings::wit::types;
    use crate::error::Error;
    use crate::model::LlmRequest;

    pub(crate) async fn generate(
        request: types::LlmRequest,
        streaming: bool,
    ) -> Result<StreamReader<types::LlmResponse>, types::Error> {
        let scope = Scope::of_session()?;
        let own = match &scope.call.caller {
            Caller::Agent { model, .. } => model.as_deref(),
            Caller::Run | Caller::Instruction | Caller::Model => None,
        };
        let model_call = scope.world.borrow_mut().record_request(LlmRequest::try_from(request)?, own)?;
        let responses = model_call.answer(streaming)?;
        Ok(StreamReader::new(stream::iter(responses.into_iter().map(Into::into))))
    }

    pub(crate) fn list() -> Result<Vec<String>, types::Error> {
        Ok(Scope::of_session()?.world.borrow().models.clone())
    }

    pub(crate) async fn embed(model: String, texts: Vec<String>) -> Result<Vec<Vec<f32>>, types::Error> {
        let embedder = Scope::of_session()?.world.borrow().embedder.clone();
        let nothing = || {
            let message = format!("model `{model}`: there is none; add `.embedder(|text| vec![…])` to the test's host");
            Error::new("MODEL_UNKNOWN", message)
        };
        let embedder = embedder.ok_or_else(nothing)?;
        Ok(texts.into_iter().map(|text| embedder(text)).collect())
    }
}

pub(crate) mod session {
    use serde_json::Value;

    use super::super::scope::Scope;
    use crate::bindings::wit::session::{
        Info, RemainingLimits as WitRemainingLimits, StreamingMode as WitStreamingMode,
    };
    use crate::bindings::wit::types;
    use crate::confirmation::ToolConfirmation;
    use crate::convert::read;
    use crate::error::Error;
    use crate::run_info::{RemainingLimits, StreamingMode};

    /// Maximum number of events of one call, regardless of its `limit`.
    const MAX_EVENTS: u32 = 1000;

    pub(crate) fn current() -> Result<Info, types::Error> {
        let scope = Scope::of_session()?;
        let info = scope.world.borrow().info.clone();
        let RemainingLimits { model_calls, tokens, events, bytes } = info.remaining;
        Ok(Info {
            app: info.app,
            user: info.user,
            session: info.session,
            invocation_id: info.invocation_id,
            agent: scope.call.agent.clone(),
            branch: info.branch,
            function_call_id: scope.call.function_call_id.clone(),
            streaming_mode: match info.streaming_mode {
                StreamingMode::None => WitStreamingMode::None,
                StreamingMode::Sse => WitStreamingMode::Sse,
                StreamingMode::Bidi => WitStreamingMode::Bidi,
            },
            is_resumable: info.is_resumable,
            depth: info.depth,
            remaining: WitRemainingLimits { model_calls, tokens, events, bytes },
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

    pub(crate) fn get_all_state() -> Result<Vec<(String, String)>, types::Error> {
        let scope = Scope::of_session()?;
        let state = scope.world.borrow().state_for(&scope.call);
        Ok(state.into_iter().map(|(key, value)| (key, value.to_string())).collect())
    }

    pub(crate) fn set_state(key: &str, json: &str) -> Result<(), types::Error> {
        let scope = Scope::of_change()?;
        let value = read(json, "the state value")?;
        scope.call.actions.borrow_mut().state_delta.insert(key.to_owned(), value);
        Ok(())
    }

    pub(crate) fn idempotency_key() -> Result<Option<String>, types::Error> {
        Ok(Scope::of_session()?.call.idempotency_key.clone())
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
        let scope = Scope::of_change()?;
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
        let scope = Scope::of_change()?;
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
        let scope = Scope::of_change()?;
        check_artifact_name(&name)?;
        scope.world.borrow_mut().artifacts.remove(&name);
        let deleted = EventActions { deleted_artifact_ids: vec![name], ..EventActions::default() };
        super::super::world::merge(&mut scope.call.actions.borrow_mut(), deleted);
        Ok(())
    }
}

pub(crate) mod memory {
    use super::super::scope::Scope;
    use crate::bindings::wit::types::{self, MemoryEntry};
    use crate::error::Error;
    use crate::event::Event;

    pub(crate) async fn search(query: String) -> Result<Vec<MemoryEntry>, types::Error> {
        let entries = Scope::of_session()?.world.borrow().search_memory(&query);
        let entries = entries.into_iter().map(|entry| MemoryEntry {
            content: entry.content.into(),
            author: entry.author,
            timestamp: entry.timestamp_micros,
        });
        Ok(entries.collect())
    }

    pub(crate) async fn add_session(session: Option<String>) -> Result<(), types::Error> {
        let scope = Scope::of_change()?;
        let mut world = scope.world.borrow_mut();
        let events = match session.filter(|id| *id != world.info.session) {
            None => world.events.clone(),
            Some(id) => {
                let session = world.sessions.get(&(world.info.app.clone(), id.clone()));
                let session = session.ok_or_else(|| {
                    Error::new("SESSION_NOT_FOUND", format!("Session not found: {id}; add it with `.session_of(…)`"))
                })?;
                session.events.clone()
            }
        };
        world.remember(events);
        Ok(())
    }

    pub(crate) async fn add_events(events: Vec<types::Event>) -> Result<(), types::Error> {
        let scope = Scope::of_change()?;
        let events = events.into_iter().map(Event::try_from).collect::<Result<Vec<_>, Error>>()?;
        scope.world.borrow_mut().remember(events);
        Ok(())
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
                Caller::Run | Caller::Instruction | Caller::Model => world.tools.keys().cloned().collect(),
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
            return Err(types::ToolError::Recoverable(message));
        }
        let call = Call::new(Caller::Run, scope.call.agent.clone());
        call.actions.borrow_mut().state_delta.clone_from(&scope.call.actions.borrow().state_delta);
        let key = Some(scope.world.borrow_mut().new_idempotency_key());
        let call = Call { function_call_id: scope.call.function_call_id.clone(), idempotency_key: key, ..call };
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
            Caller::Agent { .. } | Caller::Run | Caller::Instruction | Caller::Model => {
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

    pub(crate) fn end_invocation() -> Result<(), types::Error> {
        change(|actions| actions.end_invocation = Some(true))
    }

    pub(crate) fn skip_summarization() -> Result<(), types::Error> {
        change(|actions| actions.skip_summarization = Some(true))
    }

    fn change(change: impl FnOnce(&mut EventActions)) -> Result<(), types::Error> {
        change(&mut Scope::of_change()?.call.actions.borrow_mut());
        Ok(())
    }
}

pub(crate) mod plugins {
    use super::super::scope::Scope;
    use crate::bindings::wit::types;
    use crate::run_info::PluginInfo;

    pub(crate) fn list() -> Result<Vec<types::PluginInfo>, types::Error> {
        Ok(Scope::of_session()?.world.borrow().plugins.iter().cloned().map(to_wit).collect())
    }

    pub(crate) fn get(name: &str) -> Result<Option<types::PluginInfo>, types::Error> {
        let scope = Scope::of_session()?;
        let world = scope.world.borrow();
        Ok(world.plugins.iter().find(|plugin| plugin.name == name).cloned().map(to_wit))
    }

    fn to_wit(PluginInfo { name, hooks, component }: PluginInfo) -> types::PluginInfo {
        types::PluginInfo { name, hooks, component }
    }
}

pub(crate) mod runner {
    use futures::stream;

    use super::super::list;
    use super::super::scope::Scope;
    use super::StreamReader;
    use crate::bindings::wit::types;
    use crate::content::Content;
    use crate::convert::read_state;
    use crate::error::Error;
    use crate::runner::RunRequest;

    pub(crate) fn list_apps() -> Result<Vec<String>, types::Error> {
        Ok(Scope::of_session()?.world.borrow().apps.keys().cloned().collect())
    }

    pub(crate) async fn run(
        request: types::RunRequest,
    ) -> Result<(types::RunInfo, StreamReader<types::Event>), types::Error> {
        let scope = Scope::of_change()?;
        let request = RunRequest {
            message: Content::try_from(request.message)?,
            state_delta: read_state(request.state_delta)?,
            app: request.app,
            session: request.session,
            streaming: request.streaming,
        };
        let (app, info) = {
            let mut world = scope.world.borrow_mut();
            world.run_requests.push(request.clone());
            let number = world.run_requests.len();
            let app = world.apps.get(&request.app).cloned().ok_or_else(|| {
                let known: Vec<_> = world.apps.keys().cloned().collect();
                let message = format!(
                    "App not found: {}; the apps are {}; add `.runs_app(\"{}\", |request| [Event::text(\"…\")])` to the \
                     test's host",
                    request.app,
                    list(&known),
                    request.app
                );
                Error::new("NOT_FOUND", message)
            })?;
            let session = request.session.clone().unwrap_or_else(|| format!("session-{number}"));
            (app, types::RunInfo { invocation_id: format!("e-run-{number}"), session })
        };
        let events = app(request);
        let complete = |event| scope.world.borrow_mut().complete(event, "agent").into();
        let events: Vec<_> = events.into_iter().map(complete).collect();
        Ok((info, StreamReader::new(stream::iter(events))))
    }

    pub(crate) fn cancel(invocation_id: &str) -> Result<(), types::Error> {
        let scope = Scope::of_session()?;
        let mut world = scope.world.borrow_mut();
        let number = invocation_id.strip_prefix("e-run-").and_then(|number| number.parse::<usize>().ok());
        if number.is_none_or(|number| number > world.run_requests.len()) {
            return Err(Error::new("NOT_FOUND", format!("this call has started no run `{invocation_id}`")).into());
        }
        world.cancelled_runs.push(invocation_id.to_owned());
        Ok(())
    }
}

pub(crate) mod sessions {
    use super::super::scope::Scope;
    use super::super::world::{MockSession, World};
    use crate::bindings::wit::types;
    use crate::content::JsonMap;
    use crate::convert::read_state;
    use crate::error::Error;
    use crate::event::Event;

    pub(crate) async fn create(
        app: String,
        id: Option<String>,
        state: Vec<(String, String)>,
    ) -> Result<types::SessionInfo, types::Error> {
        let scope = Scope::of_change()?;
        let state = read_state(state)?;
        let mut world = scope.world.borrow_mut();
        let id = id.unwrap_or_else(|| format!("session-{}", world.sessions.len() + 1));
        let key = (app, id);
        if world.sessions.contains_key(&key) {
            return Err(Error::new("SESSION_EXISTS", format!("Session already exists: {}", key.1)).into());
        }
        let now = world.now();
        let session = MockSession { state, events: Vec::new(), created_micros: now, updated_micros: now };
        let info = info(&key, &session);
        world.sessions.insert(key, session);
        Ok(info)
    }

    pub(crate) async fn get(app: String, id: String) -> Result<Option<types::SessionInfo>, types::Error> {
        let scope = Scope::of_session()?;
        let (world, key) = (scope.world.borrow(), (app, id));
        Ok(world.sessions.get(&key).map(|session| info(&key, session)))
    }

    pub(crate) async fn list(app: String, offset: u64, limit: u32) -> Result<Vec<types::SessionInfo>, types::Error> {
        let scope = Scope::of_session()?;
        let world = scope.world.borrow();
        let mut sessions: Vec<_> = world.sessions.iter().filter(|(key, _)| key.0 == app).collect();
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.updated_micros));
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let listed = sessions.into_iter().skip(offset).take(limit as usize);
        Ok(listed.map(|(key, session)| info(key, session)).collect())
    }

    pub(crate) async fn events(
        app: String,
        id: String,
        window: types::EventWindow,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<types::Event>, types::Error> {
        let scope = Scope::of_session()?;
        let world = scope.world.borrow();
        let session = world.sessions.get(&(app, id.clone())).ok_or_else(|| not_found(&id))?;
        let is_inside = |event: &&Event| window.after.is_none_or(|after| event.timestamp_micros >= after);
        let events: Vec<_> = session.events.iter().filter(is_inside).collect();
        let older = window.recent.map_or(0, |recent| events.len().saturating_sub(recent as usize));
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(older);
        Ok(events.into_iter().skip(offset).take(limit as usize).cloned().map(Into::into).collect())
    }

    pub(crate) async fn append(app: String, id: String, event: types::Event) -> Result<types::Event, types::Error> {
        let scope = Scope::of_change()?;
        let mut world = scope.world.borrow_mut();
        check_idle(&world, &app, &id)?;
        let event = world.complete(Event::try_from(event)?, &scope.call.agent);
        let session = world.sessions.get_mut(&(app, id.clone())).ok_or_else(|| not_found(&id))?;
        session.append(event.clone());
        Ok(event.into())
    }

    pub(crate) async fn delete(app: String, id: String) -> Result<(), types::Error> {
        let scope = Scope::of_change()?;
        let mut world = scope.world.borrow_mut();
        check_idle(&world, &app, &id)?;
        world.sessions.remove(&(app, id));
        Ok(())
    }

    fn check_idle(world: &World, app: &str, id: &str) -> Result<(), Error> {
        if (app, id) == (world.info.app.as_str(), world.info.session.as_str()) {
            let message =
                format!("session `{id}` of app `{app}` is that of the current run: its agents emit events instead");
            return Err(Error::new("SESSION_IN_USE", message));
        }
        Ok(())
    }

    fn not_found(id: &str) -> Error {
        let what = "add `.session_of(\"APP\", \"ID\", [Event::text(\"…\")])` to the test's host";
        Error::new("SESSION_NOT_FOUND", format!("Session not found: {id}; {what}"))
    }

    fn info((app, id): &(String, String), session: &MockSession) -> types::SessionInfo {
        let state: &JsonMap = &session.state;
        types::SessionInfo {
            app: app.clone(),
            id: id.clone(),
            state: state.iter().map(|(key, value)| (key.clone(), value.to_string())).collect(),
            event_count: session.events.len() as u64,
            created: session.created_micros,
            updated: session.updated_micros,
        }
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

    pub(crate) fn arguments() -> Result<Option<String>, types::Error> {
        Ok(Scope::of_session()?.world.borrow().arguments.as_ref().map(Value::to_string))
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
