//! A model server that sends the chunks of an answer one by one, when the test lets it.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The chunks of each answer.
pub const CHUNKS: [&str; 3] = ["one ", "two ", "three"];

/// A server in the format of OpenAI.
pub struct HeldModel {
    /// Its base URL.
    pub url: String,
    chunks: Arc<Semaphore>,
}

impl HeldModel {
    pub async fn start() -> Result<Self> {
        let chunks = Arc::new(Semaphore::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(chunks.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, chunks })
    }

    /// Lets it send the next chunk.
    pub fn release_chunk(&self) {
        self.chunks.add_permits(1);
    }
}

async fn answer(State(released): State<Arc<Semaphore>>) -> Response {
    let chunks = futures::stream::iter(CHUNKS).then(move |text| {
        let released = released.clone();
        async move {
            released.acquire().await?.forget();
            anyhow::Ok(line(&json!({"role": "assistant", "content": text}), None))
        }
    });
    let end = format!("{}data: [DONE]\n\n", line(&json!({}), Some("stop")));
    let body = Body::from_stream(chunks.chain(futures::stream::iter([Ok(end)])));
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn line(delta: &Value, finish_reason: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
    let chunk =
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "held", "choices": [choice]});
    format!("data: {chunk}\n\n")
}
