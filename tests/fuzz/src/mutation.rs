//! Deterministic mutations of bytes: the same seed returns the same mutations.

/// Maximum length of a result in bytes.
const MAX_LEN: usize = 16 << 10;

/// Generates mutations, with random numbers of SplitMix64.
#[derive(Debug, Clone)]
pub struct Mutator(u64);

impl Mutator {
    /// Creates a mutator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = usize::try_from(self.next() >> 1).unwrap_or(usize::MAX);
        number.checked_rem(end).unwrap_or_default()
    }

    /// Returns `bytes` with one to eight changes: flipped bits, inserted bytes and tokens, and slices of itself and of
    /// `other` that are cut, copied or repeated.
    pub fn mutate(&mut self, bytes: &[u8], other: &[u8], tokens: &[&str]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len() + 1);
            match self.below(7) {
                0 => self.flip(&mut bytes, at),
                1 => {
                    let end = at + self.below(bytes.len() - at + 1).min(64);
                    bytes.drain(at..end);
                }
                2 => self.insert_token(&mut bytes, at, tokens),
                3 => {
                    let slice = self.slice(other);
                    bytes.splice(at..at, slice);
                }
                4 => {
                    let slice = self.slice(&bytes).repeat(1 + self.below(64));
                    bytes.splice(at..at, slice);
                }
                5 => bytes.insert(at, u8::try_from(self.below(256)).unwrap_or_default()),
                _ => bytes.truncate(at.max(1)),
            }
            bytes.truncate(MAX_LEN);
        }
        bytes
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn insert_token(&mut self, bytes: &mut Vec<u8>, at: usize, tokens: &[&str]) {
        let token = tokens.get(self.below(tokens.len())).copied().unwrap_or_default();
        bytes.splice(at..at, token.bytes());
    }

    /// Returns a random slice of at most 256 bytes.
    fn slice(&mut self, bytes: &[u8]) -> Vec<u8> {
        let begin = self.below(bytes.len() + 1);
        let length = self.below(257).min(bytes.len() - begin);
        bytes.get(begin..begin + length).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_return_equal_mutations() {
        let mutations = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.mutate(b"some: text", b"other", &["word"])).collect::<Vec<_>>()
        };
        assert_eq!(mutations(1), mutations(1));
        assert_ne!(mutations(1), mutations(2));
        assert!(mutations(1).iter().any(|bytes| bytes != b"some: text"));
    }

    #[test]
    fn mutations_can_start_from_empty_input_and_do_not_grow_without_bound() {
        let mut mutator = Mutator::new(7);
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            bytes = mutator.mutate(&bytes, &[0; 300], &["a word"]);
            assert!(bytes.len() <= MAX_LEN);
        }
    }
}
