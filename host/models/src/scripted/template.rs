//! Templates: texts and arguments with placeholders. Parsed when the script is read, rendered per call.

use std::borrow::Cow;

use hatchery_core::{JsonMap, truncate_chars};
use serde_json::Value;

use super::recent_history::TurnMatch;

/// Maximum length of a tool's result in an error message.
const MAX_RESULT_CHARS: usize = 200;

/// A text with placeholders.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Segment>);

#[derive(Debug, Clone)]
enum Segment {
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Debug, Clone)]
enum Placeholder {
    User,
    Number,
    Rest,
    Context,
    /// A path into the tool result that the turn matched.
    Tool(Vec<String>),
    /// The name of a tool or the index of a result, and a path into that result.
    Tools(String, Vec<String>),
}

impl Template {
    pub(super) fn new(text: &str) -> Self {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            match after.split_once('}').and_then(|(inner, after)| Some((Placeholder::parse(inner)?, after))) {
                Some((placeholder, after)) => {
                    if !literal.is_empty() {
                        segments.push(Segment::Text(std::mem::take(&mut literal)));
                    }
                    segments.push(Segment::Placeholder(placeholder));
                    rest = after;
                }
                None => {
                    literal.push('{');
                    rest = after;
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(Segment::Text(literal));
        }
        Self(segments)
    }

    fn is_constant(&self) -> bool {
        self.0.iter().all(|segment| matches!(segment, Segment::Text(_)))
    }

    /// Renders the text. The error names a placeholder without a value.
    pub(super) fn render(&self, turn_match: &TurnMatch<'_>) -> Result<String, String> {
        let mut text = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Text(literal) => text.push_str(literal),
                Segment::Placeholder(placeholder) => match placeholder.value(turn_match)?.as_ref() {
                    Value::String(value) => text.push_str(value),
                    value => text.push_str(&value.to_string()),
                },
            }
        }
        Ok(text)
    }

    /// Renders the text. A single placeholder keeps the type of its value.
    fn render_value(&self, turn_match: &TurnMatch<'_>) -> Result<Value, String> {
        match self.0.as_slice() {
            [Segment::Placeholder(placeholder)] => Ok(placeholder.value(turn_match)?.into_owned()),
            _ => self.render(turn_match).map(Value::String),
        }
    }
}

impl Placeholder {
    fn parse(inner: &str) -> Option<Self> {
        match inner {
            "user" => return Some(Self::User),
            "number" => return Some(Self::Number),
            "rest" => return Some(Self::Rest),
            "context" => return Some(Self::Context),
            _ => {}
        }
        let mut path = inner.split('.').map(str::to_owned);
        let head = path.next()?;
        let mut path: Vec<String> = path.collect();
        let is_name = |segment: &String| {
            !segment.is_empty() && segment.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-'))
        };
        if !path.iter().all(is_name) {
            return None;
        }
        match head.as_str() {
            "tool" => Some(Self::Tool(path)),
            "tools" if !path.is_empty() => Some(Self::Tools(path.remove(0), path)),
            _ => None,
        }
    }

    fn value<'a>(&self, turn_match: &TurnMatch<'a>) -> Result<Cow<'a, Value>, String> {
        let owned = |text: &str| Cow::Owned(Value::String(text.to_owned()));
        match self {
            Self::User => Ok(owned(turn_match.user())),
            Self::Rest => Ok(owned(turn_match.rest())),
            Self::Number => first_number(turn_match.user()).map(Cow::Owned).ok_or_else(|| {
                format!("the reply uses {{number}}, but the user's text {:?} has none", turn_match.user())
            }),
            Self::Context => turn_match
                .context()
                .map(owned)
                .ok_or_else(|| "the reply uses {context}, but no other agent has spoken".to_owned()),
            Self::Tool(path) => {
                let response =
                    turn_match.tool_result.ok_or("the reply uses {tool}, but the last message is not a tool result")?;
                look_up(&response.response, path)
                    .ok_or_else(|| missing_value_error(&response.name, path, &response.response))
            }
            Self::Tools(name_or_index, path) => {
                let response = turn_match
                    .tool_results()
                    .enumerate()
                    .find(|(index, response)| response.name == *name_or_index || index.to_string() == *name_or_index)
                    .map(|(_, response)| response)
                    .ok_or_else(|| {
                        format!(
                            "the reply uses {{tools.{name_or_index}}}, but the last message has no result of that tool"
                        )
                    })?;
                look_up(&response.response, path)
                    .ok_or_else(|| missing_value_error(&response.name, path, &response.response))
            }
        }
    }
}

fn look_up<'a>(map: &'a JsonMap, path: &[String]) -> Option<Cow<'a, Value>> {
    let Some((first, rest)) = path.split_first() else { return Some(Cow::Owned(Value::Object(map.clone()))) };
    rest.iter()
        .try_fold(map.get(first)?, |value, key| match value {
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            value => value.get(key),
        })
        .map(Cow::Borrowed)
}

fn missing_value_error(tool: &str, path: &[String], result: &JsonMap) -> String {
    let path = path.join(".");
    let result = truncate_chars(&Value::Object(result.clone()).to_string(), MAX_RESULT_CHARS);
    format!("the reply uses `{path}` of the result of `{tool}`, which is {result}")
}

fn first_number(text: &str) -> Option<Value> {
    let number = text.get(text.find(|char: char| char.is_ascii_digit())?..)?;
    let digits_in = |text: &str| text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let integer = number.get(..digits_in(number))?;
    let fraction_digits = number.get(integer.len()..)?.strip_prefix('.').map_or(0, digits_in);
    match fraction_digits {
        0 => integer.parse::<u64>().ok().map(Value::from),
        digits => number.get(..integer.len() + 1 + digits)?.parse::<f64>().ok().map(Value::from),
    }
}

/// A JSON value whose strings may contain placeholders.
#[derive(Debug, Clone)]
pub(super) enum JsonTemplate {
    Constant(Value),
    Text(Template),
    List(Vec<JsonTemplate>),
    Map(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(super) fn new(value: Value) -> Self {
        match value {
            Value::String(text) => {
                let template = Template::new(&text);
                if template.is_constant() { Self::Constant(Value::String(text)) } else { Self::Text(template) }
            }
            Value::Array(items) => Self::List(items.into_iter().map(Self::new).collect()),
            Value::Object(map) => Self::Map(map.into_iter().map(|(key, value)| (key, Self::new(value))).collect()),
            value => Self::Constant(value),
        }
    }

    pub(super) fn render(&self, turn_match: &TurnMatch<'_>) -> Result<Value, String> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Text(template) => template.render_value(turn_match),
            Self::List(items) => items.iter().map(|item| item.render(turn_match)).collect(),
            Self::Map(_) => self.render_map(turn_match).map(Value::Object),
        }
    }

    /// Renders the arguments of a call. `null` means no arguments.
    pub(super) fn render_map(&self, turn_match: &TurnMatch<'_>) -> Result<JsonMap, String> {
        match self {
            Self::Map(entries) => {
                entries.iter().map(|(key, value)| Ok((key.clone(), value.render(turn_match)?))).collect()
            }
            Self::Constant(Value::Null) => Ok(JsonMap::new()),
            Self::Constant(_) | Self::Text(_) | Self::List(_) => {
                Err("the arguments of a call are not a JSON object".to_owned())
            }
        }
    }
}
