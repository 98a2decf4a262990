//! Settings and limits of one run.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::event::EventData;
use crate::json::JsonMap;
use crate::live::LiveConnectConfig;
use crate::model::StreamingMode;

/// The largest custom metadata of a run, in bytes of JSON.
pub const MAX_RUN_METADATA_BYTES: usize = 16 << 10;

/// Prefixes of keys of custom metadata that requests cannot set: those of the host, of agents of other hosts, of ADK
/// and of Agent Engine.
const RESERVED_PREFIXES: [&str; 5] = ["hatchery:", "a2a:", "__adk_internal_", "_compaction", "_usage_metadata"];

/// The settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Whether the run yields the chunks of model responses as they arrive.
    pub streaming_mode: StreamingMode,
    /// Maximum number of model calls in the run; 0 means no limit.
    pub max_llm_calls: u32,
    /// Whether the tool calls of one model response run concurrently.
    pub tool_execution: ToolExecution,
    /// Whether a session that does not exist is created.
    pub auto_create_session: bool,
    /// Maximum number of tokens, as the models count them, of all model calls of the run together; 0 means no limit.
    pub max_tokens: u64,
    /// Maximum number of stored events of the run; 0 means no limit.
    pub max_events: u32,
    /// Maximum size of the JSON of all events of the run in bytes, streamed chunks included; 0 means no limit.
    pub max_run_bytes: u64,
    /// Maximum number of rounds of all loop agents of the run together; 0 means no limit.
    pub max_rounds: u32,
    /// Maximum number of requests to models that are sent again after an error, in all calls of the run together; 0
    /// means no limit.
    pub max_model_retries: u32,
    /// Maximum wall time of the run, without the time that it is paused; zero means no limit.
    pub max_run_time: Duration,
    /// Whether files in the user's message are saved as artifacts, so that the session stores only their names.
    pub save_input_blobs_as_artifacts: bool,
    /// Whether the speech of a live run is saved as artifacts.
    pub save_live_audio_as_artifacts: bool,
    /// Whether the responses of consecutive function calls follow the last of the calls in a prompt. `None` leaves this
    /// to [`ModelCapabilities::response_grouping`](crate::ModelCapabilities::response_grouping).
    pub group_function_responses: Option<bool>,
    /// The settings of live connections; `None` unless the run is live.
    pub live: Option<LiveConnectConfig>,
    /// Custom metadata that the events of the run get in addition to their own. Reserved keys are omitted.
    pub custom_metadata: Option<Arc<JsonMap>>,
}

impl RunConfig {
    /// Returns the custom metadata that the events of the run get, without reserved keys.
    pub fn event_metadata(&self) -> impl Iterator<Item = (&String, &Value)> {
        let is_reserved = |key: &str| RESERVED_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let entries = self.custom_metadata.iter().flat_map(|metadata| metadata.iter());
        entries.filter(move |(key, _)| !is_reserved(key))
    }

    /// Adds the custom metadata of the run to an event, whose own keys take precedence.
    pub fn add_custom_metadata(&self, event: &mut EventData) {
        let mut added = self.event_metadata().peekable();
        if added.peek().is_none() {
            return;
        }
        let own = event.custom_metadata.get_or_insert_with(|| Box::new(Value::Object(JsonMap::new())));
        if let Value::Object(own) = own.as_mut() {
            for (key, value) in added {
                own.entry(key.as_str()).or_insert_with(|| value.clone());
            }
        }
    }
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            streaming_mode: StreamingMode::Off,
            max_llm_calls: 500,
            tool_execution: ToolExecution::Parallel,
            auto_create_session: false,
            max_tokens: 0,
            max_events: 2_000,
            max_run_bytes: 32 << 20,
            max_rounds: 10_000,
            max_model_retries: 100,
            max_run_time: Duration::from_secs(60 * 60),
            save_input_blobs_as_artifacts: false,
            save_live_audio_as_artifacts: false,
            group_function_responses: None,
            live: None,
            custom_metadata: None,
        }
    }
}

/// Execution order of the tool calls of one model response. Their results are always in the order of the calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolExecution {
    /// Concurrently.
    #[default]
    Parallel,
    /// Sequentially.
    Sequential,
}
