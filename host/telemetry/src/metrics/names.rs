//! The values of labels, each with the metrics that have it: they are looked up once, and not for each span.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// Most values of a label. Further ones are counted as [`OTHER`], because each value takes memory for ever.
const MAX_NAMES: usize = 100;

/// The value of a label for all names beyond [`MAX_NAMES`].
const OTHER: &str = "other";

/// The values of a label so far, each with its metrics.
pub(super) struct Names<T>(Mutex<HashMap<Name, Arc<T>>>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Names<T> {
    /// Returns the metrics of a name, or those of [`OTHER`] if there are too many names.
    pub(super) fn get(&self, name: &str, new: impl FnOnce(Name) -> T) -> Arc<T> {
        let mut names = self.0.lock_unpoisoned();
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let name = if names.len() >= MAX_NAMES { Name::from(OTHER) } else { Name::Shared(name.into()) };
        names.entry(name.clone()).or_insert_with(|| Arc::new(new(name))).clone()
    }
}

/// The value of a label.
#[derive(Debug, Clone)]
pub(super) enum Name {
    Fixed(&'static str),
    Shared(Arc<str>),
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Self {
        Self::Fixed(name)
    }
}

impl Name {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Fixed(name) => name,
            Self::Shared(name) => name,
        }
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

/// As that of the text.
impl Hash for Name {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.as_str().hash(hasher);
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}
