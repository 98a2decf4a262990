//! A tool. `hatchery build` makes a component of it, which any agent can use by the tool's name.

use hatchery_guest::prelude::*;

/// What the tool needs. These comments are what a model reads.
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
