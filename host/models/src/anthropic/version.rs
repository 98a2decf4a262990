//! Versions of Claude models, by their names: older models refuse settings that newer ones need, and the reverse.

/// The version of a model, such as 4 and 5 of `claude-sonnet-4-5`. `None` if the name has none; such a model is expected
/// to accept every setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaudeVersion(Option<(u32, u32)>);

/// The last version whose thinking has a budget, and whose answers are sampled by the request.
const LAST_WITH_BUDGET: (u32, u32) = (4, 6);

/// The first version whose thoughts are bound to their conversation, and which cannot be forced to call a tool.
const FIRST_WITH_BOUND_THOUGHTS: (u32, u32) = (5, 1);

impl ClaudeVersion {
    /// Returns the version of the model of this name, which may be a full one.
    pub(crate) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default();
        let Some(name) = name.strip_prefix("claude-") else { return Self(None) };
        // Dates have more digits.
        let number = |word: &str| word.parse::<u32>().ok().filter(|number| *number < 100);
        let mut words = name.split(['-', '.', '@']);
        let major = words.find_map(number);
        Self(major.map(|major| (major, words.next().and_then(number).unwrap_or(0))))
    }

    fn is_at_least(self, major: u32, minor: u32) -> bool {
        self.0.is_none_or(|version| version >= (major, minor))
    }

    /// Returns true if answers keep to a schema.
    pub(crate) fn has_schemas(self) -> bool {
        self.is_at_least(4, 5)
    }

    pub(super) fn can_think(self) -> bool {
        self.is_at_least(3, 7)
    }

    /// Returns true if the model can decide how much it thinks.
    pub(super) fn thinks_adaptively(self) -> bool {
        self.is_at_least(4, 6)
    }

    /// Returns true if thinking can have a budget, and be switched off.
    pub(super) fn has_thinking_budget(self) -> bool {
        self.0.is_none_or(|version| version <= LAST_WITH_BUDGET)
    }

    /// Returns true if temperature, `top_p` and `top_k` are accepted.
    pub(super) fn is_sampled(self) -> bool {
        self.has_thinking_budget()
    }

    /// Returns true if temperature and `top_p` are accepted together.
    pub(super) fn takes_temperature_with_top_p(self) -> bool {
        self.0.is_none_or(|version| version < (4, 1))
    }

    /// Returns true if the model can be forced to call a tool.
    pub(super) fn takes_forced_calls(self) -> bool {
        self.0.is_none_or(|version| version < FIRST_WITH_BOUND_THOUGHTS)
    }

    /// Returns true if thoughts are bound to the conversation before them. Then the API refuses a request with thoughts
    /// after a change of its instructions, tools or messages, unless it is told to drop them.
    pub(super) fn has_bound_thoughts(self) -> bool {
        self.0.is_some_and(|version| version >= FIRST_WITH_BOUND_THOUGHTS)
    }

    /// Returns the limit of tokens in a response, unless the agent sets one.
    pub(super) fn default_max_tokens(self) -> u64 {
        if self.is_at_least(3, 5) { 8_192 } else { 4_096 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_old_and_new_names() {
        for (name, version) in [
            ("claude-3-haiku-20240307", Some((3, 0))),
            ("claude-3-5-sonnet@20240620", Some((3, 5))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-opus-4-1@20250805", Some((4, 1))),
            ("claude-sonnet-4-5", Some((4, 5))),
            ("projects/p/locations/l/publishers/anthropic/models/claude-opus-4-7", Some((4, 7))),
            ("claude-opus-5", Some((5, 0))),
            ("claude-mythos-preview", None),
            ("kimi-k2-5", None),
        ] {
            assert_eq!(ClaudeVersion::of(name), ClaudeVersion(version), "{name}");
        }
    }
}
