//! The YAML files of apps in the served folder: reading, checking and writing them for the developer UI.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use hatchery_core::{AgentKind, ItemResolver};
use hatchery_engine::yaml::{AgentLoader, ConfigError, ROOT_FILE};
use hatchery_engine::{App, Factories};
use hatchery_files::{FileAccess, write_atomically};
use hatchery_wasm::{CatalogHandle, file_sha256};
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::app_tests::AppTests;
use crate::config::FILE_NAME;

/// The description of an app for developers, in Markdown.
const README: &str = "README.md";

/// Maximum number of YAML files of an app that are read, and of bytes of each.
const MAX_FILES: usize = 200;
const MAX_FILE_SIZE: u64 = 1 << 20;

/// Maximum number of levels of folders below the folder of an app.
const MAX_DEPTH: usize = 8;

/// Maximum length of the name of a file or folder in bytes. While it is written, a file has a longer name.
const MAX_NAME: usize = 220;

/// Held while files are checked and written, by one edit of the process at a time.
pub(crate) static EDIT: Mutex<()> = Mutex::const_new(());

/// The YAML files of the apps in a served folder. Cheap to clone.
#[derive(Clone)]
pub struct AppFiles(CatalogHandle);

/// A YAML file of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppFile {
    /// Relative to the folder of the app, with `/`.
    pub path: String,
    pub text: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
}

/// The reason why an app would not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// Relative to the folder of the app.
    pub file: String,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    pub message: String,
}

/// The reason why files of an app cannot be read or written.
#[derive(Debug, Error)]
pub enum AppFilesError {
    #[error("App not found: {0}; no folder of this name has a {ROOT_FILE}")]
    UnknownApp(String),
    #[error(
        "`{0}` cannot be the name of an app; use letters, digits, `_` and `-`, and not the name of a build tool's folder, such \
         as `target`"
    )]
    InvalidName(String),
    #[error("the app `{0}` is not defined by YAML files, but by a component")]
    NotYaml(String),
    #[error(
        "`{0}` cannot be a file of an app; use a relative path to a .yaml file, with letters, digits, `_`, `-` and `.`, \
         without hidden folders, links, {FILE_NAME} and names of more than {MAX_NAME} bytes"
    )]
    InvalidPath(String),
    #[error("the files are too large: at most {MAX_FILES} files of {} MiB", MAX_FILE_SIZE >> 20)]
    TooLarge,
    #[error("`{0}` has changed since it was read; read it again")]
    Changed(String),
    #[error("nothing was written: {}:{}: {}", .0.file, .0.line.unwrap_or(1), .0.message)]
    Invalid(Diagnostic),
    #[error("a file cannot be read or written: {0}")]
    File(#[from] io::Error),
}

/// The texts of files by their path in the folder of an app.
pub type Texts = BTreeMap<String, String>;

impl AppFiles {
    pub(crate) fn new(catalog: CatalogHandle) -> Self {
        Self(catalog)
    }

    /// Returns the YAML files of an app, the root file first. Reads files.
    ///
    /// # Errors
    /// If there is no such app, or it is not defined by YAML files.
    pub fn list(&self, app: &str) -> Result<Vec<AppFile>, AppFilesError> {
        let folder = self.folder(app)?;
        if !folder.join(ROOT_FILE).is_file() {
            return Err(AppFilesError::UnknownApp(app.to_owned()));
        }
        let mut files: Vec<_> =
            read_folder(&folder, FolderScope::OwnApp)?.into_iter().map(|(path, text)| app_file(path, text)).collect();
        files.sort_by_key(|file| (file.path != ROOT_FILE, file.path.clone()));
        Ok(files)
    }

    /// Returns the text of `README.md` in the folder of an app, which may also be an app of a component. `None` if there
    /// is none of at most 1 MiB. Reads a file.
    pub fn readme(&self, app: &str) -> Option<String> {
        let file = self.own_folder(app)?.join(README);
        let metadata = file.symlink_metadata().ok()?;
        if metadata.is_file() && metadata.len() <= MAX_FILE_SIZE { fs::read_to_string(file).ok() } else { None }
    }

    /// Returns the tests of the apps.
    pub fn tests(&self) -> AppTests {
        AppTests::new(self.clone())
    }

    /// Returns the folder of an app, which may also be an app of a component. `None` if it has none.
    pub(crate) fn own_folder(&self, app: &str) -> Option<PathBuf> {
        match self.folder(app) {
            Ok(folder) => folder.is_dir().then_some(folder),
            Err(AppFilesError::NotYaml(_)) => {
                // The host has not loaded this folder, so it may be a link.
                let folder = self.0.directory().join(app);
                folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()).then_some(folder)
            }
            Err(_) => None,
        }
    }

    /// Returns why an app would not serve with these texts in place of its files; `None` if it would. Writes nothing.
    ///
    /// # Errors
    /// If a name or a path is invalid, or a file cannot be read.
    pub async fn check(&self, app: &str, texts: Texts) -> Result<Option<Diagnostic>, AppFilesError> {
        let (agent_classes, writable_folders) = self.0.agent_options().await;
        let (files, app) = (self.clone(), app.to_owned());
        let check = move || files.check_blocking(&app, texts, &agent_classes, &writable_folders);
        tokio::task::spawn_blocking(check).await.map_err(io::Error::other)?
    }

    /// Writes these texts into the folder of an app, which is created if there is none. The host then loads them as
    /// after any other change. `known` has the hashes of the files that the author has read.
    ///
    /// # Errors
    /// If the app would not serve, or a file is not the one that its author has read. Then nothing is written.
    pub async fn write(&self, app: &str, texts: Texts, known: &BTreeMap<String, String>) -> Result<(), AppFilesError> {
        let edit = EDIT.lock().await;
        if let Some(diagnostic) = self.check(app, texts.clone()).await? {
            return Err(AppFilesError::Invalid(diagnostic));
        }
        let (folder, known) = (self.folder(app)?, known.clone());
        let write = move || {
            // Held until the files are written, even if the caller is dropped.
            let _edit = edit;
            write_files(&folder, &texts, &known)
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }

    fn check_blocking(
        &self,
        app: &str,
        texts: Texts,
        agent_classes: &Factories<AgentKind>,
        writable_folders: &[PathBuf],
    ) -> Result<Option<Diagnostic>, AppFilesError> {
        let folder = self.folder(app)?;
        for (path, text) in &texts {
            check_path(&folder, path)?;
            if text.len() as u64 > MAX_FILE_SIZE {
                return Err(AppFilesError::TooLarge);
            }
        }
        let mut all = read_folder(&folder, FolderScope::OwnApp)?;
        all.extend(texts);
        if all.len() > MAX_FILES {
            return Err(AppFilesError::TooLarge);
        }
        // Agents of the apps below it may be its sub-agents, unless these are too many to be copied.
        let below = match read_folder(&folder, FolderScope::AllApps) {
            Err(AppFilesError::TooLarge) => Texts::new(),
            below => below?,
        };
        for (path, text) in below {
            all.entry(path).or_insert(text);
        }
        let scratch = ScratchFolder::create(app)?;
        for (path, text) in &all {
            let file = scratch.0.join(path);
            fs::create_dir_all(file.parent().unwrap_or(&scratch.0))?;
            fs::write(file, text)?;
        }
        let catalog = self.0.current();
        Ok(check_folder(app, &scratch.0, &*catalog, agent_classes, writable_folders))
    }

    /// Returns the folder of an app, which may not exist yet.
    fn folder(&self, app: &str) -> Result<PathBuf, AppFilesError> {
        let is_valid = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        if app.is_empty() || app.len() > 100 || !app.chars().all(is_valid) {
            return Err(AppFilesError::InvalidName(app.to_owned()));
        }
        let catalog = self.0.current();
        let is_root = |path: &Path| path.file_name().is_some_and(|name| name == ROOT_FILE);
        let roots = catalog.files.iter().filter(|file| file.name == app && is_root(&file.path));
        let served = roots.filter_map(|file| file.path.parent()).next();
        match served {
            Some(folder) => Ok(folder.to_owned()),
            None if catalog.app(app).is_some() => Err(AppFilesError::NotYaml(app.to_owned())),
            None => {
                let folder = self.0.directory().join(app);
                if self.0.is_scanned(&folder) { Ok(folder) } else { Err(AppFilesError::InvalidName(app.to_owned())) }
            }
        }
    }
}

fn app_file(path: String, text: String) -> AppFile {
    let sha256 = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    AppFile { path, text, sha256 }
}

/// Returns the reason why an app in a folder would not serve.
fn check_folder(
    app: &str,
    folder: &Path,
    items: &dyn ItemResolver,
    agent_classes: &Factories<AgentKind>,
    writable_folders: &[PathBuf],
) -> Option<Diagnostic> {
    let loader = AgentLoader::new(items).agent_classes(agent_classes).exclude_folders(writable_folders);
    let relative = |path: &Path| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let located = |error: ConfigError| {
        let (line, column) = error.location().unzip();
        let message = error.message().replace(&format!("{}/", folder.display()), "");
        Diagnostic { file: relative(error.file()), line, column, message }
    };
    let agent = match loader.load(&folder.join(ROOT_FILE)) {
        Ok(loaded) => loaded.agent,
        Err(error) => return Some(located(error)),
    };
    let invalid = App::new(app, agent).err()?;
    Some(Diagnostic { file: ROOT_FILE.into(), line: None, column: None, message: invalid.to_string() })
}

/// The folders below the folder of an app that are read with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderScope {
    /// All but the folders of other apps.
    OwnApp,
    AllApps,
}

/// Reads the YAML files of a folder and of the folders below it. Hidden files and links are omitted.
fn read_folder(folder: &Path, scope: FolderScope) -> Result<Texts, AppFilesError> {
    let mut texts = Texts::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((current, depth)) = folders.pop() {
        let entries = match fs::read_dir(&current) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let Some(relative) = path.strip_prefix(folder).ok().and_then(Path::to_str) else { continue };
            if kind.is_dir() {
                let is_read = scope == FolderScope::AllApps || !path.join(ROOT_FILE).exists();
                if depth < MAX_DEPTH && !is_hidden(&path) && is_read {
                    folders.push((path, depth + 1));
                }
            } else if kind.is_file() && is_yaml(relative) && entry.metadata()?.len() <= MAX_FILE_SIZE {
                if texts.len() == MAX_FILES {
                    return Err(AppFilesError::TooLarge);
                }
                // A file in another encoding is none that a loader reads.
                if let Ok(text) = fs::read_to_string(&path) {
                    texts.insert(relative.replace('\\', "/"), text);
                }
            }
        }
    }
    Ok(texts)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'))
}

/// Returns true for a relative path to a YAML file that is not the configuration of the host.
fn is_yaml(path: &str) -> bool {
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(name) => {
            let name = name.to_string_lossy();
            let is_valid = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.');
            !name.starts_with('.') && name.chars().all(is_valid)
        }
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => false,
    };
    let file = Path::new(path);
    let extension = file.extension().and_then(|extension| extension.to_str());
    let is_config = file.file_stem() == Path::new(FILE_NAME).file_stem();
    !is_config && matches!(extension, Some("yaml" | "yml")) && file.components().all(is_plain) && !path.contains('\\')
}

/// Checks that a file may be written: nothing on its path is a link that leads elsewhere.
fn check_path(folder: &Path, path: &str) -> Result<PathBuf, AppFilesError> {
    let invalid = || AppFilesError::InvalidPath(path.to_owned());
    let is_too_long = |part: Component<'_>| part.as_os_str().len() > MAX_NAME;
    let mut parts = Path::new(path).components();
    if !is_yaml(path) || parts.clone().count() > MAX_DEPTH || parts.any(is_too_long) {
        return Err(invalid());
    }
    let file = folder.join(path);
    let inner = file.ancestors().take_while(|ancestor| ancestor.starts_with(folder));
    for ancestor in inner {
        if ancestor.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(invalid());
        }
    }
    Ok(file)
}

fn write_files(folder: &Path, texts: &Texts, known: &BTreeMap<String, String>) -> Result<(), AppFilesError> {
    for (path, hash) in known {
        let file = check_path(folder, path)?;
        if file_sha256(&file).ok().as_ref() != Some(hash) {
            return Err(AppFilesError::Changed(path.clone()));
        }
    }
    // The root file last: until then an app that is new does not exist.
    let mut paths: Vec<_> = texts.iter().collect();
    paths.sort_by_key(|(path, _)| *path == ROOT_FILE);
    for (path, text) in paths {
        let file = check_path(folder, path)?;
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        write_atomically(&file, text.as_bytes(), FileAccess::Default)?;
    }
    Ok(())
}

/// A folder of temporary files with the name of an app. It is removed when it is dropped.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn create(app: &str) -> io::Result<Self> {
        let parent = std::env::temp_dir().join(format!("hatchery-check-{}", Uuid::new_v4()));
        create_private_folder(&parent)?;
        let folder = Self(parent.join(app));
        fs::create_dir(&folder.0)?;
        Ok(folder)
    }
}

#[cfg(unix)]
fn create_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Some(parent) = self.0.parent() {
            // Remaining files are removed with the other temporary files of the system.
            let _ = fs::remove_dir_all(parent);
        }
    }
}

#[cfg(test)]
mod tests;
