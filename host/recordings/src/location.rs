//! Location of recordings. A client can request recording or replay through the session's state, but only below a
//! folder that the operator has configured.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use hatchery_core::{CallContext, RunError, SessionKey};
use serde::Deserialize;
use serde_json::Value;

use crate::{FILE_NAME, user_messages};

/// Maximum length of the name of a folder in bytes, in most file systems.
const MAX_FOLDER_NAME: usize = 255;

/// Maps sessions to the files of their recordings.
pub(crate) enum RecordingLocation {
    /// Only the first session that runs, in this folder.
    SingleSession(PathBuf, OnceLock<SessionKey>),
    /// Every session, all with the file in this folder.
    Folder(PathBuf),
    /// Every session, each with its own folder below this one.
    FolderPerSession(PathBuf),
    /// The sessions whose state has this key, which names a folder below this one.
    OnDemand(PathBuf, &'static str),
}

/// The folder in which a recorder writes.
pub(crate) struct RecordingRoot {
    pub(crate) folder: PathBuf,
    /// True if recordings are in folders below it.
    pub(crate) is_recursive: bool,
}

/// One message in a recording.
#[derive(Debug, PartialEq)]
pub(crate) struct MessageLocation {
    pub(crate) file: PathBuf,
    /// The file's name in error messages. For a folder that a client named, it does not contain the operator's folder.
    pub(crate) display_name: String,
    /// Counted from 0.
    pub(crate) user_message_index: usize,
}

/// The value of the state key.
#[derive(Deserialize)]
struct Config {
    dir: PathBuf,
    user_message_index: usize,
}

impl RecordingLocation {
    pub(crate) fn root(&self) -> RecordingRoot {
        let (folder, is_recursive) = match self {
            Self::SingleSession(folder, _) | Self::Folder(folder) => (folder, false),
            Self::FolderPerSession(root) | Self::OnDemand(root, _) => (root, true),
        };
        RecordingRoot { folder: folder.clone(), is_recursive }
    }

    /// Returns the message that the run of `cx` answers, or `None` if its session has no recording.
    pub(crate) fn message(&self, cx: &CallContext) -> Result<Option<MessageLocation>, RunError> {
        let session = &cx.invocation.session_key;
        let folder = match self {
            Self::SingleSession(folder, first) if first.get_or_init(|| session.clone()) != session => {
                return Err(RunError::BadInput(format!(
                    "{} already contains the recording of another session; record into another folder",
                    folder.display()
                )));
            }
            Self::SingleSession(folder, _) | Self::Folder(folder) => folder.clone(),
            Self::FolderPerSession(root) => [&session.app, &session.user, &session.id]
                .iter()
                .fold(root.clone(), |path, name| path.join(folder_path(name))),
            Self::OnDemand(root, key) => return on_demand(root, key, cx),
        };
        let file = folder.join(FILE_NAME);
        let messages = user_messages::collect(&cx.invocation.events()).len();
        Ok(Some(MessageLocation {
            display_name: file.display().to_string(),
            file,
            user_message_index: messages.saturating_sub(usize::from(user_messages::begins_with_message(cx))),
        }))
    }
}

fn on_demand(root: &Path, key: &str, cx: &CallContext) -> Result<Option<MessageLocation>, RunError> {
    let Some(value) = cx.state(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let bad_input = |reason: &str| RunError::BadInput(format!("state key `{key}`: {reason}"));
    let config: Config = serde_json::from_value::<Config>(without_nulls(value))
        .map_err(|error| bad_input(&format!("{error}; the value has the fields `dir` and `user_message_index`")))?;
    let is_below_root = config.dir.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_below_root || config.dir.as_os_str().is_empty() {
        return Err(bad_input(&format!(
            "`dir` is `{}`, but must be a relative path without `..`; it is resolved against the folder of recordings",
            config.dir.display()
        )));
    }
    let relative = config.dir.join(FILE_NAME);
    Ok(Some(MessageLocation {
        file: root.join(&relative),
        display_name: relative.display().to_string(),
        user_message_index: config.user_message_index,
    }))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// Percent-encodes a name from a client to the relative path of a folder: a folder name, or several if it is too long.
/// Different names get different folders.
fn folder_path(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if index > 0 => encoded.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(byte.into()),
            other => encoded.push_str(&format!("%{other:02x}")),
        }
    }
    if encoded.len() <= MAX_FOLDER_NAME {
        return encoded;
    }
    let folders: Vec<_> = encoded.as_bytes().chunks(MAX_FOLDER_NAME - 1).map(String::from_utf8_lossy).collect();
    // No encoded name begins with `~`, and none of these folders is `..`.
    folders.join("/~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_encoded_to_paths_of_folders() {
        assert_eq!(folder_path("trip-planner_2.0"), "trip-planner_2.0");
        assert_eq!(folder_path("../x"), "%2e.%2fx");
        assert_eq!(folder_path("ä"), "%c3%a4");
        let (fits, long) = ("a".repeat(255), format!("{}..", "a".repeat(254)));
        assert_eq!(folder_path(&fits), fits);
        assert_eq!(folder_path(&long), format!("{}/~..", "a".repeat(254)));
    }
}
