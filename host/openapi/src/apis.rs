//! The configured APIs, and how agents refer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery_core::{JsonMap, Toolset};
use hatchery_engine::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{Api, State};
use crate::config::{ApiConfig, Confirmation, Selection};
use crate::toolset::{OpenApiToolset, ToolsetOptions};

/// The name of the toolset in agent files, and its spellings in ADK.
const TOOLSET: &str = "OpenAPIToolset";
const ALIASES: [&str; 3] =
    ["OpenApiToolset", "google.adk.tools.openapi_tool.OpenAPIToolset", "openapi_tool.OpenAPIToolset"];

/// The configured APIs. All agents share the document and the connections of each. Cheap to clone.
#[derive(Clone, Default)]
pub struct Apis {
    apis: Arc<BTreeMap<String, Arc<Api>>>,
    /// APIs that must not be used, with the reasons.
    refused: Arc<BTreeMap<String, String>>,
    is_started: Arc<AtomicBool>,
}

/// The state of an API, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiStatus {
    /// The name in the configuration.
    pub name: String,
    /// `idle`, `ready`, `down` or `refused`.
    pub state: &'static str,
    /// The reason why it is down or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The names of its operations, once its document has been read.
    pub operations: Vec<String>,
}

impl Apis {
    /// Creates the APIs. Nothing is read yet.
    pub fn new(apis: impl IntoIterator<Item = (String, ApiConfig)>) -> Self {
        let apis = apis.into_iter().map(|(name, config)| (name.clone(), Api::new(name, config)));
        Self { apis: Arc::new(apis.collect()), ..Self::default() }
    }

    /// Adds APIs that must not be used. Agents that refer to them get the reason.
    #[must_use]
    pub fn with_refused(self, refused: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { refused: Arc::new(refused.into_iter().collect()), ..self }
    }

    /// From now on, reads the document of an API when an agent is loaded that uses it, so that problems are reported
    /// early. Without this it is read when the agent runs.
    pub fn start(&self) {
        self.is_started.store(true, Ordering::Release);
    }

    /// Registers the toolset `OpenAPIToolset`, which takes arguments, and the toolset `openapi:NAME` for each API.
    pub fn register(&self, extensions: &mut Extensions) {
        let apis = self.clone();
        extensions.toolsets.register(TOOLSET, move |args| apis.toolset(None, args));
        for alias in ALIASES {
            extensions.toolsets.register_alias(alias, TOOLSET);
        }
        for name in self.apis.keys().chain(self.refused.keys()) {
            let (apis, api) = (self.clone(), name.clone());
            extensions.toolsets.register(format!("openapi:{name}"), move |args| apis.toolset(Some(&api), args));
        }
    }

    /// Creates a toolset. `api` is the name of the API if the arguments need none.
    fn toolset(&self, api: Option<&str>, args: JsonMap) -> Result<Arc<dyn Toolset>, String> {
        if let Some(key) = ToolsetArgs::INLINE.iter().find(|key| args.contains_key(**key)) {
            return Err(refuse_inline(key));
        }
        let args: ToolsetArgs = serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())?;
        let Some(name) = api.or(args.api.as_deref()) else {
            return Err(format!("`api` is missing: the name of an API in hatchery.yaml; {}", self.list()));
        };
        if let Some(refusal) = self.refused.get(name) {
            return Err(refusal.clone());
        }
        let Some(api) = self.apis.get(name) else {
            return Err(format!(
                "hatchery.yaml has no API `{name}`; {}; add it there below `openapi.apis`",
                self.list()
            ));
        };
        if self.is_started.load(Ordering::Acquire) {
            read_early(api);
        }
        Ok(Arc::new(OpenApiToolset::shared(api.clone(), args.options())))
    }

    fn list(&self) -> String {
        let names: Vec<_> = self.apis.keys().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "available: none".into() } else { format!("available: {}", names.join(", ")) }
    }

    /// Returns the state of each API, by name.
    pub fn statuses(&self) -> Vec<ApiStatus> {
        let status = |(name, api): (&String, &Arc<Api>)| {
            let (state, reason, operations) = match api.state() {
                State::Idle => ("idle", None, Vec::new()),
                State::Ready(document) => {
                    let drafts = document.drafts().unwrap_or_default();
                    ("ready", None, drafts.into_iter().map(|draft| draft.name).collect())
                }
                State::Down { error, .. } => ("down", Some(error.to_string()), Vec::new()),
            };
            ApiStatus { name: name.clone(), state, reason, operations }
        };
        let refused = self.refused.iter().map(|(name, reason)| ApiStatus {
            name: name.clone(),
            state: "refused",
            reason: Some(reason.clone()),
            operations: Vec::new(),
        });
        let used = self.apis.iter().filter(|(name, _)| !self.refused.contains_key(*name));
        used.map(status).chain(refused).collect()
    }
}

/// Reads the document in the background, and logs why it cannot be used.
fn read_early(api: &Arc<Api>) {
    let (api, Ok(runtime)) = (api.clone(), tokio::runtime::Handle::try_current()) else { return };
    runtime.spawn(async move {
        if let Err(error) = api.document().await {
            tracing::warn!(api = api.name, "an API cannot be used: {error}");
        }
    });
}

/// Arguments of the toolset in agent files, in snake_case or camelCase.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsetArgs {
    api: Option<String>,
    #[serde(alias = "toolFilter", alias = "only")]
    tool_filter: Option<BTreeSet<String>>,
    tags: Option<BTreeSet<String>>,
    #[serde(default, alias = "toolNamePrefix", alias = "prefix")]
    tool_name_prefix: String,
    #[serde(default, alias = "requireConfirmation")]
    require_confirmation: RequireConfirmation,
}

/// All operations or none, those that write, or those of these names.
#[derive(Deserialize)]
#[serde(untagged)]
enum RequireConfirmation {
    All(bool),
    Kind(Kind),
    Operations(BTreeSet<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Writes,
}

impl Default for RequireConfirmation {
    fn default() -> Self {
        Self::All(false)
    }
}

impl From<RequireConfirmation> for Confirmation {
    fn from(required: RequireConfirmation) -> Self {
        match required {
            RequireConfirmation::All(true) => Self::All,
            RequireConfirmation::All(false) => Self::None,
            RequireConfirmation::Kind(Kind::Writes) => Self::Writes,
            RequireConfirmation::Operations(names) => Self::Operations(names),
        }
    }
}

impl ToolsetArgs {
    /// Keys of ADK with which an agent would bring a document or credentials of its own.
    const INLINE: [&str; 10] = [
        "spec_dict",
        "specDict",
        "spec_str",
        "specStr",
        "spec_str_type",
        "specStrType",
        "auth_scheme",
        "authScheme",
        "auth_credential",
        "authCredential",
    ];

    fn options(self) -> ToolsetOptions {
        let selection = Selection { names: self.tool_filter, tags: self.tags };
        ToolsetOptions { selection, prefix: self.tool_name_prefix, confirmation: self.require_confirmation.into() }
    }
}

/// Returns why an agent cannot bring a document or credentials of its own, and what to write instead.
fn refuse_inline(key: &str) -> String {
    format!(
        "`{key}`: an agent cannot send requests or credentials of its own. Add the API to hatchery.yaml:\n\nopenapi:\n  apis:\n    \
         NAME:\n      document: openapi.yaml\n      base_url: https://api.example/v1\n      auth: {{bearer: {{from: API_TOKEN}}}}\n\n\
         and refer to it in the agent by `args: {{api: NAME}}`"
    )
}
