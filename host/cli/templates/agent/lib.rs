//! An agent with a tool. Build it with `hatchery build`.

use hatchery_guest::prelude::*;

/// The arguments of `count_words`. The model reads these comments.
#[derive(Deserialize, JsonSchema)]
struct CountWords {
    /// The text whose words are counted.
    text: String,
}

/// Counts the words of a text.
#[tool]
async fn count_words(args: CountWords, cx: ToolContext) -> Result<usize, ToolError> {
    let words = args.text.split_whitespace().count();
    cx.set_state("last_count", words)?;
    Ok(words)
}

/// Counts words.
#[agent]
fn @FUNCTION@() -> LlmAgent {
    // The scripted model needs no network and no API key. To use a real model, set its name, such as
    // "gemini-2.5-flash", build, allow it with `hatchery grant @NAME@`, and put its key into a file `.env` beside
    // Cargo.toml: GOOGLE_API_KEY=… `hatchery models` lists the models and their variables.
    LlmAgent::new("@NAME@")
        .model("scripted:@NAME@/answers.yaml")
        .instruction("Count words when asked to.")
        .tool(count_words)
}

hatchery_guest::export! { agents: [@FUNCTION@], tools: [count_words] }

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::Host;

    use super::*;

    #[test]
    fn words_are_counted_and_stored() {
        let host = Host::new();
        let words: usize = host.call(count_words, json!({ "text": "one two" })).unwrap();
        assert_eq!((words, host.state_value("last_count")), (2, Some(2)));
    }
}
