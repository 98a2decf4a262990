//! The client that the conformance suite runs: an agent that calls every tool of the server at the URL, through this
//! crate's toolset. Fails if a call fails, also after access was granted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallContext, ConfigValue, Content, FunctionResponse, InputClient, InputError, InputKind, InputRequest,
    InputResponse, PartData, REQUEST_CONFIRMATION, RunError, Tool, Toolset,
};
use hatchery_engine::RunRequest;
use hatchery_engine::build::custom;
use hatchery_mcp::{
    Browser, Egress, Handshake, HttpServer, McpToolset, OAuthConfig, OAuthGrant, ServerConfig, ToolsetOptions,
    Transport, Url,
};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{Harness, llm_on};
use serde_json::{Map, Value, json};

/// Returns arguments that match the types of a schema.
fn arguments(schema: &Value) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let value = |schema: &Value| match schema.get("type").and_then(Value::as_str) {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(schema))).collect()
}

/// Makes the calls that the scenario demands, or one call of each tool.
async fn call_all(toolset: &dyn Toolset, cx: &CallContext) -> Result<(), RunError> {
    let tools = toolset.tools(cx).await?;
    let named = |name: &str| tools.iter().find(|tool| tool.declaration().name == name);
    let demanded = context().get("toolCalls").and_then(Value::as_array).cloned();
    let calls: Vec<_> = match demanded {
        Some(calls) => {
            let call = |call: &Value| {
                let tool = named(call.get("name")?.as_str()?)?;
                Some((tool, call.get("arguments")?.as_object()?.clone()))
            };
            calls.iter().filter_map(call).collect()
        }
        None => {
            let schema = |tool: &Arc<dyn Tool>| tool.declaration().parameters.clone().unwrap_or_default();
            let call = |tool| {
                let mut args = arguments(&schema(tool));
                // The server compares its schema with the one that arrives here.
                if let (Some(arg), Some(focal)) = (args.get_mut("schema"), named("json_schema_2020_12_tool")) {
                    *arg = schema(focal);
                }
                (tool, args)
            };
            tools.iter().map(call).collect()
        }
    };
    for (tool, args) in calls {
        match Tool::call(tool.as_ref(), args, cx).await {
            Ok(result) => eprintln!("{}: {result}", tool.declaration().name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A client of the run whose person accepts every form as it is.
#[derive(Debug)]
struct AcceptingClient;

#[async_trait]
impl InputClient for AcceptingClient {
    fn supports(&self, kind: InputKind) -> bool {
        kind == InputKind::Form
    }

    fn is_interactive(&self) -> bool {
        true
    }

    async fn request(
        &self,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<BTreeMap<String, InputResponse>, InputError> {
        Ok(requests.into_keys().map(|key| (key, InputResponse::Form(Some(Map::new())))).collect())
    }
}

/// The most logins that one run may need.
const MAX_LOGINS: usize = 3;

/// A person who grants every request: the suite's authorization servers redirect at once.
struct Granting;

#[async_trait]
impl Browser for Granting {
    fn redirect_uri(&self) -> String {
        "http://localhost:3000/callback".into()
    }

    async fn authorize(&self, url: &str) -> Result<String, String> {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        let answer = client.map_err(|error| error.to_string())?.get(url).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let target = answer.headers().get("location").and_then(|location| location.to_str().ok());
        target.map(str::to_owned).ok_or_else(|| "there is no redirect".into())
    }
}

/// Allows everything: the suite's servers are on this machine.
struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

fn scenario() -> String {
    std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default()
}

/// Returns the data of the scenario.
fn context() -> Value {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    serde_json::from_str(&context).unwrap_or_default()
}

/// Returns the settings for a scenario.
fn oauth() -> OAuthConfig {
    let context = context();
    let text = |key: &str| context.get(key).and_then(Value::as_str).map(|text| ConfigValue::Text(text.into()));
    let mut oauth = OAuthConfig::new(Arc::new(Anywhere));
    oauth.client_metadata_url = Some("https://conformance-test.local/client-metadata.json".into());
    (oauth.client_id, oauth.client_secret) = (text("client_id"), text("client_secret"));
    if scenario().starts_with("auth/client-credentials") {
        oauth.grant = OAuthGrant::ClientCredentials;
    }
    oauth
}

#[tokio::main]
async fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let Some(url) = std::env::args().next_back() else { return ExitCode::FAILURE };
    let is_modern = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").is_ok_and(|version| version.as_str() >= "2026");
    let mut config = ServerConfig::new(Transport::Http(HttpServer { url, ..HttpServer::default() }));
    config.handshake = if is_modern { Handshake::Discover } else { Handshake::Initialize };
    config.oauth = Some(oauth());
    config.elicitation = true;
    let toolset = Arc::new(McpToolset::new("conformance", config, ToolsetOptions::default()));
    let mut outcome = run(&toolset).await;
    for _ in 0..MAX_LOGINS {
        let Err(error) = outcome else { break };
        eprintln!("{error}");
        outcome = match toolset.login(&Granting).await {
            Ok(()) => run(&toolset).await,
            Err(error) => {
                outcome = Err(error.to_string());
                break;
            }
        };
    }
    toolset.close().await;
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The name of a tool and the arguments of a call.
type Call = (String, Map<String, Value>);

/// Calls every tool once.
async fn run(toolset: &Arc<McpToolset>) -> Result<(), String> {
    let tools = Arc::new(Mutex::new(Vec::<Call>::new()));
    // The run pauses for the answers of a person.
    let is_asked = scenario().starts_with("sep-2322");
    let agent = custom("caller", {
        let (toolset, tools) = (toolset.clone(), tools.clone());
        move |cx| {
            let (toolset, tools) = (toolset.clone(), tools.clone());
            async move {
                if !is_asked {
                    return call_all(toolset.as_ref(), &cx.call).await;
                }
                let listed = toolset.tools(&cx.call).await?;
                let calls = listed.iter().map(|tool| {
                    let schema = tool.declaration().parameters.clone().unwrap_or_default();
                    (tool.declaration().name.clone(), arguments(&schema))
                });
                tools.lock_unpoisoned().extend(calls);
                Ok(())
            }
        }
    });
    let harness = Harness::new(agent.build().map_err(|error| error.to_string())?).await;
    let request = RunRequest { input: Some(Arc::new(AcceptingClient)), ..harness.request(Content::user("go")) };
    let run = harness.runner.run(harness.app.clone(), request).await.map_err(|error| error.to_string())?;
    run.collect().await.map_err(|error| error.to_string())?;
    let tools = std::mem::take(&mut *tools.lock_unpoisoned());
    for (name, args) in tools {
        call_as_model(toolset, &name, args).await?;
    }
    Ok(())
}

/// Lets a model call a tool, and a person accept all questions of its server.
async fn call_as_model(toolset: &Arc<McpToolset>, name: &str, args: Map<String, Value>) -> Result<(), String> {
    // It is called once more for each question.
    let model = Scripted::new().on_tool(name, "done").default_reply(Reply::call(name, Value::Object(args)));
    let model = Arc::new(model);
    let harness = Harness::new(llm_on("caller", &model, |llm| llm.toolsets.push(toolset.clone()))).await;
    let mut events = harness.run("go").await;
    while let Some(id) = events.iter().find_map(|event| {
        let call = event.function_calls().find(|call| call.name == REQUEST_CONFIRMATION)?;
        call.id.clone()
    }) {
        let response = FunctionResponse {
            id: Some(id),
            name: REQUEST_CONFIRMATION.into(),
            response: Map::from_iter([("confirmed".to_owned(), true.into())]),
            ..FunctionResponse::default()
        };
        events = harness.send(Content::new("user", vec![PartData::FunctionResponse(response).into()])).await;
    }
    let mut responses = events.iter().flat_map(|event| event.function_responses());
    match responses.find_map(|response| response.response.get("error")) {
        Some(error) => Err(format!("{name}: {error}")),
        None => Ok(()),
    }
}
