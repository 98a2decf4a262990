//! Names that several components offer: whoever uses one must say whose.

use std::collections::BTreeMap;

use hatchery_wasm::{Catalog, Component};

use super::Finding;

type Names = fn(&Component) -> Vec<&str>;

const KINDS: [(&str, Names); 7] = [
    ("agent", |it| it.agent_names().collect()),
    ("tool", |it| it.tool_names().collect()),
    ("callback", |it| it.callback_names().collect()),
    ("plugin", |it| it.plugin_names().collect()),
    ("code executor", |it| it.code_executor_names().collect()),
    ("summarizer", |it| it.summarizer_names().collect()),
    ("example provider", |it| it.example_names().collect()),
];

pub(super) fn findings(catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, names) in KINDS {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for component in catalog.components.values() {
            names(component).into_iter().for_each(|name| owners.entry(name).or_default().push(component.name()));
        }
        findings.extend(owners.into_iter().filter_map(|(name, owners)| ambiguous(kind, name, &owners)));
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
