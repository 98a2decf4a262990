//! Checks grants: those that components request and do not have, and those that they have and do not request.

use std::path::Path;

use hatchery::shell::quote_path;
use hatchery_wasm::Component;
use hatchery_wasm::policy::GrantEntries;

use super::{Diagnosis, Finding};

pub(super) fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    // Without a valid configuration the grants are unknown.
    if diagnosis.config.is_err() {
        return Vec::new();
    }
    let folder = diagnosis.folder;
    let folder = if folder == Path::new(".") { String::new() } else { format!(" --dir {}", quote_path(folder)) };
    diagnosis.catalog.components.values().flat_map(|component| check_component(component, &folder)).collect()
}

/// `folder` is the argument of commands for the folder, with a space before it.
fn check_component(component: &Component, folder: &str) -> Vec<Finding> {
    let (name, report) = (component.name(), component.grant_report());
    let mut findings = Vec::new();
    if let Some(yaml) = report.missing_lines(name) {
        let message = format!("`{name}` requests grants that it does not have: {}", format_entries(&report.missing));
        findings.push(Finding::warning(message).with_fix(format!("{yaml}\n# or: hatchery grant {name}{folder}")));
    }
    if !report.unused.is_empty() {
        let message = format!("`{name}` has grants that it does not request: {}", format_entries(&report.unused));
        let fix = format!("remove them from `components.{name}.grants` in hatchery.yaml");
        findings.push(Finding::warning(message).with_fix(fix));
    }
    let requests_grants = report.requested.as_ref().is_some_and(|requested| !requested.is_empty());
    if findings.is_empty() && requests_grants {
        findings.push(Finding::ok(format!("`{name}` has all grants that it requests")));
    }
    findings
}

fn format_entries(entries: &GrantEntries) -> String {
    let entries = entries.iter().map(|(key, values)| format!("{key} {}", values.join(", ")));
    entries.collect::<Vec<_>>().join("; ")
}
