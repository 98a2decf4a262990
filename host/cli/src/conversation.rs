//! Scripted conversations: what is said, and what must come back.

use std::path::Path;

use anyhow::anyhow;
use hatchery_core::{Event, JsonMap, PartData, State};
use hatchery_wasm::RecordedResponse;
use serde::Deserialize;
use serde_json::Value;

use crate::terminal::shortened;

/// The file's name.
pub const FILE_NAME: &str = "conversation.yaml";

/// Most characters of a value in a message.
const MOST_SHOWN: usize = 200;

/// A conversation with an app.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// The app.
    pub app: String,
    /// What answers HTTP requests of components; the network is not used.
    #[serde(default)]
    pub http: Vec<RecordedResponse>,
    /// What is said, one turn after the other in one session.
    pub turns: Vec<Turn>,
}

/// One turn.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// What the user says.
    pub user: String,
    /// What the session has of it, where a plugin changes it; otherwise that is not looked at.
    #[serde(default)]
    pub stored: Option<String>,
    /// What must come back, in this order; anything else may lie between.
    #[serde(default)]
    pub expect: Vec<Expected>,
    /// Values that the session's state must have afterwards; keys that are not named may have any, `null` means that there is none.
    #[serde(default)]
    pub state: JsonMap,
}

/// Something that must come back.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "ExpectedYaml")]
pub enum Expected {
    /// A call of the tool of this name.
    Call(String),
    /// An answer of the tool of this name.
    Response(String),
    /// An event whose text holds this.
    Text(String),
}

/// A mapping with one key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedYaml {
    call: Option<String>,
    response: Option<String>,
    text: Option<String>,
}

impl TryFrom<ExpectedYaml> for Expected {
    type Error = &'static str;

    fn try_from(yaml: ExpectedYaml) -> Result<Self, Self::Error> {
        match yaml {
            ExpectedYaml { call: Some(name), response: None, text: None } => Ok(Self::Call(name)),
            ExpectedYaml { call: None, response: Some(name), text: None } => Ok(Self::Response(name)),
            ExpectedYaml { call: None, response: None, text: Some(text) } => Ok(Self::Text(text)),
            _ => Err("an expectation is one of `call: TOOL`, `response: TOOL` and `text: PART OF IT`"),
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(name) => write!(f, "call: {name}"),
            Self::Response(name) => write!(f, "response: {name}"),
            Self::Text(text) => write!(f, "text: {text:?}"),
        }
    }
}

impl Conversation {
    /// Reads a conversation; `file` is named in errors.
    pub fn parse(text: &str, file: &Path) -> anyhow::Result<Self> {
        serde_yaml::from_str(text).map_err(|error| {
            let place = error.location().map(|place| (place.line(), place.column()));
            let mut message = error.to_string();
            let mut position = String::new();
            if let Some((line, column)) = place {
                message = message.replace(&format!(" at line {line} column {column}"), "");
                position = format!(":{line}:{column}");
            }
            anyhow!("{}{position}: {message}", file.display())
        })
    }
}

/// Something that came back, with what a person would want to see of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A call and its arguments.
    Call(String, String),
    /// An answer.
    Response(String, String),
    /// The text of an event.
    Text(String),
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(name, args) => write!(f, "call: {name} {}", shortened(args, MOST_SHOWN)),
            Self::Response(name, response) => write!(f, "response: {name} {}", shortened(response, MOST_SHOWN)),
            Self::Text(text) => write!(f, "text: \"{}\"", shortened(text, MOST_SHOWN)),
        }
    }
}

/// What an event holds, in order; its text parts count as one text, where the first of them is.
pub fn seen(event: &Event) -> Vec<Seen> {
    let mut seen = Vec::new();
    if event.partial {
        return seen;
    }
    let Some(content) = &event.content else { return seen };
    let text = content.text();
    let mut text = Some(text).filter(|text| !text.is_empty());
    for part in &content.parts {
        match &part.data {
            PartData::FunctionCall(call) => {
                seen.push(Seen::Call(call.name.clone(), Value::from(call.args.clone()).to_string()));
            }
            PartData::FunctionResponse(response) => {
                seen.push(Seen::Response(response.name.clone(), Value::from(response.response.clone()).to_string()));
            }
            PartData::Text(_) if !part.thought => seen.extend(text.take().map(Seen::Text)),
            _ => {}
        }
    }
    seen
}

/// For each expectation, whether it is met behind those before it. One that is not met does not hide those after it.
pub fn compare(expected: &[Expected], seen: &[Seen]) -> Vec<bool> {
    let mut position = Position::default();
    expected
        .iter()
        .map(|expected| match find(expected, seen, position) {
            Some(found) => {
                position = found;
                true
            }
            None => false,
        })
        .collect()
}

/// Behind what has been found: the item, and where in its text.
#[derive(Clone, Copy, Default)]
struct Position {
    item: usize,
    offset: usize,
}

fn find(expected: &Expected, seen: &[Seen], from: Position) -> Option<Position> {
    seen.iter().enumerate().skip(from.item).find_map(|(item, seen)| {
        let offset = if item == from.item { from.offset } else { 0 };
        let behind = Position { item: item + 1, offset: 0 };
        match (expected, seen) {
            (Expected::Call(name), Seen::Call(seen, _)) | (Expected::Response(name), Seen::Response(seen, _)) => {
                (name == seen).then_some(behind)
            }
            (Expected::Text(part), Seen::Text(text)) => {
                let start = text.get(offset..)?.find(part.as_str())?;
                Some(Position { item, offset: offset + start + part.len() })
            }
            _ => None,
        }
    })
}

/// What is wrong with the state, a line for each key.
pub fn compare_state(expected: &JsonMap, state: &State) -> Vec<String> {
    let wrong = expected.iter().filter_map(|(key, expected)| {
        let actual = state.get(key).unwrap_or(&Value::Null);
        let shown = match actual {
            Value::Null => "there is none".to_owned(),
            value => format!("it is {}", shortened(&value.to_string(), MOST_SHOWN)),
        };
        (actual != expected).then(|| format!("state `{key}` should be {expected}, {shown}"))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventData, FunctionCall, Part};
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Conversation, String> {
        Conversation::parse(text, Path::new("dice/conversation.yaml")).map_err(|error| error.to_string())
    }

    fn call(name: &str) -> Seen {
        Seen::Call(name.into(), "{}".into())
    }

    fn text(text: &str) -> Seen {
        Seen::Text(text.into())
    }

    #[test]
    fn a_conversation_is_read() {
        let conversation = parse(
            "app: dice\nturns:\n  - user: Roll a d20\n    expect:\n      - call: roll_die\n      - response: roll_die\n      \
             - text: You rolled\n    state: {rolls_count: 1}\n  - user: Bye\n",
        )
        .unwrap();
        assert_eq!(conversation.app, "dice");
        assert_eq!(
            conversation.turns[0].expect,
            [
                Expected::Call("roll_die".into()),
                Expected::Response("roll_die".into()),
                Expected::Text("You rolled".into())
            ]
        );
        assert_eq!(conversation.turns[0].state["rolls_count"], 1);
        assert_eq!(
            conversation.turns[1],
            Turn { user: "Bye".into(), stored: None, expect: vec![], state: JsonMap::new() }
        );
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let error = parse("app: dice\nturns:\n  - user: hi\n    expects: []\n").unwrap_err();
        assert!(error.starts_with("dice/conversation.yaml:4:5: "), "{error}");
        assert!(error.contains("unknown field `expects`"), "{error}");
        for wrong in ["{}", "{call: a, text: b}"] {
            let error = parse(&format!("app: dice\nturns:\n  - user: hi\n    expect: [{wrong}]\n")).unwrap_err();
            assert!(error.contains("an expectation is one of `call: TOOL`, `response: TOOL`"), "{error}");
        }
        assert!(parse("turns: []").unwrap_err().contains("missing field `app`"));
    }

    #[test]
    fn expectations_are_met_in_order_with_anything_between() {
        let seen = [text("I will roll."), call("roll"), call("other"), text("You rolled 7.")];
        let expected = [Expected::Call("roll".into()), Expected::Text("rolled 7".into())];
        assert_eq!(compare(&expected, &seen), [true, true]);
        let reversed = [Expected::Text("rolled 7".into()), Expected::Call("roll".into())];
        assert_eq!(compare(&reversed, &seen), [true, false]);
    }

    #[test]
    fn one_call_meets_one_expectation_and_a_text_may_meet_several() {
        let roll = Expected::Call("roll".into());
        assert_eq!(compare(&[roll.clone(), roll], &[call("roll")]), [true, false]);
        let parts = ["rolled", "7"].map(|part| Expected::Text(part.into()));
        assert_eq!(compare(&parts, &[text("You rolled 7.")]), [true, true]);
        let twice = ["7", "7"].map(|part| Expected::Text(part.into()));
        assert_eq!(compare(&twice, &[text("You rolled 7.")]), [true, false]);
    }

    #[test]
    fn an_unmet_expectation_does_not_hide_the_next() {
        let expected = [Expected::Call("missing".into()), Expected::Text("7".into())];
        assert_eq!(compare(&expected, &[text("7")]), [false, true]);
    }

    #[test]
    fn an_event_s_text_parts_are_one_text_and_thoughts_and_pieces_do_not_count() {
        let parts = vec![
            Part { thought: true, ..Part::text("hm") },
            Part::text("You "),
            PartData::FunctionCall(FunctionCall { name: "roll".into(), ..Default::default() }).into(),
            Part::text("rolled"),
        ];
        let content = Some(std::sync::Arc::new(Content::new("model", parts)));
        let event = Event::new(EventData { content: content.clone(), ..EventData::default() });
        assert_eq!(seen(&event), [text("You rolled"), call("roll")]);
        assert_eq!(seen(&Event::new(EventData { content, partial: true, ..EventData::default() })), []);
    }

    #[test]
    fn only_named_keys_of_the_state_are_compared() {
        let map = |json: Value| json.as_object().unwrap().clone();
        let state = State::from(&map(json!({"a": 1, "b": "x"})));
        assert_eq!(compare_state(&map(json!({"a": 1, "c": null})), &state), Vec::<String>::new());
        assert_eq!(
            compare_state(&map(json!({"a": 2, "b": null, "c": true})), &state),
            [
                "state `a` should be 2, it is 1",
                "state `b` should be null, it is \"x\"",
                "state `c` should be true, there is none"
            ]
        );
    }
}
