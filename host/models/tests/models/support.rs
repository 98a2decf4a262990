//! A fake provider on a port of its own, and short words for requests and answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::serve::ListenerExt;
use futures::stream::{self, StreamExt};
use hatchery_core::{Content, LlmRequest, LlmResponse, Model, ModelError, ModelResolver, Part, StreamingMode};
use hatchery_models::{ModelProviders, Settings};
use serde_json::Value;
use tokio::sync::oneshot;

/// How an answer's body ends.
pub enum End {
    /// As it should.
    Clean,
    /// The connection breaks.
    Broken,
    /// Never; the sender is dropped when the server gives the body up.
    Never(oneshot::Sender<()>),
}

/// One answer of the fake provider.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub chunks: Vec<Bytes>,
    pub end: End,
}

impl Answer {
    pub fn json(body: impl ToString) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status: 200, headers, chunks: vec![body.to_string().into()], end: End::Clean }
    }

    pub fn events(chunks: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        Self { status: 200, headers, chunks: chunks.into_iter().map(Into::into).collect(), end: End::Clean }
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    fn into_response(self) -> Response {
        let chunks = stream::iter(self.chunks.into_iter().map(Ok::<_, std::io::Error>));
        let end = match self.end {
            End::Clean => stream::empty().boxed(),
            End::Broken => stream::iter([Err(std::io::Error::other("broken on purpose"))]).boxed(),
            End::Never(held) => stream::once(async move {
                let _held = held;
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

/// What the fake provider was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub target: String,
    pub headers: axum::http::HeaderMap,
    pub body: Value,
}

/// A provider that gives its answers in order, and the last one again and again.
#[derive(Clone)]
pub struct Fake {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: VecDeque<_> = answers.into_iter().collect();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
        let asked = Arc::default();
        let state = (Arc::new(Mutex::new(answers)), Arc::clone(&asked));
        let router = Router::new().fallback(answer).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn gemini(&self) -> Arc<dyn Model> {
        let settings = Settings {
            gemini_base_url: Some(self.url.as_str().into()),
            gemini_api_key: Some("gemini-key".into()),
            ..Settings::default()
        };
        ModelProviders::with_defaults(settings).model("gemini-2.5-flash").unwrap()
    }

    pub fn openai(&self) -> Arc<dyn Model> {
        self.openai_named("openai/gpt-5")
    }

    pub fn openai_named(&self, name: &str) -> Arc<dyn Model> {
        let settings = Settings {
            openai_base_url: Some(format!("{}/v1", self.url).into()),
            openai_api_key: Some("openai-key".into()),
            ..Settings::default()
        };
        ModelProviders::with_defaults(settings).model(name).unwrap()
    }
}

type Shared = (Arc<Mutex<VecDeque<Answer>>>, Arc<Mutex<Vec<Asked>>>);

async fn answer(State((answers, asked)): State<Shared>, request: Request) -> Response {
    let target = request.uri().to_string();
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    asked.lock().unwrap().push(Asked { target, headers, body: serde_json::from_slice(&body).unwrap() });
    let answer = answers.lock().unwrap().pop_front();
    answer.unwrap_or_else(|| Answer::json("no answer is left").status(501)).into_response()
}

/// A request of these contents.
pub fn request(contents: impl IntoIterator<Item = Content>) -> LlmRequest {
    LlmRequest {
        model: "the-model".into(),
        contents: contents.into_iter().map(Arc::new).collect(),
        ..LlmRequest::default()
    }
}

/// A request of one user text.
pub fn says(text: &str) -> LlmRequest {
    request([Content::user(text)])
}

/// A message from its JSON.
pub fn content(json: Value) -> Content {
    serde_json::from_value(json).unwrap()
}

/// Everything that the stream gives.
pub async fn stream_of(model: &dyn Model, request: LlmRequest) -> Vec<Result<LlmResponse, ModelError>> {
    model.generate(request, StreamingMode::On).await.unwrap().collect().await
}

/// Everything that the stream gives, none of it an error.
pub async fn deltas(model: &dyn Model, request: LlmRequest) -> Vec<LlmResponse> {
    let deltas: Vec<_> = stream_of(model, request).await.into_iter().map(Result::unwrap).collect();
    assert!(deltas.iter().all(|delta| delta.partial), "{deltas:?}");
    deltas
}

/// The one response of a whole answer.
pub async fn whole(model: &dyn Model, request: LlmRequest) -> Result<LlmResponse, ModelError> {
    let items: Vec<_> = model.generate(request, StreamingMode::Off).await?.collect().await;
    assert_eq!(items.len(), 1);
    let response = items.into_iter().next().unwrap()?;
    assert!(!response.partial);
    Ok(response)
}

/// The error with which a call fails at once.
pub async fn refusal(model: &dyn Model, request: LlmRequest, streaming_mode: StreamingMode) -> ModelError {
    match model.generate(request, streaming_mode).await {
        Ok(_) => panic!("the call did not fail"),
        Err(error) => error,
    }
}

/// The parts of all responses.
pub fn parts(responses: &[LlmResponse]) -> Vec<Part> {
    responses.iter().filter_map(|response| response.content.clone()).flat_map(|content| content.parts).collect()
}

/// The texts of all responses, a text per part.
pub fn texts(responses: &[LlmResponse]) -> Vec<String> {
    parts(responses).iter().filter_map(|part| part.as_text().map(str::to_owned)).collect()
}

/// A server-sent event.
pub fn event(json: Value) -> String {
    format!("data: {json}\n\n")
}
