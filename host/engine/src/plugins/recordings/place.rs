//! Where a session's recording is. A client says so in the session's state, and only below a folder that the operator has named.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use hatchery_core::{CallContext, RunError, SessionKey};
use serde::Deserialize;
use serde_json::Value;

use super::{FILE_NAME, messages};

/// The state key that has a session recorded.
pub(super) const RECORD_KEY: &str = "_adk_recordings_config";
/// The state key that has a session replayed.
pub(super) const REPLAY_KEY: &str = "_adk_replay_config";
/// Both of them.
pub(super) const CONFIG_KEYS: [&str; 2] = [RECORD_KEY, REPLAY_KEY];

/// Which sessions have a recording, and where.
pub(super) enum Place {
    /// One session has, in this folder.
    OneSession(PathBuf, OnceLock<SessionKey>),
    /// Every session has, all in the file of this folder.
    Folder(PathBuf),
    /// Every session has, each in a folder of its own below this one.
    EachSession(PathBuf),
    /// Those have whose state says where below this folder.
    OnDemand(PathBuf, &'static str),
}

/// One message of a recording.
#[derive(Debug, PartialEq)]
pub(super) struct Case {
    /// The recording's file.
    pub(super) file: PathBuf,
    /// How messages name it: clients learn nothing of the host's folders that they did not say themselves.
    pub(super) shown: String,
    /// The message, from 0.
    pub(super) user_message_index: usize,
}

/// What the state key holds.
#[derive(Deserialize)]
struct Config {
    dir: PathBuf,
    user_message_index: usize,
}

impl Place {
    /// The message that the run of `cx` answers; nothing when its session has no recording.
    pub(super) fn case(&self, cx: &CallContext) -> Result<Option<Case>, RunError> {
        let session = &cx.invocation.session_key;
        let folder = match self {
            Self::OneSession(folder, first) if first.get_or_init(|| session.clone()) != session => {
                return Err(RunError::BadInput(format!(
                    "{} is the recording of one session; record another one elsewhere",
                    folder.display()
                )));
            }
            Self::OneSession(folder, _) | Self::Folder(folder) => folder.clone(),
            Self::EachSession(root) => {
                [&session.app, &session.user, &session.id].iter().fold(root.clone(), |path, name| path.join(safe(name)))
            }
            Self::OnDemand(root, key) => return on_demand(root, key, cx),
        };
        let file = folder.join(FILE_NAME);
        let said = messages::of_session(&cx.invocation.events()).len();
        Ok(Some(Case { shown: file.display().to_string(), file, user_message_index: said.saturating_sub(1) }))
    }
}

fn on_demand(root: &Path, key: &str, cx: &CallContext) -> Result<Option<Case>, RunError> {
    let Some(value) = cx.state(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = |what: &str| RunError::BadInput(format!("state key `{key}`: {what}"));
    let config: Config = serde_json::from_value::<Config>(without_nulls(value))
        .map_err(|error| wrong(&format!("{error}; it holds `dir` and `user_message_index`")))?;
    let stays_below = config.dir.components().all(|part| matches!(part, Component::Normal(_)));
    if !stays_below || config.dir.as_os_str().is_empty() {
        return Err(wrong(&format!(
            "`dir` is `{}`, and must be a relative path without `..`: it is looked for in the folder of recordings",
            config.dir.display()
        )));
    }
    let shown = config.dir.join(FILE_NAME);
    Ok(Some(Case {
        file: root.join(&shown),
        shown: shown.display().to_string(),
        user_message_index: config.user_message_index,
    }))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// A name from a client as the name of one folder, different for different names.
fn safe(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if index > 0 => safe.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => safe.push(byte.into()),
            other => safe.push_str(&format!("%{other:02x}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_become_names_of_folders() {
        assert_eq!(safe("trip-planner_2.0"), "trip-planner_2.0");
        assert_eq!(safe("../x"), "%2e.%2fx");
        assert_eq!(safe("ä"), "%c3%a4");
    }
}
