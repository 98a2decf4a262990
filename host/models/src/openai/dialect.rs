//! Differences of chat completions between servers.

use super::Family;
use crate::files;

/// The server of chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    OpenRouter,
    Ollama,
    /// vLLM, llama.cpp.
    Compatible,
}

impl Dialect {
    /// Returns the name of the limit of tokens. Servers other than OpenAI's may know the older one only.
    pub(super) fn max_tokens_key(self) -> &'static str {
        match self {
            Self::OpenAi => "max_completion_tokens",
            Self::OpenRouter | Self::Ollama | Self::Compatible => "max_tokens",
        }
    }

    /// Returns the type of an image that is accepted. `None` for others.
    pub(super) fn image_type(self, mime_type: &str) -> Option<&str> {
        match self {
            Self::OpenAi => files::common_image(mime_type),
            Self::Ollama => files::common_image(mime_type).filter(|image| *image != "image/gif"),
            // The type is up to the model.
            Self::OpenRouter | Self::Compatible => {
                Some(mime_type).filter(|image| image.starts_with("image/") && !image.contains("svg"))
            }
        }
    }

    /// Returns true if the server fetches images from their addresses.
    pub(super) fn fetches_images(self) -> bool {
        self != Self::Ollama
    }

    pub(super) fn takes_pdf(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenRouter)
    }

    /// Returns true if the model may hear. OpenAI's models do only if their name says so.
    pub(super) fn takes_audio(self, model: &str) -> bool {
        match self {
            Self::OpenAi => Family::of(model) == Family::Other || model.contains("audio"),
            Self::OpenRouter | Self::Compatible => true,
            Self::Ollama => false,
        }
    }
}
