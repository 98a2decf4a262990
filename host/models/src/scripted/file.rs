//! Scripts in YAML files: the file format, and a cache that is invalidated when the file changes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use hatchery_core::suggestion::explain_syntax_error;
use hatchery_core::{JsonMap, ModelErrorKind, Part, without_byte_order_mark};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde_json::Value;

use super::reply::Reply;
use super::script_path::ScriptPath;
use super::turn::Turn;

/// A script in a file. Each call reads the file's metadata. The file is read again only if its modification time or
/// length changed.
pub(super) struct ScriptFile {
    path: ScriptPath,
    cache: ArcSwapOption<CachedScript>,
}

struct CachedScript {
    modified: Option<SystemTime>,
    length: u64,
    turns: Arc<Vec<Turn>>,
}

impl ScriptFile {
    pub(super) fn new(path: ScriptPath) -> Self {
        Self { path, cache: ArcSwapOption::empty() }
    }

    pub(super) fn name(&self) -> &str {
        self.path.name()
    }

    /// Returns the current turns of the file. The error contains the script's name, and the line and column of a syntax
    /// error.
    pub(super) fn turns(&self) -> Result<Arc<Vec<Turn>>, String> {
        let turns = self.read_if_changed();
        turns.inspect_err(|error| tracing::warn!(path = %self.path.path().display(), "{error}"))
    }

    fn read_if_changed(&self) -> Result<Arc<Vec<Turn>>, String> {
        let metadata = self.path.metadata()?;
        let (modified, length) = (metadata.modified().ok(), metadata.len());
        if let Some(cached) = self.cache.load().as_deref()
            && cached.modified == modified
            && cached.length == length
        {
            return Ok(cached.turns.clone());
        }
        let text = self.path.read()?;
        let turns = parse(&text).map_err(|error| {
            format!("the script {} is wrong: {}", self.name(), explain(&redact_values(&error.to_string())))
        })?;
        let turns = Arc::new(turns);
        self.cache.store(Some(Arc::new(CachedScript { modified, length, turns: turns.clone() })));
        Ok(turns)
    }
}

impl fmt::Debug for ScriptFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScriptFile").field(&self.path.path()).finish()
    }
}

/// Checks that a file is a valid script. The error is not redacted.
pub(super) fn check(path: ScriptPath) -> Result<(), String> {
    parse(&path.read()?).map(drop).map_err(|error| explain(&error.to_string()))
}

fn parse(text: &str) -> Result<Vec<Turn>, serde_yaml::Error> {
    let script: ScriptYaml = serde_yaml::from_str(without_byte_order_mark(text))?;
    Ok(script.turns.into_iter().map(|turn| turn.0).collect())
}

/// Improves a message of the parser. The location stays at its end.
fn explain(message: &str) -> String {
    match message.rfind(" at line ").and_then(|place| message.split_at_checked(place)) {
        Some((problem, place)) => format!("{}{place}", explain_syntax_error(problem)),
        None => explain_syntax_error(message),
    }
}

/// Removes values and keys from a message of the parser, whose reader may not be allowed to read the file:
/// `invalid type: string "secret", expected a list` becomes `invalid type: string, expected a list`.
fn redact_values(message: &str) -> String {
    let prefixes = ["invalid type: ", "invalid value: ", "unknown variant ", "unknown field ", "duplicate entry "];
    let value_start = prefixes.iter().filter_map(|prefix| Some(message.find(prefix)? + prefix.len())).min();
    let Some((head, value)) = value_start.and_then(|start| message.split_at_checked(start)) else {
        return message.to_owned();
    };
    let kind = value.split(['"', '`', ',']).next().unwrap_or_default();
    // The last occurrence, because the value may contain this text too.
    let expected = value.rfind(", expected ").and_then(|start| value.get(start..)).unwrap_or_default();
    let problem = format!("{head}{kind}");
    format!("{}{expected}", problem.trim_end())
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptYaml {
    turns: Vec<ValidatedYaml<Turn>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnYaml {
    #[serde(default)]
    when: WhenYaml,
    reply: Option<ReplyYaml>,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    chunk_delay_ms: u64,
    finish_reason: Option<String>,
    error: Option<ErrorYaml>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WhenYaml {
    user: StringList,
    tool: StringList,
    result: StringList,
    system: StringList,
    context: StringList,
    step: Option<usize>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemYaml {
    text: Option<StringList>,
    thought: Option<StringList>,
    chunks: Option<usize>,
    call: Option<CallYaml>,
    part: Option<Part>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CallYaml {
    name: String,
    #[serde(default)]
    args: JsonMap,
    id: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorYaml {
    code: CodeYaml,
    message: String,
    after: Option<usize>,
}

enum CodeYaml {
    Status(u16),
    Kind(ModelErrorKind),
}

/// Deserialized as `Self::Yaml`, then validated while the position in the file is still known.
trait FromYaml: Sized {
    type Yaml: for<'de> Deserialize<'de>;
    fn from_yaml(yaml: Self::Yaml) -> Result<Self, &'static str>;
}

struct ValidatedYaml<T>(T);

impl<'de, T: FromYaml> Deserialize<'de> for ValidatedYaml<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::from_yaml(T::Yaml::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

impl FromYaml for Turn {
    type Yaml = TurnYaml;

    fn from_yaml(yaml: TurnYaml) -> Result<Self, &'static str> {
        let mut reply = match (yaml.reply, &yaml.error) {
            (Some(ReplyYaml(items)), _) => items.into_iter().fold(Reply::new(), |reply, item| item.add_to(reply)),
            (None, Some(_)) => Reply::new(),
            (None, None) => return Err("a turn needs a `reply` or an `error`"),
        };
        reply =
            reply.delay(Duration::from_millis(yaml.delay_ms)).chunk_delay(Duration::from_millis(yaml.chunk_delay_ms));
        if let Some(reason) = yaml.finish_reason {
            reply = reply.finish(reason);
        }
        if let Some(error) = yaml.error {
            reply = match error.code {
                CodeYaml::Status(status) => reply.with_error_status(status, error.message),
                CodeYaml::Kind(kind) => reply.with_error(kind, error.message),
            };
            if let Some(after) = error.after {
                reply = reply.after(after);
            }
        }
        let when = yaml.when;
        if when.step == Some(0) {
            return Err("`step` counts from 1");
        }
        let mut turn = Self::new(reply);
        turn = when.user.0.into_iter().fold(turn, Self::user);
        turn = when.tool.0.into_iter().fold(turn, Self::tool);
        turn = when.result.0.into_iter().fold(turn, Self::result);
        turn = when.system.0.into_iter().fold(turn, Self::system);
        turn = when.context.0.into_iter().fold(turn, Self::context);
        Ok(match when.step {
            Some(step) => turn.step(step),
            None => turn,
        })
    }
}

enum ReplyItem {
    Text { pieces: Vec<String>, chunks: usize, thought: bool },
    Call(CallYaml),
    Part(Box<Part>),
}

impl FromYaml for ReplyItem {
    type Yaml = ItemYaml;

    fn from_yaml(yaml: ItemYaml) -> Result<Self, &'static str> {
        let chunks = yaml.chunks;
        let text = |StringList(pieces): StringList, thought| match (chunks, pieces.len()) {
            (Some(0), _) => Err("`chunks` is at least 1"),
            (Some(_), 2..) => Err("`chunks` goes with one text; a list of texts is streamed unchanged"),
            (chunks, _) => Ok(Self::Text { pieces, chunks: chunks.unwrap_or(1), thought }),
        };
        match (yaml.text, yaml.thought, yaml.call, yaml.part) {
            (Some(pieces), None, None, None) => text(pieces, false),
            (None, Some(pieces), None, None) => text(pieces, true),
            (None, None, Some(_), None) | (None, None, None, Some(_)) if chunks.is_some() => {
                Err("`chunks` goes with `text` or `thought`; calls and parts are streamed whole")
            }
            (None, None, Some(call), None) => Ok(Self::Call(call)),
            (None, None, None, Some(part)) => Ok(Self::Part(Box::new(part))),
            _ => Err("an item of `reply` is one of `text`, `thought`, `call` and `part`"),
        }
    }
}

impl ReplyItem {
    fn add_to(self, reply: Reply) -> Reply {
        match self {
            Self::Text { pieces, chunks, thought } => reply.and_pieces(&pieces, chunks, thought),
            Self::Call(CallYaml { name, args, id }) => {
                let reply = reply.and_call(name, Value::Object(args));
                match id {
                    Some(id) => reply.with_id(id),
                    None => reply,
                }
            }
            Self::Part(part) => reply.and_part(*part),
        }
    }
}

/// A string, or a list of items.
struct ReplyYaml(Vec<ReplyItem>);

impl<'de> Deserialize<'de> for ReplyYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = ReplyYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of `text`, `thought`, `call` and `part`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ReplyYaml, E> {
                Ok(ReplyYaml(vec![ReplyItem::Text { pieces: vec![text.to_owned()], chunks: 1, thought: false }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ReplyYaml, A::Error> {
                let items = Vec::<ValidatedYaml<ReplyItem>>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(ReplyYaml(items.into_iter().map(|item| item.0).collect()))
            }
        }
        deserializer.deserialize_any(Items)
    }
}

/// A string, or a list of strings.
#[derive(Default)]
struct StringList(Vec<String>);

impl<'de> Deserialize<'de> for StringList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = StringList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StringList, E> {
                Ok(StringList(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<StringList, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(StringList)
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl<'de> Deserialize<'de> for CodeYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Code;
        impl Visitor<'_> for Code {
            type Value = CodeYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an HTTP status from 400 to 599, or one of auth, rate_limited, bad_request, server, network, timeout, bad_response",
                )
            }

            fn visit_u64<E: de::Error>(self, status: u64) -> Result<CodeYaml, E> {
                match u16::try_from(status) {
                    Ok(status @ 400..=599) => Ok(CodeYaml::Status(status)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(status), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<CodeYaml, E> {
                Ok(CodeYaml::Kind(match name {
                    "auth" => ModelErrorKind::Auth,
                    "rate_limited" => ModelErrorKind::RateLimited,
                    "bad_request" => ModelErrorKind::BadRequest,
                    "server" => ModelErrorKind::Server,
                    "network" => ModelErrorKind::Network,
                    "timeout" => ModelErrorKind::Timeout,
                    "bad_response" => ModelErrorKind::BadResponse,
                    _ => return Err(E::invalid_value(de::Unexpected::Str(name), &self)),
                }))
            }
        }
        deserializer.deserialize_any(Code)
    }
}
