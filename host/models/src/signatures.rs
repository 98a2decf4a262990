//! Signatures of thoughts, marked with their provider: another provider would reject them, and a conversation may
//! change its model.

use bytes::Bytes;
use hatchery_core::Part;

/// The providers whose signatures are marked. Signatures of Gemini are kept as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureKind {
    /// A signature of Anthropic.
    Thinking,
    /// A thought that Anthropic has encrypted.
    RedactedThinking,
    /// A thought that OpenAI has encrypted.
    Reasoning,
    /// Signatures of the library genai, as a JSON array.
    Genai,
    /// A block of an answer of the library rig, with its origin, as JSON.
    Rig,
    /// The thoughts of an answer of OpenRouter, as a JSON array.
    OpenRouter,
}

impl SignatureKind {
    const ALL: [Self; 6] =
        [Self::Thinking, Self::RedactedThinking, Self::Reasoning, Self::Genai, Self::Rig, Self::OpenRouter];

    fn mark(self) -> &'static str {
        match self {
            Self::Thinking => "thinking:",
            Self::RedactedThinking => "redacted-thinking:",
            Self::Reasoning => "reasoning:",
            Self::Genai => "genai:",
            Self::Rig => "rig:",
            Self::OpenRouter => "openrouter:",
        }
    }

    /// Returns a signature with its mark.
    pub(crate) fn write(self, signature: &str) -> Bytes {
        Bytes::from(format!("{}{signature}", self.mark()))
    }

    /// Returns the signature of a part, if it is of this kind.
    pub(crate) fn read(self, part: &Part) -> Option<&str> {
        std::str::from_utf8(part.thought_signature.as_ref()?).ok()?.strip_prefix(self.mark())
    }
}

/// Returns the signature of a part if no provider has marked it.
pub(crate) fn unmarked_signature(part: &Part) -> Option<&Bytes> {
    let is_marked = SignatureKind::ALL.iter().any(|kind| kind.read(part).is_some());
    part.thought_signature.as_ref().filter(|_| !is_marked)
}
