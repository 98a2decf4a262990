//! Artifacts in memory. Nothing is written to disk and nothing is evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, JsonMap, NewestVersion, Part, SessionKey, StoreError, Timestamp,
    custom_metadata_bytes,
};

use super::name::ArtifactName;

/// An [`ArtifactService`] in memory. Everything is lost when the process ends.
#[derive(Default)]
pub struct MemoryArtifacts {
    owners: RwLock<HashMap<Owner, Artifacts>>,
}

/// Versions by full name. The number of a version is its index.
type Artifacts = BTreeMap<String, Vec<Arc<Version>>>;

struct Version {
    part: Part,
    custom_metadata: JsonMap,
    created: Timestamp,
}

impl Version {
    fn stored_bytes(&self) -> u64 {
        self.part.stored_bytes() + custom_metadata_bytes(&self.custom_metadata)
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Owner {
    Session(SessionKey),
    User { app: Arc<str>, user: Arc<str> },
}

impl Owner {
    fn for_artifact(session: &SessionKey, name: ArtifactName<'_>) -> Self {
        if name.is_user_scoped { Self::for_user(session) } else { Self::Session(session.clone()) }
    }

    fn for_user(session: &SessionKey) -> Self {
        Self::User { app: session.app.clone(), user: session.user.clone() }
    }
}

impl MemoryArtifacts {
    /// Creates an empty service.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Owner, Artifacts>> {
        self.owners.read_unpoisoned()
    }

    fn find(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Arc<Version>>, StoreError> {
        let name = ArtifactName::parse(name)?;
        Ok(self.read().get(&Owner::for_artifact(session, name)).and_then(|artifacts| {
            let versions = artifacts.get(name.full)?;
            match version {
                None => versions.last().cloned(),
                Some(version) => versions.get(usize::try_from(version).ok()?).cloned(),
            }
        }))
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Owner, Artifacts>> {
        self.owners.write_unpoisoned()
    }
}

#[async_trait]
impl ArtifactService for MemoryArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.save_with(session, name, part, &JsonMap::new()).await
    }

    async fn save_with(
        &self,
        session: &SessionKey,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        let name = ArtifactName::parse(name)?;
        let (part, custom_metadata) = (part.clone(), custom_metadata.clone());
        let version = Arc::new(Version { part, custom_metadata, created: Timestamp::now() });
        let mut owners = self.write();
        let versions =
            owners.entry(Owner::for_artifact(session, name)).or_default().entry(name.full.to_owned()).or_default();
        versions.push(version);
        Ok(versions.len() as u64 - 1)
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        Ok(self.find(session, name, version)?.map(|version| version.part.clone()))
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        let Some(version) = self.find(session, name, version)? else { return Ok(None) };
        let Version { part, custom_metadata, created } = version.as_ref();
        let (created, custom_metadata) = (Some(*created), custom_metadata.clone());
        Ok(Some(ArtifactStream { created, custom_metadata, ..part.clone().into() }))
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        let owners = self.read();
        let mut names: Vec<String> = [Owner::Session(session.clone()), Owner::for_user(session)]
            .iter()
            .filter_map(|owner| owners.get(owner))
            .flat_map(|artifacts| artifacts.keys().cloned())
            .collect();
        names.sort();
        Ok(names)
    }

    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        let owners = self.read();
        let newest = |(name, versions): (&String, &Vec<Arc<Version>>)| {
            let last = versions.last()?;
            let version = versions.len() as u64 - 1;
            Some(NewestVersion { name: name.clone(), version, created: Some(last.created) })
        };
        let mut found: Vec<_> = [Owner::Session(session.clone()), Owner::for_user(session)]
            .iter()
            .filter_map(|owner| owners.get(owner))
            .flat_map(|artifacts| artifacts.iter().filter_map(newest))
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        let name = ArtifactName::parse(name)?;
        let owners = self.read();
        let versions = owners.get(&Owner::for_artifact(session, name)).and_then(|artifacts| artifacts.get(name.full));
        Ok((0..versions.map_or(0, Vec::len) as u64).collect())
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let name = ArtifactName::parse(name)?;
        let owner = Owner::for_artifact(session, name);
        let mut owners = self.write();
        if let Some(artifacts) = owners.get_mut(&owner) {
            artifacts.remove(name.full);
            if artifacts.is_empty() {
                owners.remove(&owner);
            }
        }
        Ok(())
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let owners = self.read();
        let mut usage = ArtifactUsage::default();
        for (owner, artifacts) in owners.iter() {
            let is_user_scoped = match owner {
                Owner::Session(key) => key.app == session.app && key.user == session.user,
                Owner::User { app, user } => *app == session.app && *user == session.user,
            };
            if !is_user_scoped {
                continue;
            }
            let versions = artifacts.values().map(|versions| versions.len() as u64).sum::<u64>();
            let bytes = artifacts.values().flatten().map(|version| version.stored_bytes()).sum::<u64>();
            usage.user_versions += versions;
            usage.user_bytes += bytes;
            if *owner == Owner::Session(session.clone()) {
                (usage.session_versions, usage.session_bytes) = (versions, bytes);
            }
        }
        Ok(usage)
    }
}
