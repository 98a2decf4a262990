//! Embeddings of OpenAI, or of a compatible server.

use async_trait::async_trait;
use hatchery_core::{Embedder, ModelError};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::http::Endpoint;

/// Maximum number of texts in a request.
const MAX_TEXTS: usize = 2_048;

/// Maximum size of the texts in a request. OpenAI takes as many tokens, of which each has a byte at least.
const MAX_BYTES: usize = 300_000;

pub(super) struct OpenAiEmbedder {
    model: String,
    url: Url,
    endpoint: Endpoint,
}

#[derive(Serialize)]
struct RequestJson<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct ResponseJson {
    data: Vec<EmbeddingJson>,
}

#[derive(Deserialize)]
struct EmbeddingJson {
    index: usize,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    pub(super) fn new(model: &str, endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = endpoint.url(["embeddings"])?;
        Ok(Self { model: model.to_owned(), url, endpoint })
    }

    async fn embed_batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let request = RequestJson { model: &self.model, input: texts, encoding_format: "float" };
        let ResponseJson { mut data } = self.endpoint.post_json(&self.url, &request).await?;
        data.sort_by_key(|embedding| embedding.index);
        if data.iter().map(|embedding| embedding.index).eq(0..texts.len()) {
            Ok(data.into_iter().map(|embedding| embedding.embedding).collect())
        } else {
            Err(self.endpoint.origin.bad_response("it has another number of embeddings than texts"))
        }
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts.as_slice();
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(fitting(rest));
            vectors.extend(self.embed_batch(batch).await?);
            rest = others;
        }
        Ok(vectors)
    }
}

/// Returns the number of texts at the beginning that fit in a request. The first is always one of them.
fn fitting(texts: &[String]) -> usize {
    let mut bytes = 0;
    let is_within = |text: &&String| {
        bytes += text.len();
        bytes <= MAX_BYTES
    };
    texts.iter().take(MAX_TEXTS).take_while(is_within).count().max(1)
}
