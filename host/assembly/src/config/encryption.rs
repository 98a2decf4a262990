//! The key `encryption` of `hatchery.yaml`: the keys with which services encrypt their data.

use std::path::{Path, PathBuf};

use hatchery_stores::encryption::{EncryptionKeys, PlainData};
use serde::Deserialize;

/// Encryption of sessions, artifacts and memory. Without keys, which is the default, nothing is encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionConfig {
    /// The first one encrypts, and all of them decrypt.
    pub keys: Vec<EncryptionKeyConfig>,
    /// Handling of stored data that is not encrypted.
    pub plain: PlainDataConfig,
}

/// The key `encryption.plain`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlainDataConfig {
    /// It is read unchanged.
    #[default]
    Accept,
    /// It is an error.
    Refuse,
}

impl From<PlainDataConfig> for PlainData {
    fn from(config: PlainDataConfig) -> Self {
        match config {
            PlainDataConfig::Accept => Self::Accept,
            PlainDataConfig::Refuse => Self::Refuse,
        }
    }
}

/// Location of a key of 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptionKeyConfig {
    /// The id, which is stored with each encrypted record.
    pub id: String,
    /// The environment variable with the key.
    pub from: Option<String>,
    /// The file with the key.
    pub file: Option<PathBuf>,
}

impl EncryptionConfig {
    /// Checks that each key has one source.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_clear = |key: &EncryptionKeyConfig| key.from.is_some() != key.file.is_some();
        match self.keys.iter().find(|key| !is_clear(key)) {
            Some(EncryptionKeyConfig { id, .. }) => {
                Err(format!("encryption.keys: the key `{id}` needs either `from`, a variable of the host, or `file`"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for file in self.keys.iter_mut().filter_map(|key| key.file.as_mut()) {
            *file = folder.join(&*file);
        }
    }

    /// Reads the keys; `None` if there are none.
    ///
    /// # Errors
    /// The first key that cannot be read or used.
    pub(crate) fn read(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<EncryptionKeys>, String> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let texts = self.keys.iter().map(|key| Ok((key.id.as_str(), key.read(&variable)?)));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let keys = EncryptionKeys::from_hex(texts.iter().map(|(id, text)| (*id, text.as_str())));
        keys.map(|keys| Some(keys.with_plain_data(self.plain.into()))).map_err(|error| error.to_string())
    }
}

impl EncryptionKeyConfig {
    fn read(&self, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let Self { id, from, file } = self;
        match (from, file) {
            (Some(name), _) => variable(name).ok_or_else(|| {
                format!("the variable `{name}` of the key `{id}` is not set; set it to 64 hexadecimal digits")
            }),
            (None, Some(file)) => std::fs::read_to_string(file)
                .map_err(|error| format!("the file {} of the key `{id}` cannot be read: {error}", file.display())),
            (None, None) => Err(format!("the key `{id}` has neither a variable nor a file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlainDataConfig;
    use crate::Config;

    #[test]
    fn keys_are_in_variables_or_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("old.key"), format!("{}\n", "ab".repeat(32))).unwrap();
        let parse = |yaml: &str| {
            let config = Config::parse(yaml, &folder.path().join("hatchery.yaml"));
            config.map(|config| config.encryption).map_err(|error| error.to_string())
        };
        let set = |name: &str| (name == "DATA_KEY").then(|| "01".repeat(32));
        assert!(parse("").unwrap().read(set).unwrap().is_none());
        let both = parse("encryption: {keys: [{id: new, from: DATA_KEY}, {id: old, file: old.key}]}").unwrap();
        assert_eq!(format!("{:?}", both.read(set).unwrap().unwrap()), r#"["new", "old"]"#);
        assert_eq!(both.plain, PlainDataConfig::Accept);
        let strict = parse("encryption: {plain: refuse, keys: [{id: new, from: DATA_KEY}]}").unwrap();
        assert_eq!(strict.plain, PlainDataConfig::Refuse);
        let error = parse("encryption: {plain: warn}").unwrap_err();
        assert!(error.contains("unknown variant `warn`, expected `accept` or `refuse`"), "{error}");
        assert_eq!(
            both.read(|_| None).unwrap_err(),
            "the variable `DATA_KEY` of the key `new` is not set; set it to 64 hexadecimal digits"
        );
        let error = parse("encryption: {keys: [{id: a, file: none.key}]}").unwrap().read(set).unwrap_err();
        let file = folder.path().join("none.key");
        let expected = format!("the file {} of the key `a` cannot be read: ", file.display());
        assert!(error.starts_with(&expected), "{error}");
        for place in ["", ", from: DATA_KEY, file: old.key"] {
            let error = parse(&format!("encryption: {{keys: [{{id: a{place}}}]}}")).unwrap_err();
            let expected = "encryption.keys: the key `a` needs either `from`, a variable of the host, or `file`";
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
