//! The domain types of Hatchery (agents, events, sessions, models, tools) and the traits at which the other crates
//! meet. No I/O, no WebAssembly, no provider and no store.

mod agent;
mod agent_context;
mod aggregator;
mod app_runner;
mod artifact;
mod auth;
pub mod base64_bytes;
mod byte_size;
mod call_context;
mod callback;
mod caller;
mod client_input;
mod client_scope;
mod code;
mod config_value;
mod confirmation;
mod content;
mod error;
mod event;
mod examples;
mod extra;
mod fallback;
mod hash;
mod http_options;
mod id;
mod instruction_content;
mod invocation;
mod item;
mod journal;
mod json;
mod json_schema;
mod live;
mod memory;
mod message;
mod model;
mod one_or_many;
mod plugin;
mod provenance;
mod resolver;
mod retention;
mod run_config;
mod run_usage;
mod services;
mod session;
mod session_import;
mod session_list;
mod session_point;
mod state;
mod storable;
mod stored_run;
pub mod suggestion;
mod summarizer;
pub mod sync;
mod text;
mod time;
mod tool;
mod trace;
mod turn;
pub mod type_schema;
mod usage;
mod wildcard;
mod wrapper;

pub use agent::{
    Agent, AgentId, AgentKind, AgentTree, Capabilities, Capability, CustomAgent, CustomAgentSpec, IncludeContents,
    Instruction, InstructionProvider, LlmAgent, ModelRef, Planner, TreeError, check_agent_name,
};
pub use agent_context::{AgentContext, AgentHost, EventSink};
pub use aggregator::Aggregator;
pub use app_runner::{AppRun, AppRunRequest, AppRunner, LiveAppRun, LiveAppRunRequest};
pub use artifact::{
    ArtifactService, ArtifactStream, ByteStream, MAX_CUSTOM_METADATA_BYTES, MAX_LOADED_BYTES, NewestVersion,
    check_custom_metadata, custom_metadata_bytes,
};
pub use auth::{
    AuthConfig, AuthCredential, AuthCredentialType, AuthKeyLocation, AuthScheme, CredentialId, CredentialService,
    HttpAuth, HttpCredentials, OAuth2Auth, OAuthFlow, OAuthFlows, REQUEST_CREDENTIAL, ServiceAccountAuth,
    UserCredential,
};
pub use byte_size::parse_byte_size;
pub use call_context::{CallContext, TOOL_PROGRESS_KEY, ToolProgress};
pub use callback::{Callback, Callbacks, HookPoint};
pub use caller::{Caller, CallerOrigin};
pub use client_input::{ClientRoot, InputClient, InputError, InputKind, InputRequest, InputResponse};
pub use client_scope::ClientScope;
pub use code::{
    CodeExecution, CodeExecutor, CodeFile, CodeInput, CodeOutput, CodeRunner, DEFAULT_CODE_EXECUTOR, Delimiters,
};
pub use config_value::{ConfigValue, MissingVariable};
pub use confirmation::{REQUEST_CONFIRMATION, ToolConfirmation, confirmation_hint};
pub use content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, Part, PartData,
};
pub use error::{
    MCP_UNAVAILABLE, ModelError, ModelErrorKind, OPENAPI_UNAVAILABLE, RunError, RunLimit, StoreError, ToolError,
};
pub use event::{
    Compaction, Event, EventActions, EventData, PAUSED_RUN_KEY, USER_AUTHOR, UsageMetadata, new_event_id,
    new_function_call_id, new_invocation_id,
};
pub use examples::{Example, ExampleProvider, Examples};
pub use extra::{Extra, KnownKeys, known_key};
pub use fallback::FallbackModel;
pub use hash::FastHashMap;
pub use http_options::{HttpOptions, RetryOptions};
pub use id::{HOST_USER, IdKind, InvalidId, MAX_ID_BYTES, SessionKey};
pub use invocation::{Invocation, InvocationWriter, NewInvocation, RemainingLimits, RevisionGap};
pub use item::ItemKind;
pub use journal::{CallJournal, CallRecord, EarlierCall, RunJournal, hash_arguments};
pub use json::{JsonMap, json_len};
pub use json_schema::to_json_schema;
pub use live::{
    LiveConnectConfig, LiveConnection, LiveQueueClosed, LiveRequest, LiveRequestQueue, LiveResponse, LiveResults,
    LiveStream, LiveStreams, QueuedRequest, Reservation, Transcription,
};
pub use memory::{MemoryEntry, MemoryService, RememberedSession};
pub use message::{ClientMessage, MAX_MESSAGE_PARTS, check_message, invalid_message};
pub use model::{
    Embedder, FunctionDeclaration, GenerateContentConfig, LlmRequest, LlmResponse, Model, ModelCapabilities,
    ModelResolver, ResponseGrouping, ResponseStream, StreamingMode,
};
pub use one_or_many::one_or_many;
pub use plugin::{Plugin, PluginInfo};
pub use provenance::{Claim, EventSigner, PROOF_KEY, generate_secret, remove_proof};
pub use resolver::{ItemResolver, ResolveError};
pub use retention::{ExpiredSession, ExpiryRule};
pub use run_config::{MAX_RUN_METADATA_BYTES, RunConfig, ToolExecution};
pub use run_usage::{RunUsage, TokenCounter, UsageSnapshot};
pub use services::Services;
pub use session::{EventWindow, Session, SessionService};
pub use session_import::{ImportError, SessionImport};
pub use session_list::{SessionCursor, SessionPage};
pub use session_point::{SessionPoint, fork_session};
pub use state::{State, StateScope, is_state_removal, state_entry_bytes};
pub use storable::{MAX_JSON_DEPTH, UNREADABLE_EVENT, UnstorableEvent, is_json_too_deep};
pub use stored_run::{RunFailure, RunPage, RunService, RunState, RunTransition, StoredRun};
pub use summarizer::Summarizer;
pub use text::{
    encode_segment, escape_control, excerpt, pluralize, quoted_list, truncate_bytes, truncate_chars,
    without_byte_order_mark,
};
pub use time::{Timestamp, UptimeInstant};
pub use tool::{Tool, ToolAuthorizer, Toolset};
pub use trace::{
    AttributeValue, BoundedValue, InvalidTraceParent, ModelAttempt, ModelCallProgress, Span, SpanContent, SpanContext,
    SpanData, SpanError, SpanExporter, SpanLog, SpanOperation, TimeKind, Trace, TraceParent,
};
pub use turn::{MAX_TURN_LEASE, Turn, TurnLease, TurnOpening, TurnStart};
pub use usage::{ArtifactUsage, SessionUsage, StateUsage, Usage, UserUsage};
pub use wildcard::matches_wildcard;
pub use wrapper::{WrapperModel, WrapperRunService, WrapperSessionService, WrapperTool, WrapperToolset};

/// The version of this host.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
