//! Ownership of unqualified names. The component that had a name first keeps it as long as it exists. So no component
//! that is added later can take over a name, or make it ambiguous, for agents that already serve.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_core::ItemKind;
use hatchery_files::{FileAccess, write_atomically};
use serde::{Deserialize, Serialize};

use super::Components;

/// The kinds of items that have unqualified names.
const KINDS: [ItemKind; 7] = [
    ItemKind::Tool,
    ItemKind::Callback,
    ItemKind::Agent,
    ItemKind::Plugin,
    ItemKind::CodeExecutor,
    ItemKind::Summarizer,
    ItemKind::Examples,
];

/// The owner of each unqualified item name, by kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameOwners(BTreeMap<String, BTreeMap<String, String>>);

/// Items whose unqualified name belongs to another component: one sentence each, by component.
pub(crate) type ShadowedItems = BTreeMap<String, Vec<String>>;

impl NameOwners {
    /// Returns the component that owns `name`.
    pub(super) fn owner(&self, kind: ItemKind, name: &str) -> Option<&str> {
        self.0.get(kind.label())?.get(name).map(String::as_str)
    }

    /// Returns the owners after `self` for these components, and the items that do not own their name. Names of
    /// `pending` components stay reserved for them, although they are not loaded.
    pub(crate) fn update(&self, components: &Components, pending: &BTreeSet<&str>) -> (Self, ShadowedItems) {
        let (mut next, mut shadowed) = (Self::default(), ShadowedItems::new());
        for kind in KINDS {
            let before = self.0.get(kind.label());
            let absent = before.into_iter().flatten().filter(|(_, owner)| pending.contains(owner.as_str()));
            let mut offers: BTreeMap<&str, Vec<&str>> = absent.map(|(item, _)| (item.as_str(), Vec::new())).collect();
            for (component, offered) in components {
                offered.names_with_toolset(kind).for_each(|item| offers.entry(item).or_default().push(component));
            }
            let mut owners = BTreeMap::new();
            for (item, claimants) in offers {
                let is_there = |owner: &&str| claimants.contains(owner) || pending.contains(*owner);
                let owner = match (self.owner(kind, item).filter(is_there), claimants.as_slice()) {
                    (Some(owner), _) => owner,
                    (None, [only]) => only,
                    (None, _) => continue,
                };
                owners.insert(item.to_owned(), owner.to_owned());
                for claimant in claimants.into_iter().filter(|claimant| *claimant != owner) {
                    let sentence = format!(
                        "the {} `{item}` belongs to `{owner}`, which had the name first; this one is `{claimant}/{item}`",
                        kind.label()
                    );
                    shadowed.entry(claimant.to_owned()).or_default().push(sentence);
                }
            }
            if !owners.is_empty() {
                next.0.insert(kind.label().to_owned(), owners);
            }
        }
        (next, shadowed)
    }
}

/// All names and their owners, as stored between starts of the host. Paths are relative to the served folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredNames {
    components: BTreeMap<String, PathBuf>,
    apps: BTreeMap<String, PathBuf>,
    pub(crate) items: NameOwners,
}

impl StoredNames {
    /// Collects the names of a host that serves `directory`. JSON has only paths that are UTF-8, so others keep their
    /// names until the host stops.
    pub(crate) fn new(
        directory: &Path,
        components: &BTreeMap<String, PathBuf>,
        apps: &BTreeMap<String, PathBuf>,
        items: &NameOwners,
    ) -> Self {
        let relative = |files: &BTreeMap<String, PathBuf>| {
            let relative = |file: &PathBuf| file.strip_prefix(directory).unwrap_or(file).to_owned();
            let files = files.iter().map(|(name, file)| (name.clone(), relative(file)));
            files.filter(|(_, file)| file.to_str().is_some()).collect()
        };
        Self { components: relative(components), apps: relative(apps), items: items.clone() }
    }

    /// Reads the names from a file. An unreadable file is logged and counts as empty.
    pub(crate) fn read(file: &Path) -> Self {
        let read = match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error| {
            tracing::warn!("{}: cannot read which component owns which name: {error}", file.display());
            Self::default()
        })
    }

    /// Writes the names to a file. Returns false after a failure, which is logged.
    pub(crate) fn write(&self, file: &Path) -> bool {
        let written = serde_json::to_vec_pretty(self).map_err(io::Error::from).and_then(|text| {
            fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
            write_atomically(file, &text, FileAccess::Default)
        });
        if let Err(error) = &written {
            tracing::warn!(
                "{}: cannot store which component owns which name for the next start: {error}",
                file.display()
            );
        }
        written.is_ok()
    }

    /// Returns the files of components and of apps below `directory`.
    pub(crate) fn files(&self, directory: &Path) -> [BTreeMap<String, PathBuf>; 2] {
        [&self.components, &self.apps].map(|files| {
            // A path that leads out of the folder cannot match a file that a scan finds.
            files.iter().map(|(name, file)| (name.clone(), directory.join(file))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::ItemResolver;

    use super::*;
    use crate::catalog::names::NameResolver;
    use crate::contract::component::tests::{agent, with_agents};

    async fn offering(name: &str) -> std::sync::Arc<crate::contract::component::Component> {
        with_agents(vec![agent(name, Vec::new())]).await
    }

    #[tokio::test]
    async fn the_first_of_two_keeps_its_name_and_the_other_is_reported() {
        let one = Components::from([("first".to_owned(), offering("a").await)]);
        let (owners, shadowed) = NameOwners::default().update(&one, &BTreeSet::new());
        assert_eq!((owners.owner(ItemKind::Agent, "a"), shadowed.len()), (Some("first"), 0));
        let mut two = one.clone();
        two.insert("another".to_owned(), offering("a").await);
        let (updated, shadowed) = owners.update(&two, &BTreeSet::new());
        assert_eq!(updated, owners);
        assert_eq!(
            shadowed["another"],
            ["the agent `a` belongs to `first`, which had the name first; this one is `another/a`"]
        );
        assert_eq!(
            NameOwners::default().update(&two, &BTreeSet::new()).0,
            NameOwners::default(),
            "it is unknown which was first"
        );
        two.remove("first");
        let pending = BTreeSet::from(["first"]);
        let (waiting, shadowed) = updated.update(&two, &pending);
        assert_eq!((waiting.owner(ItemKind::Agent, "a"), shadowed.len()), (Some("first"), 1));
        assert_eq!(waiting.update(&Components::new(), &pending).0, waiting);
        let error = NameResolver::new(&two, &waiting, None).agent("a").map(|_| ()).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "it belongs to `first`, which is not loaded; to use an item of another component, qualify it, as in `made/a`"
            ),
            "{error}"
        );
        assert_eq!(updated.update(&two, &BTreeSet::new()).0.owner(ItemKind::Agent, "a"), Some("another"));
    }

    #[test]
    fn names_are_stored_relative_to_the_folder_that_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data/names.json");
        let map = |file: &str| BTreeMap::from([("x".to_owned(), PathBuf::from(file))]);
        let names = StoredNames::new(
            Path::new("here"),
            &map("here/x.wasm"),
            &map("here/x/root_agent.yaml"),
            &NameOwners::default(),
        );
        assert!(names.write(&file));
        let read = StoredNames::read(&file);
        assert_eq!(read, names);
        assert_eq!(read.files(Path::new("/there")), [map("/there/x.wasm"), map("/there/x/root_agent.yaml")]);
        fs::write(&file, "{").unwrap();
        assert_eq!(StoredNames::read(&file), StoredNames::default());
        assert_eq!(StoredNames::read(&folder.path().join("none")), StoredNames::default());
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_does_not_keep_other_names_from_being_stored() {
        use std::os::unix::ffi::OsStringExt;

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("names.json");
        let foreign = PathBuf::from(std::ffi::OsString::from_vec(b"here/\xff/root_agent.yaml".to_vec()));
        let app = |path: &str| PathBuf::from(path);
        let apps = BTreeMap::from([("one".to_owned(), app("here/one/root_agent.yaml")), ("two".to_owned(), foreign)]);
        let names = StoredNames::new(Path::new("here"), &BTreeMap::new(), &apps, &NameOwners::default());
        assert!(names.write(&file));
        let [_, stored] = StoredNames::read(&file).files(Path::new("here"));
        assert_eq!(stored, BTreeMap::from([("one".to_owned(), app("here/one/root_agent.yaml"))]));
    }
}
