//! Settings in a properties file, as ADK for Java reads them.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use hatchery_core::StoreError;

use super::keys;
use super::keywords::DEFAULT_STOP_WORDS;

const ROOT_COLLECTION: &str = "firebase.root.collection.name";
const BUCKET: &str = "gcs.adk.bucket.name";
const STOP_WORDS: &str = "keyword.extraction.stopwords";
/// The environment variable that selects a file.
const ENVIRONMENT: &str = "env";

/// The root collection of sessions and memory, and the stop words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirestoreProperties {
    /// The collection of users with their sessions (`firebase.root.collection.name`). Default: `adk-session`.
    pub root_collection: String,
    /// The Cloud Storage bucket for artifacts (`gcs.adk.bucket.name`), which Firestore does not use itself.
    pub bucket: Option<String>,
    /// Words that are not indexed, in lower case (`keyword.extraction.stopwords`, separated by commas). Default: 47
    /// frequent English words.
    pub stop_words: BTreeSet<String>,
}

impl Default for FirestoreProperties {
    fn default() -> Self {
        Self {
            root_collection: keys::ROOT.into(),
            bucket: None,
            stop_words: DEFAULT_STOP_WORDS.split(' ').map(Into::into).collect(),
        }
    }
}

impl FirestoreProperties {
    /// Reads `adk-firestore-ENV.properties` in a folder, where `ENV` is the environment variable `env`, or else
    /// `adk-firestore.properties`. Returns the defaults if neither exists.
    ///
    /// # Errors
    /// As [`FirestoreProperties::read`].
    pub async fn find(folder: &Path) -> Result<Self, StoreError> {
        Self::find_for(folder, std::env::var(ENVIRONMENT).ok().as_deref()).await
    }

    /// Like [`FirestoreProperties::find`], for this environment.
    ///
    /// # Errors
    /// As [`FirestoreProperties::read`].
    pub async fn find_for(folder: &Path, environment: Option<&str>) -> Result<Self, StoreError> {
        let special =
            environment.filter(|name| !name.is_empty()).map(|name| format!("adk-firestore-{name}.properties"));
        for name in special.into_iter().chain(["adk-firestore.properties".into()]) {
            let file = folder.join(name);
            if tokio::fs::try_exists(&file).await.unwrap_or_default() {
                return Self::read(&file).await;
            }
        }
        Ok(Self::default())
    }

    /// Reads a properties file. Missing keys have their defaults; unknown keys are ignored.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if a value cannot be used, [`StoreError::Backend`] if the file cannot be read.
    pub async fn read(file: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| {
            StoreError::backend(format!("cannot read the properties file {}", file.display()), error)
        };
        let text = tokio::fs::read_to_string(file).await.map_err(failed)?;
        let properties = Self::parse(&text);
        check_collection(&properties.root_collection).map_err(|reason| {
            StoreError::InvalidRequest(format!("{}: `{ROOT_COLLECTION}`: {reason}", file.display()))
        })?;
        Ok(properties)
    }

    fn parse(text: &str) -> Self {
        let mut properties = Self::default();
        for (key, value) in entries(text) {
            match key.as_str() {
                ROOT_COLLECTION => properties.root_collection = value,
                BUCKET => properties.bucket = Some(value).filter(|bucket| !bucket.is_empty()),
                STOP_WORDS => {
                    let words = value.split(',').map(|word| word.trim().to_lowercase());
                    properties.stop_words = words.filter(|word| !word.is_empty()).collect();
                }
                _ => {}
            }
        }
        properties
    }
}

/// Returns the reason why a collection cannot have a name.
pub(super) fn check_collection(name: &str) -> Result<(), String> {
    let is_valid = !name.is_empty()
        && name.len() <= 256
        && !name.contains('/')
        && !name.starts_with("__")
        && name != "."
        && name != "..";
    if is_valid { Ok(()) } else { Err(format!("`{name}` is not the name of a Firestore collection")) }
}

/// Returns the keys and values of a properties file.
fn entries(text: &str) -> Vec<(String, String)> {
    let (mut entries, mut line) = (Vec::new(), String::new());
    for part in text.lines().chain([""]) {
        let part = part.trim_start();
        if line.is_empty() && part.starts_with(['#', '!']) {
            continue;
        }
        let slashes = part.len() - part.trim_end_matches('\\').len();
        if slashes % 2 == 1 {
            line.push_str(part.get(..part.len() - 1).unwrap_or_default());
            continue;
        }
        line.push_str(part);
        if !line.is_empty() {
            entries.push(entry(&line));
        }
        line.clear();
    }
    entries
}

/// Splits a line at the first `=`, `:` or space that is not escaped.
fn entry(line: &str) -> (String, String) {
    let mut is_escaped = false;
    let end = line.find(|character: char| {
        let is_end = !is_escaped && (matches!(character, '=' | ':') || character.is_whitespace());
        is_escaped = !is_escaped && character == '\\';
        is_end
    });
    let (key, value) = line.split_at(end.unwrap_or(line.len()));
    let value = value.trim_start();
    let value = value.strip_prefix(['=', ':']).unwrap_or(value).trim_start();
    (unescape(key), unescape(value))
}

fn unescape(text: &str) -> String {
    let (mut unescaped, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        let escape = if character == '\\' { characters.next() } else { None };
        unescaped.push(match escape {
            None => character,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('f') => '\u{c}',
            Some('u') => {
                let digits: String = characters.by_ref().take(4).collect();
                u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            Some(other) => other,
        });
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_java_does() {
        let text = "# a comment\n! another\n\nfirebase.root.collection.name = my-sessions\n\
                    gcs.adk.bucket.name:my\\u002dbucket\n  keyword.extraction.stopwords  The, of,\\\n    \\u00e9t\\u00e9 \n\
                    path=C\\:\\\\x\\ty";
        let expected = [
            ("firebase.root.collection.name", "my-sessions"),
            ("gcs.adk.bucket.name", "my-bucket"),
            ("keyword.extraction.stopwords", "The, of,été "),
            ("path", "C:\\x\ty"),
        ];
        let entries = entries(text);
        assert!(entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected), "{entries:?}");
        let properties = FirestoreProperties::parse(text);
        assert_eq!((&*properties.root_collection, properties.bucket.as_deref()), ("my-sessions", Some("my-bucket")));
        assert_eq!(properties.stop_words, ["the", "of", "été"].map(String::from).into());
    }

    #[test]
    fn what_a_file_does_not_contain_has_its_default() {
        let properties = FirestoreProperties::parse("other=1\ngcs.adk.bucket.name=");
        assert_eq!(properties, FirestoreProperties::default());
        assert_eq!((&*properties.root_collection, properties.stop_words.len()), ("adk-session", 47));
    }
}
