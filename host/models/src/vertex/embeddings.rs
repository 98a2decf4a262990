//! Embeddings of Vertex AI (`predict`).

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use hatchery_core::{Embedder, ModelError};
use serde::{Deserialize, Serialize};

use super::VertexPath;
use crate::http::Endpoint;

/// Maximum number of requests at the same time. A request has one text, because newer models accept no more.
const MAX_CONCURRENT_REQUESTS: usize = 8;

pub(super) struct VertexEmbedder {
    path: VertexPath,
    endpoint: Endpoint,
}

#[derive(Serialize)]
struct RequestJson<'a> {
    instances: [InstanceJson<'a>; 1],
}

#[derive(Serialize)]
struct InstanceJson<'a> {
    content: &'a str,
}

#[derive(Deserialize)]
struct ResponseJson {
    predictions: [PredictionJson; 1],
}

#[derive(Deserialize)]
struct PredictionJson {
    embeddings: EmbeddingJson,
}

#[derive(Deserialize)]
struct EmbeddingJson {
    values: Vec<f32>,
}

impl VertexEmbedder {
    pub(super) fn new(path: VertexPath, endpoint: Endpoint) -> Self {
        Self { path, endpoint }
    }

    async fn embed_text(&self, text: &str) -> Result<Vec<f32>, ModelError> {
        let request = RequestJson { instances: [InstanceJson { content: text }] };
        let url = self.path.url(&self.endpoint, "predict").await?;
        let ResponseJson { predictions: [prediction] } = self.endpoint.post_json(&url, &request).await?;
        Ok(prediction.embeddings.values)
    }
}

#[async_trait]
impl Embedder for VertexEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        let requests: Vec<_> = texts.iter().map(|text| self.embed_text(text)).collect();
        stream::iter(requests).buffered(MAX_CONCURRENT_REQUESTS).try_collect().await
    }
}
