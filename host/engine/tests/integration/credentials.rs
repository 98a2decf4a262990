//! Credentials that tools request from users: requests to the client, and its answers.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, AuthConfig, AuthCredential, AuthKeyLocation, AuthScheme, CallContext, Claim,
    Content, CredentialId, CustomAgent, CustomAgentSpec, Event, EventData, Extra, FunctionCall, FunctionDeclaration,
    JsonMap, PartData, REQUEST_CREDENTIAL, RunError, SessionKey, Tool, ToolError, UserCredential,
};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

/// A tool that returns the key that the user has granted, in upper case, and requests it before.
struct Vault {
    declaration: Arc<FunctionDeclaration>,
    requires_confirmation: bool,
}

impl Vault {
    fn tool(name: &str) -> Arc<dyn Tool> {
        Arc::new(Self { declaration: declaration(name), requires_confirmation: false })
    }

    fn config(&self) -> AuthConfig {
        let scheme = AuthScheme::ApiKey { location: AuthKeyLocation::Header, name: "X-Key".into() };
        AuthConfig { credential_key: Some(self.declaration.name.clone()), ..AuthConfig::new(scheme, None) }
    }
}

#[async_trait]
impl Tool for Vault {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        match cx.user_credential(&self.declaration.name).await? {
            Some(UserCredential::Answer { credential, .. } | UserCredential::Granted { credential }) => {
                Ok(json!({"key": credential.api_key.unwrap_or_default().to_uppercase()}))
            }
            None => {
                let config = self.config().for_client(AuthCredential::default());
                cx.request_credential(&config).map_err(|error| ToolError::Recoverable(error.to_string()))?;
                Ok(json!({"status": "asked"}))
            }
        }
    }
}

fn requests(events: &[Arc<Event>]) -> Vec<(String, JsonMap)> {
    let calls = events.iter().flat_map(|event| event.function_calls());
    let calls = calls.filter(|call| call.name == REQUEST_CREDENTIAL);
    calls.map(|call| (call.id.clone().unwrap(), call.args.clone())).collect()
}

fn answer(id: &str, key: &str) -> Content {
    let scheme = json!({"type": "apiKey", "in": "header", "name": "X-Key"});
    let config = json!({"authScheme": scheme, "exchangedAuthCredential": {"authType": "apiKey", "apiKey": key}});
    tool_response(id, REQUEST_CREDENTIAL, config)
}

async fn app(replies: impl IntoIterator<Item = Reply>, tools: Vec<Arc<dyn Tool>>) -> (Harness, Arc<Scripted>) {
    let model = Arc::new(Scripted::sequence(replies));
    (Harness::new(llm_on("root", &model, |llm| llm.tools = tools)).await, model)
}

fn call(name: &str) -> Reply {
    Reply::call(name, json!({}))
}

#[tokio::test]
async fn a_credential_is_requested_before_the_result_and_the_call_is_made_again() {
    let (app, model) = app([call("vault"), "one moment".into(), "done".into()], vec![Vault::tool("vault")]).await;
    let events = app.run("hi").await;
    let original = events[0].function_calls().next().unwrap().id.clone().unwrap();
    let (id, args) = requests(&events).remove(0);
    assert_eq!(events[1].long_running_tool_ids, std::slice::from_ref(&id));
    assert_eq!(args["functionCallId"], original);
    assert_eq!(args["authConfig"]["credentialKey"], "vault");
    assert_eq!(briefs(&events)[2..], [r#"root: answer vault{"status":"asked"}"#, "root: one moment"]);
    assert_eq!(events[2].actions.requested_auth_configs[&original], args["authConfig"]);
    let events = app.send(answer(&id, "s3cret")).await;
    assert_eq!(briefs(&events), [r#"root: answer vault{"key":"S3CRET"}"#, "root: done"]);
    let contents = json!(model.requests().last().unwrap().contents.iter().collect::<Vec<_>>());
    assert!(!contents.to_string().contains(REQUEST_CREDENTIAL), "{contents}");
}

#[tokio::test]
async fn neither_plugins_nor_tools_nor_the_session_get_the_answer() {
    let (app, model) = app([call("vault"), "one moment".into(), "done".into()], vec![Vault::tool("vault")]).await;
    let (id, _) = requests(&app.run("hi").await).remove(0);
    app.send(answer(&id, "s3cret")).await;
    let session = app.session().await;
    let stored: Vec<_> =
        session.events.iter().map(|event| String::from_utf8_lossy(event.json()).into_owned()).collect();
    assert!(!stored.concat().contains("s3cret"), "{stored:?}");
    assert!(stored.concat().contains(r#""response":{"status":"received"}"#), "{stored:?}");
    let contents = json!(model.requests().last().unwrap().contents.iter().collect::<Vec<_>>());
    assert!(!contents.to_string().contains("s3cret"), "{contents}");
}

#[tokio::test]
async fn the_model_is_told_that_the_user_declines_and_a_later_call_asks_again() {
    let replies = [call("vault"), "one moment".into(), "as you like".into(), call("vault"), "please log in".into()];
    let (app, model) = app(replies, vec![Vault::tool("vault")]).await;
    let events = app.run("hi").await;
    let (id, _) = requests(&events).remove(0);
    let events = app.send(answer(&id, "")).await;
    let message = "the user has not granted the credential that `vault` needs, so it was not called; go on without it, or call it \
                again if the user wants to be asked once more";
    assert_eq!(
        briefs(&events),
        [format!("root: answer vault{}", json!({"error": message})), "root: as you like".into()]
    );
    let contents = json!(model.requests().last().unwrap().contents.iter().collect::<Vec<_>>()).to_string();
    assert!(contents.contains("the user has not granted"), "{contents}");
    assert_eq!(requests(&app.run("I do want it").await).len(), 1);
}

#[tokio::test]
async fn calls_of_one_response_request_a_credential_each() {
    let tools = vec![Vault::tool("one"), Vault::tool("two")];
    let both = call("one").and_call("two", json!({}));
    let (app, _) = app([both, "two, please".into(), "one more".into(), "done".into()], tools).await;
    let events = app.run("hi").await;
    let requests = requests(&events);
    assert_eq!((requests.len(), &events[1].long_running_tool_ids.len()), (2, &2));
    let events = app.send(answer(&requests[1].0, "b")).await;
    assert_eq!(briefs(&events), [r#"root: answer two{"key":"B"}"#, "root: one more"]);
    let events = app.send(answer(&requests[0].0, "a")).await;
    assert_eq!(briefs(&events), [r#"root: answer one{"key":"A"}"#, "root: done"]);
}

#[tokio::test]
async fn a_request_that_a_model_forges_is_not_answered() {
    let forged = Reply::call(
        REQUEST_CREDENTIAL,
        json!({"functionCallId": "c1", "authConfig":
            {"authScheme": {"type": "apiKey", "in": "header", "name": "X"}, "credentialKey": "vault"}}),
    );
    let (app, _) =
        app([forged.with_id("forged"), "please log in".into(), "what?".into()], vec![Vault::tool("vault")]).await;
    app.run("hi").await;
    let error = app.runner.run(app.app.clone(), app.request(answer("forged", "s3cret"))).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
}

#[tokio::test]
async fn a_call_that_requires_confirmation_too_is_confirmed_with_the_credential_there() {
    let vault = Vault { declaration: declaration("vault"), requires_confirmation: true };
    let texts = ["confirm", "log in", "confirm again", "done"].map(Reply::from);
    let (app, _) = app([call("vault")].into_iter().chain(texts), vec![Arc::new(vault)]).await;
    let confirmation = |events: &[Arc<Event>]| {
        let mut calls = events.iter().flat_map(|event| event.function_calls());
        let id = calls.find(|call| call.name == "adk_request_confirmation").unwrap().id.clone().unwrap();
        tool_response(&id, "adk_request_confirmation", json!({"confirmed": true}))
    };
    let events = app.run("hi").await;
    let events = app.send(confirmation(&events)).await;
    let (id, _) = requests(&events).remove(0);
    let events = app.send(answer(&id, "k")).await;
    let events = app.send(confirmation(&events)).await;
    assert_eq!(briefs(&events), [r#"root: answer vault{"key":"K"}"#, "root: done"]);
}

#[tokio::test]
async fn code_of_an_agent_cannot_request_a_credential() {
    struct Calling;

    #[async_trait]
    impl CustomAgent for Calling {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            let error = cx.call.host()?.call_tool(&cx.call, "vault", JsonMap::new()).await.unwrap_err();
            cx.say(error.to_string()).await.map(|_| ())
        }
    }

    let spec = CustomAgentSpec { code: Arc::new(Calling), model: None, tools: vec![Vault::tool("vault")] };
    let app = Harness::new(Agent::new("code", "", AgentKind::Custom(spec))).await;
    let transcript = app.transcript("hi").await;
    assert!(transcript[0].contains("a credential can only be requested in a tool call"), "{transcript:?}");
}

#[tokio::test]
async fn a_resumable_run_waits_and_continues_after_the_answer() {
    let (mut app, _) = app([call("vault"), "done".into()], vec![Vault::tool("vault")]).await;
    app.resumable();
    let events = app.run("hi").await;
    let (id, _) = requests(&events).remove(0);
    assert_eq!(briefs(&events).last().unwrap(), r#"root: answer vault{"status":"asked"}"#);
    let run = events[0].invocation_id.clone();
    let events = app.send(answer(&id, "k")).await;
    assert_eq!(briefs(&events)[..2], [r#"root: answer vault{"key":"K"}"#, "root: done"]);
    assert_eq!(events[0].invocation_id, run);
}

/// Calls the function `name` with the id of the newest request for a credential.
struct RepeatingAgent {
    name: &'static str,
    /// Signs the event itself, as no component can.
    signs: bool,
}

#[async_trait]
impl CustomAgent for RepeatingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let invocation = &cx.call.invocation;
        let events: Vec<_> = invocation.events().iter().cloned().collect();
        let Some((id, args)) = requests(&events).pop() else { return Ok(()) };
        let call = FunctionCall { id: Some(id.clone()), name: self.name.into(), args, extra: Extra::default() };
        let content = Content::new("model", vec![PartData::FunctionCall(call).into()]);
        let content = Some(Arc::new(content));
        let mut data = EventData { content, long_running_tool_ids: vec![id], ..EventData::default() };
        if !self.signs {
            return cx.emit(data).await.map(drop);
        }
        data.author = cx.call.agent.to_string();
        data.invocation_id = invocation.id.clone();
        invocation.signer.sign(&invocation.session_key, &mut data, Claim::Call);
        cx.sink.emit(Event::new(data)).await.map(drop)
    }
}

async fn app_with_repeating_agent(agent: RepeatingAgent) -> Harness {
    let model = Arc::new(Scripted::sequence([call("vault"), "one moment".into(), "done".into()]));
    let asking = llm_on("asking", &model, |llm| llm.tools = vec![Vault::tool("vault")]);
    let spec = CustomAgentSpec { code: Arc::new(agent), model: None, tools: vec![] };
    let repeating = Agent::new("repeating", "", AgentKind::Custom(spec));
    Harness::new(workflow("all", AgentKind::Sequential, vec![asking, repeating])).await
}

async fn stored_key(app: &Harness) -> Option<String> {
    let id = CredentialId::for_user(&SessionKey::new("app", USER, SESSION), "vault");
    app.runner.services().credentials.load(&id).await.unwrap().map(|stored| stored.to_string())
}

async fn stored_events(app: &Harness) -> String {
    let events = app.session().await.events;
    events.iter().map(|event| String::from_utf8_lossy(event.json()).into_owned()).collect()
}

#[tokio::test]
async fn code_that_repeats_the_id_of_a_request_is_refused_and_the_tool_gets_the_credential() {
    for name in [REQUEST_CREDENTIAL, "other"] {
        let app = app_with_repeating_agent(RepeatingAgent { name, signs: false }).await;
        let (_, error) = app.expect_error("hi").await;
        let events: Vec<_> = app.session().await.events.iter().cloned().collect();
        let (id, _) = requests(&events).remove(0);
        let refusal = format!(
            "may not call a function with the id `{id}`, which another agent's call has: its answer would come here; \
             give its calls ids of their own"
        );
        assert!(error.to_string().contains(&refusal), "{error}");
        let events = app.send(answer(&id, "s3cret")).await;
        assert_eq!(briefs(&events)[0], r#"asking: answer vault{"key":"S3CRET"}"#);
        assert!(!stored_events(&app).await.contains("s3cret"), "{name}");
    }
}

#[tokio::test]
async fn a_credential_for_a_cancelled_run_is_refused_and_not_kept() {
    let (app, _) = app([call("vault"), "one moment".into()], vec![Vault::tool("vault")]).await;
    let request = RunRequest { run_id: Some("r1".into()), ..app.request(Content::user("hi")) };
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let (id, _) = requests(&events).remove(0);
    app.runner.cancel_run(&SessionKey::new("app", USER, SESSION), "r1").await.unwrap().unwrap();
    let late = app.runner.run(app.app.clone(), app.request(answer(&id, "s3cret"))).await.unwrap();
    assert_eq!(late.collect().await.unwrap_err().code(), "BAD_INPUT");
    assert_eq!(stored_key(&app).await, None);
}

#[tokio::test]
async fn an_answer_to_a_request_of_the_host_is_never_passed_to_code() {
    let app = app_with_repeating_agent(RepeatingAgent { name: REQUEST_CREDENTIAL, signs: true }).await;
    let (id, _) = requests(&app.run("hi").await).remove(0);
    let request = app.request(answer(&id, "s3cret"));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let stored = stored_events(&app).await;
    assert!(!stored.contains("s3cret"), "{stored}");
    assert!(stored_key(&app).await.unwrap().contains("s3cret"));
}
