//! The vocabulary of Hatchery: what agents, events, sessions, models and tools are, and the small traits at which the other crates meet.
//! No I/O, no wasm, no provider and no store.

pub mod agent;
pub mod artifact;
pub mod base64_bytes;
pub mod callback;
pub mod caller;
pub mod code;
pub mod confirmation;
pub mod content;
pub mod context;
pub mod error;
pub mod event;
pub mod examples;
pub mod extra;
pub mod id;
mod json_len;
pub mod lookup;
pub mod memory;
pub mod message;
pub mod model;
pub mod plugin;
pub mod provenance;
pub mod session;
pub mod state;
pub mod storable;
pub mod summarizer;
pub mod time;
pub mod tool;
pub mod usage;

pub use agent::{
    Agent, AgentId, AgentKind, AgentTree, Capabilities, Capability, Custom, CustomAgent, Instruction, LlmAgent,
    ModelRef, Planner,
};
pub use callback::Callback;
pub use caller::{Caller, CallerOrigin};
pub use code::{CodeExecution, CodeExecutor, CodeFile, CodeInput, CodeOutput, CodeRunner};
pub use confirmation::ToolConfirmation;
pub use content::{Blob, Content, FunctionCall, FunctionResponse, JsonMap, Part, PartData};
pub use context::{AgentContext, CallContext, EventSink, Invocation, RunConfig, Services};
pub use error::{ModelError, ModelErrorKind, RunError, StoreError, ToolError};
pub use event::{Compaction, Event, EventActions, EventData, UsageMetadata};
pub use examples::{Example, ExampleProvider, Examples};
pub use extra::{Extra, KnownKeys};
pub use id::IdKind;
pub use lookup::{ItemKind, Lookup, LookupError};
pub use model::{Delivery, FunctionDeclaration, LlmRequest, LlmResponse, Model, ModelRegistry, ResponseStream};
pub use plugin::Plugin;
pub use provenance::{Claim, EventSigner};
pub use session::{EventWindow, Session, SessionKey, SessionService};
pub use state::State;
pub use summarizer::Summarizer;
pub use time::Timestamp;
pub use tool::{Tool, ToolCheck, Toolset};
pub use usage::{ArtifactUsage, SessionUsage, StateUsage, Usage, UserUsage};
