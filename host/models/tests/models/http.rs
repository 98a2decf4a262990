//! Requests over HTTP: retries, timeouts, options and network errors.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use hatchery_core::{
    AttributeValue, LlmRequest, ModelErrorKind, ModelResolver, RunUsage, SessionKey, SpanContext, SpanData,
    SpanExporter, SpanOperation, StreamingMode, TraceParent,
};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::json;
use tokio::sync::oneshot;

use crate::support::{BodyEnd, MockProvider, MockResponse, call_error, event, generate, stream, texts, user_request};

fn hello() -> MockResponse {
    MockResponse::json(json!({ "candidates": [{ "content": { "parts": [{ "text": "hello" }] } }] }))
}

fn busy() -> MockResponse {
    MockResponse::json(json!({ "error": { "code": 429, "message": "slow down" } }))
        .status(429)
        .header("retry-after", "0")
}

fn piece(text: &str) -> String {
    event(json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] } }] }))
}

#[tokio::test]
async fn a_rate_limited_request_is_retried_and_succeeds() {
    let provider = MockProvider::start([busy(), busy(), hello()]).await;
    let response = generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap();
    assert_eq!(texts(&[response]), ["hello"]);
    let question = provider.requests();
    assert_eq!(question.len(), 3);
    assert!(question.iter().all(|again| again.body == question[0].body));
}

/// Keeps spans.
#[derive(Default)]
struct Collector(Mutex<Vec<Arc<SpanData>>>);

impl SpanExporter for Collector {
    fn export(&self, span: &Arc<SpanData>) {
        self.0.lock().unwrap().push(span.clone());
    }

    fn captures_content(&self) -> bool {
        false
    }

    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        true
    }
}

#[tokio::test]
async fn a_call_tells_its_provider_and_its_retries_and_carries_the_context_of_its_trace() {
    let provider = MockProvider::start([busy(), busy(), hello()]).await;
    let collector = Arc::new(Collector::default());
    let trace = SpanContext::new(collector.clone(), SessionKey::new("app", "ada", "s"), "e-1", None);
    let mut span = trace.start(SpanOperation::Model, "");
    let request = LlmRequest { progress: span.begin_model_call(), ..user_request("hi") };
    let progress = request.progress.clone();
    generate(provider.gemini().as_ref(), request).await.unwrap();
    span.set_progress(&progress);
    let header = span.context().header().unwrap();
    drop(span);
    let spans = collector.0.lock().unwrap();
    let call = spans.last().unwrap();
    assert_eq!(call.get("gen_ai.provider.name").and_then(|name| name.as_str()), Some("gcp.gemini"));
    assert_eq!(call.get("hatchery.model.retries").and_then(|retries| retries.as_u64()), Some(2));
    assert!(provider.requests().iter().all(|request| request.headers["traceparent"] == header));
}

#[tokio::test]
async fn each_attempt_of_a_call_is_a_span_with_its_error_and_the_delay_after_it() {
    let broken = MockResponse::json("oops").status(500);
    let provider = MockProvider::start([broken, busy(), hello()]).await;
    let collector = Arc::new(Collector::default());
    let trace = SpanContext::new(collector.clone(), SessionKey::new("app", "ada", "s"), "e-1", None);
    let span = trace.start(SpanOperation::Model, "");
    let mut request = with_options(json!({ "retryOptions": { "initialDelay": 0.001, "jitter": 0.0 } }));
    request.progress = span.begin_model_call();
    generate(provider.gemini().as_ref(), request).await.unwrap();
    span.finish();
    let spans = collector.0.lock().unwrap();
    let (call, attempts) = spans.split_last().unwrap();
    let read: Vec<_> = attempts
        .iter()
        .map(|attempt| {
            assert_eq!(attempt.parent_span_id, Some(call.span_id));
            let text = |key| attempt.get(key).and_then(|value| value.as_str());
            assert_eq!(text("gen_ai.provider.name"), Some("gcp.gemini"));
            let number = |key| attempt.get(key).and_then(|value| value.as_u64());
            (
                &*attempt.name,
                number("hatchery.model.attempt"),
                number("http.response.status_code"),
                text("hatchery.model.error_category"),
                attempt.error.as_ref().map(|error| &*error.code),
                attempt.get("hatchery.model.retry_delay").cloned(),
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            (
                "model_attempt 1",
                Some(1),
                Some(500),
                Some("SERVER_ERROR"),
                Some("MODEL_SERVER_ERROR"),
                Some(AttributeValue::Number(0.001))
            ),
            (
                "model_attempt 2",
                Some(2),
                Some(429),
                Some("RATE_LIMITED"),
                Some("MODEL_RATE_LIMITED"),
                Some(AttributeValue::Number(0.0))
            ),
            ("model_attempt 3", Some(3), Some(200), None, None, None),
        ]
    );
}

#[tokio::test]
async fn an_attempt_that_is_dropped_is_cancelled_in_its_trace() {
    // Accepts connections, and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = Settings::default().with_key(Service::Gemini, "k").with_base_url(Service::Gemini, url);
    let model = ModelProviders::with_defaults(settings).model("gemini-x").unwrap();
    let collector = Arc::new(Collector::default());
    let trace = SpanContext::new(collector.clone(), SessionKey::new("app", "ada", "s"), "e-1", None);
    let span = trace.start(SpanOperation::Model, "");
    let request = LlmRequest { progress: span.begin_model_call(), ..user_request("hi") };
    let call = model.generate(request, StreamingMode::On);
    tokio::select! {
        _ = call => panic!("nothing was sent"),
        connection = listener.accept() => drop(connection.unwrap()),
    }
    let spans = collector.0.lock().unwrap();
    let attempt = &spans[0];
    assert_eq!(
        (&*attempt.name, attempt.error.as_ref().map(|error| &*error.code)),
        ("model_attempt 1", Some("CANCELLED"))
    );
}

#[tokio::test]
async fn a_request_is_not_sent_again_once_the_run_has_used_its_retries() {
    let provider = MockProvider::start([busy(), busy(), hello()]).await;
    let mut request = user_request("hi");
    let usage = Arc::new(RunUsage::default());
    request.progress.limit_retries(&usage, 1);
    let error = call_error(provider.gemini().as_ref(), request, StreamingMode::Off).await;
    let expected =
        "Gemini answered HTTP 429: slow down; not sent again: the run has used its 1 retry (`max_model_retries`)";
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::RateLimited, expected));
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn a_call_outside_of_a_trace_carries_no_context() {
    let provider = MockProvider::start([hello()]).await;
    generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap();
    assert!(!provider.requests()[0].headers.contains_key("traceparent"));
}

/// Returns a request with these HTTP options.
fn with_options(options: serde_json::Value) -> LlmRequest {
    let mut request = user_request("hi");
    request.config.extra.insert("httpOptions".into(), options);
    request
}

#[tokio::test]
async fn headers_and_retries_of_http_options_are_used() {
    let provider = MockProvider::start([busy(), hello()]).await;
    let once = with_options(json!({ "retryOptions": { "attempts": 1 }, "headers": { "X-Team": "red" } }));
    let error = call_error(provider.gemini().as_ref(), once, StreamingMode::Off).await;
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(provider.requests()[0].headers["x-team"], "red");
    let not_found = MockResponse::json(json!({ "error": { "message": "not yet" } })).status(404);
    let provider = MockProvider::start([not_found, hello()]).await;
    let retried = with_options(json!({ "retryOptions": { "initialDelay": 0.001, "httpStatusCodes": [404] } }));
    generate(provider.gemini().as_ref(), retried).await.unwrap();
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn http_options_that_code_has_set_are_checked() {
    let provider = MockProvider::start([]).await;
    for (options, message) in [
        (
            json!({ "headers": { "Authorization": "Bearer mine" } }),
            "`httpOptions.headers` cannot set `Authorization`, which the host sets",
        ),
        (
            json!({ "retryOptions": { "initialDelay": -1.0 } }),
            "the numbers of `httpOptions.retryOptions` are between 0 and 3600",
        ),
        (json!({ "retryOptions": { "attempts": 1_000 } }), "`httpOptions.retryOptions.attempts` is between 1 and 10"),
    ] {
        for mode in [StreamingMode::Off, StreamingMode::On] {
            let error = call_error(provider.openai().as_ref(), with_options(options.clone()), mode).await;
            assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::BadRequest, message));
        }
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn the_timeout_of_http_options_ends_a_call() {
    // Accepts connections, and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = Settings::default().with_key(Service::Gemini, "k").with_base_url(Service::Gemini, url);
    let model = ModelProviders::with_defaults(settings).model("gemini-x").unwrap();
    let request = with_options(json!({ "timeout": 20, "retryOptions": { "attempts": 1 } }));
    let error = call_error(model.as_ref(), request, StreamingMode::Off).await;
    assert_eq!(error.message, "Gemini did not answer within 0.02 s");
}

#[tokio::test]
async fn after_three_attempts_the_error_of_the_last_response_is_returned() {
    let provider = MockProvider::start([busy(), busy(), busy(), hello()]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!(
        (error.kind, error.status, error.retry_after),
        (ModelErrorKind::RateLimited, Some(429), Some(Duration::ZERO))
    );
    assert_eq!(error.message, "Gemini answered HTTP 429: slow down");
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test]
async fn a_retry_delay_of_more_than_thirty_seconds_is_returned_to_the_caller() {
    let provider =
        MockProvider::start([MockResponse::json("{}").status(429).header("retry-after", "31"), hello()]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.retry_after), (ModelErrorKind::RateLimited, Some(Duration::from_secs(31))));
    let expected =
        "Gemini answered HTTP 429: {}; not sent again: it can be sent after 31 s, and the host waits for at most 30 s";
    assert_eq!(error.message, expected);
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn the_retry_delay_in_an_error_of_gemini_counts_like_the_header() {
    let refusal = |delay: &str| {
        let details =
            json!([{ "reason": "RATE" }, { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay }]);
        MockResponse::json(json!({ "error": { "code": 429, "message": "slow down", "details": details } })).status(429)
    };
    let provider = MockProvider::start([refusal("0.001s"), refusal("31.5s"), hello()]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.retry_after), (ModelErrorKind::RateLimited, Some(Duration::from_millis(31_500))));
    assert_eq!(provider.requests().len(), 2);
    let provider = MockProvider::start([refusal("soon").header("retry-after", "31")]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!(error.retry_after, Some(Duration::from_secs(31)));
}

#[tokio::test]
async fn a_server_error_is_retried_without_a_retry_after_header() {
    let provider = MockProvider::start([MockResponse::json("oops").status(500), hello()]).await;
    let response = generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap();
    assert_eq!(texts(&[response]), ["hello"]);
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn an_error_that_the_request_causes_is_not_retried() {
    let cases = [
        (400, ModelErrorKind::BadRequest, "Gemini answered HTTP 400: no"),
        (401, ModelErrorKind::Auth, "Gemini answered HTTP 401: no (check the key in GOOGLE_API_KEY or GEMINI_API_KEY)"),
        (403, ModelErrorKind::Auth, "Gemini answered HTTP 403: no (check the key in GOOGLE_API_KEY or GEMINI_API_KEY)"),
        (
            404,
            ModelErrorKind::UnknownModel,
            "Gemini answered HTTP 404: no (check the model's name, and GOOGLE_GEMINI_BASE_URL if it is set)",
        ),
        (307, ModelErrorKind::BadResponse, "Gemini answered HTTP 307: no"),
    ];
    for (status, kind, message) in cases {
        let answer =
            MockResponse::json(json!({ "error": { "message": "no" } })).status(status).header("location", "/elsewhere");
        let provider = MockProvider::start([answer, hello()]).await;
        let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::On).await;
        assert_eq!((error.kind, error.status), (kind, Some(status)));
        assert_eq!(error.message, message);
        assert_eq!(provider.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_a_network_error_that_names_its_address_and_what_to_check() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for (service, name, start, remedy) in [
        (Service::OpenAi, "gpt-5", "OpenAI", "(check the network, and OPENAI_BASE_URL if it is set)"),
        (Service::Ollama, "ollama/any", "Ollama", "(check that it runs at the URL in OLLAMA_BASE_URL)"),
    ] {
        let settings = Settings::default().with_base_url(service, format!("http://{address}"));
        let model = ModelProviders::with_defaults(settings).model(name).unwrap();
        let error = call_error(model.as_ref(), user_request("hi"), StreamingMode::Off).await;
        assert_eq!((error.kind, error.status), (ModelErrorKind::Network, None));
        assert!(error.message.starts_with(&format!("cannot reach {start} at {address}: ")), "{error}");
        assert!(error.message.ends_with(remedy), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_returns_the_received_responses_and_a_network_error() {
    let provider =
        MockProvider::start([MockResponse::events([piece("one"), piece("two")]).ending(BodyEnd::Error), hello()]).await;
    let mut items = stream(provider.gemini().as_ref(), user_request("hi")).await;
    let error = items.pop().unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network);
    assert!(error.message.starts_with("the connection to Gemini broke: "), "{error}");
    let before: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(texts(&before), ["one", "two"]);
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn a_truncated_body_is_a_network_error() {
    let provider = MockProvider::start([MockResponse { end: BodyEnd::Error, ..hello() }]).await;
    assert_eq!(
        generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap_err().kind,
        ModelErrorKind::Network
    );
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request_at_the_server() {
    let (held, gone) = oneshot::channel();
    let provider = MockProvider::start([MockResponse::events([piece("one")]).ending(BodyEnd::Never(held))]).await;
    let mut stream = provider.gemini().generate(user_request("hi"), StreamingMode::On).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let noticed = tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the server never noticed");
    assert!(noticed.is_err(), "the sender is dropped, not used");
}

#[tokio::test]
async fn a_response_that_is_not_an_event_stream_is_rejected() {
    let provider = MockProvider::start([hello()]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert_eq!(
        error.message,
        "Gemini sent an answer that cannot be read: expected an event stream, got application/json"
    );
}

#[tokio::test]
async fn a_chunk_that_is_not_json_is_a_bad_response_after_the_earlier_ones() {
    let provider = MockProvider::start([MockResponse::events([
        piece("one"),
        "data: {\"candidates\": [\n\n".to_owned(),
        piece("two"),
    ])])
    .await;
    let items = stream(provider.gemini().as_ref(), user_request("hi")).await;
    assert_eq!(items.len(), 2);
    assert!(items[0].is_ok());
    let error = items[1].as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert!(error.message.starts_with("Gemini sent an answer that cannot be read: EOF while parsing"), "{error}");
}

#[tokio::test]
async fn a_chunk_that_is_not_utf_8_is_a_bad_response() {
    let provider = MockProvider::start([MockResponse::events([&b"data: \xff\xfe\n\n"[..]])]).await;
    let items = stream(provider.gemini().as_ref(), user_request("hi")).await;
    assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadResponse);
}

#[tokio::test]
async fn an_event_of_more_than_thirty_two_mebibytes_is_a_bad_response() {
    let mebibyte = vec![b'x'; 1024 * 1024];
    let chunks = std::iter::once(b"data: ".to_vec()).chain(std::iter::repeat_n(mebibyte, 34));
    let provider = MockProvider::start([MockResponse::events(chunks)]).await;
    let items = stream(provider.gemini().as_ref(), user_request("hi")).await;
    let error = items[0].as_ref().unwrap_err();
    assert_eq!(error.message, "Gemini sent an answer that cannot be read: one event is longer than 33554432 bytes");
}

#[tokio::test]
async fn the_key_is_never_in_an_error_even_if_the_server_repeats_it() {
    let provider =
        MockProvider::start([MockResponse::json(json!({ "error": "openai-key is wrong" })).status(401)]).await;
    let error = call_error(provider.openai().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!(error.message, "OpenAI answered HTTP 401: [key] is wrong (check the key in OPENAI_API_KEY)");
}

#[tokio::test]
async fn a_body_of_more_than_sixty_four_mebibytes_is_a_bad_response() {
    let answer = MockResponse { chunks: std::iter::repeat_n(vec![b' '; 1024 * 1024].into(), 65).collect(), ..hello() };
    let provider = MockProvider::start([answer]).await;
    let error = generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap_err();
    assert_eq!(error.message, "Gemini sent an answer that cannot be read: it is longer than 67108864 bytes");
}

#[tokio::test]
async fn an_error_body_that_is_a_list_shows_the_first_message() {
    let provider =
        MockProvider::start([MockResponse::json(json!([{ "error": { "message": "no" } }])).status(400)]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::On).await;
    assert_eq!(error.message, "Gemini answered HTTP 400: no");
}
