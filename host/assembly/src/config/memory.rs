//! The key `memory` of `hatchery.yaml`: how messages are found.

use serde::Deserialize;

/// Search in the memory: by default by words only.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySearchConfig {
    /// The name of the embedder by which messages of similar meaning are found too.
    pub embedder: Option<String>,
    /// The least cosine of the embeddings of similar texts.
    pub min_similarity: Option<f64>,
}

impl MemorySearchConfig {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_similarity("memory", self.embedder.as_deref(), self.min_similarity)
    }
}

/// Checks that the settings of a search by meaning, which are below `section`, fit together.
///
/// # Errors
/// The problem, with the key.
pub(super) fn check_similarity(
    section: &str,
    embedder: Option<&str>,
    min_similarity: Option<f64>,
) -> Result<(), String> {
    match (embedder, min_similarity) {
        (Some(name), _) if name.trim().is_empty() => Err(format!(
            "{section}.embedder: it is empty; name an embedder such as `gemini-embedding-001`, or leave it out"
        )),
        (None, Some(_)) => {
            Err(format!("{section}.min_similarity: it has no effect without `{section}.embedder`; set both"))
        }
        (_, Some(similarity)) if !(0.0..=1.0).contains(&similarity) => {
            Err(format!("{section}.min_similarity: {similarity} is not a number from 0 to 1"))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(yaml: &str) -> Result<MemorySearchConfig, String> {
        let config = Config::parse(yaml, Path::new("hatchery.yaml"));
        config.map(|config| config.memory).map_err(|error| error.to_string())
    }

    #[test]
    fn an_embedder_may_have_a_threshold() {
        let expected = MemorySearchConfig { embedder: Some("local:hashed-ngrams".into()), min_similarity: Some(0.5) };
        assert_eq!(parse("memory: {embedder: 'local:hashed-ngrams', min_similarity: 0.5}").unwrap(), expected);
        assert_eq!(parse("").unwrap(), MemorySearchConfig::default());
    }

    #[test]
    fn settings_without_meaning_are_errors() {
        for (yaml, expected) in [
            (
                "memory: {embedder: ' '}",
                "memory.embedder: it is empty; name an embedder such as `gemini-embedding-001`, or leave it out",
            ),
            (
                "memory: {min_similarity: 0.5}",
                "memory.min_similarity: it has no effect without `memory.embedder`; set both",
            ),
            ("memory: {embedder: e, min_similarity: 1.5}", "memory.min_similarity: 1.5 is not a number from 0 to 1"),
        ] {
            let error = parse(yaml).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
