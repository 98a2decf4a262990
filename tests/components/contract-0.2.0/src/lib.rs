//! A component of contract 0.2.0: a tool, a toolset, a callback, a plugin and a custom agent that use what the host offered then. Built
//! against `wit/` beside it, a copy of the contract as it was released, which nobody changes any more. A host that serves 0.2 runs it as it
//! is.

mod bindings;
mod hooks;
mod toolset;

use bindings::exports::hatchery::agent::guest_agents::{self, AgentKind, AgentSpec, CustomAgent};
use bindings::exports::hatchery::agent::guest_tools::{self, ToolSpec};
use bindings::hatchery::agent::specs::ToolUse;
use bindings::hatchery::agent::types::{
    Content, Error, Event, EventActions, FunctionDeclaration, LlmRequest, Part, PartData, RunRequest, ToolError,
};
use bindings::hatchery::agent::{config, log, memory, models, runner, session, sessions, tools};
use bindings::wit_stream;

struct Component;

bindings::export!(Component with_types_in bindings);

impl guest_tools::Guest for Component {
    fn describe() -> Vec<ToolSpec> {
        let declaration = FunctionDeclaration {
            name: "greet".into(),
            description: "Greets as the operator wants it.".into(),
            parameters: Some(r#"{"type": "object"}"#.into()),
            response: None,
        };
        vec![ToolSpec { declaration, long_running: false, requires_confirmation: false }]
    }

    async fn call(name: String, args: String) -> Result<String, ToolError> {
        if name != "greet" {
            return Err(ToolError::Recoverable(format!("there is no tool `{name}`")));
        }
        let greeting = config::get("greeting").map_err(ToolError::Fatal)?;
        session::set_state("greeted", "true").map_err(ToolError::Fatal)?;
        log::write("info", "greeting", &[("args".into(), args.clone())]).map_err(ToolError::Fatal)?;
        let configured = config::arguments().map_err(ToolError::Fatal)?;
        let seen = look_around().await.map_err(ToolError::Fatal)?;
        let (greeting, configured) = (greeting.unwrap_or("null".into()), configured.unwrap_or("null".into()));
        Ok(format!(r#"{{"greeting": {greeting}, "args": {args}, "configured": {configured}, "seen": {seen}}}"#))
    }
}

/// Uses the services of 0.2, and returns what came of it as JSON.
async fn look_around() -> Result<String, Error> {
    let apps = runner::list_apps()?;
    let request = RunRequest {
        app: "old".into(),
        session: None,
        message: Content { role: Some("user".into()), ..message("closed?") },
        state_delta: Vec::new(),
        streaming: false,
    };
    let started = runner::run(request).await.map(|(info, _)| info.session);
    let count = sessions::list("old".into(), 0, 10).await?.len();
    memory::add_session(None).await?;
    let found = memory::search("hello".into()).await?.len();
    let depth = session::current()?.depth;
    Ok(format!(r#"[{}, {}, {count}, {found}, {depth}]"#, apps.len(), started.is_ok()))
}

impl guest_agents::Guest for Component {
    fn describe() -> Vec<AgentSpec> {
        let greet =
            ToolUse { name: "greet".into(), args: Some(r#"{"tone": "warm"}"#.into()), requires_confirmation: None };
        let custom = CustomAgent { model: Some("scripted:old.yaml".into()), tools: vec![greet] };
        vec![AgentSpec {
            name: "old".into(),
            description: "Greets with its tool, then asks its model.".into(),
            kind: AgentKind::Custom(custom),
            sub_agents: Vec::new(),
            before_agent: vec!["closed".into()],
            after_agent: Vec::new(),
            on_agent_error: Vec::new(),
        }]
    }

    async fn compute_instruction(agent: String, _: bool) -> Result<String, Error> {
        Err(Error { code: "NOT_FOUND".into(), message: format!("the agent `{agent}` has no computed instruction") })
    }

    async fn run(_: String) -> Result<wit_bindgen::StreamReader<Event>, Error> {
        let (mut writer, events) = wit_stream::new();
        wit_bindgen::spawn_local(async move {
            let greeted = match tools::call("greet".into(), r#"{"from": "old"}"#.into()).await {
                Ok(answer) => event(message(&answer)),
                Err(ToolError::Recoverable(message)) => failure(Error { code: "TOOL_FAILED".into(), message }),
                Err(ToolError::Fatal(error)) => failure(error),
            };
            let answered = ask().await.map_or_else(failure, event);
            // Whoever reads the events may have gone.
            writer.write_all(vec![greeted, answered]).await;
        });
        Ok(events)
    }
}

/// Returns the last text of the model's response to the user's message.
async fn ask() -> Result<Content, Error> {
    let request = LlmRequest {
        model: String::new(),
        contents: vec![session::user_content()?],
        system_instructions: vec!["Answer the user.".into()],
        tools: Vec::new(),
        model_tools: Vec::new(),
        config: None,
    };
    let mut responses = models::generate(request, false).await?;
    let mut last = None;
    while let Some(response) = responses.next().await {
        last = response.content;
    }
    last.ok_or_else(|| Error { code: "EMPTY".into(), message: "the model says nothing".into() })
}

fn message(text: &str) -> Content {
    let part = Part { data: PartData::Text(text.into()), thought: false, thought_signature: None, extra: None };
    Content { role: Some("model".into()), parts: vec![part] }
}

fn text(content: &Content) -> String {
    let texts = content.parts.iter().filter_map(|part| match &part.data {
        PartData::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn event(content: Content) -> Event {
    Event {
        id: String::new(),
        invocation_id: String::new(),
        author: String::new(),
        content: Some(content),
        actions: EventActions {
            state_delta: Vec::new(),
            artifact_delta: Vec::new(),
            deleted_artifact_ids: Vec::new(),
            skip_summarization: None,
            transfer_to_agent: None,
            escalate: None,
            end_of_agent: None,
            end_invocation: None,
            extra: None,
        },
        partial: false,
        turn_complete: None,
        interrupted: None,
        branch: None,
        long_running_tool_ids: Vec::new(),
        error_code: None,
        error_message: None,
        timestamp: 0,
        extra: None,
    }
}

fn failure(error: Error) -> Event {
    let message = message(&error.message);
    Event { error_code: Some(error.code), error_message: Some(error.message), ..event(message) }
}
