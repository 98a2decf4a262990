//! A component of contract 0.1.0: a tool, a callback and a custom agent that use what the host offered then. Built against `wit/` beside it,
//! a copy of the contract as it was released, which nobody changes any more. A host that serves 0.1 runs it as it is.

mod bindings;

use bindings::exports::hatchery::agent::guest_agents::{self, AgentKind, AgentSpec, CustomAgent};
use bindings::exports::hatchery::agent::guest_callbacks::{self, CallbackSpec};
use bindings::exports::hatchery::agent::guest_tools::{self, ToolSpec};
use bindings::hatchery::agent::types::{
    Content, Error, Event, EventActions, FunctionDeclaration, LlmRequest, LlmResponse, ModelAction, Part, PartData,
    ToolAction, ToolCall, ToolError,
};
use bindings::hatchery::agent::{config, log, model, session, tools};
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
            return Err(ToolError::Model(format!("there is no tool `{name}`")));
        }
        let greeting = config::get("greeting").map_err(ToolError::Fatal)?;
        session::set_state("greeted", "true").map_err(ToolError::Fatal)?;
        log::write("info", "greeting", &[("args".into(), args.clone())]).map_err(ToolError::Fatal)?;
        Ok(format!(r#"{{"greeting": {}, "args": {args}}}"#, greeting.unwrap_or_else(|| "null".into())))
    }
}

impl guest_callbacks::Guest for Component {
    fn describe() -> Vec<CallbackSpec> {
        vec![CallbackSpec { name: "closed".into(), points: vec!["before-agent".into()] }]
    }

    async fn before_agent(_: String) -> Result<Option<Content>, Error> {
        let said = text(&session::user_content()?);
        Ok(said.contains("closed?").then(|| message("We are closed.")))
    }

    async fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    async fn on_agent_error(_: String, failure: Error) -> Result<Option<Content>, Error> {
        Err(failure)
    }

    async fn before_model(_: String, _: LlmRequest) -> Result<ModelAction, Error> {
        Ok(ModelAction::Proceed)
    }

    async fn after_model(_: String, _: LlmResponse) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    async fn before_tool(_: String, _: ToolCall) -> Result<ToolAction, Error> {
        Ok(ToolAction::Proceed)
    }

    async fn after_tool(_: String, _: ToolCall, _: String) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn on_model_error(_: String, _: LlmRequest, failure: Error) -> Result<Option<LlmResponse>, Error> {
        Err(failure)
    }

    async fn on_tool_error(_: String, _: ToolCall, failure: Error) -> Result<Option<String>, Error> {
        Err(failure)
    }
}

impl guest_agents::Guest for Component {
    fn describe() -> Vec<AgentSpec> {
        let custom = CustomAgent { model: Some("scripted:old.yaml".into()), tools: vec!["greet".into()] };
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

    async fn instruct(agent: String, _: bool) -> Result<String, Error> {
        Err(Error { code: "NOT_FOUND".into(), message: format!("the agent `{agent}` has no computed instruction") })
    }

    async fn run(_: String) -> Result<wit_bindgen::StreamReader<Event>, Error> {
        let (mut writer, events) = wit_stream::new();
        wit_bindgen::spawn_local(async move {
            let greeted = match tools::call("greet".into(), r#"{"from": "old"}"#.into()).await {
                Ok(answer) => event(message(&answer)),
                Err(ToolError::Model(message)) => failure(Error { code: "TOOL_FAILED".into(), message }),
                Err(ToolError::Fatal(error)) => failure(error),
            };
            let answered = ask().await.map_or_else(failure, event);
            // Whoever reads the events may have gone.
            writer.write_all(vec![greeted, answered]).await;
        });
        Ok(events)
    }
}

/// The last thing that the model says to what the user has said.
async fn ask() -> Result<Content, Error> {
    let request = LlmRequest {
        model: String::new(),
        contents: vec![session::user_content()?],
        system_instructions: vec!["Answer the user.".into()],
        tools: Vec::new(),
        model_tools: Vec::new(),
        config: None,
    };
    let mut responses = model::generate(request, false).await?;
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
            skip_summarization: None,
            transfer_to_agent: None,
            escalate: None,
            end_of_agent: None,
            extra: None,
        },
        partial: false,
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
