//! Embeddings of all providers.

use std::sync::Arc;

use hatchery_core::{Embedder, ModelErrorKind, ModelResolver};
use hatchery_models::{GoogleCloud, HashedNgrams, ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::support::{MockProvider, MockResponse};

fn embedder(provider: &MockProvider, name: &str) -> Arc<dyn Embedder> {
    let settings = Settings::default()
        .with_base_url(Service::Gemini, provider.url.as_str())
        .with_key(Service::Gemini, "gemini-key")
        .with_base_url(Service::OpenAi, format!("{}/v1", provider.url))
        .with_key(Service::OpenAi, "openai-key")
        .with_base_url(Service::Ollama, format!("{}/v1", provider.url));
    ModelProviders::with_defaults(settings).embedder(name).unwrap()
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("text {index}")).collect()
}

fn gemini(vectors: &[[f32; 2]]) -> Value {
    json!({ "embeddings": vectors.iter().map(|values| json!({ "values": values })).collect::<Vec<_>>() })
}

fn openai(vectors: &[(usize, [f32; 2])]) -> Value {
    let data: Vec<_> = vectors
        .iter()
        .map(|(index, embedding)| json!({ "object": "embedding", "index": index, "embedding": embedding }))
        .collect();
    json!({ "object": "list", "data": data, "usage": { "prompt_tokens": 2, "total_tokens": 2 } })
}

#[tokio::test]
async fn gemini_embeds_texts_in_one_request() {
    let provider = MockProvider::start([MockResponse::json(gemini(&[[1.0, 0.0], [0.0, 1.0]]))]).await;
    let vectors = embedder(&provider, "gemini-embedding-001").embed(texts(2)).await.unwrap();
    assert_eq!(vectors, [[1.0, 0.0], [0.0, 1.0]]);
    let received = &provider.requests()[0];
    assert_eq!(received.target, "/v1beta/models/gemini-embedding-001:batchEmbedContents");
    assert_eq!(received.headers["x-goog-api-key"], "gemini-key");
    let request =
        |text: &str| json!({ "model": "models/gemini-embedding-001", "content": { "parts": [{ "text": text }] } });
    assert_eq!(received.body, json!({ "requests": [request("text 0"), request("text 1")] }));
}

#[tokio::test]
async fn gemini_embeds_at_most_a_hundred_texts_per_request() {
    let provider = MockProvider::start([
        MockResponse::json(gemini(&[[1.0, 0.0]; 100])),
        MockResponse::json(gemini(&[[0.0, 1.0]])),
    ])
    .await;
    let vectors = embedder(&provider, "models/gemini-embedding-001").embed(texts(101)).await.unwrap();
    assert_eq!((vectors.len(), vectors[100].as_slice()), (101, &[0.0, 1.0][..]));
    assert_eq!(provider.requests()[1].body["requests"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn openai_embeds_at_most_2_048_texts_per_request() {
    let all: Vec<_> = (0..2_048).map(|index| (index, [1.0, 0.0])).collect();
    let answers = [openai(&all), openai(&[(0, [0.0, 1.0])])];
    let provider = MockProvider::start(answers.map(MockResponse::json)).await;
    let vectors = embedder(&provider, "text-embedding-3-small").embed(texts(2_049)).await.unwrap();
    assert_eq!((vectors.len(), vectors[2_048].as_slice()), (2_049, &[0.0, 1.0][..]));
    assert_eq!(provider.requests()[1].body["input"], json!(["text 2048"]));
}

#[tokio::test]
async fn openai_embeds_no_more_than_it_accepts_per_request() {
    let answers = [openai(&[(0, [1.0, 0.0]), (1, [1.0, 0.0])]), openai(&[(0, [0.0, 1.0])]), openai(&[(0, [0.0, 1.0])])];
    let provider = MockProvider::start(answers.map(MockResponse::json)).await;
    let texts = [120_000, 180_000, 1, 400_000].map(|bytes| "x".repeat(bytes));
    let vectors = embedder(&provider, "text-embedding-3-small").embed(texts.to_vec()).await.unwrap();
    assert_eq!(vectors.len(), 4);
    let sent: Vec<_> =
        provider.requests().iter().map(|request| request.body["input"].as_array().unwrap().len()).collect();
    assert_eq!(sent, [2, 1, 1]);
}

#[tokio::test]
async fn openai_and_compatible_servers_embed_texts_in_their_order() {
    for (name, model) in [
        ("text-embedding-3-small", "text-embedding-3-small"),
        ("openai/mine", "mine"),
        ("ollama/nomic-embed-text", "nomic-embed-text"),
    ] {
        let answer = openai(&[(1, [0.0, 1.0]), (0, [1.0, 0.0])]);
        let provider = MockProvider::start([MockResponse::json(answer)]).await;
        let vectors = embedder(&provider, name).embed(texts(2)).await.unwrap();
        assert_eq!(vectors, [[1.0, 0.0], [0.0, 1.0]]);
        let received = &provider.requests()[0];
        assert_eq!(received.target, "/v1/embeddings");
        assert_eq!(received.body, json!({ "model": model, "input": ["text 0", "text 1"], "encoding_format": "float" }));
    }
}

#[tokio::test]
async fn vertex_ai_embeds_each_text_in_a_request_of_its_own() {
    let prediction =
        |values: [f32; 2]| json!({ "predictions": [{ "embeddings": { "values": values, "statistics": {} } }] });
    // The order of the requests differs from the order of the texts, so all vectors are the same.
    let provider = MockProvider::start((0..9).map(|_| MockResponse::json(prediction([1.0, 0.0])))).await;
    let google_cloud = GoogleCloud {
        project: Some("p".into()),
        location: Some("europe-west4".into()),
        metadata_host: provider.url.strip_prefix("http://").map(Into::into),
        use_vertex: true,
        ..GoogleCloud::default()
    };
    let settings = Settings { google_cloud, ..Settings::default() };
    let providers = ModelProviders::with_defaults(settings.with_base_url(Service::Vertex, provider.url.as_str()));
    let all = providers.embedder("gemini-embedding-001").unwrap().embed(texts(8)).await.unwrap();
    assert_eq!(all, [[1.0, 0.0]; 8]);
    let received = provider.requests();
    let path = "/v1beta1/projects/p/locations/europe-west4/publishers/google/models/gemini-embedding-001:predict";
    assert!(received.iter().all(|request| request.target == path), "{received:?}");
    let mut sent: Vec<_> = received.iter().map(|request| request.body["instances"][0]["content"].clone()).collect();
    sent.sort_by_key(Value::to_string);
    assert_eq!(sent, texts(8));
    let one = providers.embedder("vertex/text-embedding-005").unwrap().embed(texts(1)).await.unwrap();
    assert_eq!(one, [[1.0, 0.0]]);
}

#[tokio::test]
async fn no_texts_need_no_request() {
    let provider = MockProvider::start([]).await;
    for name in ["gemini-embedding-001", "text-embedding-3-small", HashedNgrams::NAME] {
        assert!(embedder(&provider, name).embed(Vec::new()).await.unwrap().is_empty());
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn another_number_of_vectors_than_texts_is_a_bad_response() {
    let cases = [
        ("gemini-embedding-001", gemini(&[[1.0, 0.0]])),
        ("text-embedding-3-small", openai(&[(0, [1.0, 0.0])])),
        ("text-embedding-3-small", openai(&[(0, [1.0, 0.0]), (0, [1.0, 0.0])])),
    ];
    for (name, answer) in cases {
        let provider = MockProvider::start([MockResponse::json(answer)]).await;
        let error = embedder(&provider, name).embed(texts(2)).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadResponse);
        assert!(error.message.ends_with("it has another number of embeddings than texts"), "{error}");
    }
}

#[test]
fn an_unknown_embedder_is_rejected_with_the_known_ones_and_what_is_missing() {
    let error = |settings: Settings, name: &str| match ModelProviders::with_defaults(settings).embedder(name) {
        Ok(_) => panic!("{name} is served"),
        Err(error) => error,
    };
    let unknown = error(Settings::default().with_key(Service::Gemini, "k"), "claude-9");
    assert_eq!(unknown.kind, ModelErrorKind::UnknownModel);
    assert_eq!(
        unknown.message,
        "no embedder has this name; known names: local:hashed-ngrams, gemini-embedding-*, models/*; usable with a setting: vertex/*, projects/* \
         (set GOOGLE_CLOUD_PROJECT, or GOOGLE_APPLICATION_CREDENTIALS to the file of a service account); \
         openai/*, text-embedding-* (set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none); \
         openrouter/* (set OPENROUTER_API_KEY); ollama/* (set OLLAMA_BASE_URL, such as http://localhost:11434/v1); \
         vllm/* (set VLLM_BASE_URL, such as http://localhost:8000/v1); \
         llamacpp/* (set LLAMACPP_BASE_URL, such as http://localhost:8080/v1)"
    );
    for (name, missing) in [
        ("text-embedding-3-small", "no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none"),
        (
            "vertex/text-embedding-005",
            "no project: set GOOGLE_CLOUD_PROJECT, or GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
        ),
    ] {
        let expected = format!("{missing}, or use the embedder without one, `local:hashed-ngrams`");
        assert_eq!(error(Settings::default(), name).message, expected);
    }
}
