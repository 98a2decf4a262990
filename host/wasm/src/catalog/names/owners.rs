//! Who has which name. What had a name first keeps it as long as it is there, so that nothing that is added later takes it away from what
//! serves: neither by having the same name itself, nor by making it ambiguous.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_core::ItemKind;
use serde::{Deserialize, Serialize};

use super::{Components, items};
use crate::catalog::revisions::write_atomically;

/// The kinds of items that can be named without their component.
const KINDS: [ItemKind; 7] = [
    ItemKind::Tool,
    ItemKind::Callback,
    ItemKind::Agent,
    ItemKind::Plugin,
    ItemKind::CodeExecutor,
    ItemKind::Summarizer,
    ItemKind::Examples,
];

/// The component that an item's name alone means, by kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameOwners(BTreeMap<String, BTreeMap<String, String>>);

/// What other components offer under a name that has an owner: sentences by component.
pub(crate) type Shadowed = BTreeMap<String, Vec<String>>;

impl NameOwners {
    /// The component that `name` alone means.
    pub(super) fn of(&self, kind: ItemKind, name: &str) -> Option<&str> {
        self.0.get(kind.label())?.get(name).map(String::as_str)
    }

    /// The owners among `components` when these were the owners before, and who else offers what they have. What belongs to `awaited`
    /// components stays theirs, although they are not loaded.
    pub(crate) fn next(&self, components: &Components, awaited: &BTreeSet<&str>) -> (Self, Shadowed) {
        let (mut next, mut shadowed) = (Self::default(), Shadowed::new());
        for kind in KINDS {
            let before = self.0.get(kind.label());
            let absent = before.into_iter().flatten().filter(|(_, owner)| awaited.contains(owner.as_str()));
            let mut offers: BTreeMap<&str, Vec<&str>> = absent.map(|(item, _)| (item.as_str(), Vec::new())).collect();
            for (component, offered) in components {
                items(offered, kind).for_each(|item| offers.entry(item).or_default().push(component));
            }
            let mut owners = BTreeMap::new();
            for (item, rivals) in offers {
                let is_there = |owner: &&str| rivals.contains(owner) || awaited.contains(*owner);
                let owner = match (self.of(kind, item).filter(is_there), rivals.as_slice()) {
                    (Some(owner), _) => owner,
                    (None, [only]) => only,
                    (None, _) => continue,
                };
                owners.insert(item.to_owned(), owner.to_owned());
                for rival in rivals.into_iter().filter(|rival| *rival != owner) {
                    let sentence = format!(
                        "the {} `{item}` is that of `{owner}`, which had the name first; this one is `{rival}/{item}`",
                        kind.label()
                    );
                    shadowed.entry(rival.to_owned()).or_default().push(sentence);
                }
            }
            if !owners.is_empty() {
                next.0.insert(kind.label().to_owned(), owners);
            }
        }
        (next, shadowed)
    }
}

/// All names and who has them, as they are kept from one start of the host to the next. Files are relative to the served folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredNames {
    /// The file of each component.
    components: BTreeMap<String, PathBuf>,
    /// The file of each app.
    apps: BTreeMap<String, PathBuf>,
    /// Items.
    pub(crate) items: NameOwners,
}

impl StoredNames {
    /// Those of a host that serves `directory`.
    pub(crate) fn new(
        directory: &Path,
        components: &BTreeMap<String, PathBuf>,
        apps: &BTreeMap<String, PathBuf>,
        items: &NameOwners,
    ) -> Self {
        let relative = |files: &BTreeMap<String, PathBuf>| {
            let relative = |file: &PathBuf| file.strip_prefix(directory).unwrap_or(file).to_owned();
            files.iter().map(|(name, file)| (name.clone(), relative(file))).collect()
        };
        Self { components: relative(components), apps: relative(apps), items: items.clone() }
    }

    /// Those that were kept in a file. What cannot be read is reported and counts as nothing.
    pub(crate) fn read(file: &Path) -> Self {
        let read = match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error| {
            tracing::warn!("{}: who had which name is not known any more: {error}", file.display());
            Self::default()
        })
    }

    /// Keeps them in a file. That they cannot be kept is reported.
    pub(crate) fn write(&self, file: &Path) {
        let written = serde_json::to_vec_pretty(self).map_err(io::Error::from).and_then(|text| {
            fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
            write_atomically(file, &text)
        });
        if let Err(error) = written {
            tracing::warn!("{}: who has which name is forgotten with the next start: {error}", file.display());
        }
    }

    /// The files of components and of apps below `directory`.
    pub(crate) fn files(&self, directory: &Path) -> [BTreeMap<String, PathBuf>; 2] {
        [&self.components, &self.apps].map(|files| {
            // A path that leads out of the folder would name no file that is found there.
            files.iter().map(|(name, file)| (name.clone(), directory.join(file))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::ItemResolver;

    use super::*;
    use crate::catalog::names::Names;
    use crate::contract::component::tests::{agent, with_agents};

    async fn offering(name: &str) -> std::sync::Arc<crate::contract::component::Component> {
        with_agents(vec![agent(name, Vec::new())]).await
    }

    #[tokio::test]
    async fn the_first_of_two_keeps_its_name_and_the_other_is_told() {
        let one = Components::from([("first".to_owned(), offering("a").await)]);
        let (owners, shadowed) = NameOwners::default().next(&one, &BTreeSet::new());
        assert_eq!((owners.of(ItemKind::Agent, "a"), shadowed.len()), (Some("first"), 0));
        let mut two = one.clone();
        two.insert("another".to_owned(), offering("a").await);
        let (kept, shadowed) = owners.next(&two, &BTreeSet::new());
        assert_eq!(kept, owners);
        assert_eq!(
            shadowed["another"],
            ["the agent `a` is that of `first`, which had the name first; this one is `another/a`"]
        );
        assert_eq!(
            NameOwners::default().next(&two, &BTreeSet::new()).0,
            NameOwners::default(),
            "nobody knows who was first"
        );
        two.remove("first");
        let awaited = BTreeSet::from(["first"]);
        let (waiting, shadowed) = kept.next(&two, &awaited);
        assert_eq!((waiting.of(ItemKind::Agent, "a"), shadowed.len()), (Some("first"), 1));
        assert_eq!(waiting.next(&Components::new(), &awaited).0, waiting);
        let error = Names(&two, &waiting).agent("a").map(|_| ()).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "it is that of `first`, which is not loaded; to have that of another component, name it, as in `made/a`"
            ),
            "{error}"
        );
        assert_eq!(kept.next(&two, &BTreeSet::new()).0.of(ItemKind::Agent, "a"), Some("another"));
    }

    #[test]
    fn names_are_kept_relative_to_the_folder_that_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data/names.json");
        let map = |file: &str| BTreeMap::from([("x".to_owned(), PathBuf::from(file))]);
        let names = StoredNames::new(
            Path::new("here"),
            &map("here/x.wasm"),
            &map("here/x/root_agent.yaml"),
            &NameOwners::default(),
        );
        names.write(&file);
        let read = StoredNames::read(&file);
        assert_eq!(read, names);
        assert_eq!(read.files(Path::new("/there")), [map("/there/x.wasm"), map("/there/x/root_agent.yaml")]);
        fs::write(&file, "{").unwrap();
        assert_eq!(StoredNames::read(&file), StoredNames::default());
        assert_eq!(StoredNames::read(&folder.path().join("none")), StoredNames::default());
    }
}
