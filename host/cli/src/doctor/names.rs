//! Names that several components offer: whoever uses one must say whose.

use std::collections::BTreeMap;

use hatchery_core::ItemKind;
use hatchery_wasm::Catalog;

use super::Finding;

/// The kinds of items that are found by their name alone, in the order of the findings.
const KINDS: [ItemKind; 7] = [
    ItemKind::Agent,
    ItemKind::Tool,
    ItemKind::Callback,
    ItemKind::Plugin,
    ItemKind::CodeExecutor,
    ItemKind::Summarizer,
    ItemKind::Examples,
];

pub(super) fn findings(catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in KINDS {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for component in catalog.components.values() {
            component.names(kind).for_each(|name| owners.entry(name).or_default().push(component.name()));
        }
        findings.extend(owners.into_iter().filter_map(|(name, owners)| ambiguous(kind.label(), name, &owners)));
    }
    findings
}

fn ambiguous(kind: &str, name: &str, owners: &[&str]) -> Option<Finding> {
    let [first, _, ..] = owners else { return None };
    let owners = owners.join("`, `");
    let said = format!("the {kind} `{name}` is offered by `{owners}`: whoever uses it must say whose");
    Some(Finding::doubtful(said).fixed_by(format!("name: {first}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_several_components_is_ambiguous() {
        assert_eq!(ambiguous("tool", "search", &["web"]), None);
        assert_eq!(
            ambiguous("tool", "search", &["files", "web"]),
            Some(
                Finding::doubtful("the tool `search` is offered by `files`, `web`: whoever uses it must say whose")
                    .fixed_by("name: files/search")
            )
        );
    }
}
