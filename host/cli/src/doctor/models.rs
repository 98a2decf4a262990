//! Checks the models of agents: providers, API keys, and scripts of `scripted:` models.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hatchery::services::{self, Scripts};
use hatchery::shell::quoted_path;
use hatchery_core::{Agent, AgentId, AgentKind, ModelRef, ModelResolver};
use hatchery_engine::App;
use hatchery_wasm::CatalogModels;

use super::{Diagnosis, Finding};

const SCRIPT_PREFIX: &str = "scripted:";

pub(super) fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let config = diagnosis.config.ok().cloned().unwrap_or_default();
    let fallback = services::models(&config, &Scripts::in_folder(diagnosis.folder, &config));
    let resolver = CatalogModels { catalog: diagnosis.catalog_handle.clone(), fallback };
    let apps = &diagnosis.catalog.apps;
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for app in apps.values() {
        for model in model_names(app) {
            users.entry(model).or_default().insert(&app.name);
        }
    }
    let models = users.into_iter().map(|(model, apps)| check_model(diagnosis.folder, &resolver, model, &apps));
    models.chain(apps.values().flat_map(|app| check_agents(app))).collect()
}

/// Returns a warning for each LLM agent that neither has a model nor inherits one. A plugin can still provide it.
fn check_agents(app: &App) -> impl Iterator<Item = Finding> {
    let has_model = |id: AgentId| {
        let mut agents = std::iter::once(id).chain(app.tree.ancestors(id));
        agents.any(|id| model_of(app.tree.agent(id)).is_some())
    };
    let llm_agents = app.tree.iter().filter(|(_, agent)| matches!(agent.kind, AgentKind::Llm(_)));
    llm_agents.filter(move |(id, _)| !has_model(*id)).map(|(_, agent)| {
        let message = format!("app `{}`: the agent `{}` has no model and inherits none", app.name, agent.name);
        Finding::warning(message).with_fix("model: gemini-2.5-flash")
    })
}

fn model_of(agent: &Agent) -> Option<&ModelRef> {
    match &agent.kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    }
}

/// Returns the model names of an app's agents.
fn model_names(app: &App) -> impl Iterator<Item = &str> {
    app.tree.iter().filter_map(|(_, agent)| model_of(agent)).map(ModelRef::name)
}

fn check_model(folder: &Path, resolver: &dyn ModelResolver, model: &str, apps: &BTreeSet<&str>) -> Finding {
    let apps = apps.iter().map(|app| format!("`{app}`")).collect::<Vec<_>>().join(", ");
    if let Err(error) = resolver.model(model) {
        let finding = Finding::error(format!("{error} (used by {apps})"));
        return match missing_variable(&error.to_string()) {
            Some(variable) => finding.with_fix(format!("export {variable}=")),
            None => finding,
        };
    }
    match model.strip_prefix(SCRIPT_PREFIX).map(|file| folder.join(file)).filter(|file| !file.is_file()) {
        Some(file) => {
            let message = format!("model `{model}`: script {} not found (used by {apps})", file.display());
            Finding::error(message).with_fix(create_script_command(&file))
        }
        None => Finding::ok(format!("model `{model}` (used by {apps})")),
    }
}

/// Returns a shell command that creates a minimal script.
fn create_script_command(file: &Path) -> String {
    let missing_folder = file.parent().filter(|folder| !folder.is_dir());
    let mkdir = missing_folder.map(|folder| format!("mkdir -p {} && ", quoted_path(folder))).unwrap_or_default();
    format!("{mkdir}printf 'turns:\\n  - reply: \"Hello\"\\n' > {}", quoted_path(file))
}

/// Returns the first environment variable that the error of a provider asks to set.
fn missing_variable(error: &str) -> Option<&str> {
    let missing = ["no key: set ", "no URL: set ", "no project: set "];
    let (_, variables) = missing.into_iter().find_map(|start| error.split_once(start))?;
    variables.split([' ', ',']).next()
}
