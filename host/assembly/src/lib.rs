//! Runs AI agents from a folder and from Rust code: a complete host as a library.
//!
//! ```
//! use hatchery::Host;
//! use hatchery_engine::build::custom;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! # std::fs::create_dir(folder.join("hello"))?;
//! # std::fs::write(folder.join("hello/root_agent.yaml"), "name: hello\nmodel: scripted:answers.yaml\ninstruction: Greet.\n")?;
//! # std::fs::write(folder.join("answers.yaml"), "turns:\n  - reply: Good morning\n")?;
//! let parrot = custom("parrot", |cx| async move {
//!     let text = cx.call.invocation.user_content().text();
//!     cx.say(text).await?;
//!     Ok(())
//! });
//! let host = Host::builder().folder(folder).agent(parrot.build()?).open().await?;
//! assert_eq!(host.apps().app_names(), ["hello", "parrot"]);
//!
//! let events = host.run("hello", "ada", "session-1", "Hello").await?.collect().await?;
//! assert_eq!(events[0].content.as_ref().unwrap().text(), "Good morning");
//! host.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Host`] combines the other crates: `hatchery.yaml` ([`Config`]), [`trust`] in folders, services
//! ([`services`]), components and YAML agents ([`catalog`]), plugins and hot reload. `hatchery-server` serves its apps
//! over HTTP, `hatchery-cli` is the command. `docs/embedding.md` is a guide.
//!
//! The library changes no global state, with one exception: [`HostBuilder::start`] installs aws-lc-rs as the
//! process-wide TLS provider of rustls unless one is installed. It needs a Tokio runtime with several threads. It sets
//! neither an allocator nor a tracing subscriber; events of the [`audit`] log are `tracing` events, which the
//! subscriber of the program receives.

pub mod audit;
pub mod backup;
pub mod catalog;
pub mod models;
pub mod plugins;
pub mod services;
pub mod shell;
pub mod trust;

mod a2a;
mod app_files;
mod app_tests;
mod apps;
mod byte_size;
mod code_executors;
mod comparison;
mod config;
mod egress;
mod host;
mod host_key;
mod mcp;
mod openapi;
mod retrieval;
mod sandbox;
mod settings;
mod source;
mod storage;

pub use app_files::{AppFile, AppFiles, AppFilesError, Diagnostic, Texts};
pub use app_tests::{AppTests, AppTestsError};
pub use byte_size::ByteSize;
pub use comparison::{Change, Comparison, RevisionSummary};
pub use config::{
    A2aAgentConfig, A2aAggregation, A2aConfig, A2aExposeConfig, A2aPushConfig, A2aVersion, ApiConfig, ApiConfirmation,
    ApiConfirmationKind, ApiKeyConfig, ApiKeyLocation, AppConfig, AuditConfig, AuthConfig, Authority, BasePath,
    BasicConfig, ClientKeyConfig, CodeExecutorConfig, ComponentConfig, Config, ConfigError, ContainerConfig,
    CorsConfig, DevUi, DurabilityConfig, EncryptionConfig, EncryptionKeyConfig, FILE_NAME as CONFIG_FILE,
    IntegrationConfig, IntegrationOperation, McpConfig, McpConfirmation, McpExposeConfig, McpHandshake,
    McpHttpTransport, McpOAuthConfig, McpOAuthGrant, McpPromptArgumentConfig, McpPromptConfig, McpPromptMessageConfig,
    McpPromptRole, McpResourceConfig, McpSamplingConfig, McpServerConfig, MemorySearchConfig, ModelPrice, ModelsConfig,
    OAuth2ClientPlacement, OAuth2Config, OidcConfig, OpenApiConfig, OpenIdConnectConfig, PlainDataConfig, PricesConfig,
    QuotaOverrides, RegistryConfig, RetentionConfig, RetrievalConfig, Role, ServerAuthConfig, ServerConfig,
    ServiceAccountConfig, TlsConfig, TokenAlgorithm, ToolExecutionConfig, TriggerSource, UserApiKeyConfig,
    UserAuthConfig, UserHttpScheme, UserOAuth2Config, ValueConfig, VertexConfig, VertexOperation,
};
pub use hatchery_a2a::A2aService;
pub use hatchery_mcp::Browser;
pub use hatchery_recordings::TestedTurn;
pub use hatchery_stores::adk_sessions;
pub use host::{
    ApplyConfig, ConfigChange, ConfigSubscriber, Host, HostBuilder, HostError, NAMES_FILE, add_configured_items,
    known_apps, protected_paths, unknown_apps, unknown_components, user_code_cache,
};
pub use host_key::HostKeyError;
pub use services::ServiceSource;
pub use settings::{Origin, Setting, SettingsReport};
pub use source::{
    AppOrigin, AppSource, CatalogReport, ComponentDetail, ComponentLimits, ComponentReport, DrainingReport, FileReport,
    RestoreError,
};
pub use storage::Storage;

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod guide {}
