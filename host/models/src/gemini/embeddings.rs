//! Embeddings of the Gemini API (`batchEmbedContents`).

use async_trait::async_trait;
use hatchery_core::{Embedder, ModelError};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::http::Endpoint;

/// Maximum number of texts in a request.
const MAX_TEXTS: usize = 100;

pub(super) struct GeminiEmbedder {
    /// The name in a request, `models/…`.
    resource: String,
    url: Url,
    endpoint: Endpoint,
}

#[derive(Serialize)]
struct BatchJson<'a> {
    requests: Vec<RequestJson<'a>>,
}

#[derive(Serialize)]
struct RequestJson<'a> {
    model: &'a str,
    content: ContentJson<'a>,
}

#[derive(Serialize)]
struct ContentJson<'a> {
    parts: [TextJson<'a>; 1],
}

#[derive(Serialize)]
struct TextJson<'a> {
    text: &'a str,
}

#[derive(Deserialize)]
struct BatchResponse {
    embeddings: Vec<EmbeddingJson>,
}

#[derive(Deserialize)]
struct EmbeddingJson {
    values: Vec<f32>,
}

impl GeminiEmbedder {
    pub(super) fn new(model: &str, endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = endpoint.url([VERSION, "models", &format!("{model}:batchEmbedContents")])?;
        Ok(Self { resource: format!("models/{model}"), url, endpoint })
    }

    async fn embed_batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let request = |text| RequestJson { model: &self.resource, content: ContentJson { parts: [TextJson { text }] } };
        let batch = BatchJson { requests: texts.iter().map(|text| request(text)).collect() };
        let response: BatchResponse = self.endpoint.post_json(&self.url, &batch).await?;
        if response.embeddings.len() == texts.len() {
            Ok(response.embeddings.into_iter().map(|embedding| embedding.values).collect())
        } else {
            Err(self.endpoint.origin.bad_response("it has another number of embeddings than texts"))
        }
    }
}

#[async_trait]
impl Embedder for GeminiEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(MAX_TEXTS) {
            vectors.extend(self.embed_batch(batch).await?);
        }
        Ok(vectors)
    }
}
