//! Recordings of speech, which become artifacts.

use hatchery_core::{Blob, Part, PartData};

/// Maximum size in bytes of a recording: three minutes of speech. A longer one is split.
const MAX_BYTES: usize = 8 << 20;

/// The unsaved speech of one side.
pub(super) struct Recording {
    side: &'static str,
    mime_type: String,
    data: Vec<u8>,
    /// The number of the next artifact.
    number: u32,
}

/// A recording with the name of its artifact.
pub(super) struct RecordedAudio {
    pub(super) name: String,
    pub(super) part: Part,
}

impl Recording {
    /// Starts to record a side of a run: `input` or `output`. `known` are the names of the session's artifacts, which
    /// may have recordings of earlier conversations of the run.
    pub(super) fn new(side: &'static str, run: &str, known: &[String]) -> Self {
        let prefix = prefix(side, run);
        let number = |name: &String| name.strip_prefix(&prefix)?.split_once('.')?.0.parse::<u32>().ok();
        let number = known.iter().filter_map(number).max().map_or(0, |last| last.saturating_add(1));
        Self { side, mime_type: String::new(), data: Vec::new(), number }
    }

    /// Adds a chunk of audio; other files are not recorded. Returns the recording so far if the chunk has another
    /// format or would make it too long.
    pub(super) fn add(&mut self, blob: &Blob, run: &str) -> Option<RecordedAudio> {
        if !blob.mime_type.starts_with("audio/") {
            return None;
        }
        let is_full = self.mime_type != blob.mime_type || self.data.len() + blob.data.len() > MAX_BYTES;
        let earlier = if is_full { self.finish(run) } else { None };
        self.mime_type.clone_from(&blob.mime_type);
        self.data.extend_from_slice(&blob.data);
        earlier
    }

    /// Ends the recording. `None` if it is empty.
    pub(super) fn finish(&mut self, run: &str) -> Option<RecordedAudio> {
        if self.data.is_empty() {
            return None;
        }
        let data = std::mem::take(&mut self.data).into();
        let blob = Blob { mime_type: std::mem::take(&mut self.mime_type), data, display_name: None };
        let name = format!("{}{}.{}", prefix(self.side, run), self.number, blob.extension());
        self.number = self.number.saturating_add(1);
        Some(RecordedAudio { name, part: PartData::InlineData(blob).into() })
    }
}

/// Returns the beginning of the names of a side's artifacts.
fn prefix(side: &str, run: &str) -> String {
    format!("live_{side}_{run}_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(mime_type: &str, bytes: usize) -> Blob {
        Blob { mime_type: mime_type.into(), data: vec![0; bytes].into(), display_name: None }
    }

    fn bytes(audio: &RecordedAudio) -> usize {
        match &audio.part.data {
            PartData::InlineData(blob) => blob.data.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_recording_ends_at_eight_mebibytes_and_with_its_format() {
        let mut recording = Recording::new("input", "r", &[]);
        assert!(recording.finish("r").is_none());
        assert!(recording.add(&chunk("image/png", 5), "r").is_none());
        assert!(recording.add(&chunk("audio/pcm;rate=16000", MAX_BYTES), "r").is_none());
        let full = recording.add(&chunk("audio/pcm;rate=16000", 3), "r").unwrap();
        assert_eq!((full.name.as_str(), bytes(&full)), ("live_input_r_0.pcm", MAX_BYTES));
        let other = recording.add(&chunk("audio/pcm;rate=24000", 2), "r").unwrap();
        assert_eq!((other.name.as_str(), bytes(&other)), ("live_input_r_1.pcm", 3));
        assert_eq!(bytes(&recording.finish("r").unwrap()), 2);
    }
}
