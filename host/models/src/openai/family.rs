//! Families of OpenAI's models, by their names: reasoning models refuse settings of other models, and the reverse.

use serde_json::Value;

/// The family of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelFamily {
    /// A model that does not reason, such as `gpt-4.1`.
    Plain,
    /// A reasoning model, such as `o3-mini` and `gpt-5`.
    Reasoning {
        /// The version of a `gpt` model, such as 5 and 1.
        gpt: Option<(u32, u32)>,
        /// True if it does not reason unless the request names an effort.
        on_request: bool,
        /// True for models that write code, or think for long.
        is_special: bool,
    },
    /// A model with another name, possibly of another provider behind a proxy. It is expected to accept every setting.
    Other,
}

/// The versions of `gpt` that reason on request only.
const ON_REQUEST: [(u32, u32); 3] = [(5, 1), (5, 2), (5, 4)];

/// The first version of `gpt` whose reasoning has no effort beside tools in chat completions.
const FIRST_WITHOUT_EFFORT_BESIDE_TOOLS: (u32, u32) = (5, 4);

impl ModelFamily {
    /// Returns the family of the model of this name, which may have a prefix of a proxy, or be a tuned one.
    pub(crate) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default();
        let name = name.strip_prefix("ft:").unwrap_or(name);
        let is_special = ["codex", "-pro", "deep-research"].iter().any(|word| name.contains(word));
        if let Some(version) = name.strip_prefix('o') {
            let digits = version.split('-').next().unwrap_or_default();
            return match digits.parse::<u32>() {
                Ok(_) => Self::Reasoning { gpt: None, on_request: false, is_special },
                Err(_) => Self::Other,
            };
        }
        match name.strip_prefix("gpt-").and_then(version) {
            None => Self::Other,
            Some(gpt) if gpt < (5, 0) || name.contains("-chat") => Self::Plain,
            Some(gpt) => {
                Self::Reasoning { gpt: Some(gpt), on_request: ON_REQUEST.contains(&gpt) && !is_special, is_special }
            }
        }
    }

    /// Returns true for reasoning models.
    pub(crate) fn is_reasoning(self) -> bool {
        matches!(self, Self::Reasoning { .. })
    }

    /// Returns true if temperature, `top_p` and log probabilities are accepted with this effort of reasoning.
    pub(crate) fn is_sampled(self, effort: Option<&str>) -> bool {
        match self {
            Self::Plain | Self::Other => true,
            Self::Reasoning { on_request, .. } => effort.map_or(on_request, |effort| effort == "none"),
        }
    }

    /// Returns the effort of reasoning for a `thinkingConfig`, in the words of the model. A budget has no counterpart.
    pub(crate) fn effort(self, thinking: &Value) -> Option<String> {
        let level = thinking.get("thinkingLevel")?.as_str()?.to_ascii_lowercase();
        let has_minimal = match self {
            Self::Plain => return None,
            Self::Reasoning { gpt, is_special, .. } => gpt == Some((5, 0)) && !is_special,
            Self::Other => true,
        };
        match level.as_str() {
            "thinking_level_unspecified" => None,
            "minimal" if !has_minimal => Some("low".to_owned()),
            _ => Some(level),
        }
    }

    /// Returns true if chat completions accept an effort of reasoning beside tools.
    pub(super) fn takes_effort_beside_tools(self) -> bool {
        match self {
            Self::Reasoning { gpt: Some(gpt), .. } => gpt < FIRST_WITHOUT_EFFORT_BESIDE_TOOLS,
            Self::Plain | Self::Reasoning { .. } | Self::Other => true,
        }
    }
}

/// Returns the version at the beginning of a text: 4 and 1 of `4.1-mini`, 4 and 0 of `4o`.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end)?.parse::<u32>().ok()
    };
    let major = number(text)?;
    let minor = text.split('-').next().and_then(|version| version.split_once('.')).and_then(|(_, minor)| number(minor));
    Some((major, minor.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_read_from_the_name() {
        for (name, is_reasoning, is_plain) in [
            ("gpt-4o", false, true),
            ("gpt-4.1-mini", false, true),
            ("gpt-3.5-turbo", false, true),
            ("gpt-5-chat-latest", false, true),
            ("gpt-5.1-chat-latest", false, true),
            ("gpt-5", true, false),
            ("azure/gpt-5.6-luna", true, false),
            ("gpt-10", true, false),
            ("o1", true, false),
            ("o4-mini", true, false),
            ("ft:o4-mini-2025-04-16:org::id", true, false),
            ("ft:gpt-4o-2024-08-06:org::id", false, true),
            ("olmo-2", false, false),
            ("gpt-oss-120b", false, false),
            ("mistral-large-latest", false, false),
            ("", false, false),
        ] {
            let family = ModelFamily::of(name);
            assert_eq!((family.is_reasoning(), family == ModelFamily::Plain), (is_reasoning, is_plain), "{name}");
        }
    }
}
