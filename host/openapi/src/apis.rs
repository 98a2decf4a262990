//! The configured APIs, and how agents refer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use hatchery_core::{JsonMap, Toolset, quoted_list};
use hatchery_engine::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{Api, DocumentState};
use crate::config::{ApiConfig, Confirmation, Selection};
use crate::toolset::{OpenApiToolset, ToolsetOptions};

/// The names of a kind of APIs in agent files and in the configuration.
struct ApiKind {
    /// The name of the toolset in agent files.
    toolset: &'static str,
    /// Its spellings in ADK.
    aliases: &'static [&'static str],
    /// The argument with the name of an API.
    argument: &'static str,
    /// The noun for an API in messages.
    noun: &'static str,
    /// The section of hatchery.yaml.
    section: &'static str,
    /// Prefix of the names of toolsets.
    prefix: &'static str,
    /// Keys of ADK with which an agent would bring a document, credentials or its own connection.
    inline_keys: &'static [&'static str],
    /// An example of the section of hatchery.yaml that replaces `inline_keys`.
    example: &'static str,
}

const OPENAPI: ApiKind = ApiKind {
    toolset: "OpenAPIToolset",
    aliases: &["OpenApiToolset", "google.adk.tools.openapi_tool.OpenAPIToolset", "openapi_tool.OpenAPIToolset"],
    argument: "api",
    noun: "API",
    section: "openapi.apis",
    prefix: "openapi",
    inline_keys: &[
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
    ],
    example: "openapi:\n  apis:\n    NAME:\n      document: openapi.yaml\n      base_url: https://api.example/v1\n      \
              auth: {bearer: {from: API_TOKEN}}",
};

const INTEGRATIONS: ApiKind = ApiKind {
    toolset: "ApplicationIntegrationToolset",
    aliases: &[
        "google.adk.tools.application_integration_tool.ApplicationIntegrationToolset",
        "com.google.adk.tools.applicationintegrationtoolset.ApplicationIntegrationToolset",
    ],
    argument: "integration",
    noun: "integration",
    section: "integrations",
    prefix: "integration",
    inline_keys: &[
        "project",
        "location",
        "connection",
        "triggers",
        "entity_operations",
        "entityOperations",
        "actions",
        "service_account_json",
        "serviceAccountJson",
        "tool_instructions",
        "toolInstructions",
        "auth_scheme",
        "authScheme",
        "auth_credential",
        "authCredential",
    ],
    example: "integrations:\n  NAME:\n    project: my-project\n    location: us-central1\n    connection: my-connection\n    \
              entity_operations: {Issues: [list, get]}\n    service_account: {file: key.json}",
};

/// The configured APIs, which can be replaced. All agents share the document and the connections of each. Cheap to
/// clone; clones share the APIs.
#[derive(Clone)]
pub struct Apis {
    kind: &'static ApiKind,
    current: Arc<ArcSwap<ApiTable>>,
    is_started: Arc<AtomicBool>,
}

/// The APIs of one configuration.
#[derive(Clone, Default)]
struct ApiTable {
    apis: BTreeMap<String, Arc<Api>>,
    /// APIs that must not be used, with the reasons.
    refusals: BTreeMap<String, String>,
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

impl ApiKind {
    /// Returns the error for an agent with a document or its own credentials, with the configuration to write
    /// instead.
    fn refuse_inline(&self, key: &str) -> String {
        let Self { argument, noun, example, .. } = self;
        format!(
            "`{key}`: an agent cannot send requests or credentials of its own. Add the {noun} to hatchery.yaml:\n\n{example}\n\n\
             and refer to it in the agent by `args: {{{argument}: NAME}}`"
        )
    }
}

impl Default for Apis {
    fn default() -> Self {
        Self::new([])
    }
}

impl Apis {
    /// Creates APIs with OpenAPI documents. Nothing is read yet.
    pub fn new(apis: impl IntoIterator<Item = (String, ApiConfig)>) -> Self {
        Self::with_kind(&OPENAPI, apis)
    }

    /// Creates integrations and connections of Google Cloud. Nothing is read yet.
    pub fn integrations(apis: impl IntoIterator<Item = (String, ApiConfig)>) -> Self {
        Self::with_kind(&INTEGRATIONS, apis)
    }

    fn with_kind(kind: &'static ApiKind, apis: impl IntoIterator<Item = (String, ApiConfig)>) -> Self {
        let apis = apis.into_iter().map(|(name, config)| (name.clone(), Api::new(kind.prefix, name, config)));
        let table = ApiTable { apis: apis.collect(), ..ApiTable::default() };
        Self { kind, current: Arc::new(ArcSwap::from_pointee(table)), is_started: Arc::default() }
    }

    /// Adds APIs that must not be used. Agents that refer to them get the reason.
    #[must_use]
    pub fn with_refused(self, refusals: impl IntoIterator<Item = (String, String)>) -> Self {
        let table = ApiTable { refusals: refusals.into_iter().collect(), ..self.table() };
        Self { current: Arc::new(ArcSwap::from_pointee(table)), ..self }
    }

    /// Replaces the APIs by `others`, except APIs with `unchanged` names, which keep their documents. Agent files
    /// are to be loaded again.
    pub fn replace(&self, others: &Self, unchanged: &BTreeSet<String>) {
        let (before, mut table) = (self.current.load(), others.table());
        for (name, api) in before.apis.iter().filter(|(name, _)| unchanged.contains(*name)) {
            table.apis.insert(name.clone(), api.clone());
        }
        self.current.store(Arc::new(table));
    }

    fn table(&self) -> ApiTable {
        ApiTable::clone(&self.current.load())
    }

    /// Reads documents of APIs as soon as an agent that uses them is loaded, so that problems are reported early.
    /// Without this call, they are read when the agent runs.
    pub fn start(&self) {
        self.is_started.store(true, Ordering::Release);
    }

    /// Registers the toolset `OpenAPIToolset` or `ApplicationIntegrationToolset`, which takes arguments, and the
    /// toolset `openapi:NAME` or `integration:NAME` for each API.
    pub fn register(&self, extensions: &mut Extensions) {
        let apis = self.clone();
        extensions.toolsets.register(self.kind.toolset, move |args| apis.toolset(None, args));
        for alias in self.kind.aliases {
            extensions.toolsets.register_alias(*alias, self.kind.toolset);
        }
        let table = self.current.load();
        for name in table.apis.keys().chain(table.refusals.keys()) {
            let (apis, api) = (self.clone(), name.clone());
            let name = format!("{}:{name}", self.kind.prefix);
            extensions.toolsets.register(name, move |args| apis.toolset(Some(&api), args));
        }
    }

    /// Creates a toolset. `api` is the name of the API if the arguments need none.
    fn toolset(&self, api: Option<&str>, mut args: JsonMap) -> Result<Arc<dyn Toolset>, String> {
        let ApiKind { argument, noun, section, inline_keys, .. } = self.kind;
        if let Some(key) = inline_keys.iter().find(|key| args.contains_key(**key)) {
            return Err(self.kind.refuse_inline(key));
        }
        let named = args.shift_remove(*argument);
        let args: ToolsetArgs = serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())?;
        let table = self.current.load();
        let Some(name) = api.or(named.as_ref().and_then(Value::as_str)) else {
            return Err(format!(
                "`args.{argument}` is missing: the name of an {noun} in hatchery.yaml; {}",
                table.list()
            ));
        };
        if let Some(refusal) = table.refusals.get(name) {
            return Err(refusal.clone());
        }
        let Some(api) = table.apis.get(name) else {
            return Err(format!(
                "hatchery.yaml has no {noun} `{name}`; {}; add it there below `{section}`",
                table.list()
            ));
        };
        if self.is_started.load(Ordering::Acquire) {
            read_early(api);
        }
        Ok(Arc::new(OpenApiToolset::with_api(api.clone(), args.options())))
    }

    /// Returns the state of each API, by name.
    pub fn statuses(&self) -> Vec<ApiStatus> {
        let status = |(name, api): (&String, &Arc<Api>)| {
            let (state, reason, operations) = match api.state() {
                DocumentState::Idle => ("idle", None, Vec::new()),
                DocumentState::Ready(document) => ("ready", None, document.operation_names().to_vec()),
                DocumentState::Down { error, .. } => ("down", Some(error.for_reports()), Vec::new()),
            };
            ApiStatus { name: name.clone(), state, reason, operations }
        };
        let table = self.current.load();
        let refused_statuses = table.refusals.iter().map(|(name, reason)| ApiStatus {
            name: name.clone(),
            state: "refused",
            reason: Some(reason.clone()),
            operations: Vec::new(),
        });
        let used = table.apis.iter().filter(|(name, _)| !table.refusals.contains_key(*name));
        used.map(status).chain(refused_statuses).collect()
    }
}

impl ApiTable {
    fn list(&self) -> String {
        format!("available: {}", quoted_list(self.apis.keys()))
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
    #[serde(alias = "toolFilter", alias = "only")]
    tool_filter: Option<BTreeSet<String>>,
    tags: Option<BTreeSet<String>>,
    #[serde(default, alias = "toolNamePrefix", alias = "prefix")]
    tool_name_prefix: String,
    #[serde(default, alias = "requireConfirmation")]
    require_confirmation: RequireConfirmation,
}

/// All operations or none, the operations that write, or the operations of these names.
#[derive(Deserialize)]
#[serde(untagged)]
enum RequireConfirmation {
    All(bool),
    Kind(ConfirmedKind),
    Operations(BTreeSet<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConfirmedKind {
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
            RequireConfirmation::Kind(ConfirmedKind::Writes) => Self::Writes,
            RequireConfirmation::Operations(names) => Self::Operations(names),
        }
    }
}

impl ToolsetArgs {
    fn options(self) -> ToolsetOptions {
        let selection = Selection { names: self.tool_filter, tags: self.tags };
        ToolsetOptions { selection, prefix: self.tool_name_prefix, confirmation: self.require_confirmation.into() }
    }
}
