//! Schemas of components, their files and revisions, and of the events of the host.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The loaded components and apps, and the state of every file.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Components {
    /// Increased by every change.
    generation: u64,
    components: Vec<ComponentEntry>,
    files: Vec<FileEntry>,
    /// Replaced or removed revisions that are still in use by runs.
    draining: Vec<DrainingRevision>,
    /// Problems of loaded apps, one sentence each.
    warnings: Option<Vec<String>>,
    apps: Vec<AppEntry>,
    #[schema(value_type = Option<Vec<Object>>)]
    mcp_servers: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<Object>>)]
    a2a_agents: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<Object>>)]
    openapi: Option<Vec<Value>>,
}

/// The names of the agents of an app.
#[derive(ToSchema)]
pub(crate) struct AppEntry {
    name: String,
    agents: Vec<String>,
}

/// An active component.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentEntry {
    name: String,
    /// Path relative to the served folder.
    file: String,
    /// SHA-256 of the file, in hexadecimal.
    sha256: String,
    /// Number of active calls.
    calls: u64,
    /// Number of idle pooled instances.
    waiting_instances: u64,
    agents: Vec<String>,
    tools: Vec<String>,
    callbacks: Vec<String>,
    plugins: Vec<String>,
    code_executors: Vec<String>,
    summarizers: Vec<String>,
    examples: Vec<String>,
    models: Vec<String>,
    /// Items that are not available because another component already has their name, one sentence each.
    conflicts: Option<Vec<String>>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileState {
    Pending,
    Compiling,
    Loaded,
    Rejected,
    Conflict,
}

/// A file of the served folder.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileEntry {
    /// Relative to the served folder.
    path: String,
    /// The name of the component, or of the app of a `root_agent.yaml`.
    name: String,
    state: FileState,
    /// The reason why the file is not active.
    reason: Option<String>,
    /// Whether the previous version of the file is still active.
    previous_serves: Option<bool>,
    /// SHA-256 of the active revision, in hexadecimal.
    sha256: Option<String>,
    /// The time of the last change of the state, in seconds since 1970.
    since: f64,
}

/// A replaced revision of a component that is still in use by runs.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrainingRevision {
    name: String,
    sha256: String,
    /// Number of its active calls.
    calls: u64,
    /// The time of its replacement, in seconds since 1970.
    since: f64,
    /// Whether the drain timeout has passed.
    is_cut_off: bool,
}

/// A component with its grants, limits and stored revisions.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentDetail {
    name: String,
    /// Bytes.
    size: u64,
    sha256: String,
    /// The version of `hatchery:agent` for which it was built.
    contract: Option<String>,
    /// Imported interfaces.
    imports: Vec<String>,
    /// Exported interfaces.
    exports: Vec<String>,
    agents: Vec<ComponentAgent>,
    tools: Vec<ComponentTool>,
    toolsets: Vec<String>,
    callbacks: Vec<ComponentCallback>,
    plugins: Vec<ComponentPlugin>,
    code_executors: Vec<String>,
    summarizers: Vec<String>,
    examples: Vec<String>,
    models: Vec<String>,
    grants: GrantReport,
    /// The reason why the host refuses to load it.
    refused: Option<String>,
    /// Whether its code was run to list its items.
    is_described: bool,
    /// The lines of `hatchery.yaml` that add the missing grants.
    missing_lines: Option<String>,
    limits: ComponentLimits,
    usage: ComponentUsage,
    /// The revisions that can be restored, newest first.
    revisions: Vec<StoredRevision>,
}

#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentAgent {
    name: String,
    description: String,
    kind: String,
    model: Option<String>,
    tools: Vec<String>,
    toolsets: Vec<String>,
    sub_agents: Vec<String>,
    /// Whether the agent becomes an app.
    is_app: bool,
}

#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentTool {
    name: String,
    description: String,
    /// JSON Schema of the arguments.
    parameters: Option<Value>,
    /// JSON Schema of the result.
    response: Option<Value>,
    is_long_running: bool,
    requires_confirmation: bool,
}

#[derive(ToSchema)]
pub(crate) struct ComponentCallback {
    name: String,
    /// Hook points at which it may be used.
    points: Vec<String>,
}

#[derive(ToSchema)]
pub(crate) struct ComponentPlugin {
    name: String,
    hooks: Vec<String>,
}

/// The grants that a component requests, compared with those that it has. Entries by their key in `hatchery.yaml`.
#[derive(ToSchema)]
pub(crate) struct GrantReport {
    requested: Option<BTreeMap<String, Vec<String>>>,
    /// Reasons that the component states.
    why: BTreeMap<String, String>,
    granted: BTreeMap<String, Vec<String>>,
    missing: BTreeMap<String, Vec<String>>,
    unused: BTreeMap<String, Vec<String>>,
    /// Number of permitted operations since the grants were read, by key and entry.
    used: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    /// Number of operations that were refused because an entry is missing, by key.
    refused: Option<BTreeMap<String, u64>>,
}

/// The resource usage of a component's calls since its current revision was loaded.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentUsage {
    /// Number of calls that have ended.
    calls: u64,
    /// Bytes.
    memory: Option<Quantiles>,
    cpu_seconds: Option<Quantiles>,
    wall_seconds: Option<Quantiles>,
    /// Calls of agents and models only.
    agent_wall_seconds: Option<Quantiles>,
    /// Number of calls that exceeded a limit, by the key of the limit in `hatchery.yaml`; `fixed` for limits without a
    /// key.
    limit_hits: BTreeMap<String, u64>,
}

/// The median, the 99th percentile and the maximum. The first two may be up to one eighth too high.
#[derive(ToSchema)]
pub(crate) struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

/// The main limits of a component's calls.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentLimits {
    /// Bytes.
    memory: u64,
    cpu_seconds: f64,
    wall_seconds: f64,
    agent_wall_seconds: f64,
    /// Bytes.
    result: u64,
    /// Bytes.
    log: u64,
}

#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredRevision {
    sha256: String,
    /// Bytes.
    size: u64,
    /// Seconds since 1970.
    served_since: f64,
}

/// The differences between two revisions of a component.
#[derive(ToSchema)]
pub(crate) struct Comparison {
    from: RevisionSummary,
    to: RevisionSummary,
    changes: Vec<ItemChange>,
}

#[derive(ToSchema)]
pub(crate) struct RevisionSummary {
    sha256: String,
    /// Bytes.
    size: u64,
    contract: Option<String>,
}

/// A difference between two revisions.
#[derive(ToSchema)]
pub(crate) struct ItemChange {
    /// Such as `tool`, `agent`, `grant` or `import`.
    kind: String,
    name: String,
    /// The keys whose values differ.
    keys: Option<Vec<String>>,
    /// Left out if the item was added.
    from: Option<Value>,
    /// Left out if the item was removed.
    to: Option<Value>,
}

/// An event of the host, as in the stream of `GET /events`.
#[derive(ToSchema)]
pub(crate) struct HostEvent {
    /// Increases with each event.
    id: u64,
    /// Seconds since 1970.
    time: f64,
    #[serde(flatten)]
    kind: HostEventKind,
}

#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum HostEventKind {
    FileLoading {
        path: String,
        name: String,
    },
    FileLoaded {
        path: String,
        name: String,
    },
    FileRejected {
        path: String,
        name: String,
        reason: String,
        #[serde(rename = "previousServes")]
        previous_serves: bool,
    },
    FileRemoved {
        path: String,
        name: String,
    },
    ComponentAdded {
        name: String,
        sha256: String,
    },
    ComponentReplaced {
        name: String,
        from: String,
        to: String,
    },
    ComponentRemoved {
        name: String,
        sha256: String,
    },
    RevisionDrained {
        name: String,
        sha256: String,
    },
    RunEnded {
        app: String,
        user: String,
        session: String,
        run: String,
        seconds: f64,
        /// The stable code of the failure.
        error: Option<String>,
        message: Option<String>,
    },
    CallFailed {
        component: String,
        app: String,
        user: String,
        session: String,
        run: String,
        error: String,
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use hatchery_telemetry::{HostEventKind as Kind, HostEvents};
    use utoipa::PartialSchema;

    use super::*;

    #[test]
    fn the_schema_of_host_events_matches_their_json() {
        let mut schemas = Vec::new();
        HostEvent::schemas(&mut schemas);
        let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
        let components = serde_json::json!({"schemas": schemas});
        let schema = serde_json::json!({"allOf": [HostEvent::schema()], "components": components});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let text = || "text".to_owned();
        let place = || (text(), text(), text(), text());
        let events = HostEvents::default();
        events.add(Kind::FileLoading { path: text(), name: text() });
        events.add(Kind::FileLoaded { path: text(), name: text() });
        events.add(Kind::FileRejected { path: text(), name: text(), reason: text(), previous_serves: true });
        events.add(Kind::FileRemoved { path: text(), name: text() });
        events.add(Kind::ComponentAdded { name: text(), sha256: text() });
        events.add(Kind::ComponentReplaced { name: text(), from: text(), to: text() });
        events.add(Kind::ComponentRemoved { name: text(), sha256: text() });
        events.add(Kind::RevisionDrained { name: text(), sha256: text() });
        let (seconds, error, message) = (1.5, Some(text()), None);
        let (app, user, session, run) = place();
        events.add(Kind::RunEnded { app, user, session, run, seconds, error, message });
        let (app, user, session, run) = place();
        let (component, error, message) = (text(), text(), text());
        events.add(Kind::CallFailed { component, app, user, session, run, error, message });
        let stored = events.after(0).events;
        assert_eq!(stored.len(), 10);
        for event in stored {
            let json = serde_json::to_value(&*event).unwrap();
            assert!(validator.is_valid(&json), "{json}");
        }
        assert!(!validator.is_valid(&serde_json::json!({"id": 1, "time": 1.0, "kind": "fileLoaded"})), "{schema}");
    }
}
