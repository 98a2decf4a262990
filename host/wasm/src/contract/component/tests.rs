//! Hand-written components with manifests that no honest component returns.

mod progress;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Json;
use axum::routing::post;
use hatchery_core::{
    AuthConfig, AuthCredential, AuthKeyLocation, AuthScheme, EventData, LlmRequest, LlmResponse, OAuth2Auth, OAuthFlow,
    OAuthFlows,
};
use serde_json::json;

use super::manifest::RawManifest;
use super::*;
use crate::contract::bindings::exports::hatchery::agent::{guest_agents, guest_callbacks, guest_plugins};
use crate::contract::bindings::hatchery::agent::specs::ToolSpec;
use crate::contract::bindings::hatchery::agent::{
    log, session, sync_credentials, sync_memory, sync_models, sync_tools,
};
use crate::contract::convert::{FromWit, ToWit, wit};
use crate::contract::sub_agent_relay::tests::call;
use crate::runtime::engine::EngineOptions;
use crate::runtime::instance_size::instance_size;

/// Describes a component from its text format, without checking its contract.
pub(crate) async fn described(wat: &str, limits: Limits) -> Result<Component, LoadError> {
    described_with(wat, ComponentSettings { limits, ..ComponentSettings::default() }).await
}

async fn described_with(wat: &str, settings: ComponentSettings) -> Result<Component, LoadError> {
    let options = EngineOptions { instances: 10, pooling: false, ..EngineOptions::default() };
    let engine = Engine::new(&options).unwrap();
    let bytes = wat::parse_str(wat).unwrap();
    let component = wasmtime::component::Component::new(engine.wasm(), &bytes).unwrap();
    let contract = Contract { version: Some("0.2.0".into()), imports: Vec::new(), exports: Vec::new() };
    let code = Executable { component, program: None, instance_size: instance_size(&bytes).unwrap_or_default() };
    Component::describe(engine, "made", "hash".into(), contract, None, &code, settings).await
}

/// Returns a component `made` with these agents.
pub(crate) async fn with_agents(agents: Vec<AgentSpec>) -> Arc<Component> {
    let mut component = described("(component)", Limits::default()).await.unwrap();
    component.manifest.agents = agents;
    Arc::new(component)
}

/// Returns a component with a toolset that is computed for each run.
pub(crate) async fn with_toolset(name: &str, toolset: &str) -> Arc<Component> {
    let mut component = described("(component)", Limits::default()).await.unwrap();
    component.name = name.into();
    component.manifest.toolsets = vec![toolset.to_owned()];
    Arc::new(component)
}

pub(crate) fn agent(name: impl Into<String>, sub_agents: Vec<String>) -> AgentSpec {
    AgentSpec {
        name: name.into(),
        description: String::new(),
        kind: guest_agents::AgentKind::Sequential,
        sub_agents,
        before_agent: Vec::new(),
        after_agent: Vec::new(),
        on_agent_error: Vec::new(),
    }
}

fn tool(name: String) -> ToolSpec {
    let declaration = wit::FunctionDeclaration { name, description: String::new(), parameters: None, response: None };
    ToolSpec { declaration, long_running: false, requires_confirmation: false }
}

fn callback(name: String) -> guest_callbacks::CallbackSpec {
    guest_callbacks::CallbackSpec { name, points: Vec::new() }
}

fn plugin(name: String) -> guest_plugins::PluginSpec {
    guest_plugins::PluginSpec { name, hooks: Vec::new() }
}

/// Returns `count` items with distinct names.
fn many<T>(count: usize, item: impl Fn(String) -> T) -> Vec<T> {
    (0..count).map(|number| item(format!("i{number}"))).collect()
}

#[test]
fn a_component_with_too_many_items_is_refused() {
    type Offering = (&'static str, usize, fn(usize) -> RawManifest);
    let manifests: [Offering; 8] = [
        ("agents", 256, |n| RawManifest { agents: many(n, |name| agent(name, Vec::new())), ..RawManifest::default() }),
        ("tools", 1000, |n| RawManifest { tools: many(n, tool), ..RawManifest::default() }),
        ("callbacks", 1000, |n| RawManifest { callbacks: many(n, callback), ..RawManifest::default() }),
        ("plugins", 1000, |n| RawManifest { plugins: many(n, plugin), ..RawManifest::default() }),
        ("code executors", 1000, |n| RawManifest { code_executors: many(n, |name| name), ..RawManifest::default() }),
        ("summarizers", 1000, |n| RawManifest { summarizers: many(n, |name| name), ..RawManifest::default() }),
        ("example providers", 1000, |n| RawManifest { examples: many(n, |name| name), ..RawManifest::default() }),
        ("models", 1000, |n| RawManifest { models: many(n, |name| name), ..RawManifest::default() }),
    ];
    for (items, max, described) in manifests {
        ComponentManifest::try_from(described(max)).map(|_| ()).unwrap();
        let count = max + 1;
        assert_eq!(
            ComponentManifest::try_from(described(count)).map(|_| ()).unwrap_err(),
            format!("it has {count} {items}, and a component may have {max}; split it into several components")
        );
    }
}

#[test]
fn names_are_unique_among_the_items_of_a_kind_and_can_be_part_of_a_path() {
    let refused = |described| ComponentManifest::try_from(described).map(|_| ()).unwrap_err();
    let twice = || vec!["a".to_owned(), "a".to_owned()];
    let odd = || vec!["a/b".to_owned()];
    assert_eq!(refused(RawManifest { models: twice(), ..RawManifest::default() }), "it has two models named `a`");
    let plugins = twice().into_iter().map(plugin).collect();
    assert_eq!(refused(RawManifest { plugins, ..RawManifest::default() }), "it has two plugins named `a`");
    assert_eq!(
        refused(RawManifest { summarizers: odd(), ..RawManifest::default() }),
        "`a/b` cannot name a summarizer: names are not empty and have no `/`"
    );
    assert_eq!(
        refused(RawManifest { models: vec!["a\nWARN: b".into()], ..RawManifest::default() }),
        "`a\\nWARN: b` cannot name a model: names have no control characters or line separators"
    );
    let hooks = vec!["on\ntea".to_owned()];
    let error = refused(RawManifest {
        plugins: vec![guest_plugins::PluginSpec { name: "a".into(), hooks }],
        ..RawManifest::default()
    });
    assert!(error.starts_with("`on\\ntea` of its plugin `a` is not a valid hook"), "{error}");
    // Names are unique per kind only.
    let one = || vec!["a".to_owned()];
    let described = RawManifest { models: one(), examples: one(), code_executors: one(), ..RawManifest::default() };
    assert!(ComponentManifest::try_from(described).is_ok());
}

#[test]
fn the_name_of_a_tool_that_is_described_for_a_run_has_no_control_characters() {
    assert!(DescribedTool::try_from(tool("find/a b".into())).is_ok());
    let refused = DescribedTool::try_from(tool("a\u{1b}[2Kb".into())).map(|_| ()).unwrap_err();
    assert_eq!(refused, "`a\\u{1b}[2Kb` cannot name a tool: names have no control characters or line separators");
    let long = DescribedTool::try_from(tool("\n".repeat(1 << 20))).map(|_| ()).unwrap_err();
    assert!(long.starts_with("`\\n\\n") && long.len() < 500, "{long}");
}

#[test]
fn the_name_of_an_item_has_at_most_256_bytes() {
    assert!(DescribedTool::try_from(tool("a".repeat(256))).is_ok());
    let long = || "a".repeat(257);
    let refused = DescribedTool::try_from(tool(long())).map(|_| ()).unwrap_err();
    assert!(refused.ends_with("cannot name a tool: names have at most 256 bytes") && refused.len() < 300, "{refused}");
    let models = RawManifest { models: vec![long()], ..RawManifest::default() };
    let refused = ComponentManifest::try_from(models).map(|_| ()).unwrap_err();
    assert!(refused.ends_with("cannot name a model: names have at most 256 bytes"), "{refused}");
}

#[test]
fn an_unknown_hook_is_refused_with_a_list_of_the_hooks() {
    let refused = |described| ComponentManifest::try_from(described).map(|_| ()).unwrap_err();
    let plugins = vec![guest_plugins::PluginSpec { name: "censor".into(), hooks: vec!["on-tea-time".into()] }];
    assert_eq!(
        refused(RawManifest { plugins, ..RawManifest::default() }),
        "`on-tea-time` of its plugin `censor` is not a valid hook; valid hooks are `on-user-message`, `before-run`, \
         `on-event`, `after-run`, `on-run-error`, `close`, `before-agent`, `after-agent`, `on-agent-error`, \
         `before-model`, `after-model`, `on-model-error`, `before-tool`, `after-tool`, `on-tool-error`"
    );
    let callbacks = vec![guest_callbacks::CallbackSpec { name: "stamp".into(), points: vec!["on-event".into()] }];
    assert_eq!(
        refused(RawManifest { callbacks, ..RawManifest::default() }),
        "`on-event` of its callback `stamp` is not a valid hook; valid hooks are `before-agent`, `after-agent`, \
         `on-agent-error`, `before-model`, `after-model`, `on-model-error`, `before-tool`, `after-tool`, `on-tool-error`"
    );
}

#[tokio::test]
async fn a_component_whose_describe_does_not_return_is_refused_after_five_seconds() {
    let spins = "(component (core module $m (func $spin (loop br 0)) (start $spin)) (core instance (instantiate $m)))";
    let minute = Duration::from_secs(60);
    let began = Instant::now();
    let error = described(spins, Limits { cpu: minute, wall: minute, ..Limits::default() }).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "`describe` of component `made` failed: it exceeded its limit of 5s for `describe`; let it only return the component's items"
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    let quick = Limits { cpu: minute, wall: Duration::from_millis(50), ..Limits::default() };
    let error = described(spins, quick).await.err().unwrap();
    assert!(error.to_string().contains("raise `limits.wall`"), "{error}");
}

#[tokio::test]
async fn unlimited_times_are_no_limits() {
    let endless = Limits { cpu: Duration::MAX, wall: Duration::MAX, agent_wall: Duration::MAX, ..Limits::default() };
    assert!(described("(component)", endless).await.is_ok());
}

#[tokio::test]
async fn a_model_has_no_session_and_can_write_to_the_log() {
    let made = described("(component)", Limits::default()).await.unwrap();
    let answers = made.sandbox.run(CallOrigin::Model(None), |mut store, _| {
        Box::pin(async move {
            let state = store.data_mut();
            let logged = log::Host::write(state, "info".into(), "asked".into(), Vec::new());
            let answers = [
                session::Host::current(state).map(drop),
                session::Host::set_state(state, "key".into(), "1".into()),
                session::Host::confirmation(state).map(drop),
                session::Host::request_confirmation(state, "may I?".into(), None),
                session::Host::events(state, 0, 1).map(drop),
            ];
            Ok((logged, answers))
        })
    });
    let (logged, answers) = answers.await.unwrap();
    logged.unwrap();
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.code, "NO_SESSION");
        assert_eq!(error.message, "there is no session in a call of a component's model");
    }
}

#[tokio::test]
async fn code_that_calls_a_model_needs_a_grant_for_tools_inside_of_it() {
    let made = described("(component)", Limits::default()).await.unwrap();
    let asked = made.sandbox.run(CallOrigin::Call(call()), |mut store, _| {
        Box::pin(async move {
            let mut errors = Vec::new();
            for tool in [r#"{"codeExecution": {}}"#, r#"{"urlContext": {}}"#] {
                let request = wit::LlmRequest {
                    model: "scripted:made.yaml".into(),
                    contents: Vec::new(),
                    system_instructions: Vec::new(),
                    tools: Vec::new(),
                    model_tools: vec![tool.into()],
                    config: None,
                };
                let answer = sync_models::Host::generate(store.data_mut(), request, false).await;
                errors.extend(answer.err().map(|error| (error.code, error.message)));
            }
            Ok(errors)
        })
    });
    let errors = asked.await.unwrap();
    assert_eq!(errors.len(), 2);
    assert_ne!(errors[0].0, "DENIED", "the model does not exist: {}", errors[0].1);
    let denied = "component `made` may not use the tool `url_context`";
    assert_eq!(errors[1], ("DENIED".to_owned(), denied.to_owned()));
}

#[tokio::test]
async fn state_that_a_call_sets_counts_to_its_memory_as_it_is_after_parsing() {
    let made = described("(component)", Limits { memory: 4 << 20, ..Limits::default() }).await.unwrap();
    let cx = call();
    let set = made.sandbox.run(CallOrigin::Call(cx.clone()), |mut store, _| {
        Box::pin(async move {
            let mut set = |json: String| session::Host::set_state(store.data_mut(), "numbers".into(), json);
            Ok([set(format!("\"{}\"", "x".repeat(400_000))), set(format!("[0{}]", ",0".repeat(200_000)))])
        })
    });
    let [text, numbers] = set.await.unwrap();
    text.unwrap();
    let error = numbers.unwrap_err();
    assert_eq!(error.code, "LIMIT_REACHED");
    assert_eq!(error.message, "state key `numbers` is not set: it exceeded its limit of 4 MiB of memory");
    assert_eq!(cx.take_actions().state_delta["numbers"].as_str().unwrap().len(), 400_000);
}

#[tokio::test]
async fn the_result_of_a_tool_counts_as_it_is_after_parsing() {
    let made = described("(component)", Limits { memory: 4 << 20, ..Limits::default() }).await.unwrap();
    let text = made.parse_result(format!("\"{}\"", "x".repeat(400_000)), &call()).unwrap();
    assert_eq!(text.as_str().unwrap().len(), 400_000);
    let error = made.parse_result(format!("[0{}]", ",0".repeat(200_000)), &call()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it exceeded its limit of 4 MiB of memory; raise `limits.memory` in hatchery.yaml to allow more"
    );
    assert_eq!(made.sandbox.engine.memory_in_use(), 0, "nothing is charged after the call");
}

#[tokio::test]
async fn the_configuration_of_a_credential_has_a_maximum_size() {
    let scheme = |name: &str| AuthScheme::ApiKey { location: AuthKeyLocation::Header, name: name.into() };
    let config = |name: &str| json!(AuthConfig::new(scheme(name), Some(AuthCredential::api_key("key")))).to_string();
    let grants = Grants { network: vec!["api.example".parse().unwrap()], ..Grants::default() };
    let settings = ComponentSettings { grants: Arc::new(grants), ..ComponentSettings::default() };
    let made = described_with("(component)", settings).await.unwrap();
    let asked = made.sandbox.run(CallOrigin::Call(call()), |mut store, _| {
        Box::pin(async move {
            let state = store.data_mut();
            let kept = sync_credentials::Host::get(state, config("X-Key")).await.unwrap().unwrap();
            let large = "x".repeat(64 << 10);
            let size = config(&large).len();
            let get = sync_credentials::Host::get(state, config(&large)).await.map(drop);
            let credential = format!("\"{large}\"");
            let refuse = sync_credentials::Host::refuse(state, config("X-Key"), credential).await;
            Ok((kept, size, get, refuse))
        })
    });
    let (kept, size, get, refuse) = asked.await.unwrap();
    assert!(kept.contains("key"), "{kept}");
    let error = get.unwrap_err();
    assert_eq!(error.code, "BAD_INPUT");
    let refused = "the configuration of a credential has";
    assert_eq!(error.message, format!("{refused} {size} bytes, and 64 KiB are allowed; shorten it"));
    let error = refuse.unwrap_err();
    assert_eq!(error.message, "the credential has 65538 bytes, and 64 KiB are allowed; shorten it");
}

#[tokio::test]
async fn a_refused_token_that_no_user_has_granted_is_replaced() {
    // A provider of the process is installed by the host otherwise.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let issued = Arc::new(AtomicUsize::new(0));
    let token = move |_: String| {
        let number = issued.fetch_add(1, Ordering::SeqCst);
        async move { Json(json!({"access_token": format!("token-{number}"), "expires_in": 3600})) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum::Router::new().route("/token", post(token));
    tokio::spawn(async move { axum::serve(listener, server).await });
    let flow = OAuthFlow { token_url: format!("http://{address}/token"), ..OAuthFlow::default() };
    let flows = OAuthFlows { client_credentials: Some(flow), ..OAuthFlows::default() };
    let client =
        OAuth2Auth { client_id: Some("id".into()), client_secret: Some("secret".into()), ..OAuth2Auth::default() };
    let config = AuthConfig::new(AuthScheme::OAuth2 { flows }, Some(AuthCredential::oauth2(client)));
    let config = json!(config).to_string();

    let grants = Grants {
        network: vec![format!("http://{address}").parse().unwrap()],
        private_network: vec![address.to_string().parse().unwrap()],
        ..Grants::default()
    };
    let settings = ComponentSettings { grants: Arc::new(grants), ..ComponentSettings::default() };
    let made = described_with("(component)", settings).await.unwrap();
    let asked = made.sandbox.run(CallOrigin::Call(call()), |mut store, _| {
        Box::pin(async move {
            let mut tokens = Vec::new();
            for _ in 0..2 {
                let state = store.data_mut();
                let kept = sync_credentials::Host::get(state, config.clone()).await.unwrap().unwrap();
                let again = sync_credentials::Host::get(state, config.clone()).await.unwrap().unwrap();
                assert_eq!(kept, again, "it is kept until it is refused");
                sync_credentials::Host::refuse(state, config.clone(), kept.clone()).await.unwrap();
                let credential: Value = serde_json::from_str(&kept).unwrap();
                tokens.push(credential["oauth2"]["accessToken"].clone());
            }
            Ok(tokens)
        })
    });
    assert_eq!(asked.await.unwrap(), [json!("token-0"), json!("token-1")]);
}

#[tokio::test]
async fn json_in_a_request_to_a_model_counts_as_it_is_after_parsing() {
    let made = described("(component)", Limits { memory: 4 << 20, ..Limits::default() }).await.unwrap();
    let asked = made.sandbox.run(CallOrigin::Call(call()), |mut store, _| {
        Box::pin(async move {
            let mut errors = Vec::new();
            for schema in ["{}".to_owned(), format!("{{\"enum\": [0{}]}}", ",0".repeat(200_000))] {
                let mut request = LlmRequest::default().to_wit();
                request.model = "scripted:made.yaml".into();
                let mut declared = tool("f".into()).declaration;
                declared.parameters = Some(schema);
                request.tools = vec![declared];
                let answer = sync_models::Host::generate(store.data_mut(), request, false).await;
                errors.extend(answer.err().map(|error| (error.code, error.message)));
            }
            Ok(errors)
        })
    });
    let errors = asked.await.unwrap();
    assert_eq!(errors.len(), 2);
    assert_ne!(errors[0].0, "LIMIT_REACHED", "the model does not exist: {}", errors[0].1);
    assert_eq!(errors[1], ("LIMIT_REACHED".to_owned(), "it exceeded its limit of 4 MiB of memory".to_owned()));
}

#[tokio::test]
async fn texts_of_calls_that_have_not_returned_count_to_the_memory() {
    let grants: Grants = serde_json::from_value(json!({"memory": "read"})).unwrap();
    let limits = Limits { memory: 4 << 20, ..Limits::default() };
    let settings = ComponentSettings { grants: Arc::new(grants), limits, ..ComponentSettings::default() };
    let made = described_with("(component)", settings).await.unwrap();
    let asked = made.sandbox.run(CallOrigin::Call(call()), |mut store, _| {
        Box::pin(async move {
            let (state, long) = (store.data_mut(), || "x".repeat(5 << 20));
            let found = sync_memory::Host::search(state, "x".repeat(1000)).await.map(|entries| entries.len());
            let search = sync_memory::Host::search(state, long()).await.map(drop);
            Ok((found, search, sync_tools::Host::call(state, long(), "{}".into()).await))
        })
    });
    let (found, search, called) = asked.await.unwrap();
    assert_eq!(found.unwrap(), 0);
    let error = search.unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("LIMIT_REACHED", "it exceeded its limit of 4 MiB of memory")
    );
    let Err(wit::ToolError::Recoverable(message)) = called else { panic!("{called:?}") };
    assert!(
        message.ends_with("is not called: it exceeded its limit of 4 MiB of memory") && message.len() < 300,
        "{message}"
    );
}

#[tokio::test]
async fn json_in_events_and_answers_counts_as_it_is_after_parsing() {
    fn converted<W: EstimateSize + ParsedSize>(made: &Component, value: W) -> Result<(), String> {
        made.convert(&call(), value, |_| Ok(())).map_err(|error| error.to_string())
    }
    let made = described("(component)", Limits { memory: 4 << 20, ..Limits::default() }).await.unwrap();
    let numbers = format!("{{\"a\": [0{}]}}", ",0".repeat(200_000));
    let text = format!("{{\"a\": \"{}\"}}", "x".repeat(400_000));
    let event = |json: &str| {
        let mut event = EventData::default().to_wit();
        event.actions.state_delta = vec![("key".into(), json.into())];
        event
    };
    let call_of = |args: &str| wit::Content {
        role: None,
        parts: vec![wit::Part {
            data: wit::PartData::FunctionCall(wit::FunctionCall {
                id: None,
                name: "f".into(),
                args: args.into(),
                extra: None,
            }),
            thought: false,
            thought_signature: None,
            extra: None,
        }],
    };
    let request = |schema: &str| {
        let mut request = LlmRequest::default().to_wit();
        let mut tool = tool("f".into()).declaration;
        tool.parameters = Some(schema.into());
        request.tools = vec![tool];
        request
    };
    let response = |extra: &str| wit::LlmResponse { extra: Some(extra.into()), ..LlmResponse::default().to_wit() };
    let stored = made.convert(&call(), event(&text), EventData::from_wit).unwrap();
    assert_eq!(stored.actions.state_delta["key"]["a"].as_str().unwrap().len(), 400_000);
    for fits in [
        converted(&made, Some(call_of(&text))),
        converted(&made, request(&text)),
        converted(&made, Some(response(&text))),
        converted(&made, text.clone()),
    ] {
        fits.unwrap();
    }
    let reason = "it exceeded its limit of 4 MiB of memory; raise `limits.memory` in hatchery.yaml to allow more";
    for refused in [
        converted(&made, event(&numbers)),
        converted(&made, Some(call_of(&numbers))),
        converted(&made, request(&numbers)),
        converted(&made, Some(response(&numbers))),
        converted(&made, numbers.clone()),
    ] {
        assert_eq!(refused.unwrap_err(), reason);
    }
    assert_eq!(made.sandbox.engine.memory_in_use(), 0, "nothing is charged after the call");
}

#[tokio::test]
async fn requested_confirmations_count_to_the_limit_on_state_of_a_call() {
    let made = described("(component)", Limits { result: 10_000, ..Limits::default() }).await.unwrap();
    let cx = call().for_call(Some("call-1"));
    let request = made.sandbox.run(CallOrigin::Call(cx.clone()), |mut store, _| {
        Box::pin(async move {
            let mut ask = |bytes: usize, payload: &str| {
                session::Host::request_confirmation(store.data_mut(), "x".repeat(bytes), Some(payload.into()))
            };
            Ok([ask(9_000, "1"), ask(9_990, r#""a payload that is too much""#), ask(1, "{")])
        })
    });
    let [fits, too_much, no_json] = request.await.unwrap();
    fits.unwrap();
    let error = too_much.unwrap_err();
    assert_eq!(error.code, "LIMIT_REACHED");
    assert_eq!(
        error.message,
        "no confirmation is requested, because this call has set too much: it exceeded its limit of 10000 B in one result"
    );
    let error = no_json.unwrap_err();
    assert_eq!(error.code, "BAD_INPUT");
    assert!(error.message.starts_with("the payload of a confirmation is not JSON: "), "{}", error.message);
    assert_eq!(cx.take_actions().requested_tool_confirmations["call-1"]["hint"].as_str().unwrap().len(), 9_000);
}

#[tokio::test]
async fn large_core_instances_count_to_the_memory_of_a_call() {
    let made = async |instances: usize| {
        let globals = "(global i32 (i32.const 0))".repeat(40_000);
        let instances = "(core instance (instantiate $m))".repeat(instances);
        let limits = Limits { memory: 1 << 20, ..Limits::default() };
        described(&format!("(component (core module $m {globals}) {instances})"), limits).await
    };
    assert!(made(1).await.is_ok(), "as much as a large program needs is free");
    let error = made(4).await.err().expect("a refusal").to_string();
    assert!(error.contains("it exceeded its limit of 1 MiB of memory"), "{error}");
}
