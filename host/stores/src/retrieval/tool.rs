//! `FilesRetrieval`: a tool with which any model searches the texts of a folder, or artifacts.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, RunError, StoreError, Tool, ToolError, Toolset};
use serde_json::{Value, json};

use super::{ArtifactIndex, FolderIndex, Passage};

/// Default and maximum number of passages of an answer.
const DEFAULT_RESULTS: usize = 5;
const MAX_RESULTS: usize = 20;

/// The kind of searched texts.
#[derive(Clone)]
pub enum RetrievalIndex {
    /// The files of a folder.
    Folder(Arc<FolderIndex>),
    /// The artifacts of the session and its user.
    Artifacts(Arc<ArtifactIndex>),
}

impl RetrievalIndex {
    /// Returns the words for the searched texts and for the sources of an answer.
    fn nouns(&self, name: &str) -> (String, &'static str) {
        match self {
            Self::Folder(_) => (format!("the files of `{name}`"), "files"),
            Self::Artifacts(_) => ("the files of this conversation and its user".to_owned(), "files, versions"),
        }
    }

    async fn search(&self, query: &str, limit: usize, cx: &CallContext) -> Result<Vec<Passage>, StoreError> {
        match self {
            Self::Folder(index) => index.search(query, limit).await,
            Self::Artifacts(index) => {
                let run = &cx.invocation;
                index.search(&*run.services.artifacts, &run.session_key, query, limit).await
            }
        }
    }
}

/// A search in a folder or in artifacts. Each passage of the answer has its source: a file, its version and its lines.
pub struct FilesRetrieval {
    index: RetrievalIndex,
    qualified_name: String,
    declaration: Arc<FunctionDeclaration>,
    max_results: usize,
}

impl FilesRetrieval {
    /// Creates the tool `search_NAME` for the index of this name. `description` is the subject of the texts.
    pub fn new(name: &str, description: &str, index: RetrievalIndex) -> Self {
        let (default, sources) = index.nouns(name);
        let about = match description.trim() {
            "" => default,
            description => description.to_owned(),
        };
        let declaration = FunctionDeclaration {
            name: format!("search_{}", name.replace('-', "_")),
            description: format!(
                "Searches {about}. Returns the passages that fit best, with their {sources} and lines."
            ),
            parameters: Some(json!({
                "type": "object",
                "properties": {"query": {"type": "string", "description": "Words to look for."}},
                "required": ["query"],
            })),
            response: None,
        };
        let qualified_name = format!("retrieval:{name}/{}", declaration.name);
        let declaration = Arc::new(declaration);
        Self { index, qualified_name, declaration, max_results: DEFAULT_RESULTS }
    }

    /// Changes the number of passages of an answer, up to 20.
    #[must_use]
    pub fn with_max_results(self, max_results: usize) -> Self {
        Self { max_results: max_results.clamp(1, MAX_RESULTS), ..self }
    }
}

#[async_trait]
impl Tool for FilesRetrieval {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.qualified_name)
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let query = args.get("query").and_then(Value::as_str).unwrap_or_default();
        if query.trim().is_empty() {
            return Err(ToolError::Recoverable("`query` is empty; it needs words to look for".into()));
        }
        let found = self.index.search(query, self.max_results, cx).await.map_err(|error| {
            tracing::warn!(index = self.qualified_name, "the texts cannot be searched: {error}");
            ToolError::Recoverable("the files cannot be searched now; the log of the host says why".into())
        })?;
        Ok(json!({ "passages": found.iter().map(passage).collect::<Vec<_>>() }))
    }
}

/// The tool as a toolset, as which agents name it.
pub struct RetrievalToolset {
    name: String,
    tool: Arc<dyn Tool>,
}

impl RetrievalToolset {
    /// Creates the toolset `retrieval:NAME`.
    pub fn new(name: &str, tool: FilesRetrieval) -> Self {
        Self { name: format!("retrieval:{name}"), tool: Arc::new(tool) }
    }
}

#[async_trait]
impl Toolset for RetrievalToolset {
    fn name(&self) -> &str {
        &self.name
    }

    fn tool_names(&self) -> Option<Vec<String>> {
        Some(vec![self.tool.declaration().name.clone()])
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(vec![self.tool.clone()])
    }
}

fn passage(Passage { source, version, first_line, last_line, text }: &Passage) -> Value {
    let lines = format!("{first_line}-{last_line}");
    match version {
        Some(version) => json!({"source": source, "version": version, "lines": lines, "text": text}),
        None => json!({"source": source, "lines": lines, "text": text}),
    }
}
