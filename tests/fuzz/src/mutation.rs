//! Mutations of bytes: the same seed gives the same ones.

/// Longest result, bytes.
const LONGEST: usize = 16 << 10;

/// Makes mutations. Its numbers are those of SplitMix64.
#[derive(Debug, Clone)]
pub struct Mutator(u64);

impl Mutator {
    /// With a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = usize::try_from(self.next() >> 1).unwrap_or(usize::MAX);
        number.checked_rem(end).unwrap_or_default()
    }

    /// `bytes` with one to eight changes: bits, bytes, words of the format, pieces of itself and of `other` that are cut, copied or repeated.
    pub fn mutate(&mut self, bytes: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len() + 1);
            match self.below(7) {
                0 => self.flip(&mut bytes, at),
                1 => {
                    let end = at + self.below(bytes.len() - at + 1).min(64);
                    bytes.drain(at..end);
                }
                2 => self.insert_word(&mut bytes, at, words),
                3 => {
                    let piece = self.piece(other);
                    bytes.splice(at..at, piece);
                }
                4 => {
                    let piece = self.piece(&bytes).repeat(1 + self.below(64));
                    bytes.splice(at..at, piece);
                }
                5 => bytes.insert(at, u8::try_from(self.below(256)).unwrap_or_default()),
                _ => bytes.truncate(at.max(1)),
            }
            bytes.truncate(LONGEST);
        }
        bytes
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn insert_word(&mut self, bytes: &mut Vec<u8>, at: usize, words: &[&str]) {
        let word = words.get(self.below(words.len())).copied().unwrap_or_default();
        bytes.splice(at..at, word.bytes());
    }

    /// A piece of at most 256 bytes.
    fn piece(&mut self, bytes: &[u8]) -> Vec<u8> {
        let begin = self.below(bytes.len() + 1);
        let length = self.below(257).min(bytes.len() - begin);
        bytes.get(begin..begin + length).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_the_same_mutations_and_another_one_others() {
        let mutations = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.mutate(b"some: text", b"other", &["word"])).collect::<Vec<_>>()
        };
        assert_eq!(mutations(1), mutations(1));
        assert_ne!(mutations(1), mutations(2));
        assert!(mutations(1).iter().any(|bytes| bytes != b"some: text"));
    }

    #[test]
    fn nothing_is_a_start_too_and_nothing_grows_without_end() {
        let mut mutator = Mutator::new(7);
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            bytes = mutator.mutate(&bytes, &[0; 300], &["a word"]);
            assert!(bytes.len() <= LONGEST);
        }
    }
}
