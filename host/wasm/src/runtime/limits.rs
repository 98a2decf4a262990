//! What one call of a component may use. Each limit has a default, a key in `hatchery.yaml` that changes it, and an error that names
//! both; none of them looks like a trap in the guest's own code.
//!
//! | key                 | default  | what it limits                                                       |
//! |---------------------|----------|----------------------------------------------------------------------|
//! | `limits.memory`     | 64 MiB   | sum of all linear memories, and of what the host holds for the call  |
//! | `limits.tables`     | 100 000  | sum of all table elements                                            |
//! | `limits.instances`  | 30       | core instances                                                       |
//! | `limits.handles`    | 1000     | streams, files, requests and so on that are open at one time         |
//! | `limits.cpu`        | 5 s      | time in which its code really runs; waiting does not count           |
//! | `limits.wall`       | 30 s     | time from start to end of a call: of a tool, a callback and so on    |
//! | `limits.agent_wall` | 10 min   | the same for a run of a custom agent, or an answer of a model        |
//! | `limits.result`     | 8 MiB    | bytes of a tool's result, a callback's answer, one event, a model's  |
//! |                     |          | answer, what a call sets, or the events that it reads at a time      |
//! | `limits.log`        | 64 KiB   | bytes that it writes to the log, stdout and stderr together; each    |
//! |                     |          | line counts 128 more                                                 |
//! | `limits.model_calls` | 100     | models that its code asks                                            |
//! | `limits.tokens`     | 1 000 000 | tokens of these                                                    |
//! | `limits.tool_calls` | 200      | tools that its code calls                                            |
//! | `limits.depth`      | 8        | tools in a chain in which each is called by the one before           |
//! | `limits.outbound_calls` | 100  | HTTP requests, refused ones included                                 |
//! | `limits.outbound_bytes` | 64 MiB | bytes of all requests and responses, heads included                |
//! | `limits.response_body`  | 16 MiB | bytes of one response's body                                       |
//! | `limits.open_streams`   | 16   | HTTP requests at one time, until the response is read or dropped     |
//! | `limits.connect_timeout` | 10 s | time to find a host, connect to it and agree on TLS                |
//! | `limits.first_byte_timeout` | 30 s | time from a request's last byte to its response's first         |
//! | `limits.between_bytes_timeout` | 30 s | time in which no more of a response comes                   |

pub(crate) mod machine;
pub mod units;

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

/// How long a component may take to describe itself, however long its calls may take.
pub(crate) const DESCRIBE_WALL: Duration = Duration::from_secs(5);

/// Most bytes of the headers of one HTTP message, with what they take in the host's memory.
pub(crate) const HEADERS: usize = 16 << 10;

/// The limits of one component's calls. See the module's comment for the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Sum of all linear memories and of what the host holds for the call, such as bodies and headers of HTTP requests, bytes.
    pub memory: u64,
    /// Sum of all table elements.
    pub tables: u64,
    /// Core instances.
    pub instances: u64,
    /// Streams, files, requests and so on that are open at one time.
    pub handles: u32,
    /// Time in which the guest's code runs.
    pub cpu: Duration,
    /// Time from start to end of a call: of a tool, a callback and so on.
    pub wall: Duration,
    /// Time from start to end of a custom agent's run, or of a model's answer.
    pub agent_wall: Duration,
    /// Bytes of a tool's result, a callback's answer, one event, a model's whole answer, what a call sets, or the events that it reads at
    /// a time.
    pub result: u64,
    /// Bytes written to the log, stdout and stderr; each line counts 128 more.
    pub log: u64,
    /// Models that its code asks.
    pub model_calls: u64,
    /// Tokens that these count, of prompts and answers. An answer that is under way is let end, so a call may use a little more.
    pub tokens: u64,
    /// Tools that its code calls.
    pub tool_calls: u64,
    /// Tools in a chain in which each is called by the one before.
    pub depth: u32,
    /// HTTP requests, refused ones included.
    pub outbound_calls: u64,
    /// Bytes of all HTTP requests and responses, heads included.
    pub outbound_bytes: u64,
    /// Bytes of the body of one HTTP response.
    pub response_body: u64,
    /// HTTP requests at one time, each until its response is read or dropped.
    pub open_streams: u64,
    /// Time to find a host, connect to it and agree on TLS.
    pub connect_timeout: Duration,
    /// Time from the last byte of an HTTP request to the first of its response.
    pub first_byte_timeout: Duration,
    /// Time in which no more of an HTTP response comes.
    pub between_bytes_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            tables: 100_000,
            instances: 30,
            handles: 1000,
            cpu: Duration::from_secs(5),
            wall: Duration::from_secs(30),
            agent_wall: Duration::from_secs(600),
            result: 8 << 20,
            log: 64 << 10,
            model_calls: 100,
            tokens: 1_000_000,
            tool_calls: 200,
            depth: 8,
            outbound_calls: 100,
            outbound_bytes: 64 << 20,
            response_body: 16 << 20,
            open_streams: 16,
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(30),
            between_bytes_timeout: Duration::from_secs(30),
        }
    }
}

/// The `limits` section of `hatchery.yaml`: what differs from the defaults. Sizes are bytes or texts such as `64MiB`, times are seconds
/// or texts such as `500ms`, `30s`, `10min`, at most `24h`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOverrides {
    /// See [`Limits::memory`].
    #[serde(deserialize_with = "units::size")]
    pub memory: Option<u64>,
    /// See [`Limits::tables`].
    pub tables: Option<u64>,
    /// See [`Limits::instances`].
    pub instances: Option<u64>,
    /// See [`Limits::handles`].
    pub handles: Option<u32>,
    /// See [`Limits::cpu`].
    #[serde(deserialize_with = "units::duration")]
    pub cpu: Option<Duration>,
    /// See [`Limits::wall`].
    #[serde(deserialize_with = "units::duration")]
    pub wall: Option<Duration>,
    /// See [`Limits::agent_wall`].
    #[serde(deserialize_with = "units::duration")]
    pub agent_wall: Option<Duration>,
    /// See [`Limits::result`].
    #[serde(deserialize_with = "units::size")]
    pub result: Option<u64>,
    /// See [`Limits::log`].
    #[serde(deserialize_with = "units::size")]
    pub log: Option<u64>,
    /// See [`Limits::model_calls`].
    pub model_calls: Option<u64>,
    /// See [`Limits::tokens`].
    pub tokens: Option<u64>,
    /// See [`Limits::tool_calls`].
    pub tool_calls: Option<u64>,
    /// See [`Limits::depth`].
    pub depth: Option<u32>,
    /// See [`Limits::outbound_calls`].
    pub outbound_calls: Option<u64>,
    /// See [`Limits::outbound_bytes`].
    #[serde(deserialize_with = "units::size")]
    pub outbound_bytes: Option<u64>,
    /// See [`Limits::response_body`].
    #[serde(deserialize_with = "units::size")]
    pub response_body: Option<u64>,
    /// See [`Limits::open_streams`].
    pub open_streams: Option<u64>,
    /// See [`Limits::connect_timeout`].
    #[serde(deserialize_with = "units::duration")]
    pub connect_timeout: Option<Duration>,
    /// See [`Limits::first_byte_timeout`].
    #[serde(deserialize_with = "units::duration")]
    pub first_byte_timeout: Option<Duration>,
    /// See [`Limits::between_bytes_timeout`].
    #[serde(deserialize_with = "units::duration")]
    pub between_bytes_timeout: Option<Duration>,
}

impl Limits {
    /// These limits with what `overrides` says instead.
    #[must_use]
    pub fn with(&self, overrides: &LimitOverrides) -> Self {
        Self {
            memory: overrides.memory.unwrap_or(self.memory),
            tables: overrides.tables.unwrap_or(self.tables),
            instances: overrides.instances.unwrap_or(self.instances),
            handles: overrides.handles.unwrap_or(self.handles),
            cpu: overrides.cpu.unwrap_or(self.cpu),
            wall: overrides.wall.unwrap_or(self.wall),
            agent_wall: overrides.agent_wall.unwrap_or(self.agent_wall),
            result: overrides.result.unwrap_or(self.result),
            log: overrides.log.unwrap_or(self.log),
            model_calls: overrides.model_calls.unwrap_or(self.model_calls),
            tokens: overrides.tokens.unwrap_or(self.tokens),
            tool_calls: overrides.tool_calls.unwrap_or(self.tool_calls),
            depth: overrides.depth.unwrap_or(self.depth),
            outbound_calls: overrides.outbound_calls.unwrap_or(self.outbound_calls),
            outbound_bytes: overrides.outbound_bytes.unwrap_or(self.outbound_bytes),
            response_body: overrides.response_body.unwrap_or(self.response_body),
            open_streams: overrides.open_streams.unwrap_or(self.open_streams),
            connect_timeout: overrides.connect_timeout.unwrap_or(self.connect_timeout),
            first_byte_timeout: overrides.first_byte_timeout.unwrap_or(self.first_byte_timeout),
            between_bytes_timeout: overrides.between_bytes_timeout.unwrap_or(self.between_bytes_timeout),
        }
    }

    /// The error for exceeding one of them.
    pub(crate) fn hit(&self, limit: Limit) -> LimitHit {
        let value = match limit {
            Limit::Memory => units::bytes(self.memory),
            Limit::Tables => self.tables.to_string(),
            Limit::Instances => self.instances.to_string(),
            Limit::Handles => self.handles.to_string(),
            Limit::Headers => units::bytes(HEADERS as u64),
            Limit::Cpu => format!("{:?}", self.cpu),
            Limit::Wall => format!("{:?}", self.wall),
            Limit::AgentWall => format!("{:?}", self.agent_wall),
            Limit::Describe => format!("{DESCRIBE_WALL:?}"),
            Limit::Result => units::bytes(self.result),
            Limit::Log => units::bytes(self.log),
            Limit::ModelCalls => self.model_calls.to_string(),
            Limit::Tokens => self.tokens.to_string(),
            Limit::ToolCalls => self.tool_calls.to_string(),
            Limit::Depth => self.depth.to_string(),
            Limit::OutboundCalls => self.outbound_calls.to_string(),
            Limit::OutboundBytes => units::bytes(self.outbound_bytes),
            Limit::ResponseBody => units::bytes(self.response_body),
            Limit::OpenStreams => self.open_streams.to_string(),
            Limit::ConnectTimeout => format!("{:?}", self.connect_timeout),
            Limit::FirstByteTimeout => format!("{:?}", self.first_byte_timeout),
            Limit::BetweenBytesTimeout => format!("{:?}", self.between_bytes_timeout),
        };
        LimitHit { limit, value }
    }
}

/// One of the [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::tables`].
    Tables,
    /// [`Limits::instances`].
    Instances,
    /// [`Limits::handles`].
    Handles,
    /// [`HEADERS`].
    Headers,
    /// [`Limits::cpu`].
    Cpu,
    /// [`Limits::wall`].
    Wall,
    /// [`Limits::agent_wall`].
    AgentWall,
    /// [`DESCRIBE_WALL`].
    Describe,
    /// [`Limits::result`].
    Result,
    /// [`Limits::log`].
    Log,
    /// [`Limits::model_calls`].
    ModelCalls,
    /// [`Limits::tokens`].
    Tokens,
    /// [`Limits::tool_calls`].
    ToolCalls,
    /// [`Limits::depth`].
    Depth,
    /// [`Limits::outbound_calls`].
    OutboundCalls,
    /// [`Limits::outbound_bytes`].
    OutboundBytes,
    /// [`Limits::response_body`].
    ResponseBody,
    /// [`Limits::open_streams`].
    OpenStreams,
    /// [`Limits::connect_timeout`].
    ConnectTimeout,
    /// [`Limits::first_byte_timeout`].
    FirstByteTimeout,
    /// [`Limits::between_bytes_timeout`].
    BetweenBytesTimeout,
}

impl Limit {
    /// The key in `hatchery.yaml`; `None` for what cannot be changed.
    pub(crate) fn key(self) -> Option<&'static str> {
        Some(match self {
            Self::Memory => "limits.memory",
            Self::Tables => "limits.tables",
            Self::Instances => "limits.instances",
            Self::Handles => "limits.handles",
            Self::Cpu => "limits.cpu",
            Self::Wall => "limits.wall",
            Self::AgentWall => "limits.agent_wall",
            Self::Describe | Self::Headers => return None,
            Self::Result => "limits.result",
            Self::Log => "limits.log",
            Self::ModelCalls => "limits.model_calls",
            Self::Tokens => "limits.tokens",
            Self::ToolCalls => "limits.tool_calls",
            Self::Depth => "limits.depth",
            Self::OutboundCalls => "limits.outbound_calls",
            Self::OutboundBytes => "limits.outbound_bytes",
            Self::ResponseBody => "limits.response_body",
            Self::OpenStreams => "limits.open_streams",
            Self::ConnectTimeout => "limits.connect_timeout",
            Self::FirstByteTimeout => "limits.first_byte_timeout",
            Self::BetweenBytesTimeout => "limits.between_bytes_timeout",
        })
    }

    /// The next step.
    fn remedy(self) -> String {
        match (self, self.key()) {
            (_, Some(key)) => format!("raise `{key}` in hatchery.yaml to allow more"),
            (Self::Headers, None) => "let it send fewer or shorter headers".into(),
            (_, None) => "let `describe` only say what there is".into(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Memory => "of memory",
            Self::Tables => "table elements",
            Self::Instances => "core instances",
            Self::Handles => "open handles",
            Self::Headers => "in the headers of one HTTP message",
            Self::Cpu => "of CPU time",
            Self::Wall | Self::AgentWall => "from start to end",
            Self::Describe => "for that",
            Self::Result => "in one result",
            Self::Log => "of log output",
            Self::ModelCalls => "calls of models",
            Self::Tokens => "tokens of models",
            Self::ToolCalls => "calls of tools",
            Self::Depth => "tools in a chain of calls",
            Self::OutboundCalls => "HTTP requests",
            Self::OutboundBytes => "in HTTP requests and responses",
            Self::ResponseBody => "in the body of one HTTP response",
            Self::OpenStreams => "HTTP requests at one time",
            Self::ConnectTimeout => "to connect to a host",
            Self::FirstByteTimeout => "until the first byte of an HTTP response",
            Self::BetweenBytesTimeout => "between two pieces of an HTTP response",
        }
    }
}

/// A limit was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) struct LimitHit {
    /// Which.
    pub limit: Limit,
    /// Its value with its unit.
    pub value: String,
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit, remedy) = (&self.value, self.limit.unit(), self.limit.remedy());
        write!(f, "it needs more than {value} {unit}; {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_with_units() {
        let overrides: LimitOverrides =
            serde_json::from_str(r#"{"memory": "1GiB", "cpu": "500ms", "wall": 2, "agent_wall": "1h", "log": 100}"#)
                .unwrap();
        let limits = Limits::default().with(&overrides);
        assert_eq!(limits.memory, 1 << 30);
        assert_eq!(limits.cpu, Duration::from_millis(500));
        assert_eq!(limits.wall, Duration::from_secs(2));
        assert_eq!(limits.agent_wall, Duration::from_secs(3600));
        assert_eq!(limits.log, 100);
        assert_eq!(limits.result, Limits::default().result);
    }

    #[test]
    fn a_time_of_more_than_a_day_is_refused() {
        let read = |text: &str| serde_json::from_str::<LimitOverrides>(text);
        assert_eq!(read(r#"{"wall": "24h"}"#).unwrap().wall, Some(Duration::from_secs(86_400)));
        for text in [r#"{"wall": "25h"}"#, r#"{"wall": 1e18}"#, r#"{"cpu": 86401}"#] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("is too long; a time is at most 24h"), "{error}");
        }
    }

    #[test]
    fn an_unknown_unit_says_which_there_are() {
        let error = serde_json::from_str::<LimitOverrides>(r#"{"memory": "1 parsec"}"#).unwrap_err().to_string();
        assert!(error.contains("`1 parsec` is not a size; write bytes or a number with KiB, MiB or GiB"), "{error}");
        let error = serde_json::from_str::<LimitOverrides>(r#"{"cpu": "-1s"}"#).unwrap_err().to_string();
        assert!(error.contains("`-1s` is not a time; write seconds or a number with ms, s, min or h"), "{error}");
    }
}
