//! A tool. Build it with `hatchery build`; any agent can use it by its name.

use hatchery_guest::prelude::*;

/// The arguments of the tool. The model reads these comments.
#[derive(Deserialize, JsonSchema)]
struct Args {
    /// The text whose words are counted.
    text: String,
}

/// Counts the words of a text.
#[tool]
async fn @FUNCTION@(args: Args) -> Result<usize, ToolError> {
    Ok(args.text.split_whitespace().count())
}

hatchery_guest::export! { tools: [@FUNCTION@] }

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::Host;

    use super::*;

    #[test]
    fn words_are_counted() {
        assert_eq!(Host::new().call(@FUNCTION@, json!({ "text": "one two" })), Ok(2));
    }
}
