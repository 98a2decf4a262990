//! Texts and arguments with placeholders, taken apart once when the script is read and filled in per call.

use std::borrow::Cow;

use hatchery_core::JsonMap;
use serde_json::Value;

use super::tail::Fit;

/// A text with placeholders.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Place(Place),
}

#[derive(Debug, Clone)]
enum Place {
    User,
    Number,
    Rest,
    Context,
    /// A path into the answer of the tool that the turn is about.
    Tool(Vec<String>),
    /// The same, of the answer with this name or index.
    Tools(String, Vec<String>),
}

impl Template {
    pub(super) fn new(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            match after.split_once('}').and_then(|(inner, after)| Some((Place::parse(inner)?, after))) {
                Some((place, after)) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Place(place));
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
            pieces.push(Piece::Text(literal));
        }
        Self(pieces)
    }

    fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The text filled in; the error says which placeholder has no value.
    pub(super) fn text(&self, fit: &Fit<'_>) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Place(place) => match place.value(fit)?.as_ref() {
                    Value::String(value) => text.push_str(value),
                    value => text.push_str(&value.to_string()),
                },
            }
        }
        Ok(text)
    }

    /// The text filled in, or, when it is one placeholder, that value as it is.
    fn value(&self, fit: &Fit<'_>) -> Result<Value, String> {
        match self.0.as_slice() {
            [Piece::Place(place)] => Ok(place.value(fit)?.into_owned()),
            _ => self.text(fit).map(Value::String),
        }
    }
}

impl Place {
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

    fn value<'a>(&self, fit: &Fit<'a>) -> Result<Cow<'a, Value>, String> {
        let owned = |text: &str| Cow::Owned(Value::String(text.to_owned()));
        match self {
            Self::User => Ok(owned(fit.user())),
            Self::Rest => Ok(owned(fit.rest())),
            Self::Number => first_number(fit.user())
                .map(Cow::Owned)
                .ok_or_else(|| format!("the reply wants {{number}}, but the user's text {:?} has none", fit.user())),
            Self::Context => fit
                .context()
                .map(owned)
                .ok_or_else(|| "the reply wants {context}, but no other agent has spoken".to_owned()),
            Self::Tool(path) => {
                let response = fit.tool().ok_or("the reply wants {tool}, but the last message is no tool's answer")?;
                look_up(&response.response, path).ok_or_else(|| missing(&response.name, path, &response.response))
            }
            Self::Tools(which, path) => {
                let response = fit
                    .tools()
                    .enumerate()
                    .find(|(index, response)| response.name == *which || index.to_string() == *which)
                    .map(|(_, response)| response)
                    .ok_or_else(|| format!("the reply wants {{tools.{which}}}, but no such tool has just answered"))?;
                look_up(&response.response, path).ok_or_else(|| missing(&response.name, path, &response.response))
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

fn missing(tool: &str, path: &[String], answer: &JsonMap) -> String {
    let path = path.join(".");
    format!("the reply wants `{path}` of what `{tool}` answered, which is {}", short(&Value::Object(answer.clone())))
}

fn short(value: &Value) -> String {
    const MOST: usize = 200;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn first_number(text: &str) -> Option<Value> {
    let from = text.get(text.find(|char: char| char.is_ascii_digit())?..)?;
    let end_of_digits = |text: &str| text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let whole = from.get(..end_of_digits(from))?;
    let fraction = from.get(whole.len()..)?.strip_prefix('.').map_or(0, end_of_digits);
    match fraction {
        0 => whole.parse::<u64>().ok().map(Value::from),
        digits => from.get(..whole.len() + 1 + digits)?.parse::<f64>().ok().map(Value::from),
    }
}

/// A JSON value whose texts may hold placeholders.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Fixed(Value),
    Text(Template),
    List(Vec<Shape>),
    Map(Vec<(String, Shape)>),
}

impl Shape {
    pub(super) fn new(value: Value) -> Self {
        match value {
            Value::String(text) => {
                let template = Template::new(&text);
                if template.is_fixed() { Self::Fixed(Value::String(text)) } else { Self::Text(template) }
            }
            Value::Array(items) => Self::List(items.into_iter().map(Self::new).collect()),
            Value::Object(map) => Self::Map(map.into_iter().map(|(key, value)| (key, Self::new(value))).collect()),
            value => Self::Fixed(value),
        }
    }

    pub(super) fn value(&self, fit: &Fit<'_>) -> Result<Value, String> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Text(template) => template.value(fit),
            Self::List(items) => items.iter().map(|item| item.value(fit)).collect(),
            Self::Map(_) => self.map(fit).map(Value::Object),
        }
    }

    /// The value as arguments of a call: an object, or nothing.
    pub(super) fn map(&self, fit: &Fit<'_>) -> Result<JsonMap, String> {
        match self {
            Self::Map(entries) => entries.iter().map(|(key, shape)| Ok((key.clone(), shape.value(fit)?))).collect(),
            Self::Fixed(Value::Null) => Ok(JsonMap::new()),
            Self::Fixed(_) | Self::Text(_) | Self::List(_) => {
                Err("the arguments of a call are no JSON object".to_owned())
            }
        }
    }
}
