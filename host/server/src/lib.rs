//! HTTP and SSE for the apps of a catalog: routes, errors, limits, the configuration file and a graceful end.
//!
//! Paths and JSON are those of ADK clients. The server knows apps only through [`AppSource`], so what loads them is not its business.
//! It holds no state of its own beside counters: sessions, artifacts and memory belong to the services.

pub mod apps;
pub mod audit;
pub mod byte_size;
pub mod catalog;
pub mod config;
pub mod error;
pub mod host_key;
pub mod quotas;
pub mod server;
pub mod services;
pub mod shell;
pub mod source;
pub mod state;
pub mod trust;

mod body;
mod connections;
mod descriptors;
mod extract;
mod guard;
mod headers;
mod json;
mod observe;
mod routes;

pub use apps::{AppConfig, ConfiguredApps};
pub use audit::AuditConfig;
pub use config::{Config, ConfigError, ServerConfig};
pub use error::ApiError;
pub use server::{BindError, Server};
pub use services::Storage;
pub use source::{AppSource, CatalogReport, ComponentReport, DrainingReport, FileReport};
pub use state::AppState;
pub use trust::{ConfigSource, LoadedConfig, TrustStore};
