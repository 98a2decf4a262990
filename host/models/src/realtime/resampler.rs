//! Conversion of audio to the rate of the Realtime API.

use super::AUDIO_RATE;

/// Converts 16-bit samples of one rate after the other, by linear interpolation. Chunks continue each other.
#[derive(Debug, Default)]
pub(super) struct Resampler {
    last: i16,
    /// The position of the next sample between `last` and the sample after it, in parts of the output's rate.
    phase: u32,
    /// The first byte of a sample whose second one is in the next chunk.
    odd: Option<u8>,
}

impl Resampler {
    /// Returns the bytes of a chunk, which has `rate` samples per second, at the rate of the API.
    pub(super) fn convert(&mut self, bytes: &[u8], rate: u32) -> Vec<u8> {
        if rate == AUDIO_RATE && self.odd.is_none() {
            return bytes.to_vec();
        }
        let mut converted = Vec::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let Some(low) = self.odd.take() else {
                self.odd = Some(*byte);
                continue;
            };
            let sample = i16::from_le_bytes([low, *byte]);
            while self.phase < AUDIO_RATE {
                let (from, to) = (i64::from(self.last), i64::from(sample));
                let between = from + (to - from) * i64::from(self.phase) / i64::from(AUDIO_RATE);
                converted.extend_from_slice(&(between as i16).to_le_bytes());
                self.phase += rate;
            }
            self.phase -= AUDIO_RATE;
            self.last = sample;
        }
        converted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(bytes: &[u8]) -> Vec<i16> {
        bytes.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    fn bytes(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }

    #[test]
    fn samples_in_between_are_on_the_line() {
        let converted = Resampler::default().convert(&bytes(&[300, 600, 900, 1200]), 16_000);
        assert_eq!(samples(&converted), [0, 200, 400, 600, 800, 1000]);
        let converted = Resampler::default().convert(&bytes(&[10, 20, 30, 40]), 48_000);
        assert_eq!(samples(&converted), [0, 20]);
        assert_eq!(Resampler::default().convert(&[1, 2, 3], AUDIO_RATE), [1, 2, 3]);
    }

    #[test]
    fn a_stream_is_the_same_wherever_it_is_cut() {
        let stream = bytes(&(0..50).map(|number| (number * number) % 977 * 31).collect::<Vec<i16>>());
        let whole = Resampler::default().convert(&stream, 16_000);
        for cut in 0..stream.len() {
            let mut resampler = Resampler::default();
            let mut parts = resampler.convert(&stream[..cut], 16_000);
            parts.extend(resampler.convert(&stream[cut..], 16_000));
            assert_eq!(parts, whole, "cut at {cut}");
        }
    }
}
