//! Checks the models of agents and of the configuration: providers, API keys, and scripts of `scripted:` models.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use hatchery::models::{model_of, models_of, models_of_config};
use hatchery::services::{self, Scripts};
use hatchery::shell::quote_path;
use hatchery_core::{Agent, AgentId, AgentKind, CodeExecution, ModelErrorKind, ModelResolver};
use hatchery_engine::App;
use hatchery_engine::builtin::ModelTool;
use hatchery_wasm::CatalogModels;

use super::{Diagnosis, Finding};
use crate::{dotenv, files};

const SCRIPT_PREFIXES: [&str; 2] = ["scripted:", "scripted-live:"];

pub(super) fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let config = diagnosis.config.ok().cloned().unwrap_or_default();
    let scripts = Scripts::in_folder(diagnosis.folder, &config);
    let fallback = services::models(&config, &scripts);
    let resolver = CatalogModels { catalog: diagnosis.catalog_handle.clone(), fallback };
    let apps = &diagnosis.catalog.apps;
    let mut users = models_of(&apps.values().cloned().collect::<Vec<_>>());
    for (model, keys) in models_of_config(&config, &*diagnosis.catalog) {
        users.entry(model).or_default().extend(keys);
    }
    let models = users.into_iter().map(|(model, users)| check_model(&scripts, &resolver, &model, &users));
    let agents = apps.values().flat_map(|app| check_model_tools(app, &resolver).into_iter().chain(check_agents(app)));
    models.chain(agents).collect()
}

/// Returns an error for each agent with a built-in tool of models that its own model does not have.
fn check_model_tools(app: &App, models: &dyn ModelResolver) -> Vec<Finding> {
    // Each once, because several agents may call the same one as a tool.
    let mut problems = BTreeSet::new();
    for tree in app.trees() {
        for (id, agent) in tree.iter() {
            let model = std::iter::once(id).chain(tree.ancestors(id)).find_map(|id| model_of(tree.agent(id)));
            let (Some(tool), Some(model)) = (model_tool(agent), model) else { continue };
            // An unknown model is a finding already.
            if model.names().all(|name| is_known(models, name)) && !model.capabilities(models).built_in_tools {
                problems.insert(format!(
                    "app `{}`: the agent `{}` has the tool `{tool}`, which runs inside Gemini models from version 2 on, and not \
                     inside `{}`",
                    app.name,
                    agent.name,
                    model.name()
                ));
            }
        }
    }
    problems.into_iter().map(Finding::error).collect()
}

fn is_known(models: &dyn ModelResolver, name: &str) -> bool {
    !models.model(name).is_err_and(|error| error.kind == ModelErrorKind::UnknownModel)
}

/// Returns the name of a tool of an agent that runs inside its model.
fn model_tool(agent: &Agent) -> Option<&str> {
    let AgentKind::Llm(llm) = &agent.kind else { return None };
    let uncallable = llm.tools.iter().filter(|tool| !tool.is_callable()).map(|tool| tool.declaration().name.as_str());
    let runs_code = matches!(llm.code_execution, Some(CodeExecution::BuiltIn));
    uncallable.chain(runs_code.then_some("code_execution")).find(|name| ModelTool::NAMES.contains(name))
}

/// Returns a warning for each LLM agent that neither has a model nor inherits one. A plugin can still provide it.
fn check_agents(app: &App) -> Vec<Finding> {
    let mut names = Vec::new();
    for tree in app.trees() {
        let has_model = |id: AgentId| {
            let mut agents = std::iter::once(id).chain(tree.ancestors(id));
            agents.any(|id| model_of(tree.agent(id)).is_some())
        };
        let llm_agents = tree.iter().filter(|(_, agent)| matches!(agent.kind, AgentKind::Llm(_)));
        names.extend(llm_agents.filter(|(id, _)| !has_model(*id)).map(|(_, agent)| agent.name.as_str()));
    }
    let mut seen = HashSet::new();
    // Several agents may call the same one as a tool.
    names.retain(|name| seen.insert(*name));
    let warning = |name: &str| {
        let message = format!("app `{}`: the agent `{name}` has no model and inherits none", app.name);
        Finding::warning(message).with_fix("model: gemini-2.5-flash")
    };
    names.into_iter().map(warning).collect()
}

fn check_model(scripts: &Scripts, resolver: &dyn ModelResolver, model: &str, users: &[String]) -> Finding {
    let users = users.iter().map(|user| format!("`{user}`")).collect::<Vec<_>>().join(", ");
    if let Err(error) = resolver.model(model) {
        let finding = Finding::error(format!("{error} (used by {users})"));
        return match missing_variable(&error.to_string()) {
            Some(variable) => finding.with_fix(set_variable_fix(variable, &scripts.directory)),
            None => finding,
        };
    }
    let Some(script) = SCRIPT_PREFIXES.iter().find_map(|prefix| model.strip_prefix(prefix)) else {
        return Finding::ok(format!("model `{model}` (used by {users})"));
    };
    let file = scripts.file(script);
    if !file.is_file() {
        if let Some(other) = misplaced_script(scripts, script) {
            let message = format!(
                "model `{model}`: script {} not found, but there is {} (used by {users})",
                file.display(),
                other.display()
            );
            return Finding::error(message).with_fix(misplaced_script_fix(scripts, model, script, &other));
        }
        let message = format!("model `{model}`: script {} not found (used by {users})", file.display());
        return Finding::error(message).with_fix(create_script_command(&file));
    }
    match scripts.check(script) {
        Ok(()) => Finding::ok(format!("model `{model}` (used by {users})")),
        Err(error) => Finding::error(format!("model `{model}`: {error} (used by {users})")),
    }
}

/// Returns a script in another place of the folder, because its app was moved, or the folder of the app is not the one
/// that is served.
fn misplaced_script(scripts: &Scripts, script: &str) -> Option<PathBuf> {
    let script = Path::new(script);
    let name = script.file_name()?.to_str()?;
    files::find(&scripts.directory, |file| file == name).ok()?.into_iter().find(|file| file.ends_with(script))
}

/// Returns the name of the model with the path of its script, and the folder in which the present name is right.
fn misplaced_script_fix(scripts: &Scripts, model: &str, script: &str, file: &Path) -> String {
    let prefix = model.strip_suffix(script).unwrap_or_default();
    let relative = file.strip_prefix(&scripts.directory).unwrap_or(file);
    let fix = format!("model: {prefix}{}", relative.display());
    let depth = Path::new(script).components().count();
    match file.ancestors().nth(depth) {
        // A script beside the served folder's agents is named without a folder.
        Some(folder) if depth > 1 => format!("{fix}\n# or serve another folder: hatchery dev {}", quote_path(folder)),
        _ => fix,
    }
}

/// Returns the command that sets a variable, and where a key can be stored.
fn set_variable_fix(variable: &str, folder: &Path) -> String {
    let command = format!("export {variable}=");
    if !dotenv::is_key(variable) {
        return command;
    }
    format!("{command}\n# or a line {variable}=… in {}", folder.join(dotenv::FILE_NAME).display())
}

/// Returns a shell command that creates a minimal script.
fn create_script_command(file: &Path) -> String {
    let missing_folder = file.parent().filter(|folder| !folder.is_dir());
    let mkdir = missing_folder.map(|folder| format!("mkdir -p {} && ", quote_path(folder))).unwrap_or_default();
    format!("{mkdir}printf 'turns:\\n  - reply: \"Hello\"\\n' > {}", quote_path(file))
}

/// Returns the first environment variable that the error of a provider asks to set.
fn missing_variable(error: &str) -> Option<&str> {
    let missing = ["no key: set ", "no URL: set ", "no project: set "];
    let (_, variables) = missing.into_iter().find_map(|start| error.split_once(start))?;
    variables.split([' ', ',']).next()
}
