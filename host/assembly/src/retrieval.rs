//! Search indexes of agents: the folders of the configuration, and artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{JsonMap, ModelResolver, Toolset};
use hatchery_engine::Extensions;
use hatchery_stores::retrieval::{FilesRetrieval, RetrievalIndex, RetrievalToolset};
use serde::Deserialize;
use serde_json::Value;

use crate::config::RetrievalConfig;
use crate::services::ServicesError;
use crate::storage::Storage;

/// The name of the toolset in agent files, and its spellings in ADK.
const TOOLSET: &str = "FilesRetrieval";
const ALIASES: [&str; 2] = ["retrieval.FilesRetrieval", "google.adk.tools.retrieval.FilesRetrieval"];

/// The folder of indexes in the data folder.
const INDEXES_FOLDER: &str = "retrieval";

/// Arguments of the toolset in agent files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsetArgs {
    index: Option<String>,
    #[serde(alias = "maxResults")]
    max_results: Option<usize>,
}

/// The search indexes by name. All agents share an index.
pub(crate) type Indexes = BTreeMap<String, ConfiguredIndex>;

/// An index of a folder, or of artifacts.
#[derive(Clone)]
pub(crate) struct ConfiguredIndex {
    description: String,
    index: RetrievalIndex,
}

/// Creates the indexes of a configuration. Indexes in `kept` are reused.
///
/// # Errors
/// If no model provider has a configured embedder.
pub(crate) fn indexes(
    configs: &BTreeMap<String, RetrievalConfig>,
    storage: &Storage,
    models: &dyn ModelResolver,
    kept: &Indexes,
) -> Result<Indexes, ServicesError> {
    let index = |(name, config): (&String, &RetrievalConfig)| {
        if let Some(kept) = kept.get(name) {
            return Ok((name.clone(), kept.clone()));
        }
        let file = match storage {
            Storage::Directory(folder) => Some(folder.join(INDEXES_FOLDER).join(format!("{name}.db"))),
            Storage::InMemory => None,
        };
        let index = config.index(file, models);
        let index = index.map_err(|source| ServicesError::RetrievalEmbedder { name: name.clone(), source })?;
        Ok((name.clone(), ConfiguredIndex { description: config.description.clone(), index }))
    };
    configs.iter().map(index).collect()
}

/// Registers the toolset `FilesRetrieval`, which takes arguments, and the toolset `retrieval:NAME` for each index.
pub(crate) fn register(indexes: Arc<Indexes>, extensions: &mut Extensions) {
    for name in indexes.keys() {
        let (indexes, name) = (indexes.clone(), name.clone());
        extensions.toolsets.register(format!("retrieval:{name}"), move |args| create(&indexes, Some(&name), args));
    }
    extensions.toolsets.register(TOOLSET, move |args| create(&indexes, None, args));
    for alias in ALIASES {
        extensions.toolsets.register_alias(alias, TOOLSET);
    }
}

/// Creates the toolset of an index. The only one needs no name.
fn create(indexes: &Indexes, name: Option<&String>, args: JsonMap) -> Result<Arc<dyn Toolset>, String> {
    let ToolsetArgs { index, max_results } =
        serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())?;
    let available = || {
        if indexes.is_empty() {
            "none".to_owned()
        } else {
            indexes.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
    };
    let name = name.or(index.as_ref());
    let found = match (name, indexes.len()) {
        (Some(name), _) => indexes.get_key_value(name),
        (None, 1) => indexes.first_key_value(),
        (None, _) => None,
    };
    let (name, ConfiguredIndex { description, index }) = found.ok_or_else(|| match name {
        Some(name) => format!("hatchery.yaml has no `{name}` below `retrieval`; available: {}", available()),
        None => format!("`index` is missing: a name below `retrieval` in hatchery.yaml; available: {}", available()),
    })?;
    let mut tool = FilesRetrieval::new(name, description, index.clone());
    if let Some(max_results) = max_results {
        tool = tool.with_max_results(max_results);
    }
    Ok(Arc::new(RetrievalToolset::new(name, tool)))
}
