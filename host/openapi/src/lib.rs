//! HTTP APIs with an OpenAPI document (3.0 or 3.1): each operation is a tool of agents.
//!
//! [`Apis`] holds the configured APIs, and [`OpenApiToolset`] offers the operations of one of them. A document is
//! read when an agent needs it first. It is untrusted: its size, references and schemas are bounded, requests go only
//! where the [egress policy](hatchery_egress::Egress) of the API allows it, and the host adds the credentials.

mod api;
mod apis;
mod config;
mod credentials;
mod document;
mod error;
mod http;
mod integration;
mod request;
mod tool;
mod toolset;

pub use apis::{ApiStatus, Apis};
pub use config::{ApiConfig, Confirmation, DocumentSource, Limits, Selection};
pub use credentials::{
    ClientCredentials, ClientPlacement, Credentials, KeyLocation, KeySource, ServiceAccount, UserClient,
    UserCredentials,
};
pub use error::ApiError;
pub use integration::{EntityOperation, Integration, IntegrationResource};
pub use toolset::{OpenApiToolset, ToolsetOptions};
