//! A local embedder without a model: feature hashing of character n-grams.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery_core::{Embedder, ModelError};

/// Length of the vectors.
const DIMENSIONS: usize = 256;

/// Lengths of the n-grams, in characters.
const SIZES: std::ops::RangeInclusive<usize> = 2..=4;

/// Embeds texts by their character n-grams: texts with common words, word stems and phrases are similar. Their meaning
/// has no influence. The vectors have unit length; a text without letters and digits has the zero
/// vector. They are the same on every machine and in every version.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashedNgrams;

impl HashedNgrams {
    /// The name of this embedder.
    pub const NAME: &'static str = "local:hashed-ngrams";
}

#[async_trait]
impl Embedder for HashedNgrams {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        Ok(texts.iter().map(|text| embed(text)).collect())
    }
}

fn embed(text: &str) -> Vec<f32> {
    // In the order of hashes, because sums of floats depend on the order.
    let mut counts: BTreeMap<u64, f32> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let marked: Vec<char> = std::iter::once(' ').chain(word.to_lowercase().chars()).chain([' ']).collect();
        for size in SIZES {
            for ngram in marked.windows(size) {
                *counts.entry(hash(ngram)).or_default() += 1.0;
            }
        }
    }
    let mut vector = vec![0.0_f32; DIMENSIONS];
    for (hash, count) in counts {
        // One bit of the hash is the sign, so that collisions cancel each other out on average.
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        let index = usize::try_from(hash % DIMENSIONS as u64).unwrap_or_default();
        if let Some(value) = vector.get_mut(index) {
            *value += sign * (1.0 + count.ln());
        }
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vector
}

/// Returns the FNV-1a hash of the characters, whose high bits are mixed.
fn hash(ngram: &[char]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in ngram.iter().flat_map(|character| u32::from(*character).to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(one: &str, other: &str) -> f32 {
        embed(one).iter().zip(embed(other)).map(|(one, other)| one * other).sum()
    }

    #[test]
    fn vectors_have_unit_length() {
        for text in ["lamp", "The lamp is red.", "東京タワー"] {
            assert!((similarity(text, text) - 1.0).abs() < 1e-5, "{text}");
        }
        assert_eq!(embed("?!"), vec![0.0; DIMENSIONS]);
    }

    #[test]
    fn equal_texts_have_equal_vectors() {
        let text: String = (0..500).map(|number| format!("lamp{number} attic{number} ")).collect();
        let vector = embed(&text);
        assert!((0..20).all(|_| embed(&text) == vector));
    }

    #[test]
    fn texts_with_common_words_are_more_similar() {
        let lamp = "Where is the red lamp?";
        assert!(similarity(lamp, "The red lamps are in the attic.") > similarity(lamp, "Dinner is served at eight."));
        assert!(similarity("LAMP!", "lamp") > 0.99);
    }
}
