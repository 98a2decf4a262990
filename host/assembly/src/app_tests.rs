//! The tests of apps: sessions in `tests/NAME.json` in the folder of an app. ADK's web client and its test runner keep
//! them there, too.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hatchery_core::{Event, JsonMap, RunError, Services};
use hatchery_engine::{App, Runner};
use hatchery_files::{FileAccess, write_atomically};
use hatchery_recordings::{SessionTest, TestedTurn};
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::app_files::{AppFiles, EDIT};

/// The folder of the tests in the folder of an app.
const FOLDER: &str = "tests";
const EXTENSION: &str = ".json";

/// Maximum number of tests of an app.
const MAX_TESTS: usize = 500;

/// Maximum size of a test in MiB.
const MAX_SIZE: u64 = 16;

/// Maximum length of the name of a file in bytes.
const MAX_NAME: usize = 100;

/// Maximum number of tests of the process that run at the same time. Others wait.
const MAX_RUNS: usize = 4;

static RUNS: Semaphore = Semaphore::const_new(MAX_RUNS);

/// The tests of the apps in a served folder. Cheap to clone.
#[derive(Clone)]
pub struct AppTests(AppFiles);

/// The reason why a test cannot be read, written or rebuilt.
#[derive(Debug, Error)]
pub enum AppTestsError {
    #[error("the app `{0}` has no folder of its own for tests; create the folder `{0}` in the served folder")]
    NoFolder(String),
    #[error("`{FOLDER}` in the folder of the app `{0}` is a file or a link; replace it by a folder")]
    NotAFolder(String),
    #[error("test not found: {name}; the tests of `{app}`: {known}")]
    NotFound { app: String, name: String, known: String },
    #[error(
        "`{0}` cannot be the name of a test; use at most {MAX_NAME} letters, digits, `_`, `-` and `.`, with `{EXTENSION}` at \
         the end, and no `.` at the beginning"
    )]
    InvalidName(String),
    #[error("`{0}` is a folder or a link; choose another name, or remove it")]
    NotAFile(String),
    #[error("{name} is not a test: {reason}; a test is the JSON of a session, with `events`")]
    Invalid { name: String, reason: String },
    #[error("{0} has more than {MAX_SIZE} MiB; make a test of a shorter session")]
    TooLarge(String),
    #[error("the app `{0}` has {MAX_TESTS} tests, which is the maximum; delete one first")]
    TooMany(String),
    #[error("{name} is unchanged, because the run failed: {reason}")]
    NotRebuilt { name: String, reason: String },
    #[error("the test cannot run: {}", .0.client_message())]
    Run(#[from] RunError),
    #[error("a file of a test cannot be read or written: {0}")]
    File(#[from] io::Error),
}

impl AppTests {
    /// Maximum size of a test in bytes.
    pub const MAX_BYTES: u64 = MAX_SIZE << 20;

    pub(crate) fn new(files: AppFiles) -> Self {
        Self(files)
    }

    /// Returns the folder of the tests of an app, which may not exist yet.
    ///
    /// # Errors
    /// If the app has no folder of its own, or something else has the name of the folder of tests.
    pub fn folder(&self, app: &str) -> Result<PathBuf, AppTestsError> {
        let folder = self.0.own_folder(app).ok_or_else(|| AppTestsError::NoFolder(app.to_owned()))?.join(FOLDER);
        match folder.symlink_metadata() {
            Ok(metadata) if !metadata.is_dir() => Err(AppTestsError::NotAFolder(app.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            Ok(_) | Err(_) => Ok(folder),
        }
    }

    /// Returns the names of the tests of an app, sorted. Empty if the app has no folder.
    pub async fn names(&self, app: &str) -> Result<Vec<String>, AppTestsError> {
        let (tests, app) = (self.clone(), app.to_owned());
        run_blocking(move || tests.list(&app)).await
    }

    /// Returns the JSON of a test. `.json` may be omitted from the name.
    ///
    /// # Errors
    /// If there is no such test, or it is too large.
    pub async fn read(&self, app: &str, name: &str) -> Result<Vec<u8>, AppTestsError> {
        let (tests, app, name) = (self.clone(), app.to_owned(), file_name(name)?);
        run_blocking(move || tests.read_file(&app, &name)).await
    }

    /// Writes a test, which replaces the one of this name. Returns the name of the file.
    ///
    /// # Errors
    /// If the session is not a test, a limit is reached, or the app has no folder.
    pub async fn write(&self, app: &str, name: &str, session: JsonMap) -> Result<String, AppTestsError> {
        let (name, app) = (file_name(name)?, app.to_owned());
        let (name, json) = run_blocking(move || to_json(&name, session).map(|json| (name, json))).await?;
        let edit = EDIT.lock().await;
        let tests = self.clone();
        let write = move || {
            // Held until the file is written, even if the caller is dropped.
            let _edit = edit;
            tests.write_file(&app, &name, &json).map(|()| name)
        };
        run_blocking(write).await
    }

    /// Deletes a test. Returns the name of the file.
    ///
    /// # Errors
    /// If there is no such test.
    pub async fn delete(&self, app: &str, name: &str) -> Result<String, AppTestsError> {
        let (tests, app, name) = (self.clone(), app.to_owned(), file_name(name)?);
        run_blocking(move || tests.delete_file(&app, name)).await
    }

    /// Runs a test in a new session in memory, with the recorded answers of models. Returns the turns up to the first
    /// one that differs from the recording. Waits while too many tests run.
    ///
    /// # Errors
    /// If there is no such test, its file is not a session, or nothing can run. A failed run is a turn with a problem.
    pub async fn run(&self, runner: &Runner, app: &App, name: &str) -> Result<Vec<TestedTurn>, AppTestsError> {
        let name = file_name(name)?;
        // It is never closed. Acquired first, because a test in memory is many times as large as its file.
        let _permit = RUNS.acquire().await;
        let test = self.parse_file(&app.name, name).await?;
        Ok(test.run(runner, in_memory(runner.services()), app).await?)
    }

    /// Replaces the events of a test by those of a run with the models of the app. Returns the name of the file.
    ///
    /// # Errors
    /// As [`AppTests::run`], or if a run fails. Then the file is unchanged.
    pub async fn rebuild(&self, runner: &Runner, app: &App, name: &str) -> Result<String, AppTestsError> {
        let name = file_name(name)?;
        let _permit = RUNS.acquire().await;
        let (tests, app_name, file) = (self.clone(), app.name.clone(), name.clone());
        let (json, test) = run_blocking(move || {
            let json = tests.read_file(&app_name, &file)?;
            let test = parse(&file, &json)?;
            Ok((json, test))
        })
        .await?;
        let events = test.record(runner, in_memory(runner.services()), app).await;
        let events = events.map_err(|error| AppTestsError::NotRebuilt {
            name: name.clone(),
            reason: format!("{}: {}", error.code(), error.client_message()),
        })?;
        let file = name.clone();
        let session = run_blocking(move || replace_events(&file, &json, &events)).await?;
        self.write(&app.name, &name, session).await
    }

    /// Reads and parses a test.
    async fn parse_file(&self, app: &str, name: String) -> Result<SessionTest, AppTestsError> {
        let (tests, app) = (self.clone(), app.to_owned());
        run_blocking(move || parse(&name, &tests.read_file(&app, &name)?)).await
    }

    fn list(&self, app: &str) -> Result<Vec<String>, AppTestsError> {
        let folder = match self.folder(app) {
            Err(AppTestsError::NoFolder(_)) => return Ok(Vec::new()),
            folder => folder?,
        };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_file_name(&name) && entry.file_type()?.is_file() {
                if names.len() == MAX_TESTS {
                    return Err(AppTestsError::TooMany(app.to_owned()));
                }
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the path of an existing test.
    fn find(&self, app: &str, name: &str) -> Result<PathBuf, AppTestsError> {
        let file = self.folder(app)?.join(name);
        if file.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Ok(file);
        }
        let names = self.list(app)?;
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(AppTestsError::NotFound { app: app.to_owned(), name: name.to_owned(), known })
    }

    fn read_file(&self, app: &str, name: &str) -> Result<Vec<u8>, AppTestsError> {
        let file = self.find(app, name)?;
        if file.symlink_metadata()?.len() > Self::MAX_BYTES {
            return Err(AppTestsError::TooLarge(name.to_owned()));
        }
        Ok(fs::read(file)?)
    }

    fn write_file(&self, app: &str, name: &str, json: &[u8]) -> Result<(), AppTestsError> {
        let (folder, names) = (self.folder(app)?, self.list(app)?);
        let file = folder.join(name);
        if !names.iter().any(|other| other == name) {
            if file.symlink_metadata().is_ok() {
                return Err(AppTestsError::NotAFile(name.to_owned()));
            }
            if names.len() == MAX_TESTS {
                return Err(AppTestsError::TooMany(app.to_owned()));
            }
        }
        fs::create_dir_all(&folder)?;
        Ok(write_atomically(&file, json, FileAccess::Default)?)
    }

    fn delete_file(&self, app: &str, name: String) -> Result<String, AppTestsError> {
        fs::remove_file(self.find(app, &name)?)?;
        Ok(name)
    }
}

/// Runs work on files, or on JSON that may be large, on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppTestsError> + Send + 'static,
) -> Result<T, AppTestsError> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns the name of the file of a test.
fn file_name(name: &str) -> Result<String, AppTestsError> {
    let file = if name.ends_with(EXTENSION) { name.to_owned() } else { format!("{name}{EXTENSION}") };
    if is_file_name(&file) { Ok(file) } else { Err(AppTestsError::InvalidName(name.chars().take(MAX_NAME).collect())) }
}

fn is_file_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    name.len() <= MAX_NAME && !name.starts_with('.') && name.ends_with(EXTENSION) && name.bytes().all(is_valid)
}

/// Returns the JSON of a test with sorted keys, so that versions of the file can be compared.
fn to_json(name: &str, session: JsonMap) -> Result<Vec<u8>, AppTestsError> {
    let mut session = Value::Object(session);
    session.sort_all_objects();
    let mut json = serde_json::to_vec_pretty(&session).map_err(|error| invalid(name, &error))?;
    json.push(b'\n');
    if json.len() as u64 > AppTests::MAX_BYTES {
        return Err(AppTestsError::TooLarge(name.to_owned()));
    }
    parse(name, &json)?;
    Ok(json)
}

/// Returns the session of a test, with other events.
fn replace_events(name: &str, json: &[u8], events: &[Arc<Event>]) -> Result<JsonMap, AppTestsError> {
    let invalid = |error: serde_json::Error| invalid(name, &error);
    let mut session: JsonMap = serde_json::from_slice(json).map_err(invalid)?;
    session.insert("events".into(), serde_json::to_value(events).map_err(invalid)?);
    session.shift_remove("lastUpdateTime");
    Ok(session)
}

fn parse(name: &str, json: &[u8]) -> Result<SessionTest, AppTestsError> {
    SessionTest::from_json(json).map_err(|error| invalid(name, &error))
}

fn invalid(name: &str, reason: &impl ToString) -> AppTestsError {
    AppTestsError::Invalid { name: name.to_owned(), reason: reason.to_string() }
}

/// Returns new services in memory, with the models of `services`.
fn in_memory(services: &Services) -> Services {
    Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        credentials: Arc::new(MemoryCredentials::default()),
        models: services.models.clone(),
    }
}

#[cfg(test)]
mod tests;
