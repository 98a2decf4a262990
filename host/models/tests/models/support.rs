//! A mock provider on its own port, and shorthands for requests and responses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::serve::ListenerExt;
use futures::stream::{self as streams, StreamExt};
use hatchery_core::{Content, LlmRequest, LlmResponse, Model, ModelError, ModelResolver, Part, StreamingMode};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The path of the access token on the metadata server of Google Cloud.
pub const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// How a response body ends.
pub enum BodyEnd {
    Complete,
    /// The connection breaks.
    Error,
    /// It never ends. The sender is dropped when the server drops the body.
    Never(oneshot::Sender<()>),
}

/// One response of the mock provider.
pub struct MockResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub chunks: Vec<Bytes>,
    pub end: BodyEnd,
    /// True if the response never begins.
    pub is_silent: bool,
}

impl MockResponse {
    pub fn silence() -> Self {
        Self { is_silent: true, ..Self::json("") }
    }

    pub fn json(body: impl ToString) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status: 200, headers, chunks: vec![body.to_string().into()], end: BodyEnd::Complete, is_silent: false }
    }

    pub fn events(chunks: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        let chunks = chunks.into_iter().map(Into::into).collect();
        Self { status: 200, headers, chunks, end: BodyEnd::Complete, is_silent: false }
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn ending(mut self, end: BodyEnd) -> Self {
        self.end = end;
        self
    }

    fn into_response(self) -> Response {
        let chunks = streams::iter(self.chunks.into_iter().map(Ok::<_, std::io::Error>));
        let end = match self.end {
            BodyEnd::Complete => streams::empty().boxed(),
            BodyEnd::Error => streams::iter([Err(std::io::Error::other("broken on purpose"))]).boxed(),
            BodyEnd::Never(on_drop) => streams::once(async move {
                let _on_drop = on_drop;
                std::future::pending().await
            })
            .boxed(),
        };
        // A pause between chunks lets each be written before the body breaks.
        let body = chunks.chain(end).then(|chunk| async {
            tokio::task::yield_now().await;
            chunk
        });
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Body::from_stream(body)).unwrap()
    }
}

/// A request that the mock provider received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub target: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A provider that sends its responses in order, and status 501 after the last one.
#[derive(Clone)]
pub struct MockProvider {
    pub url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl MockProvider {
    pub async fn start(responses: impl IntoIterator<Item = MockResponse>) -> Self {
        let responses: VecDeque<_> = responses.into_iter().collect();
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let state = (Arc::new(Mutex::new(responses)), Arc::clone(&requests));
        Self::serve(Router::new().fallback(respond).with_state(state), requests).await
    }

    /// Starts a provider that answers in turn with these responses, which are made of all that it has received. Its
    /// access tokens contain `s3cret`.
    pub async fn echo<const N: usize>(responses: [fn(&str) -> MockResponse; N]) -> Self {
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let received = requests.clone();
        let respond = move |request: Request| {
            let received = received.clone();
            async move {
                if request.uri().path() == "/token" {
                    return MockResponse::json(json!({ "access_token": "token-s3cret", "expires_in": 3_600 }))
                        .into_response();
                }
                let (target, headers) = (request.uri().to_string(), request.headers().clone());
                let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let echo = format!("{target} {headers:?}");
                let mut received = received.lock().unwrap();
                let response = responses[received.len() % N](&echo);
                received.push(ReceivedRequest { target, headers, body: serde_json::from_slice(&body).unwrap() });
                response.into_response()
            }
        };
        Self::serve(Router::new().fallback(respond), requests).await
    }

    async fn serve(router: Router, requests: Arc<Mutex<Vec<ReceivedRequest>>>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests }
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn gemini(&self) -> Arc<dyn Model> {
        let settings = Settings::default()
            .with_base_url(Service::Gemini, self.url.as_str())
            .with_key(Service::Gemini, "gemini-key");
        ModelProviders::with_defaults(settings).model("gemini-2.5-flash").unwrap()
    }

    pub fn openai(&self) -> Arc<dyn Model> {
        self.openai_named("openai/gpt-5")
    }

    pub fn openai_named(&self, name: &str) -> Arc<dyn Model> {
        let settings = Settings::default()
            .with_base_url(Service::OpenAi, format!("{}/v1", self.url))
            .with_key(Service::OpenAi, "openai-key");
        ModelProviders::with_defaults(settings).model(name).unwrap()
    }
}

type Shared = (Arc<Mutex<VecDeque<MockResponse>>>, Arc<Mutex<Vec<ReceivedRequest>>>);

async fn respond(State((responses, requests)): State<Shared>, request: Request) -> Response {
    let target = request.uri().to_string();
    let headers = request.headers().clone();
    if target == METADATA_PATH {
        assert_eq!(headers["metadata-flavor"], "Google");
        return MockResponse::json(json!({ "access_token": "the-token", "expires_in": 3_599 })).into_response();
    }
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    requests.lock().unwrap().push(ReceivedRequest { target, headers, body: serde_json::from_slice(&body).unwrap() });
    let response = responses.lock().unwrap().pop_front();
    let response = response.unwrap_or_else(|| MockResponse::json("no response is left").status(501));
    if response.is_silent {
        std::future::pending::<()>().await;
    }
    response.into_response()
}

/// Creates a request of these contents.
pub fn request(contents: impl IntoIterator<Item = Content>) -> LlmRequest {
    LlmRequest {
        model: "the-model".into(),
        contents: contents.into_iter().map(Arc::new).collect(),
        ..LlmRequest::default()
    }
}

/// Creates a request of one user text.
pub fn user_request(text: &str) -> LlmRequest {
    request([Content::user(text)])
}

/// Parses a content from JSON.
pub fn content(json: Value) -> Content {
    serde_json::from_value(json).unwrap()
}

/// Returns all items of the stream.
pub async fn stream(model: &dyn Model, request: LlmRequest) -> Vec<Result<LlmResponse, ModelError>> {
    model.generate(request, StreamingMode::On).await.unwrap().collect().await
}

/// Returns all responses of a stream without errors.
pub async fn deltas(model: &dyn Model, request: LlmRequest) -> Vec<LlmResponse> {
    let deltas: Vec<_> = stream(model, request).await.into_iter().map(Result::unwrap).collect();
    assert!(deltas.iter().all(|delta| delta.partial), "{deltas:?}");
    deltas
}

/// Streams `stream` in one chunk, byte by byte, and cut into two chunks at every byte. Returns the responses, which
/// must be the same each time.
pub async fn deltas_of_all_splits(stream: &str, model: fn(&MockProvider) -> Arc<dyn Model>) -> Vec<LlmResponse> {
    let bytes = stream.as_bytes();
    let cut_in_two = (1..bytes.len()).map(|border| {
        let (before, after) = bytes.split_at(border);
        MockResponse::events([before.to_vec(), after.to_vec()])
    });
    let byte_by_byte = MockResponse::events(bytes.iter().map(|byte| vec![*byte]));
    let answers: Vec<_> =
        [MockResponse::events([stream.to_owned()]), byte_by_byte].into_iter().chain(cut_in_two).collect();
    let count = answers.len();
    let provider = MockProvider::start(answers).await;
    let model = model(&provider);
    let uncut = deltas(model.as_ref(), user_request("hi")).await;
    for index in 1..count {
        assert_eq!(deltas(model.as_ref(), user_request("hi")).await, uncut, "answer {index}");
    }
    uncut
}

/// Returns the response of a call without streaming.
pub async fn generate(model: &dyn Model, request: LlmRequest) -> Result<LlmResponse, ModelError> {
    let items: Vec<_> = model.generate(request, StreamingMode::Off).await?.collect().await;
    assert_eq!(items.len(), 1);
    let response = items.into_iter().next().unwrap()?;
    assert!(!response.partial);
    Ok(response)
}

/// Returns the error of a call that fails before its stream begins.
pub async fn call_error(model: &dyn Model, request: LlmRequest, streaming_mode: StreamingMode) -> ModelError {
    match model.generate(request, streaming_mode).await {
        Ok(_) => panic!("the call did not fail"),
        Err(error) => error,
    }
}

/// Returns the parts of all responses.
pub fn parts(responses: &[LlmResponse]) -> Vec<Part> {
    responses.iter().filter_map(|response| response.content.clone()).flat_map(|content| content.parts).collect()
}

/// Returns the texts of all responses, one per part.
pub fn texts(responses: &[LlmResponse]) -> Vec<String> {
    parts(responses).iter().filter_map(|part| part.as_text().map(str::to_owned)).collect()
}

/// Formats a server-sent event.
pub fn event(json: Value) -> String {
    format!("data: {json}\n\n")
}
