//! The files: which contract each component wants, what is rejected and why, which files have one name.

use std::path::Path;

use hatchery_core::ItemKind;
use hatchery_engine::yaml::ROOT_FILE;
use hatchery_wasm::version::{self, OFFERED};
use hatchery_wasm::{Component, FileState, FileStatus};

use super::report::shell;
use super::{Finding, Visit};

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    if visit.catalog.files.is_empty() {
        let none = format!("{}: there is neither a component nor a YAML agent", visit.folder.display());
        let fix = format!("hatchery new hello --kind yaml --path {}", shell(visit.folder));
        return vec![Finding::doubtful(none).fixed_by(fix)];
    }
    visit.catalog.files.iter().map(|status| finding(visit, status)).collect()
}

fn finding(visit: &Visit<'_>, status: &FileStatus) -> Finding {
    let file = visit.relative(&status.path);
    match &status.state {
        FileState::Loaded => match visit.catalog.components.get(&status.name) {
            Some(component) if !is_root(&status.path) => Finding::good(format!("{file}: {}", offers(component))),
            _ => Finding::good(format!("{file}: the app `{}`", status.name)),
        },
        FileState::Pending | FileState::Compiling { .. } => {
            Finding::doubtful(format!("{file}: it is still changing; look again when it is written"))
        }
        FileState::Conflict { reason } => {
            let aside = status.path.with_added_extension("unused");
            let fix = format!("mv {} {}", shell(&status.path), shell(&aside));
            Finding::broken(format!("{file}: {reason}")).fixed_by(fix)
        }
        FileState::Rejected { reason, .. } => {
            let rejected = Finding::broken(format!("{file}: {reason}"));
            match rebuilds(&status.path) {
                true => rejected.fixed_by(format!("hatchery build CRATE --out {}", shell(&status.path))),
                false => rejected,
            }
        }
    }
}

fn is_root(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ROOT_FILE)
}

/// True for a component that was built for a contract which this host does not serve.
fn rebuilds(path: &Path) -> bool {
    let wanted = std::fs::read(path).ok().and_then(|bytes| version::required_version(&bytes));
    wanted.is_some_and(|wanted| !version::is_supported(&wanted))
}

/// `wants hatchery:agent 0.1.0, offered is 0.1.0; 1 agent, 2 tools`, or `wants no hatchery:agent, its functions are tools; 2 tools`.
fn offers(component: &Component) -> String {
    let mut counts: Vec<(ItemKind, usize)> = Vec::new();
    for (kind, _) in component.items() {
        match counts.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => counts.push((kind, 1)),
        }
    }
    let items: Vec<_> = counts
        .into_iter()
        .map(|(kind, count)| format!("{count} {}", if count == 1 { kind.label() } else { kind.plural() }))
        .collect();
    let wants = match &component.contract().version {
        Some(version) => format!("wants hatchery:agent {version}, offered is {OFFERED}"),
        None => "wants no hatchery:agent, its functions are tools".to_owned(),
    };
    format!("{wants}; {}", items.join(", "))
}
