//! Limits of one call of a component, in one table: the rows of [`limits!`] below.
//!
//! Each limit has a default, a key in `hatchery.yaml` that changes it, and an error that names both to the operator.
//! None of them looks like a trap in the guest's own code. The struct fields, the overrides, the documentation table of
//! [`Limits`], the error texts and the error codes are generated from the table, so a new limit is one row.

pub(crate) mod machine;
pub mod units;

use std::convert::identity;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Timeout of a component's `describe`, however long its calls may take.
pub(crate) const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size in bytes of the headers of one HTTP message, as the host stores them.
pub(crate) const MAX_HEADERS: usize = 16 << 10;

/// A default in the table, such as `64 MiB`, `30 s` or `1000`.
macro_rules! amount {
    ($count:literal) => {
        $count
    };
    ($count:literal KiB) => {
        $count << 10
    };
    ($count:literal MiB) => {
        $count << 20
    };
    ($count:literal s) => {
        Duration::from_secs($count)
    };
    ($count:literal min) => {
        Duration::from_secs($count * 60)
    };
}

/// Expands each row by the kind of its value, then defines all items together.
///
/// The kinds are `size` (bytes), `memory` (bytes, at least a page), `message` (bytes, at least a kibibyte), `count`,
/// `small_count` (32 bits) and `time` (not zero). A row reads: description, key, kind and default, variant of [`Limit`],
/// error code, and the words that follow the value in the error.
macro_rules! limits {
    (@rows [$($done:tt)*] fixed { $($fixed:tt)* }) => {
        limits! { @define [$($done)*] [$($fixed)*] }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: size($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] u64, "units::deserialize_optional_size", units::format_size, units::format_size, $rest
            }]
            $($rows)*
        }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: memory($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] u64, "units::deserialize_optional_memory", units::format_size, units::format_size, $rest
            }]
            $($rows)*
        }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: message($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] u64, "units::deserialize_optional_message_size", units::format_size, units::format_size, $rest
            }]
            $($rows)*
        }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: count($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] u64, "units::deserialize_optional_count", units::format_count, identity, $rest
            }]
            $($rows)*
        }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: small_count($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] u32, "units::deserialize_optional_count", units::format_count, identity, $rest
            }]
            $($rows)*
        }
    };
    (@rows [$($done:tt)*] $(#[doc = $doc:literal])+ $key:ident: time($($default:tt)+) $rest:tt; $($rows:tt)*) => {
        limits! {
            @rows [$($done)* {
                [$($doc)+] $key [$($default)+] Duration, "units::deserialize_optional_time_limit", units::format_duration,
                units::format_duration, $rest
            }]
            $($rows)*
        }
    };
    (@define
        [$({
            [$($doc:literal)+] $key:ident [$($default:tt)+] $type:ty, $read:literal, $show:path, $value:path,
            { $limit:ident, $code:literal, $unit:literal }
        })+]
        [$($fixed:ident { $fixed_value:expr, $fixed_code:literal, $fixed_unit:literal, $remedy:literal };)+]
    ) => {
        /// The limits of one component's calls.
        ///
        /// | key | default | what it limits |
        /// |-----|---------|----------------|
        $(#[doc = concat!("| `limits.", stringify!($key), "` | ", stringify!($($default)+), " |", $($doc,)+ " |")])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $key: $type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($key: amount!($($default)+),)+ }
            }
        }

        /// The `limits` section of `hatchery.yaml`; `None` keeps the default. Sizes are bytes or strings such as
        /// `64MiB`. Durations are seconds or strings such as `500ms`, `30s` or `10min`, at most `24h`.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct LimitOverrides {
            $(
                #[doc = concat!("Replaces [`Limits::", stringify!($key), "`].")]
                #[serde(deserialize_with = $read)]
                pub $key: Option<$type>,
            )+
        }

        impl Limits {
            /// Returns these limits with those in `overrides` replaced.
            #[must_use]
            pub fn with(&self, overrides: &LimitOverrides) -> Self {
                Self { $($key: overrides.$key.unwrap_or(self.$key),)+ }
            }

            /// Returns the limits by key: counts as numbers, others as strings with their units.
            pub fn values(&self) -> Vec<(&'static str, Value)> {
                vec![$((stringify!($key), $value(self.$key).into()),)+]
            }

            /// Returns the error for exceeding `limit`.
            pub(crate) fn exceeded(&self, limit: Limit) -> LimitExceeded {
                let value = match limit {
                    $(Limit::$limit => $show(self.$key),)+
                    $(Limit::$fixed => $fixed_value,)+
                };
                LimitExceeded { limit, value }
            }
        }

        /// One of the [`Limits`], or a fixed limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Limit {
            $($limit,)+
            $($fixed,)+
        }

        impl Limit {
            /// Returns the key in `hatchery.yaml`; `None` for fixed limits.
            pub(crate) fn key(self) -> Option<&'static str> {
                match self {
                    $(Self::$limit => Some(concat!("limits.", stringify!($key))),)+
                    $(Self::$fixed)|+ => None,
                }
            }

            /// Returns the stable code that clients see.
            pub(crate) fn code(self) -> &'static str {
                match self {
                    $(Self::$limit => $code,)+
                    $(Self::$fixed => $fixed_code,)+
                }
            }

            /// Returns the words that follow the value in an error.
            fn unit(self) -> &'static str {
                match self {
                    $(Self::$limit => $unit,)+
                    $(Self::$fixed => $fixed_unit,)+
                }
            }

            /// Returns the next step for the operator or the author.
            fn remedy(self) -> &'static str {
                match self {
                    $(Self::$limit => {
                        concat!("raise `limits.", stringify!($key), "` in hatchery.yaml to allow more")
                    })+
                    $(Self::$fixed => $remedy,)+
                }
            }
        }
    };
    ($($rows:tt)+) => {
        limits! { @rows [] $($rows)+ }
    };
}

limits! {
    /// Sum of all linear memories and of data that the host holds for the call, such as bodies and headers of HTTP
    /// requests.
    memory: memory(64 MiB) { Memory, "COMPONENT_MEMORY", "of memory" };
    /// Sum of all table elements.
    tables: count(100_000) { Tables, "COMPONENT_LIMIT", "table elements" };
    /// Core instances.
    instances: count(30) { Instances, "COMPONENT_LIMIT", "core instances" };
    /// Streams, files, requests and other handles that are open at one time.
    handles: small_count(1000) { Handles, "COMPONENT_LIMIT", "open handles" };
    /// CPU time of the guest's code. Time in which it waits does not count.
    cpu: time(5 s) { Cpu, "COMPONENT_CPU", "of CPU time" };
    /// Wall time of a call, such as a call of a tool or a callback.
    wall: time(30 s) { Wall, "COMPONENT_TIMEOUT", "of wall time" };
    /// Wall time of a custom agent's run, of a model's answer, or of a live model's conversation.
    agent_wall: time(10 min) { AgentWall, "COMPONENT_TIMEOUT", "of wall time" };
    /// Bytes of a tool's result, a callback's answer, one event, a model's whole answer, the state that a call sets,
    /// or the events that it reads at a time.
    result: message(8 MiB) { Result, "COMPONENT_LIMIT", "in one result" };
    /// Bytes written to the log, stdout and stderr together. Each line counts 128 more.
    log: size(64 KiB) { Log, "COMPONENT_LIMIT", "of log output" };
    /// Requests to models.
    model_calls: count(100) { ModelCalls, "COMPONENT_LIMIT", "model calls" };
    /// Tokens of these requests, prompts and answers together. An answer in progress is not interrupted, so a call may
    /// use a little more.
    tokens: count(1_000_000) { Tokens, "COMPONENT_LIMIT", "model tokens" };
    /// Calls of tools.
    tool_calls: count(200) { ToolCalls, "COMPONENT_LIMIT", "tool calls" };
    /// Tools in a chain in which each is called by the previous one.
    depth: small_count(8) { Depth, "COMPONENT_LIMIT", "tools in a chain of calls" };
    /// HTTP requests, refused ones included.
    outbound_calls: count(100) { OutboundCalls, "COMPONENT_LIMIT", "HTTP requests" };
    /// Bytes of all HTTP requests and responses, headers included.
    outbound_bytes: message(64 MiB) { OutboundBytes, "COMPONENT_LIMIT", "in HTTP requests and responses" };
    /// Bytes of the body of one HTTP response.
    response_body: message(16 MiB) { ResponseBody, "COMPONENT_LIMIT", "in the body of one HTTP response" };
    /// HTTP requests at one time, each until its response is read or dropped.
    open_streams: count(16) { OpenStreams, "COMPONENT_LIMIT", "HTTP requests at one time" };
    /// Time to resolve a host, connect to it and agree on TLS.
    connect_timeout: time(10 s) { ConnectTimeout, "COMPONENT_LIMIT", "to connect to a host" };
    /// Time from the last byte of an HTTP request to the first of its response.
    first_byte_timeout: time(30 s) {
        FirstByteTimeout, "COMPONENT_LIMIT", "until the first byte of an HTTP response"
    };
    /// Time without a further byte of an HTTP response.
    between_bytes_timeout: time(30 s) {
        BetweenBytesTimeout, "COMPONENT_LIMIT", "between two pieces of an HTTP response"
    };
    fixed {
        Headers {
            units::format_size(MAX_HEADERS as u64), "COMPONENT_LIMIT", "in the headers of one HTTP message",
            "let it send fewer or shorter headers"
        };
        Describe {
            units::format_duration(DESCRIBE_TIMEOUT), "COMPONENT_TIMEOUT", "for `describe`",
            "let it only return the component's items"
        };
    }
}

impl Limit {
    /// Returns true if the limit is the wall time of a call.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Self::Wall | Self::AgentWall | Self::Describe)
    }

    /// Returns true if the limit is the time until the head of an HTTP response.
    pub(crate) fn is_http_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::FirstByteTimeout)
    }
}

/// A limit was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) struct LimitExceeded {
    pub limit: Limit,
    /// The value of the limit, with its unit if it has one.
    pub value: String,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit, remedy) = (&self.value, self.limit.unit(), self.limit.remedy());
        write!(f, "it exceeded its limit of {value} {unit}; {remedy}")
    }
}

impl LimitExceeded {
    /// Returns the error for guests, models and clients: the setting that raises the limit is for the operator.
    pub(crate) fn for_callers(&self) -> String {
        match self.limit.key() {
            Some(_) => format!("it exceeded its limit of {} {}", self.value, self.limit.unit()),
            None => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_with_units() {
        let overrides: LimitOverrides =
            serde_json::from_str(r#"{"memory": "1.5 gib", "cpu": "500ms", "wall": 2, "agent_wall": "1h", "log": 100}"#)
                .unwrap();
        let limits = Limits::default().with(&overrides);
        assert_eq!(limits.memory, 3 << 29);
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
            assert!(error.contains("is too long; a duration is at most 24h"), "{error}");
        }
    }

    #[test]
    fn an_unknown_unit_is_an_error_with_an_example() {
        let error = serde_json::from_str::<LimitOverrides>(r#"{"memory": "1 parsec"}"#).unwrap_err().to_string();
        assert!(error.contains("`1 parsec` is not a size; write for example `16 MiB` or 1048576"), "{error}");
        let error = serde_json::from_str::<LimitOverrides>(r#"{"cpu": "-1s"}"#).unwrap_err().to_string();
        assert!(error.contains("`-1s` is not a duration; write seconds or a number with ms, s, min or h"), "{error}");
    }

    #[test]
    fn a_memory_of_less_than_a_page_is_refused() {
        let read = |text: &str| serde_json::from_str::<LimitOverrides>(text);
        assert_eq!(read(r#"{"memory": 65536}"#).unwrap().memory, Some(64 << 10));
        assert_eq!(read(r#"{"log": 128}"#).unwrap().log, Some(128));
        for (text, size) in [(r#"{"memory": 128}"#, "128 B"), (r#"{"memory": "63 KiB"}"#, "63 KiB")] {
            let error = read(text).unwrap_err().to_string();
            let expected = format!("a memory of {size} is less than one page, 64 KiB; write for example `128 MiB`");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn values_that_end_every_call_are_refused() {
        let read = |text: &str| serde_json::from_str::<LimitOverrides>(text);
        assert_eq!(read(r#"{"result": 1024}"#).unwrap().result, Some(1 << 10));
        for (key, value, size) in
            [("result", "8", "8 B"), ("response_body", "\"16\"", "16 B"), ("outbound_bytes", "0", "0 B")]
        {
            let error = read(&format!("{{\"{key}\": {value}}}")).unwrap_err().to_string();
            let expected = format!("a limit of {size} is less than 1 KiB; write for example `16 MiB`");
            assert!(error.contains(&expected), "{error}");
        }
        for text in [r#"{"cpu": 0}"#, r#"{"wall": "0s"}"#, r#"{"connect_timeout": 0.0}"#] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("a limit of no time ends every call; write for example `30s`"), "{error}");
        }
        let milliseconds = read(r#"{"agent_wall": 600000}"#).unwrap_err().to_string();
        assert!(
            milliseconds
                .contains("`600000` is too long; a duration is at most 24h, and a number without a unit is in seconds"),
            "{milliseconds}"
        );
    }

    #[test]
    fn errors_name_the_value_and_the_key() {
        let limits = Limits { memory: 1 << 20, handles: 7, ..Limits::default() };
        for (limit, text) in [
            (Limit::Memory, "1 MiB of memory; raise `limits.memory` in hatchery.yaml to allow more"),
            (Limit::Handles, "7 open handles; raise `limits.handles` in hatchery.yaml to allow more"),
            (Limit::AgentWall, "600s of wall time; raise `limits.agent_wall` in hatchery.yaml to allow more"),
            (Limit::Headers, "16 KiB in the headers of one HTTP message; let it send fewer or shorter headers"),
        ] {
            assert_eq!(limits.exceeded(limit).to_string(), format!("it exceeded its limit of {text}"));
        }
        assert_eq!((Limit::Depth.key(), Limit::Describe.key()), (Some("limits.depth"), None));
        assert_eq!((Limit::Describe.code(), Limit::Tokens.code()), ("COMPONENT_TIMEOUT", "COMPONENT_LIMIT"));
    }
}
