//! Checks for names that several components export, which need a full name such as `COMPONENT/NAME`.

use std::collections::BTreeMap;

use hatchery_core::ItemKind;
use hatchery_wasm::Catalog;

use super::Finding;

/// The item kinds that can be used by their short name, in the order of the findings.
const KINDS: [ItemKind; 7] = [
    ItemKind::Agent,
    ItemKind::Tool,
    ItemKind::Callback,
    ItemKind::Plugin,
    ItemKind::CodeExecutor,
    ItemKind::Summarizer,
    ItemKind::Examples,
];

pub(super) fn check(catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in KINDS {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for component in catalog.components.values() {
            component.names(kind).for_each(|name| owners.entry(name).or_default().push(component.name()));
        }
        findings.extend(owners.into_iter().filter_map(|(name, owners)| check_owners(kind.label(), name, &owners)));
    }
    findings
}

fn check_owners(kind: &str, name: &str, owners: &[&str]) -> Option<Finding> {
    let [first, _, ..] = owners else { return None };
    let owners = owners.join("`, `");
    let message = format!("{kind} `{name}` is exported by `{owners}`; use the full name, such as `{first}/{name}`");
    Some(Finding::warning(message).with_fix(format!("name: {first}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_several_components_needs_a_full_name() {
        assert_eq!(check_owners("tool", "search", &["web"]), None);
        let message = "tool `search` is exported by `files`, `web`; use the full name, such as `files/search`";
        assert_eq!(
            check_owners("tool", "search", &["files", "web"]),
            Some(Finding::warning(message).with_fix("name: files/search"))
        );
    }
}
