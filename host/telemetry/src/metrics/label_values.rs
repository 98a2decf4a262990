//! Label values of metrics, each with its time series, which are looked up once instead of for each span. Their number
//! and their length are limited.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// Maximum number of values of a label. Further values are counted as [`OTHER`], because each value occupies memory
/// until the process ends.
const MAX_LABEL_VALUES: usize = 100;

/// Maximum length of a value in bytes. Longer ones are cut: a component can choose a name of megabytes.
const MAX_LABEL_LENGTH: usize = 200;

/// The value of a label for all values beyond [`MAX_LABEL_VALUES`].
const OTHER: &str = "other";

/// The values of a label so far, each with its series.
pub(super) struct SeriesByLabel<T>(Mutex<HashMap<LabelValue, Arc<T>>>);

impl<T> Default for SeriesByLabel<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SeriesByLabel<T> {
    /// Returns the series of a value, or the series of [`OTHER`] if there are too many values.
    pub(super) fn get(&self, value: &str, new: impl FnOnce(LabelValue) -> T) -> Arc<T> {
        let value = value.get(..value.floor_char_boundary(MAX_LABEL_LENGTH)).unwrap_or(value);
        let mut series = self.0.lock_unpoisoned();
        if let Some(known) = series.get(value) {
            return known.clone();
        }
        let has_room = series.len() < MAX_LABEL_VALUES;
        let value = if has_room { LabelValue::Shared(value.into()) } else { LabelValue::from(OTHER) };
        series.entry(value.clone()).or_insert_with(|| Arc::new(new(value))).clone()
    }
}

/// The value of a label.
#[derive(Debug, Clone)]
pub(super) enum LabelValue {
    Fixed(&'static str),
    Shared(Arc<str>),
}

impl From<&'static str> for LabelValue {
    fn from(value: &'static str) -> Self {
        Self::Fixed(value)
    }
}

impl LabelValue {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Fixed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl Borrow<str> for LabelValue {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for LabelValue {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LabelValue {}

/// Hashes like `str`, as [`Borrow`] requires.
impl Hash for LabelValue {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.as_str().hash(hasher);
    }
}

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}
