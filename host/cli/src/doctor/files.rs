//! Checks files: the contract version of each component, rejected files, name conflicts, and agents with settings
//! that have no effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery::shell::quote_path;
use hatchery_core::{AgentId, AgentKind, AgentTree, Instruction, ItemKind, pluralize};
use hatchery_engine::App;
use hatchery_engine::yaml::ROOT_FILE;
use hatchery_wasm::version::{self, OFFERED};
use hatchery_wasm::{Component, FileState, FileStatus};

use super::{Diagnosis, Finding};
use crate::inspection::check_parameters;
use crate::projects::find_unbuilt;
use crate::{dotenv, files};

/// A root agent with the other usual extension of YAML files.
const MISNAMED_ROOT_FILE: &str = "root_agent.yml";

pub(super) fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let misnamed = misnamed_agents(diagnosis);
    let unbuilt = unbuilt_projects(diagnosis);
    if diagnosis.catalog.files.is_empty() {
        if !misnamed.is_empty() || !unbuilt.is_empty() {
            return misnamed.into_iter().chain(unbuilt).collect();
        }
        let message = format!("{}: no component and no YAML agent found", diagnosis.folder.display());
        let fix = format!("hatchery new hello --kind yaml --path {}", quote_path(diagnosis.folder));
        return vec![Finding::warning(message).with_fix(fix)];
    }
    let files = diagnosis.catalog.files.iter().map(|status| check_file(diagnosis, status));
    let keys = diagnosis.catalog.files.iter().filter_map(|status| check_keys(diagnosis, &status.path));
    let tools = diagnosis.catalog.components.values().flat_map(check_tools);
    let agents = diagnosis.catalog.apps.values().flat_map(|app| check_agents(app));
    files.chain(misnamed).chain(unbuilt).chain(keys).chain(tools).chain(agents).collect()
}

/// Returns a warning for each `root_agent.yml`, which is not loaded.
fn misnamed_agents(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let found = files::find(diagnosis.folder, |name| name == MISNAMED_ROOT_FILE).unwrap_or_default();
    let unused = found.into_iter().filter(|file| !file.with_file_name(ROOT_FILE).exists());
    let warning = |file: PathBuf| {
        let message =
            format!("{}: not loaded; the file of an agent is named {ROOT_FILE}", diagnosis.relative_path(&file));
        let renamed = file.with_file_name(ROOT_FILE);
        Finding::warning(message).with_fix(format!("mv {} {}", quote_path(&file), quote_path(&renamed)))
    };
    unused.map(warning).collect()
}

/// Returns a warning for each project whose component does not exist yet.
fn unbuilt_projects(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let warning = |project: PathBuf| {
        let path = diagnosis.relative_path(&project);
        let path = if path.is_empty() { project.display().to_string() } else { path };
        Finding::warning(format!("{path}: not built yet")).with_fix(format!("hatchery build {}", quote_path(&project)))
    };
    find_unbuilt(diagnosis.folder).into_iter().map(warning).collect()
}

/// Returns a warning if there are keys in the folder of an agent, where ADK reads them.
fn check_keys(diagnosis: &Diagnosis<'_>, agent: &Path) -> Option<Finding> {
    let folder = agent.parent().filter(|folder| is_root_agent(agent) && *folder != diagnosis.folder)?;
    let file = folder.join(dotenv::FILE_NAME);
    if !file.is_file() {
        return None;
    }
    let message = format!(
        "{}: only read by `hatchery run` and `hatchery test` of this folder; other commands read the `.env` of the served folder",
        diagnosis.relative_path(&file)
    );
    let read = diagnosis.folder.join(dotenv::FILE_NAME);
    Some(Finding::warning(message).with_fix(format!("cat {} >> {}", quote_path(&file), quote_path(&read))))
}

/// Returns a warning for each agent with a setting that has no effect, or without one that it needs.
fn check_agents(app: &App) -> Vec<Finding> {
    // By name, because several agents may call the same one as a tool.
    let mut problems = BTreeMap::new();
    for tree in app.trees() {
        let found = tree.iter().filter_map(|(id, agent)| Some((agent.name.as_str(), problem(tree, id)?)));
        problems.extend(found);
    }
    let warning = |(name, (problem, fix)): (&str, (String, &str))| {
        Finding::warning(format!("app `{}`: the agent `{name}` {problem}", app.name)).with_fix(fix)
    };
    problems.into_iter().map(warning).collect()
}

/// Returns the problem of an agent, and its fix.
fn problem(tree: &AgentTree, id: AgentId) -> Option<(String, &'static str)> {
    let agent = tree.agent(id);
    match &agent.kind {
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } if tree.children(id).is_empty() => {
            let problem = format!("is a {} agent without sub-agents, so it does nothing", agent.kind.label());
            Some((problem, "sub_agents: [{ config_path: FILE.yaml }]"))
        }
        AgentKind::Llm(llm) if id != tree.root() && !matches!(llm.global_instruction, Instruction::None) => {
            let problem = "has a `global_instruction`, which has an effect in a root agent only".to_owned();
            Some((problem, "plugins: [{ name: global_instruction, args: { instruction: TEXT } }]"))
        }
        AgentKind::Sequential
        | AgentKind::Parallel
        | AgentKind::Loop { .. }
        | AgentKind::Llm(_)
        | AgentKind::Custom(_) => None,
    }
}

/// Returns an error for each tool that no model can call.
fn check_tools(component: &Arc<Component>) -> Vec<Finding> {
    let tools = component.names(ItemKind::Tool).filter_map(|name| component.tool(name));
    let problems = tools.filter_map(|tool| {
        let declaration = tool.declaration();
        check_parameters(&format!("{}/{}", component.name(), declaration.name), declaration.parameters.as_ref())
    });
    problems.map(Finding::error).collect()
}

fn check_file(diagnosis: &Diagnosis<'_>, status: &FileStatus) -> Finding {
    let file = diagnosis.relative_path(&status.path);
    match &status.state {
        FileState::Loaded => match diagnosis.catalog.components.get(&status.name) {
            Some(component) if !is_root_agent(&status.path) => {
                Finding::ok(format!("{file}: {}", describe_component(component)))
            }
            _ => Finding::ok(format!("{file}: app `{}`", status.name)),
        },
        FileState::Pending | FileState::Compiling { .. } => {
            Finding::warning(format!("{file}: the file is still being written; run `hatchery doctor` again"))
        }
        FileState::Conflict { reason } => {
            let renamed = status.path.with_added_extension("unused");
            let fix = format!("mv {} {}", quote_path(&status.path), quote_path(&renamed));
            Finding::error(format!("{file}: {reason}")).with_fix(fix)
        }
        FileState::Rejected { reason, .. } => {
            // A reason that is about a line begins with the path.
            let finding = match reason.strip_prefix(&format!("{}:", status.path.display())) {
                Some(place_and_reason) => Finding::error(format!("{file}:{place_and_reason}")),
                None => Finding::error(format!("{file}: {reason}")),
            };
            if needs_rebuild(&status.path) {
                finding.with_fix(format!("hatchery build CRATE --out {}", quote_path(&status.path)))
            } else {
                finding
            }
        }
    }
}

fn is_root_agent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ROOT_FILE)
}

/// Returns true for a component that requires a contract version that this host does not support.
fn needs_rebuild(path: &Path) -> bool {
    let required = std::fs::read(path).ok().and_then(|bytes| version::required_version(&bytes));
    required.is_some_and(|required| !version::is_supported(&required))
}

/// Returns the contract and the number of items, for example `requires hatchery:agent 0.2.0, host has 0.2.1; 1 agent, 2
/// tools`.
fn describe_component(component: &Component) -> String {
    let mut counts: Vec<(ItemKind, usize)> = Vec::new();
    for (kind, _) in component.items() {
        match counts.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => counts.push((kind, 1)),
        }
    }
    let items: Vec<_> = counts.into_iter().map(|(kind, count)| pluralize(count, kind.label(), kind.plural())).collect();
    let contract = match &component.contract().version {
        Some(version) => format!("requires hatchery:agent {version}, host has {OFFERED}"),
        None => "plain WIT component, its functions are tools".to_owned(),
    };
    format!("{contract}; {}", items.join(", "))
}
