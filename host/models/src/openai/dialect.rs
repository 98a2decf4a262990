//! Differences of chat completions between servers.

use super::ModelFamily;
use crate::files;

/// The server of chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    OpenRouter,
    Ollama,
    /// vLLM, llama.cpp.
    Compatible,
    Mistral,
    DeepSeek,
}

/// The beginnings of the names of Mistral's models.
const MISTRAL: [&str; 8] =
    ["mistral-", "mixtral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-", "voxtral-"];

impl Dialect {
    /// Returns the dialect of a model. One with the name of Mistral or DeepSeek is expected at its own provider, which
    /// refuses settings that OpenAI has.
    pub(super) fn of_model(self, model: &str) -> Self {
        let name = ["open-", "labs-"].iter().find_map(|prefix| model.strip_prefix(prefix)).unwrap_or(model);
        match self {
            Self::OpenAi if MISTRAL.iter().any(|prefix| name.starts_with(prefix)) => Self::Mistral,
            Self::OpenAi if name.starts_with("deepseek-") => Self::DeepSeek,
            dialect => dialect,
        }
    }

    /// Returns the name of the limit of tokens. Servers other than OpenAI's may know the older one only.
    pub(super) fn max_tokens_key(self) -> &'static str {
        match self {
            Self::OpenAi => "max_completion_tokens",
            Self::OpenRouter | Self::Ollama | Self::Compatible | Self::Mistral | Self::DeepSeek => "max_tokens",
        }
    }

    pub(super) fn seed_key(self) -> &'static str {
        if self == Self::Mistral { "random_seed" } else { "seed" }
    }

    /// Returns an effort of reasoning in the words of the server. `None` if it has no efforts.
    pub(super) fn effort(self, effort: String) -> Option<String> {
        match self {
            Self::Mistral => None,
            Self::DeepSeek if effort == "minimal" => Some("low".to_owned()),
            _ => Some(effort),
        }
    }

    /// Returns the type of an image that is accepted. `None` for others.
    pub(super) fn image_type(self, mime_type: &str) -> Option<&str> {
        match self {
            Self::OpenAi | Self::Mistral => files::common_image(mime_type),
            Self::DeepSeek => None,
            Self::Ollama => files::common_image(mime_type).filter(|image| *image != "image/gif"),
            // The type is up to the model.
            Self::OpenRouter | Self::Compatible => {
                Some(mime_type).filter(|image| image.starts_with("image/") && !image.contains("svg"))
            }
        }
    }

    /// Returns true if the server fetches images from their addresses.
    pub(super) fn fetches_images(self) -> bool {
        !matches!(self, Self::Ollama | Self::DeepSeek)
    }

    pub(super) fn takes_pdf(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenRouter)
    }

    /// Returns true if messages may have keys for signatures of thoughts. OpenAI and Mistral refuse unknown keys.
    pub(super) fn takes_extensions(self, model: &str) -> bool {
        match self {
            Self::OpenAi => ModelFamily::of(model) == ModelFamily::Other,
            Self::OpenRouter | Self::Ollama | Self::Compatible => true,
            Self::Mistral | Self::DeepSeek => false,
        }
    }

    /// Returns true if the model may hear. OpenAI's models do only if their name says so.
    pub(super) fn takes_audio(self, model: &str) -> bool {
        match self {
            Self::OpenAi => ModelFamily::of(model) == ModelFamily::Other || model.contains("audio"),
            Self::OpenRouter | Self::Compatible => true,
            Self::Ollama | Self::Mistral | Self::DeepSeek => false,
        }
    }
}
