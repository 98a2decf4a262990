//! The index of artifacts. A search sees the artifacts of its session and of its user only.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    ArtifactService, NewestVersion, PartData, SessionKey, StoreError, Timestamp, matches_wildcard, pluralize,
};
use rusqlite::{Connection, params};

use super::index::{FileKey, FileState, PassageIndex};
use super::{FRESHNESS, Passage};
use crate::keyed_lock::{KeyedLock, LockMode, MAX_WAIT};
use crate::memory::similarity::SimilaritySearch;
use crate::sqlite::{Owner, Schema};

/// The schema of indexes of artifacts: "HtRa".
static SCHEMA: Schema =
    Schema { noun: "retrieval index", application_id: 0x4874_5261, migrations: &[include_str!("artifacts_0001.sql")] };

const CHECK_SCOPE: &str = "\
    INSERT INTO scopes (owner, checked) VALUES (?1, ?2) \
    ON CONFLICT (owner) DO UPDATE SET checked = excluded.checked RETURNING scope";

const LIST_OLDEST_SCOPES: &str =
    "SELECT scope, owner FROM scopes WHERE scope NOT IN (?1, ?2) ORDER BY checked LIMIT ?3";

const TOUCH_SCOPE: &str = "UPDATE scopes SET checked = ?2 WHERE scope = ?1";

const DELETE_SCOPE: &str = "DELETE FROM scopes WHERE scope = ?1";

/// Maximum number of owners, except the owners of the session, whose artifacts are compared with the index at a time.
const SWEPT_OWNERS: usize = 2;

/// The prefix of names of artifacts that belong to a user.
const USER_PREFIX: &str = "user:";

/// Which artifacts are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactSource {
    /// Patterns of their names, with `user:`, in which `*` matches any text.
    pub include: Vec<String>,
    /// Maximum size of an artifact in bytes. Larger ones are skipped.
    pub max_file: u64,
    /// Maximum number of artifacts of a session and its user.
    pub max_files: usize,
}

impl Default for ArtifactSource {
    /// Returns a source of all texts, up to 1 MiB each, and 10,000 of them.
    fn default() -> Self {
        Self { include: vec!["*".into()], max_file: 1 << 20, max_files: 10_000 }
    }
}

/// An index of the newest versions of artifacts, of all sessions that were searched. The file is opened at the first
/// search.
pub struct ArtifactIndex {
    source: ArtifactSource,
    index: PassageIndex,
    /// Locked while a session is brought up to date.
    updates: KeyedLock<SessionKey>,
    /// When artifacts of other sessions were compared with the index last.
    swept: Mutex<Option<Instant>>,
}

/// The scopes that a session sees.
#[derive(Clone, Copy)]
struct SessionScopes {
    own: i64,
    users: i64,
}

impl SessionScopes {
    fn scope(self, name: &str) -> i64 {
        if name.starts_with(USER_PREFIX) { self.users } else { self.own }
    }
}

/// The stored form of a scope's owner.
enum ScopeOwner {
    Session(SessionKey),
    /// A key of the user, whose session need not exist.
    User(SessionKey),
}

impl ScopeOwner {
    /// Returns the owners of the artifacts that a session can see.
    fn for_session(session: &SessionKey) -> [Self; 2] {
        [Self::Session(session.clone()), Self::User(SessionKey::new(&*session.app, &*session.user, "user"))]
    }

    fn to_json(&self) -> String {
        match self {
            Self::Session(key) => serde_json::json!([key.app, key.user, key.id]).to_string(),
            Self::User(key) => serde_json::json!([key.app, key.user]).to_string(),
        }
    }

    fn from_json(json: &str) -> Option<Self> {
        match serde_json::from_str::<Vec<String>>(json).ok()?.as_slice() {
            [app, user, id] => Some(Self::Session(SessionKey::new(app.as_str(), user.as_str(), id.as_str()))),
            [app, user] => Some(Self::User(SessionKey::new(app.as_str(), user.as_str(), "user"))),
            _ => None,
        }
    }

    fn key(&self) -> &SessionKey {
        match self {
            Self::Session(key) | Self::User(key) => key,
        }
    }

    fn has(&self, name: &str) -> bool {
        matches!(self, Self::User(_)) == name.starts_with(USER_PREFIX)
    }
}

impl ArtifactIndex {
    /// Creates an index in a file, or in a temporary one.
    pub fn new(source: ArtifactSource, file: Option<PathBuf>) -> Self {
        Self { source, index: PassageIndex::new(&SCHEMA, file), updates: KeyedLock::default(), swept: Mutex::default() }
    }

    /// Finds passages of similar meaning too, as [`FolderIndex`](super::FolderIndex::with_similarity) does.
    #[must_use]
    pub fn with_similarity(mut self, similarity: SimilaritySearch) -> Self {
        self.index.set_similarity(similarity);
        self
    }

    /// Returns the best passages of the artifacts of a session and its user, best first. Brings the index up to date
    /// before.
    ///
    /// # Errors
    /// If the artifacts cannot be listed, there are too many, or the index cannot be used.
    pub async fn search(
        &self,
        artifacts: &dyn ArtifactService,
        session: &SessionKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Passage>, StoreError> {
        let scopes = match self.updates.acquire(session.clone(), LockMode::Exclusive, MAX_WAIT).await {
            Some(_guard) => self.update_scopes(artifacts, session).await?.0,
            // Another search is updating the index, which may take long. This one uses the current index.
            None => self.check_scopes(session).await?,
        };
        if self.is_sweep_due() {
            self.sweep(artifacts, scopes).await;
        }
        self.index.search([scopes.own, scopes.users], query, limit).await
    }

    /// Reads the newest versions that are not in the index, and forgets artifacts that are gone. Returns the number of
    /// versions that were read.
    ///
    /// # Errors
    /// As [`ArtifactIndex::search`].
    pub async fn update(&self, artifacts: &dyn ArtifactService, session: &SessionKey) -> Result<usize, StoreError> {
        let (scopes, count) = self.update_scopes(artifacts, session).await?;
        self.sweep(artifacts, scopes).await;
        Ok(count)
    }

    /// Returns the number of artifacts of all users in the index.
    ///
    /// # Errors
    /// If the index cannot be used.
    pub async fn count(&self) -> Result<usize, StoreError> {
        let database = self.index.database().await?;
        let count = |connection: &Connection| connection.query_row("SELECT count(*) FROM files", [], |row| row.get(0));
        let count: i64 = database.read(count).await.map_err(database.error("count the artifacts"))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Returns true at most once in [`FRESHNESS`].
    fn is_sweep_due(&self) -> bool {
        let mut swept = self.swept.lock_unpoisoned();
        let is_due = swept.is_none_or(|swept| swept.elapsed() > FRESHNESS);
        if is_due {
            *swept = Some(Instant::now());
        }
        is_due
    }

    async fn update_scopes(
        &self,
        artifacts: &dyn ArtifactService,
        session: &SessionKey,
    ) -> Result<(SessionScopes, usize), StoreError> {
        let newest = self.newest(artifacts, session).await?;
        let scopes = self.check_scopes(session).await?;
        let mut known = BTreeMap::new();
        for scope in [scopes.own, scopes.users] {
            known.extend(self.index.files(scope).await?.into_iter().map(|(path, state)| (path, (scope, state))));
        }
        for (path, (scope, _)) in known.iter().filter(|(path, _)| !newest.contains_key(*path)) {
            self.index.remove(Owner::new(session), FileKey { scope: *scope, path: path.clone() }).await?;
        }
        let mut count = 0;
        for (path, state) in newest {
            if known.get(&path).is_some_and(|(_, known)| *known == state) {
                continue;
            }
            count += usize::from(self.read(artifacts, session, scopes.scope(&path), path, state).await?);
        }
        self.index.embed(Owner::new(session), [scopes.own, scopes.users]).await?;
        Ok((scopes, count))
    }

    /// Returns the stamps of the artifacts that are searched, by their names.
    async fn newest(
        &self,
        artifacts: &dyn ArtifactService,
        session: &SessionKey,
    ) -> Result<BTreeMap<String, FileState>, StoreError> {
        let newest = artifacts.newest_versions(session).await?.into_iter();
        let is_included = |name: &str| self.source.include.iter().any(|pattern| matches_wildcard(pattern, name));
        let newest: BTreeMap<_, _> = newest
            .filter(|newest| is_included(&newest.name))
            .map(|newest| (newest.name.clone(), state(&newest)))
            .collect();
        let max = self.source.max_files;
        if newest.len() > max {
            let artifacts = pluralize(max, "artifact", "artifacts");
            let message = format!("{session} has more than {artifacts} to search; choose fewer by `include`");
            return Err(StoreError::InvalidRequest(message));
        }
        Ok(newest)
    }

    /// Stores the text of a version. Returns false if it cannot be read now; it is tried again at the next update.
    async fn read(
        &self,
        artifacts: &dyn ArtifactService,
        session: &SessionKey,
        scope: i64,
        path: String,
        state: FileState,
    ) -> Result<bool, StoreError> {
        let version = state.version.and_then(|version| u64::try_from(version).ok());
        let owner = Owner::new(session);
        match read_text(artifacts, session, &path, version, self.source.max_file).await {
            Ok(text) => self.index.replace(owner, FileKey { scope, path }, state, &text).await.map(|()| true),
            Err(error) => {
                tracing::warn!(artifact = path, %session, "an artifact cannot be searched: {error}");
                self.index.remove(owner, FileKey { scope, path }).await.map(|()| false)
            }
        }
    }

    /// Records that the artifacts of a session and its user are listed, and returns their scopes.
    async fn check_scopes(&self, session: &SessionKey) -> Result<SessionScopes, StoreError> {
        let database = self.index.database().await?;
        let owners = ScopeOwner::for_session(session).map(|owner| owner.to_json());
        let now = Timestamp::now().as_micros();
        let write = move |connection: &Connection| {
            let mut check = connection.prepare_cached(CHECK_SCOPE)?;
            let [own, users] = &owners;
            let mut scope = |owner: &String| check.query_row(params![owner, now], |row| row.get(0));
            Ok(SessionScopes { own: scope(own)?, users: scope(users)? })
        };
        database.write(Owner::new(session), write).await.map_err(database.error("store the owner of artifacts"))
    }

    /// Forgets artifacts that are gone, of the owners whose artifacts were listed longest ago: their sessions may never
    /// be searched again. A failure is logged.
    async fn sweep(&self, artifacts: &dyn ArtifactService, current: SessionScopes) {
        if let Err(error) = self.forget_others(artifacts, current).await {
            tracing::warn!("deleted artifacts may still be in a retrieval index: {error}");
        }
    }

    async fn forget_others(&self, artifacts: &dyn ArtifactService, current: SessionScopes) -> Result<(), StoreError> {
        let database = self.index.database().await?;
        let list = move |connection: &Connection| {
            let mut list = connection.prepare_cached(LIST_OLDEST_SCOPES)?;
            let read = list.query_map(params![current.own, current.users, SWEPT_OWNERS as i64], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            read.collect::<rusqlite::Result<Vec<(i64, String)>>>()
        };
        for (scope, owner) in database.read(list).await.map_err(database.error("list the owners of artifacts"))? {
            let Some(owner) = ScopeOwner::from_json(&owner) else { continue };
            let key = owner.key();
            let newest = artifacts.newest_versions(key).await?;
            let names: Vec<_> = newest.iter().map(|newest| &newest.name).filter(|name| owner.has(name)).collect();
            if names.is_empty() {
                let delete =
                    move |connection: &Connection| connection.prepare_cached(DELETE_SCOPE)?.execute([scope]).map(drop);
                let deleted = database.write(Owner::new(key), delete).await;
                deleted.map_err(database.error("forget the owner of artifacts"))?;
                continue;
            }
            for path in self.index.files(scope).await?.into_keys().filter(|path| !names.contains(&path)) {
                self.index.remove(Owner::new(key), FileKey { scope, path }).await?;
            }
            let now = Timestamp::now().as_micros();
            let touch = move |connection: &Connection| {
                connection.prepare_cached(TOUCH_SCOPE)?.execute(params![scope, now]).map(drop)
            };
            let touched = database.write(Owner::new(key), touch).await;
            touched.map_err(database.error("store the owner of artifacts"))?;
        }
        Ok(())
    }

    /// Waits for running operations and closes the file.
    pub async fn close(&self) {
        self.index.close().await;
    }
}

fn state(newest: &NewestVersion) -> FileState {
    FileState {
        modified: newest.created.unwrap_or_default().as_micros(),
        size: 0,
        version: Some(i64::try_from(newest.version).unwrap_or(i64::MAX)),
    }
}

/// Returns the text of a version; empty if it is no text, too large, or gone.
async fn read_text(
    artifacts: &dyn ArtifactService,
    session: &SessionKey,
    name: &str,
    version: Option<u64>,
    max: u64,
) -> Result<String, StoreError> {
    let Some(artifact) = artifacts.load_stream(session, name, version).await? else { return Ok(String::new()) };
    if artifact.len > max {
        return Ok(String::new());
    }
    Ok(match artifact.into_part(name, max).await?.data {
        PartData::Text(text) if text.len() as u64 <= max => text,
        PartData::InlineData(blob) => String::from_utf8(blob.data.into()).unwrap_or_default(),
        _ => String::new(),
    })
}
