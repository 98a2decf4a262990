//! Models that agents name: whether there is one of that name, its key, its script.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hatchery::services::{self, Scripts};
use hatchery_core::{Agent, AgentId, AgentKind, ModelRef, ModelResolver};
use hatchery_engine::App;
use hatchery_wasm::CatalogModels;

use super::report::shell;
use super::{Finding, Visit};

const SCRIPTED: &str = "scripted:";

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    let config = visit.config.ok().cloned().unwrap_or_default();
    let rest = services::models(&config, &Scripts::in_folder(visit.folder, &config));
    let models = CatalogModels { catalog: visit.handle.clone(), fallback: rest };
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for app in visit.catalog.apps.values() {
        for model in models_of(app) {
            users.entry(model).or_default().insert(&app.name);
        }
    }
    let named = users.into_iter().map(|(model, apps)| finding(visit.folder, &models, model, &apps));
    named.chain(visit.catalog.apps.values().flat_map(|app| without_model(app))).collect()
}

/// Agents that would ask a model, and have none. A plugin may give them one.
fn without_model(app: &App) -> impl Iterator<Item = Finding> {
    let has_none = |id: AgentId| {
        let mut above = std::iter::once(id).chain(app.tree.ancestors(id));
        !above.any(|id| model_of(app.tree.agent(id)).is_some())
    };
    let asks = app.tree.iter().filter(|(_, agent)| matches!(agent.kind, AgentKind::Llm(_)));
    asks.filter(move |(id, _)| has_none(*id)).map(|(_, agent)| {
        let said = format!("app `{}`: neither the agent `{}` nor one above it has a model", app.name, agent.name);
        Finding::doubtful(said).fixed_by("model: gemini-2.5-flash")
    })
}

fn model_of(agent: &Agent) -> Option<&ModelRef> {
    match &agent.kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    }
}

/// The models that an app's agents name.
fn models_of(app: &App) -> impl Iterator<Item = &str> {
    app.tree.iter().filter_map(|(_, agent)| model_of(agent)).map(ModelRef::name)
}

fn finding(folder: &Path, models: &dyn ModelResolver, model: &str, apps: &BTreeSet<&str>) -> Finding {
    let apps = apps.iter().map(|app| format!("`{app}`")).collect::<Vec<_>>().join(", ");
    if let Err(error) = models.model(model) {
        let broken = Finding::broken(format!("{error} (used by {apps})"));
        return match missing_key(&error.to_string()) {
            Some(variable) => broken.fixed_by(format!("export {variable}=")),
            None => broken,
        };
    }
    match model.strip_prefix(SCRIPTED).map(|file| folder.join(file)).filter(|file| !file.is_file()) {
        Some(file) => {
            let make = file.parent().filter(|folder| !folder.is_dir());
            let make = make.map(|folder| format!("mkdir -p {} && ", shell(folder))).unwrap_or_default();
            let fix = format!("{make}printf 'turns:\\n  - reply: \"Hello\"\\n' > {}", shell(&file));
            let file = file.display();
            Finding::broken(format!("model `{model}`: there is no file {file} (used by {apps})")).fixed_by(fix)
        }
        None => Finding::good(format!("model `{model}`, used by {apps}")),
    }
}

/// The first of the variables that a model's error asks for.
fn missing_key(error: &str) -> Option<&str> {
    let (_, wanted) = error.split_once("no key: set ")?;
    wanted.split([' ', ',']).next()
}
