//! Conversation files of `hatchery test`: messages of the user, and the expected calls, responses, texts and state.

use std::path::Path;

use anyhow::anyhow;
use hatchery_core::suggestion::explain_syntax_error;
use hatchery_core::{Event, JsonMap, PartData, State, without_byte_order_mark};
use hatchery_wasm::RecordedResponse;
use serde::Deserialize;
use serde_json::Value;

use crate::terminal::truncate;

pub const FILE_NAME: &str = "conversation.yaml";

/// Maximum number of characters of a value in a message.
const MAX_CHARS: usize = 200;

/// A conversation with an app.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    pub app: String,
    /// Responses to the HTTP requests of components. The network is not used.
    #[serde(default)]
    pub http: Vec<RecordedResponse>,
    /// The turns of one session.
    pub turns: Vec<Turn>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The message of the user.
    pub user: String,
    /// The message as it must be stored, for plugins that change it. `None` skips the check.
    #[serde(default)]
    pub stored: Option<String>,
    /// The expected items, in this order. Other items may be in between.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// The expected values of keys in the session's state. `null` means that the key must not exist; other keys may
    /// have any value.
    #[serde(default)]
    pub state: JsonMap,
}

/// An expected item of a turn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "ExpectationYaml")]
pub enum Expectation {
    /// A call of the tool with this name.
    Call(String),
    /// A response of the tool with this name.
    Response(String),
    /// A text that contains this text.
    Text(String),
}

/// An expectation in YAML: a mapping with exactly one key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectationYaml {
    call: Option<String>,
    response: Option<String>,
    text: Option<String>,
}

impl TryFrom<ExpectationYaml> for Expectation {
    type Error = &'static str;

    fn try_from(yaml: ExpectationYaml) -> Result<Self, Self::Error> {
        match yaml {
            ExpectationYaml { call: Some(name), response: None, text: None } => Ok(Self::Call(name)),
            ExpectationYaml { call: None, response: Some(name), text: None } => Ok(Self::Response(name)),
            ExpectationYaml { call: None, response: None, text: Some(text) } => Ok(Self::Text(text)),
            _ => Err("an expectation has exactly one of the keys `call: TOOL`, `response: TOOL` and `text: SUBSTRING`"),
        }
    }
}

impl std::fmt::Display for Expectation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(name) => write!(f, "call: {name}"),
            Self::Response(name) => write!(f, "response: {name}"),
            Self::Text(text) => write!(f, "text: {text:?}"),
        }
    }
}

impl Conversation {
    /// Parses a conversation. Errors name `file`.
    pub fn parse(text: &str, file: &Path) -> anyhow::Result<Self> {
        serde_yaml::from_str(without_byte_order_mark(text)).map_err(|error| {
            let mut message = error.to_string();
            let mut position = String::new();
            if let Some((line, column)) = error.location().map(|location| (location.line(), location.column())) {
                message = message.replace(&format!(" at line {line} column {column}"), "");
                position = format!(":{line}:{column}");
            }
            anyhow!("{}{position}: {}", file.display(), explain_syntax_error(&message))
        })
    }
}

/// An item of a turn: a tool call, a tool response, or a text.
#[derive(Debug, Clone, PartialEq)]
pub enum ObservedItem {
    Call {
        tool: String,
        /// As JSON.
        args: String,
    },
    Response {
        tool: String,
        /// As JSON.
        response: String,
    },
    Text(String),
}

impl std::fmt::Display for ObservedItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call { tool, args } => write!(f, "call: {tool} {}", truncate(args, MAX_CHARS)),
            Self::Response { tool, response } => write!(f, "response: {tool} {}", truncate(response, MAX_CHARS)),
            Self::Text(text) => write!(f, "text: \"{}\"", truncate(text, MAX_CHARS)),
        }
    }
}

/// Returns the items of an event. Its text parts are one item, at the position of the first of them. Partial events and
/// thoughts are ignored.
pub fn observe(event: &Event) -> Vec<ObservedItem> {
    let Some(content) = event.content.as_ref().filter(|_| !event.partial) else { return Vec::new() };
    let mut text = Some(content.text()).filter(|text| !text.is_empty());
    let mut items = Vec::new();
    for part in &content.parts {
        match &part.data {
            PartData::FunctionCall(call) => {
                let args = Value::from(call.args.clone()).to_string();
                items.push(ObservedItem::Call { tool: call.name.clone(), args });
            }
            PartData::FunctionResponse(response) => {
                let (tool, response) = (response.name.clone(), Value::from(response.response.clone()).to_string());
                items.push(ObservedItem::Response { tool, response });
            }
            PartData::Text(_) if !part.thought => items.extend(text.take().map(ObservedItem::Text)),
            _ => {}
        }
    }
    items
}

/// Returns for each expectation whether it is met after the previous one that is met. One that is not met is skipped.
pub fn match_in_order(expectations: &[Expectation], items: &[ObservedItem]) -> Vec<bool> {
    let mut position = Position::default();
    expectations
        .iter()
        .map(|expectation| match find(expectation, items, position) {
            Some(end) => {
                position = end;
                true
            }
            None => false,
        })
        .collect()
}

/// The end of the last match: the index of an item, and an offset in its text.
#[derive(Clone, Copy, Default)]
struct Position {
    item: usize,
    offset: usize,
}

/// Returns the end of the first match at or after `start`. `None` if there is no match.
fn find(expectation: &Expectation, items: &[ObservedItem], start: Position) -> Option<Position> {
    items.iter().enumerate().skip(start.item).find_map(|(index, item)| {
        let next = Position { item: index + 1, offset: 0 };
        match (expectation, item) {
            (Expectation::Call(name), ObservedItem::Call { tool, .. })
            | (Expectation::Response(name), ObservedItem::Response { tool, .. }) => (name == tool).then_some(next),
            (Expectation::Text(part), ObservedItem::Text(text)) => {
                let offset = if index == start.item { start.offset } else { 0 };
                let found = text.get(offset..)?.find(part.as_str())?;
                Some(Position { item: index, offset: offset + found + part.len() })
            }
            _ => None,
        }
    })
}

/// Returns the differences between the expected and the actual state, one message per key.
pub fn compare_state(expected: &JsonMap, state: &State) -> Vec<String> {
    let differences = expected.iter().filter_map(|(key, expected)| {
        let actual = state.get(key).unwrap_or(&Value::Null);
        (actual != expected)
            .then(|| format!("state `{key}`: expected {}, found {}", format_value(expected), format_value(actual)))
    });
    differences.collect()
}

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "no value".to_owned(),
        value => truncate(&value.to_string(), MAX_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventData, FunctionCall, Part};
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Conversation, String> {
        Conversation::parse(text, Path::new("dice/conversation.yaml")).map_err(|error| error.to_string())
    }

    fn call(name: &str) -> ObservedItem {
        ObservedItem::Call { tool: name.into(), args: "{}".into() }
    }

    fn text(text: &str) -> ObservedItem {
        ObservedItem::Text(text.into())
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(parse("\u{feff}app: dice\nturns:\n  - user: Bye\n").unwrap().app, "dice");
    }

    #[test]
    fn a_conversation_is_parsed() {
        let conversation = parse(
            "app: dice\nturns:\n  - user: Roll a d20\n    expect:\n      - call: roll_die\n      - response: roll_die\n      \
             - text: You rolled\n    state: {rolls_count: 1}\n  - user: Bye\n",
        )
        .unwrap();
        assert_eq!(conversation.app, "dice");
        assert_eq!(
            conversation.turns[0].expect,
            [
                Expectation::Call("roll_die".into()),
                Expectation::Response("roll_die".into()),
                Expectation::Text("You rolled".into())
            ]
        );
        assert_eq!(conversation.turns[0].state["rolls_count"], 1);
        assert_eq!(
            conversation.turns[1],
            Turn { user: "Bye".into(), stored: None, expect: vec![], state: JsonMap::new() }
        );
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let error = parse("app: dice\nturns:\n  - user: hi\n    expects: []\n").unwrap_err();
        assert!(error.starts_with("dice/conversation.yaml:4:5: "), "{error}");
        assert!(error.contains("unknown field `expects`"), "{error}");
        for wrong in ["{}", "{call: a, text: b}"] {
            let error = parse(&format!("app: dice\nturns:\n  - user: hi\n    expect: [{wrong}]\n")).unwrap_err();
            assert!(error.contains("an expectation has exactly one of the keys `call: TOOL`"), "{error}");
        }
        assert!(parse("turns: []").unwrap_err().contains("missing field `app`"));
    }

    #[test]
    fn expectations_are_met_in_order_with_anything_in_between() {
        let items = [text("I will roll."), call("roll"), call("other"), text("You rolled 7.")];
        let expected = [Expectation::Call("roll".into()), Expectation::Text("rolled 7".into())];
        assert_eq!(match_in_order(&expected, &items), [true, true]);
        let reversed = [Expectation::Text("rolled 7".into()), Expectation::Call("roll".into())];
        assert_eq!(match_in_order(&reversed, &items), [true, false]);
    }

    #[test]
    fn a_call_meets_one_expectation_and_a_text_can_meet_several() {
        let roll = Expectation::Call("roll".into());
        assert_eq!(match_in_order(&[roll.clone(), roll], &[call("roll")]), [true, false]);
        let parts = ["rolled", "7"].map(|part| Expectation::Text(part.into()));
        assert_eq!(match_in_order(&parts, &[text("You rolled 7.")]), [true, true]);
        let twice = ["7", "7"].map(|part| Expectation::Text(part.into()));
        assert_eq!(match_in_order(&twice, &[text("You rolled 7.")]), [true, false]);
    }

    #[test]
    fn an_unmet_expectation_does_not_hide_the_next() {
        let expected = [Expectation::Call("missing".into()), Expectation::Text("7".into())];
        assert_eq!(match_in_order(&expected, &[text("7")]), [false, true]);
    }

    #[test]
    fn text_parts_of_an_event_are_one_text_without_thoughts_and_partial_events() {
        let parts = vec![
            Part { thought: true, ..Part::text("hm") },
            Part::text("You "),
            PartData::FunctionCall(FunctionCall { name: "roll".into(), ..Default::default() }).into(),
            Part::text("rolled"),
        ];
        let content = Some(std::sync::Arc::new(Content::new("model", parts)));
        let event = Event::new(EventData { content: content.clone(), ..EventData::default() });
        assert_eq!(observe(&event), [text("You rolled"), call("roll")]);
        assert_eq!(observe(&Event::new(EventData { content, partial: true, ..EventData::default() })), []);
    }

    #[test]
    fn only_expected_keys_of_the_state_are_compared() {
        let map = |json: Value| json.as_object().unwrap().clone();
        let state = State::from(&map(json!({"a": 1, "b": "x"})));
        assert_eq!(compare_state(&map(json!({"a": 1, "c": null})), &state), Vec::<String>::new());
        assert_eq!(
            compare_state(&map(json!({"a": 2, "b": null, "c": true})), &state),
            [
                "state `a`: expected 2, found 1",
                "state `b`: expected no value, found \"x\"",
                "state `c`: expected true, found no value"
            ]
        );
    }
}
