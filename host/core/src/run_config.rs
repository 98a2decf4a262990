//! Settings and limits of one run.

use std::time::Duration;

use crate::live::LiveConnectConfig;
use crate::model::StreamingMode;

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
