//! One suite for all providers. Each has a [`Fixture`] with its requests and responses.

pub mod anthropic;
mod gemini;
mod libraries;
mod openai;
mod responses;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use hatchery_core::{
    Aggregator, FunctionDeclaration, LlmRequest, LlmResponse, Model, ModelErrorKind, ModelResolver, StreamingMode,
};
use hatchery_models::{GoogleCloud, ModelProviders, Service, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::{
    BodyEnd, MockProvider, MockResponse, call_error, content, deltas, deltas_of_all_splits, generate, request, stream,
    texts, user_request,
};

/// The text of every answer.
const TEXT: &str = "ü 漢 🦀";

/// The differences of a provider from the others.
pub struct Fixture {
    /// The provider's name in messages.
    pub label: &'static str,
    pub model: fn(&MockProvider) -> Arc<dyn Model>,
    /// The paths of requests, and of those for a stream.
    pub targets: [&'static str; 2],
    /// A header of every request, with its value.
    pub header: (&'static str, &'static str),
    /// The bodies of [`conversation`], and for a stream.
    pub bodies: [Value; 2],
    /// A thought, [`TEXT`] and a call of `roll`.
    pub answer: Value,
    /// The same as a stream.
    pub events: Vec<String>,
    /// The response to both.
    pub response: Value,
    /// An answer without content, and the same as a stream.
    pub empty: (Value, Vec<String>),
    /// An event with a text.
    pub text_event: fn(&str) -> String,
    /// An event with the error `overloaded` of the server.
    pub error_event: String,
}

/// Returns the fixtures of all providers, and of the models of libraries.
fn fixtures() -> Vec<Fixture> {
    own_fixtures().into_iter().chain(libraries::fixtures()).collect()
}

fn own_fixtures() -> Vec<Fixture> {
    vec![
        gemini::on_api(),
        gemini::on_vertex(),
        gemini::on_apigee(),
        anthropic::on_api(),
        anthropic::on_vertex(),
        openai::on_api(),
        openai::on_ollama(),
        responses::on_api(),
    ]
}

/// Returns a model of a registry with this service at the URL of the mock provider.
fn model_at(provider: &MockProvider, service: Service, path: &str, name: &str) -> Arc<dyn Model> {
    let url = format!("{}{path}", provider.url);
    let google_cloud = GoogleCloud {
        project: Some("my-project".into()),
        location: Some("europe-west4".into()),
        metadata_host: provider.url.strip_prefix("http://").map(Into::into),
        ..GoogleCloud::default()
    };
    let settings = Settings { google_cloud, ..Settings::default() };
    let settings = settings.with_base_url(service, url).with_key(service, "the-key");
    ModelProviders::with_defaults(settings).model(name).unwrap()
}

/// Returns a request with instructions, files, a call with its response, a tool and settings.
fn conversation() -> LlmRequest {
    let tool = FunctionDeclaration {
        name: "roll".into(),
        description: "Rolls a die.".into(),
        parameters: Some(parameters()),
        response: None,
    };
    let config = json!({
        "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 100, "stopSequences": ["END"],
        "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
    });
    let files = json!([
        { "text": "Roll it" },
        { "inlineData": { "mimeType": "image/png", "data": "AAEC" } },
        { "inlineData": { "mimeType": "application/pdf", "data": "AAEC", "displayName": "a.pdf" } },
        { "inlineData": { "mimeType": "text/plain", "data": "aGk=" } },
    ]);
    let call = json!({ "functionCall": { "id": "call_1", "name": "roll", "args": { "sides": 6 } } });
    let result = json!({ "functionResponse": { "id": "call_1", "name": "roll", "response": { "result": "4" } } });
    LlmRequest {
        system_instructions: vec!["Be brief.".into()],
        tools: vec![Arc::new(tool)],
        config: serde_json::from_value(config).unwrap(),
        ..request([
            content(json!({ "role": "user", "parts": files })),
            content(json!({ "role": "model", "parts": [{ "text": "Rolling." }, call] })),
            content(json!({ "role": "user", "parts": [result] })),
        ])
    }
}

/// Returns the schema of the tool in [`conversation`].
fn parameters() -> Value {
    json!({ "type": "object", "properties": { "sides": { "type": "integer" } } })
}

/// Returns a request that is retried without a delay.
fn impatient_request() -> LlmRequest {
    let mut request = user_request("hi");
    let options = json!({ "retryOptions": { "initialDelay": 0.001, "maxDelay": 0.001 } });
    request.config.extra.insert("httpOptions".into(), options);
    request
}

fn joined(deltas: Vec<LlmResponse>) -> Option<LlmResponse> {
    let mut aggregator = Aggregator::default();
    deltas.into_iter().for_each(|delta| aggregator.push(delta));
    aggregator.finish()
}

fn events(events: &[String]) -> MockResponse {
    MockResponse::events(events.to_vec())
}

#[tokio::test]
async fn a_request_is_sent_as_the_provider_expects_it() {
    for fixture in fixtures() {
        let provider = MockProvider::start([MockResponse::json(&fixture.answer), events(&fixture.events)]).await;
        let model = (fixture.model)(&provider);
        generate(model.as_ref(), conversation()).await.unwrap();
        deltas(model.as_ref(), conversation()).await;
        for (index, received) in provider.requests().into_iter().enumerate() {
            assert_eq!(received.target, fixture.targets[index], "{}", fixture.label);
            assert_eq!(received.body, fixture.bodies[index], "{} {index}", fixture.label);
            let (name, value) = fixture.header;
            assert_eq!(received.headers[name], value, "{}", fixture.label);
            assert_eq!(received.headers["content-type"], "application/json");
        }
    }
}

#[tokio::test]
async fn an_answer_becomes_a_response_with_all_of_its_fields() {
    for fixture in fixtures() {
        let provider = MockProvider::start([MockResponse::json(&fixture.answer)]).await;
        let response = generate((fixture.model)(&provider).as_ref(), user_request("hi")).await.unwrap();
        assert_eq!(serde_json::to_value(response).unwrap(), fixture.response, "{}", fixture.label);
    }
}

#[tokio::test]
async fn the_deltas_of_a_stream_join_to_the_same_response() {
    for fixture in fixtures() {
        let provider = MockProvider::start([events(&fixture.events)]).await;
        let deltas = deltas((fixture.model)(&provider).as_ref(), user_request("hi")).await;
        assert!(texts(&deltas).len() > 1, "{} is not passed through as it arrives", fixture.label);
        let response = joined(deltas).unwrap();
        assert_eq!(serde_json::to_value(response).unwrap(), fixture.response, "{}", fixture.label);
    }
}

#[tokio::test]
async fn a_stream_has_the_same_deltas_wherever_it_is_cut() {
    for fixture in [gemini::on_api(), anthropic::on_api(), openai::on_api(), responses::on_api()]
        .into_iter()
        .chain(libraries::fixtures())
    {
        let uncut = deltas_of_all_splits(&fixture.events.concat(), fixture.model).await;
        assert_eq!(serde_json::to_value(joined(uncut)).unwrap(), fixture.response, "{}", fixture.label);
    }
}

#[tokio::test]
async fn an_empty_answer_has_no_content_and_is_complete() {
    for fixture in own_fixtures() {
        let (answer, end) = &fixture.empty;
        let provider = MockProvider::start([MockResponse::json(answer), events(end)]).await;
        let model = (fixture.model)(&provider);
        let response = generate(model.as_ref(), user_request("hi")).await.unwrap();
        assert_eq!(response.content, None, "{}", fixture.label);
        assert_eq!(response.finish_reason.as_deref(), Some("STOP"), "{}", fixture.label);
        let streamed = joined(deltas(model.as_ref(), user_request("hi")).await).unwrap();
        assert_eq!(streamed.content, None, "{}", fixture.label);
        assert_eq!(streamed.finish_reason.as_deref(), Some("STOP"), "{}", fixture.label);
    }
}

#[tokio::test]
async fn a_chunk_of_four_mebibytes_arrives_whole() {
    for fixture in own_fixtures() {
        let text = "ü".repeat(2 * 1024 * 1024);
        let provider = MockProvider::start([MockResponse::events([(fixture.text_event)(&text)])]).await;
        let items = stream((fixture.model)(&provider).as_ref(), user_request("hi")).await;
        assert!(texts(&[items[0].clone().unwrap()]) == [text], "{}", fixture.label);
    }
}

#[tokio::test]
async fn an_error_status_is_mapped_and_retried_by_its_category() {
    let cases = [
        (400, ModelErrorKind::BadRequest, 1),
        (401, ModelErrorKind::Auth, 1),
        (403, ModelErrorKind::Auth, 1),
        (404, ModelErrorKind::UnknownModel, 1),
        (408, ModelErrorKind::Timeout, 3),
        (413, ModelErrorKind::BadRequest, 1),
        (429, ModelErrorKind::RateLimited, 3),
        (500, ModelErrorKind::Server, 3),
        (503, ModelErrorKind::Server, 3),
        (504, ModelErrorKind::Timeout, 3),
        (529, ModelErrorKind::Server, 3),
    ];
    for fixture in fixtures() {
        for (status, kind, attempts) in cases {
            let refusal = || MockResponse::json(json!({ "error": { "message": "no" } })).status(status);
            let provider = MockProvider::start([refusal(), refusal(), refusal()]).await;
            let model = (fixture.model)(&provider);
            let error = call_error(model.as_ref(), impatient_request(), StreamingMode::On).await;
            assert_eq!((error.kind, error.status), (kind, Some(status)), "{} {error}", fixture.label);
            let start = format!("{} answered HTTP {status}: no", fixture.label);
            assert!(error.message.starts_with(&start), "{error}");
            // With credentials of Google, a token that is refused is replaced once.
            let attempts = if status == 401 && fixture.label.starts_with("Vertex AI") { 2 } else { attempts };
            assert_eq!(provider.requests().len(), attempts, "{} {status}", fixture.label);
        }
    }
}

#[tokio::test]
async fn retry_after_is_returned_if_it_is_too_long() {
    for fixture in fixtures() {
        let refusal = MockResponse::json("{}").status(429).header("retry-after", "31");
        let provider = MockProvider::start([refusal]).await;
        let error = call_error((fixture.model)(&provider).as_ref(), user_request("hi"), StreamingMode::On).await;
        assert_eq!(error.retry_after, Some(Duration::from_secs(31)), "{}", fixture.label);
    }
}

#[tokio::test]
async fn settings_of_client_libraries_are_not_sent() {
    for fixture in fixtures() {
        let provider = MockProvider::start([MockResponse::json(&fixture.answer)]).await;
        let mut request = impatient_request();
        request.config.extra.insert("automaticFunctionCalling".into(), json!({ "disable": true }));
        generate((fixture.model)(&provider).as_ref(), request).await.unwrap();
        let sent = provider.requests().iter().map(|request| request.body.to_string()).collect::<String>();
        for key in ["automaticFunctionCalling", "automatic_function_calling", "httpOptions", "http_options"] {
            assert!(!sent.contains(key), "{}: {sent}", fixture.label);
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_begin_in_time_is_a_timeout() {
    for fixture in fixtures() {
        let provider = MockProvider::start([MockResponse::silence()]).await;
        let mut request = user_request("hi");
        let options = json!({ "timeout": 20, "retryOptions": { "attempts": 1 } });
        request.config.extra.insert("httpOptions".into(), options);
        let error = call_error((fixture.model)(&provider).as_ref(), request, StreamingMode::On).await;
        assert_eq!(error.kind, ModelErrorKind::Timeout, "{error}");
        assert_eq!(error.message, format!("{} did not answer within 0.02 s", fixture.label));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_retried_and_ends_with_a_network_error() {
    for fixture in fixtures() {
        let one = MockResponse::events([(fixture.text_event)("one")]).ending(BodyEnd::Error);
        let provider = MockProvider::start([one, events(&fixture.events)]).await;
        let items = stream((fixture.model)(&provider).as_ref(), impatient_request()).await;
        assert_eq!(texts(&[items[0].clone().unwrap()]), ["one"], "{}", fixture.label);
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{error}");
        assert!(error.message.starts_with(&format!("the connection to {} broke: ", fixture.label)), "{error}");
        assert_eq!((items.len(), provider.requests().len()), (2, 1), "{}", fixture.label);
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_its_last_event_is_not_complete() {
    for fixture in own_fixtures() {
        let begun = MockResponse::events([(fixture.text_event)("one")]);
        let provider = MockProvider::start([begun, events(&[])]).await;
        let model = (fixture.model)(&provider);
        let mut items = stream(model.as_ref(), user_request("hi")).await;
        assert_eq!(texts(&[items[0].clone().unwrap()]), ["one"], "{}", fixture.label);
        items.extend(stream(model.as_ref(), user_request("hi")).await);
        assert_eq!(items.len(), 3, "{}", fixture.label);
        for error in items.into_iter().skip(1).map(Result::unwrap_err) {
            assert_eq!(error.kind, ModelErrorKind::Network, "{error}");
            assert_eq!(error.message, format!("the answer of {} ended before it was complete", fixture.label));
        }
    }
}

#[tokio::test]
async fn dropping_a_stream_closes_the_connection() {
    for fixture in fixtures() {
        let (held, gone) = oneshot::channel();
        let endless = MockResponse::events([(fixture.text_event)("one")]).ending(BodyEnd::Never(held));
        let provider = MockProvider::start([endless]).await;
        let mut stream = (fixture.model)(&provider).generate(user_request("hi"), StreamingMode::On).await.unwrap();
        stream.next().await.unwrap().unwrap();
        drop(stream);
        let noticed = tokio::time::timeout(Duration::from_secs(30), gone).await;
        assert!(noticed.expect("the server never noticed").is_err(), "the sender is dropped, not used");
    }
}

#[tokio::test]
async fn an_error_in_a_stream_follows_the_earlier_responses() {
    for fixture in fixtures() {
        let provider =
            MockProvider::start([MockResponse::events([(fixture.text_event)("one"), fixture.error_event.clone()])])
                .await;
        let items = stream((fixture.model)(&provider).as_ref(), user_request("hi")).await;
        assert_eq!(texts(&[items[0].clone().unwrap()]), ["one"], "{}", fixture.label);
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Server, "{error}");
        assert_eq!(error.message, format!("{} reports: overloaded", fixture.label));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_parsed_is_a_bad_response() {
    for fixture in own_fixtures() {
        let broken = || "data: {\"type\":\n\n".to_owned();
        let provider = MockProvider::start([
            MockResponse::json("["),
            MockResponse::events([(fixture.text_event)("one"), broken()]),
            MockResponse::json("{}"),
        ])
        .await;
        let model = (fixture.model)(&provider);
        let start = format!("{} sent an answer that cannot be read: ", fixture.label);
        let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
        assert!(error.kind == ModelErrorKind::BadResponse && error.message.starts_with(&start), "{error}");
        let items = stream(model.as_ref(), user_request("hi")).await;
        let error = items[1].as_ref().unwrap_err();
        assert!(error.kind == ModelErrorKind::BadResponse && error.message.starts_with(&start), "{error}");
        let error = call_error(model.as_ref(), user_request("hi"), StreamingMode::On).await;
        assert_eq!(error.message, format!("{start}expected an event stream, got application/json"));
    }
}
