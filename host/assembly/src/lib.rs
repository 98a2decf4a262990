//! The composition root: a served folder with its configuration, services, components and apps, as one library.

pub mod apps;
pub mod audit;
pub mod byte_size;
pub mod catalog;
pub mod config;
pub mod host_key;
pub mod quotas;
pub mod services;
pub mod shell;
pub mod source;
pub mod trust;

pub use apps::{AppConfig, ConfiguredApps};
pub use audit::AuditConfig;
pub use config::{Config, ConfigError, ServerConfig};
pub use services::Storage;
pub use source::{AppSource, CatalogReport, ComponentReport, DrainingReport, FileReport};
pub use trust::{ConfigSource, LoadedConfig, TrustStore};
