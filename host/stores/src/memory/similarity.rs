//! Search by meaning: embeddings of texts, compared by their cosine, and the fusion of two rankings.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{Content, Embedder, pluralize};
use tokio::time::timeout;

/// How long a call of the embedder may take. A run, or a search, waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Texts of one call of the embedder.
const BATCH: usize = 100;

/// The part of a message that is embedded, in bytes: models accept some thousand tokens.
const MAX_TEXT_BYTES: usize = 8_000;

/// Entries that a search returns because of their similarity. There is always a nearest entry, even if nothing is
/// similar.
pub(super) const MAX_SIMILAR: usize = 10;

/// The constant of reciprocal rank fusion: the larger it is, the less the first ranks count.
const FUSION: f64 = 60.0;

/// The minimum cosine of similar texts by default.
const DEFAULT_MIN_SIMILARITY: f64 = 0.3;

/// Finds texts by their meaning, in addition to texts with words of the query.
#[derive(Clone)]
pub struct SimilaritySearch {
    /// The name of the embedder. Vectors of different embedders are never compared.
    name: Arc<str>,
    embedder: Arc<dyn Embedder>,
    min_similarity: f64,
}

impl fmt::Debug for SimilaritySearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, min_similarity, embedder: _ } = self;
        f.debug_struct("SimilaritySearch").field("name", name).field("min_similarity", min_similarity).finish()
    }
}

impl SimilaritySearch {
    /// Creates a search with the embedder of this name.
    pub fn new(name: &str, embedder: Arc<dyn Embedder>) -> Self {
        Self { name: name.into(), embedder, min_similarity: DEFAULT_MIN_SIMILARITY }
    }

    /// Sets the minimum cosine of similar texts, from -1 to 1. The default is 0.3.
    #[must_use]
    pub fn with_min_similarity(self, min_similarity: f64) -> Self {
        Self { min_similarity, ..self }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Embeds texts. A text that cannot be embedded has no vector. After a failure the remaining texts have none
    /// either, so that the caller waits for one timeout at most.
    pub(crate) async fn embed(&self, texts: Vec<String>) -> Vec<Option<UnitVector>> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            match self.embed_batch(batch).await {
                Ok(embedded) => vectors.extend(embedded.into_iter().map(UnitVector::new)),
                Err(problem) => {
                    let embedder = &*self.name;
                    tracing::warn!(embedder, "{problem}; texts that cannot be embedded are found by their words only");
                    break;
                }
            }
        }
        vectors.resize(texts.len(), None);
        vectors
    }

    async fn embed_batch(&self, batch: &[String]) -> Result<Vec<Vec<f32>>, String> {
        match timeout(TIMEOUT, self.embedder.embed(batch.to_vec())).await {
            Ok(Ok(embedded)) if embedded.len() == batch.len() => Ok(embedded),
            Ok(Ok(embedded)) => {
                Err(format!("{} instead of {}", pluralize(embedded.len(), "vector", "vectors"), batch.len()))
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no vectors within {} s", TIMEOUT.as_secs())),
        }
    }

    /// Returns the calls of the embedder for this number of texts.
    pub(super) fn calls(texts: usize) -> usize {
        texts.div_ceil(BATCH)
    }

    /// Embeds a query.
    pub(crate) async fn embed_query(&self, query: &str) -> Option<Query> {
        let text = truncate_text(query.trim());
        if text.is_empty() {
            return None;
        }
        let vector = self.embed(vec![text.to_owned()]).await.pop().flatten()?;
        Some(Query { vector, min_similarity: self.min_similarity })
    }
}

/// Returns the text of a message that is embedded. The text of a model's thinking is omitted.
pub(super) fn embedded_text(content: &Content) -> String {
    let texts = content.parts.iter().filter(|part| !part.thought).filter_map(|part| part.as_text());
    truncate_text(texts.collect::<Vec<_>>().join("\n").trim()).to_owned()
}

fn truncate_text(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or(text)
}

/// A vector of length 1, as little-endian numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitVector(Box<[u8]>);

impl UnitVector {
    /// Scales a vector to length 1; `None` if it has no direction.
    fn new(vector: Vec<f32>) -> Option<Self> {
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        let is_usable = length.is_finite() && length > 0.0;
        is_usable.then(|| Self(vector.iter().flat_map(|value| (value / length).to_le_bytes()).collect()))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the numbers as text: `[0.6,0.8]`.
    #[cfg(feature = "postgres")]
    pub(super) fn to_list(&self) -> String {
        let numbers: Vec<_> = numbers(&self.0).map(|number| number.to_string()).collect();
        format!("[{}]", numbers.join(","))
    }
}

/// An embedded query.
pub(crate) struct Query {
    vector: UnitVector,
    min_similarity: f64,
}

impl Query {
    #[cfg(feature = "postgres")]
    pub(super) fn vector(&self) -> &UnitVector {
        &self.vector
    }

    #[cfg(feature = "postgres")]
    pub(super) fn min_similarity(&self) -> f64 {
        self.min_similarity
    }

    /// Returns the entries that are similar enough, most similar first, then the greatest.
    pub(crate) fn nearest<T: Ord + Copy>(&self, entries: impl Iterator<Item = (T, f32)>) -> Vec<T> {
        let mut similar: Vec<_> =
            entries.filter(|(_, similarity)| f64::from(*similarity) >= self.min_similarity).collect();
        similar.sort_by(|(one, left), (other, right)| right.total_cmp(left).then_with(|| other.cmp(one)));
        similar.into_iter().take(MAX_SIMILAR).map(|(entry, _)| entry).collect()
    }

    /// Returns the cosine of the angle between the query and a vector of length 1; `None` if they have different
    /// lengths.
    pub(crate) fn similarity(&self, vector: &[u8]) -> Option<f32> {
        let query = &self.vector.0;
        (query.len() == vector.len()).then(|| numbers(query).zip(numbers(vector)).map(|(one, other)| one * other).sum())
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number))
}

/// Returns the entries of two rankings by reciprocal rank fusion, best first. Those that are in both come before those
/// with the same rank in one ranking.
pub(crate) fn fuse<T: Eq + Hash + Copy>(by_words: &[T], by_similarity: &[T]) -> Vec<T> {
    let mut fused: Vec<(T, f64)> = Vec::new();
    let mut places: HashMap<T, usize> = HashMap::new();
    for ranking in [by_words, by_similarity] {
        for (rank, entry) in (1_u32..).zip(ranking) {
            let place = *places.entry(*entry).or_insert(fused.len());
            if place == fused.len() {
                fused.push((*entry, 0.0));
            }
            if let Some((_, score)) = fused.get_mut(place) {
                *score += 1.0 / (FUSION + f64::from(rank));
            }
        }
    }
    fused.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    fused.into_iter().map(|(entry, _)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_both_rankings_comes_before_the_first_of_one() {
        assert_eq!(fuse(&[1, 2, 3], &[4, 3]), [3, 1, 4, 2]);
        assert_eq!(fuse(&[1, 2], &[]), [1, 2]);
        assert_eq!(fuse(&[], &[7, 5]), [7, 5]);
    }

    #[test]
    fn a_vector_without_direction_is_left_out() {
        assert_eq!(UnitVector::new(vec![0.0, 0.0]), None);
        assert_eq!(UnitVector::new(vec![f32::NAN, 1.0]), None);
        let query = Query { vector: UnitVector::new(vec![3.0, 4.0]).unwrap(), min_similarity: 0.9 };
        let same = query.similarity(UnitVector::new(vec![6.0, 8.0]).unwrap().as_bytes()).unwrap();
        assert!((same - 1.0).abs() < 1e-6, "{same}");
        assert_eq!(query.similarity(UnitVector::new(vec![1.0]).unwrap().as_bytes()), None);
        assert_eq!(query.nearest([(1, 0.95), (2, 1.0), (3, 0.1), (4, 0.95)].into_iter()), [2, 4, 1]);
    }
}
