//! A callback. Build it with `hatchery build`; any agent can use it by its name.

use hatchery_guest::prelude::*;

/// Refuses tool calls with an empty argument. `Some` is returned instead of calling the tool, `None` calls the tool.
#[callback(before_tool)]
async fn @FUNCTION@(call: &ToolCall) -> Result<Option<Value>, Error> {
    let empty = call.args.iter().find(|(_, value)| value.as_str() == Some(""));
    Ok(empty.map(|(name, _)| json!({ "error": format!("`{name}` must not be empty") })))
}

hatchery_guest::export! { callbacks: [@FUNCTION@] }

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::{Before, Host};

    use super::*;

    #[test]
    fn empty_arguments_are_refused() {
        let with_text = |text: &str| {
            let args = [("text".into(), text.into())].into_iter().collect();
            ToolCall { tool: "count_words".into(), args }
        };
        let refused = json!({ "error": "`text` must not be empty" });
        assert_eq!(Host::new().before_tool(@FUNCTION@, with_text("")), Ok(Before::Respond(refused)));
        assert_eq!(Host::new().before_tool(@FUNCTION@, with_text("x")), Ok(Before::Proceed));
    }
}
