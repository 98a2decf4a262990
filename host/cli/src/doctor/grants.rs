//! What components request and are not granted, and what they are granted and do not request.

use hatchery_wasm::{Component, GrantReport};

use super::{Finding, Visit};

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    visit.catalog.components.values().flat_map(|component| of(component)).collect()
}

fn of(component: &Component) -> Vec<Finding> {
    let (name, compared) = (component.name(), component.grant_report());
    let mut findings = Vec::new();
    if let Some(lines) = compared.missing_lines(name) {
        let said = format!("`{name}` requests more than it is granted: {}", keys(&compared.missing));
        findings.push(Finding::doubtful(said).fixed_by(lines));
    }
    if !compared.unused.is_empty() {
        let said = format!("`{name}` is granted what it does not request: {}", keys(&compared.unused));
        findings.push(
            Finding::doubtful(said).fixed_by(format!("take it out of `components.{name}.grants` in hatchery.yaml")),
        );
    }
    if findings.is_empty() && is_concerned(&compared) {
        findings.push(Finding::good(format!("`{name}` is granted what it requests")));
    }
    findings
}

/// True when there is anything to say of requests and grants.
fn is_concerned(compared: &GrantReport) -> bool {
    compared.requested.as_ref().is_some_and(|requested| !requested.is_empty())
}

fn keys(listed: &hatchery_wasm::policy::GrantEntries) -> String {
    let entries = listed.iter().map(|(key, entries)| format!("{key} {}", entries.join(", ")));
    entries.collect::<Vec<_>>().join("; ")
}
