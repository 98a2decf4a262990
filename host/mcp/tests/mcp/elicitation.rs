//! Questions of a server to a person, during a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Content, Event, FunctionResponse, InputClient, InputError, InputKind, InputRequest, InputResponse, PartData,
    REQUEST_CONFIRMATION,
};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::Reply;
use hatchery_test_support::map;
use serde_json::{Value, json};

use crate::support::{CallingApp, erratic, response, toolset};

/// Returns the arguments with which the tool `ask` asks a person.
fn question() -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form",
        "message": "Which seat?",
        "requestedSchema": {
            "type": "object",
            "properties": {"seat": {"type": "string"}, "window": {"type": "boolean", "default": true}},
            "required": ["seat"],
        },
    }})
}

async fn asking_app() -> CallingApp {
    let mut config = erratic(&[]);
    config.elicitation = true;
    // The model is called while the call waits, and again with its result.
    let replies = [Reply::call("ask", question()), Reply::from("please answer"), Reply::from("done")];
    CallingApp::with_replies(toolset(config), replies).await
}

/// Returns the id and the arguments of the call with which a person is asked.
fn request(events: &[Arc<Event>]) -> Option<(String, Value)> {
    let mut calls = events.iter().flat_map(|event| event.function_calls());
    let call = calls.find(|call| call.name == REQUEST_CONFIRMATION)?;
    Some((call.id.clone()?, json!(call.args)))
}

fn decision(id: &str, decision: Value) -> Content {
    let response = FunctionResponse {
        id: Some(id.into()),
        name: REQUEST_CONFIRMATION.into(),
        response: map(decision),
        ..FunctionResponse::default()
    };
    Content::new("user", vec![PartData::FunctionResponse(response).into()])
}

/// Returns the answer that the server received.
fn server_got(events: &[Arc<Event>]) -> Value {
    response(events)["text_output"][0]["result"].clone()
}

#[tokio::test]
async fn a_question_pauses_the_run_and_the_answer_makes_the_call_again() {
    let app = asking_app().await;
    let events = app.harness.run("go").await;
    assert_eq!(response(&events)["status"], "waiting for a person to answer: Which seat?");
    let (id, args) = request(&events).unwrap();
    assert_eq!(args["toolConfirmation"]["hint"], "erratic asks: Which seat?");
    let schema = &args["toolConfirmation"]["payload"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["seat"]), "{args}");
    let events = app.harness.send(decision(&id, json!({"confirmed": true, "payload": {"seat": "7A"}}))).await;
    // Omitted fields have the default of the form.
    assert_eq!(server_got(&events), json!({"action": "accept", "content": {"seat": "7A", "window": true}}));
    let state = app.harness.state().await;
    assert!(!state.to_string().contains("7A"), "{state}");
}

#[tokio::test]
async fn a_refusal_is_an_answer() {
    let app = asking_app().await;
    let (id, _) = request(&app.harness.run("go").await).unwrap();
    let events = app.harness.send(decision(&id, json!({"confirmed": false}))).await;
    assert_eq!(server_got(&events), json!({"action": "decline"}));
}

#[tokio::test]
async fn an_answer_that_does_not_match_the_form_is_not_sent() {
    let app = asking_app().await;
    let (id, _) = request(&app.harness.run("go").await).unwrap();
    let events = app.harness.send(decision(&id, json!({"confirmed": true, "payload": {"seat": 7}}))).await;
    let error = response(&events)["error"].to_string();
    assert!(error.contains("the person's answer does not match the form"), "{error}");
}

#[tokio::test]
async fn a_server_asks_nobody_unless_its_settings_allow_it() {
    let app = CallingApp::new(toolset(erratic(&[])), &[("ask", question())]).await;
    let events = app.harness.run("go").await;
    assert_eq!((server_got(&events), request(&events)), (json!({"action": "decline"}), None));
}

/// A client of a run whose person always gives the same answer.
#[derive(Debug)]
struct Interactive(Option<Value>);

#[async_trait]
impl InputClient for Interactive {
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
        let answer = self.0.clone().map(map);
        Ok(requests.into_keys().map(|key| (key, InputResponse::Form(answer.clone()))).collect())
    }
}

#[tokio::test]
async fn a_question_is_passed_on_to_a_client_that_answers_during_the_run() {
    let accepted = json!({"action": "accept", "content": {"seat": "7A", "window": true}});
    for (answer, expected) in [(Some(json!({"seat": "7A"})), accepted), (None, json!({"action": "decline"}))] {
        let mut config = erratic(&[]);
        config.elicitation = true;
        let app = CallingApp::new(toolset(config), &[("ask", question())]).await;
        let request = app.harness.request(Content::user("go"));
        let request = RunRequest { input: Some(Arc::new(Interactive(answer))), ..request };
        let run = app.harness.runner.run(app.harness.app.clone(), request).await.unwrap();
        let events = run.collect().await.unwrap();
        assert!(self::request(&events).is_none());
        assert_eq!(server_got(&events), expected);
    }
}
