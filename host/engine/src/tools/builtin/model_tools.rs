//! Model tools: tools that the model provider runs, such as Google Search. The host only enables them in a request.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, FunctionDeclaration, JsonMap, LlmRequest, ModelError, ModelErrorKind, RunError, Tool, ToolError,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::declaration;

/// A tool of Gemini models.
pub struct ModelTool {
    declaration: Arc<FunctionDeclaration>,
    /// The entry in [`LlmRequest::model_tools`].
    request: Value,
}

/// Settings of `vertex_ai_search`: a data store, or an engine with several data stores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VertexAiSearch {
    #[serde(alias = "dataStoreId")]
    pub data_store_id: Option<String>,
    #[serde(alias = "searchEngineId")]
    pub search_engine_id: Option<String>,
    /// Restricts the documents.
    pub filter: Option<String>,
    #[serde(alias = "maxResults")]
    pub max_results: Option<u32>,
    /// The data stores of the engine to search; all if empty.
    #[serde(alias = "dataStoreSpecs")]
    pub data_store_specs: Vec<DataStoreSpec>,
}

/// A data store of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataStoreSpec {
    #[serde(alias = "dataStore")]
    pub data_store: String,
    /// Restricts the documents.
    #[serde(default)]
    pub filter: Option<String>,
}

impl DataStoreSpec {
    fn to_json(&self) -> Value {
        match &self.filter {
            Some(filter) => json!({"dataStore": self.data_store, "filter": filter}),
            None => json!({"dataStore": self.data_store}),
        }
    }
}

impl ModelTool {
    /// The names of these tools.
    pub const NAMES: [&str; 7] = [
        "google_search",
        "enterprise_web_search",
        "google_maps_grounding",
        "url_context",
        "code_execution",
        "vertex_ai_search",
        "vertex_ai_rag_retrieval",
    ];

    /// Creates the tool for grounding with Google Search.
    pub fn google_search() -> Self {
        Self::new("google_search", json!({"googleSearch": {}}))
    }

    /// Creates the tool for grounding with Web Grounding for Enterprise of Vertex AI.
    pub fn enterprise_web_search() -> Self {
        Self::new("enterprise_web_search", json!({"enterpriseWebSearch": {}}))
    }

    /// Creates the tool for grounding with Google Maps.
    pub fn google_maps_grounding() -> Self {
        Self::new("google_maps_grounding", json!({"googleMaps": {}}))
    }

    /// Creates the tool that reads the pages whose URLs are in the prompt.
    pub fn url_context() -> Self {
        Self::new("url_context", json!({"urlContext": {}}))
    }

    /// Creates the tool that runs code of the model.
    pub fn code_execution() -> Self {
        Self::new("code_execution", json!({"codeExecution": {}}))
    }

    /// Creates the tool for Vertex AI Search.
    ///
    /// # Errors
    /// If there is not exactly one of data store and engine, or a data store is restricted without an engine.
    pub fn vertex_ai_search(search: &VertexAiSearch) -> Result<Self, String> {
        if search.data_store_id.is_some() == search.search_engine_id.is_some() {
            return Err("`vertex_ai_search` needs either `data_store_id` or `search_engine_id`".into());
        }
        if search.search_engine_id.is_none() && !search.data_store_specs.is_empty() {
            return Err("`data_store_specs` selects data stores of a `search_engine_id`, which is missing".into());
        }
        let mut settings = JsonMap::new();
        let mut set = |key: &str, value: Option<Value>| settings.extend(value.map(|value| (key.to_owned(), value)));
        set("datastore", search.data_store_id.clone().map(Value::from));
        set("engine", search.search_engine_id.clone().map(Value::from));
        set("filter", search.filter.clone().map(Value::from));
        set("maxResults", search.max_results.map(Value::from));
        let specs: Vec<_> = search.data_store_specs.iter().map(DataStoreSpec::to_json).collect();
        set("dataStoreSpecs", (!specs.is_empty()).then(|| specs.into()));
        Ok(Self::new("vertex_ai_search", json!({"retrieval": {"vertexAiSearch": settings}})))
    }

    /// Creates the tool for retrieval from corpora of the Vertex RAG store, `projects/…/ragCorpora/…`, of at most
    /// `top_k` passages with a vector distance of at most `max_distance`.
    ///
    /// # Errors
    /// If `corpora` is empty.
    pub fn vertex_ai_rag_retrieval(
        corpora: &[String],
        top_k: Option<u32>,
        max_distance: Option<f64>,
    ) -> Result<Self, String> {
        if corpora.is_empty() {
            return Err("`vertex_ai_rag_retrieval` needs at least one of `rag_corpora`".into());
        }
        let resources: Vec<_> = corpora.iter().map(|corpus| json!({"ragCorpus": corpus})).collect();
        let mut store = JsonMap::from_iter([("ragResources".into(), resources.into())]);
        store.extend(top_k.map(|top_k| ("similarityTopK".into(), top_k.into())));
        store.extend(max_distance.map(|distance| ("vectorDistanceThreshold".into(), distance.into())));
        Ok(Self::new("vertex_ai_rag_retrieval", json!({"retrieval": {"vertexRagStore": store}})))
    }

    fn new(name: &str, request: Value) -> Self {
        Self { declaration: declaration(name, "Runs inside the model.", None), request }
    }
}

#[async_trait]
impl Tool for ModelTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_callable(&self) -> bool {
        false
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        if !request.capabilities.built_in_tools {
            let message = format!(
                "has no built-in tool `{}`; it runs inside Gemini models from version 2 on",
                self.declaration.name
            );
            return Err(ModelError::new(ModelErrorKind::BadRequest, &request.model, message).into());
        }
        if !request.model_tools.contains(&self.request) {
            request.model_tools.push(self.request.clone());
        }
        Ok(())
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable(format!("`{}` runs inside the model and cannot be called", self.declaration.name)))
    }
}
