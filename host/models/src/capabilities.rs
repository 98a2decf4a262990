//! Capabilities of models, known by their names: the protocols do not report them.

use hatchery_core::{ModelCapabilities, ResponseGrouping};

use crate::anthropic::ClaudeVersion;

/// Returns the capabilities of the Gemini model of this name, which may be a full one
/// (`projects/…/models/gemini-3-pro`). `None` if the name is not one of a Gemini model.
pub(crate) fn gemini_capabilities(name: &str) -> Option<ModelCapabilities> {
    let version = name.rsplit('/').next()?.strip_prefix("gemini-")?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    let major = digits.parse::<u32>().ok();
    Some(ModelCapabilities {
        schema_with_tools: major.is_some_and(|major| major >= 3),
        built_in_tools: major.is_some_and(|major| major >= 2) || version.ends_with("-latest"),
        response_grouping: response_grouping(name),
        lacks_response_schema: false,
        live: version.contains("live") || version.contains("native-audio"),
    })
}

/// Returns the capabilities of a model that is served by the protocol of OpenAI, possibly a Gemini model behind a
/// proxy.
pub(crate) fn openai_capabilities(name: &str) -> ModelCapabilities {
    let capabilities = gemini_capabilities(name).unwrap_or(ModelCapabilities {
        schema_with_tools: true,
        response_grouping: response_grouping(name),
        ..ModelCapabilities::default()
    });
    ModelCapabilities { live: false, ..capabilities }
}

/// Returns the capabilities of the model of Anthropic of this name.
pub(crate) fn anthropic_capabilities(name: &str) -> ModelCapabilities {
    let lacks_response_schema = !ClaudeVersion::of(name).has_schemas();
    ModelCapabilities { lacks_response_schema, ..ModelCapabilities::default() }
}

/// Returns the capabilities of the models of Anthropic in Vertex AI, where schemas are off unless a policy of the
/// organization allows them.
pub(crate) fn vertex_claude_capabilities() -> ModelCapabilities {
    ModelCapabilities { lacks_response_schema: true, ..ModelCapabilities::default() }
}

/// Returns the capabilities of a model of a compatible server or a library, where only the family of the model is
/// known.
pub(crate) fn compatible_capabilities(name: &str) -> ModelCapabilities {
    ModelCapabilities {
        response_grouping: response_grouping(name),
        lacks_response_schema: lacks_response_schema(name),
        ..ModelCapabilities::default()
    }
}

/// Returns true for older models of Anthropic, and for the names that DeepSeek itself gives to its models.
fn lacks_response_schema(name: &str) -> bool {
    let claude = name.find("claude-").and_then(|start| name.get(start..));
    let model = name.rsplit(':').next().unwrap_or_default();
    claude.is_some_and(|claude| !ClaudeVersion::of(claude).has_schemas())
        || (model.starts_with("deepseek-") && !name.contains('/'))
}

/// Models of the Gemini 3 family refuse a response that follows another call than its own batch.
fn response_grouping(name: &str) -> ResponseGrouping {
    if name.contains("gemini-3") { ResponseGrouping::Batched } else { ResponseGrouping::PerCall }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_without_schemas_are_known_by_their_names() {
        for (name, lacks_schemas) in [
            ("rig:anthropic:claude-3-5-haiku-latest", true),
            ("genai:anthropic::claude-sonnet-4-5", false),
            ("openrouter/anthropic/claude-3.7-sonnet:thinking", true),
            ("openrouter/anthropic/claude-opus-4.5", false),
            ("anthropic.claude-sonnet-4-20250514-v1:0", true),
            ("rig:deepseek:deepseek-chat", true),
            ("openrouter/deepseek/deepseek-chat", false),
            ("ollama/deepseek-r1:8b", false),
            ("llama3.2", false),
            ("", false),
        ] {
            assert_eq!(compatible_capabilities(name).lacks_response_schema, lacks_schemas, "{name}");
        }
    }
}
