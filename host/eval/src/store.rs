//! Eval sets and results as files: the host's own, below its data folder or in memory, and sets that authors keep next
//! to their agents, which are only read.

mod app_files;
mod files;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hatchery_core::Timestamp;
use hatchery_core::sync::MutexExt;

use self::app_files::AppFiles;
use self::files::Files;
use crate::criteria::{Metric, parse_test_config};
use crate::error::EvalError;
use crate::eval_set::EvalSet;
use crate::result::EvalSetResult;

const SET_SUFFIX: &str = ".evalset.json";
const RESULT_SUFFIX: &str = ".evalset_result.json";
const TEST_CONFIG: &str = "test_config.json";

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Maximum number of sets of an app that the host stores.
const MAX_SETS: usize = 500;

/// Maximum number of results of an app. A new one replaces the oldest.
const MAX_RESULTS: usize = 200;

/// Maximum length of a set's id in bytes. The id of a result also has the app's name and the time.
const MAX_SET_ID: usize = 100;
const MAX_RESULT_ID: usize = 200;

/// Maximum length of the name of a folder in bytes, in most file systems.
const MAX_FOLDER_NAME: usize = 255;

/// Stores the eval sets and results of apps. Its methods read and write files, so they may block.
pub struct EvalStore {
    files: Files,
    apps: Option<AppFiles>,
    /// Held while a set is read and written back.
    writer: Mutex<()>,
}

impl EvalStore {
    /// Keeps everything in memory.
    pub fn in_memory() -> Self {
        Self { files: Files::in_memory(), apps: None, writer: Mutex::default() }
    }

    /// Keeps sets and results in files of a folder, which is created when the first is written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { files: Files::in_folder(folder.into()), apps: None, writer: Mutex::default() }
    }

    /// Adds the sets next to the agents of a served folder: `APP/*.evalset.json`, with the criteria in
    /// `APP/test_config.json`.
    #[must_use]
    pub fn with_served_folder(self, folder: &Path) -> Self {
        Self { apps: Some(AppFiles::new(folder)), ..self }
    }

    /// Returns the ids of the sets of an app, sorted.
    pub fn set_ids(&self, app: &str) -> Result<Vec<String>, EvalError> {
        let mut ids = self.files.list(&sets_folder(app), SET_SUFFIX)?;
        if let Some(apps) = &self.apps {
            ids.extend(apps.list(app, SET_SUFFIX)?);
        }
        ids.retain(|id| is_id(id, MAX_SET_ID));
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// Returns the host's set, or else the set next to the agent.
    ///
    /// # Errors
    /// If there is none, or its file cannot be used.
    pub fn set(&self, app: &str, id: &str) -> Result<EvalSet, EvalError> {
        check_id("eval set", id, MAX_SET_ID)?;
        let name = format!("{id}{SET_SUFFIX}");
        let stored = self.files.read(&sets_folder(app), &name, MAX_FILE_BYTES)?;
        let found = match (stored, &self.apps) {
            (Some(json), _) => Some(json),
            (None, Some(apps)) => apps.read(app, &name, MAX_FILE_BYTES)?,
            (None, None) => None,
        };
        let Some(json) = found else { return Err(self.not_found(app, id)) };
        let set = EvalSet::from_json(&json, &format!("{app}/{name}"))?;
        // The name of the file decides, so that a list of ids leads to the sets.
        Ok(EvalSet { eval_set_id: id.into(), ..set })
    }

    /// Stores a new set.
    ///
    /// # Errors
    /// If its id is invalid or in use, or a limit is reached.
    pub fn create_set(&self, app: &str, set: &EvalSet) -> Result<(), EvalError> {
        check_id("eval set", &set.eval_set_id, MAX_SET_ID)?;
        let _writer = self.writer.lock_unpoisoned();
        let ids = self.set_ids(app)?;
        if ids.contains(&set.eval_set_id) {
            return Err(EvalError::SetExists(set.eval_set_id.clone()));
        }
        if ids.len() >= MAX_SETS {
            return Err(EvalError::TooLarge(format!("an app has at most {MAX_SETS} eval sets; delete one first")));
        }
        self.write_set(app, set)
    }

    /// Deletes a set.
    ///
    /// # Errors
    /// If there is none, or it is a file of the app.
    pub fn delete_set(&self, app: &str, id: &str) -> Result<(), EvalError> {
        check_id("eval set", id, MAX_SET_ID)?;
        let _writer = self.writer.lock_unpoisoned();
        if self.files.remove(&sets_folder(app), &format!("{id}{SET_SUFFIX}"))? {
            Ok(())
        } else {
            self.set(app, id).and_then(|_| Err(EvalError::SetOfApp(id.into())))
        }
    }

    /// Changes a set of the host. Nothing is stored if `change` fails.
    ///
    /// # Errors
    /// If there is no such set, it is a file of the app, or `change` fails.
    pub fn update_set<T>(
        &self,
        app: &str,
        id: &str,
        change: impl FnOnce(&mut EvalSet) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        let _writer = self.writer.lock_unpoisoned();
        let mut set = self.set(app, id)?;
        if !self.files.list(&sets_folder(app), SET_SUFFIX)?.iter().any(|stored| stored == id) {
            return Err(EvalError::SetOfApp(id.into()));
        }
        let output = change(&mut set)?;
        self.write_set(app, &set)?;
        Ok(output)
    }

    fn write_set(&self, app: &str, set: &EvalSet) -> Result<(), EvalError> {
        // It consists of strings, numbers and JSON, so this cannot fail.
        let json = serde_json::to_vec_pretty(set).unwrap_or_default();
        if json.len() > MAX_FILE_BYTES {
            let message = format!("eval set `{}` would have more than {} MiB", set.eval_set_id, MAX_FILE_BYTES >> 20);
            return Err(EvalError::TooLarge(format!("{message}; leave out large files, or make several sets")));
        }
        EvalSet::from_json(&json, &set.eval_set_id)?;
        Ok(self.files.write(&sets_folder(app), &format!("{}{SET_SUFFIX}", set.eval_set_id), &json)?)
    }

    fn not_found(&self, app: &str, id: &str) -> EvalError {
        let ids = self.set_ids(app).unwrap_or_default();
        let known = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
        EvalError::SetNotFound { app: app.into(), id: id.into(), known }
    }

    /// Stores a result. Removes the oldest ones if there are too many.
    pub fn save_result(&self, app: &str, result: &EvalSetResult) -> Result<(), EvalError> {
        let folder = results_folder(app);
        // As above.
        let json = serde_json::to_vec_pretty(result).unwrap_or_default();
        let _writer = self.writer.lock_unpoisoned();
        self.files.write(&folder, &format!("{}{RESULT_SUFFIX}", result.eval_set_result_id), &json)?;
        let ids = self.result_ids(app)?;
        for id in ids.iter().rev().skip(MAX_RESULTS) {
            self.files.remove(&folder, &format!("{id}{RESULT_SUFFIX}"))?;
        }
        Ok(())
    }

    /// Returns the ids of the results of an app, oldest first.
    pub fn result_ids(&self, app: &str) -> Result<Vec<String>, EvalError> {
        let mut ids = self.files.list(&results_folder(app), RESULT_SUFFIX)?;
        let time = |id: &str| {
            let seconds = id.rsplit('_').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or_default();
            Timestamp::from_micros((seconds * 1e6) as i64)
        };
        ids.sort_by(|one, other| (time(one), one).cmp(&(time(other), other)));
        Ok(ids)
    }

    /// Returns a result as JSON.
    ///
    /// # Errors
    /// If there is none.
    pub fn result(&self, app: &str, id: &str) -> Result<Vec<u8>, EvalError> {
        check_id("eval result", id, MAX_RESULT_ID)?;
        let json = self.files.read(&results_folder(app), &format!("{id}{RESULT_SUFFIX}"), usize::MAX)?;
        json.ok_or_else(|| EvalError::ResultNotFound(id.into()))
    }

    /// Returns the criteria that the author of an app keeps next to the sets. `None` if there are none.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn criteria(&self, app: &str) -> Result<Option<Vec<Metric>>, EvalError> {
        let Some(apps) = &self.apps else { return Ok(None) };
        let json = apps.read(app, TEST_CONFIG, MAX_FILE_BYTES)?;
        json.map(|json| parse_test_config(&json, &format!("{app}/{TEST_CONFIG}"))).transpose()
    }
}

fn sets_folder(app: &str) -> String {
    format!("{}/sets", app_folder(app))
}

fn results_folder(app: &str) -> String {
    format!("{}/results", app_folder(app))
}

/// Returns the path of a folder that is different for each app. Signs that could mean something else are escaped. A
/// long name is several folders, of which all but the last end in `~`.
fn app_folder(app: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        other => format!("%{other:02x}"),
    };
    let escaped: String = app.bytes().map(escape).collect();
    if escaped.len() <= MAX_FOLDER_NAME {
        return escaped;
    }
    let folders: Vec<_> = escaped.as_bytes().chunks(MAX_FOLDER_NAME - 1).map(String::from_utf8_lossy).collect();
    folders.join("~/")
}

fn is_id(id: &str, max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=max).contains(&id.len()) && id.bytes().all(is_allowed) && !id.starts_with('.')
}

fn check_id(what: &'static str, id: &str, max: usize) -> Result<(), EvalError> {
    if is_id(id, max) {
        return Ok(());
    }
    let id = id.chars().take(max).collect();
    Err(EvalError::InvalidId { what, id, max })
}
