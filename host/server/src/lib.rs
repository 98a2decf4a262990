//! An HTTP and SSE server for agents, compatible with ADK clients: routes, error responses, limits and graceful
//! shutdown.
//!
//! ```
//! use hatchery::{Host, ServerConfig};
//! use hatchery_engine::build::custom;
//! use hatchery_server::{AppState, Server};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let greeter = custom("greeter", |cx| async move {
//!     cx.say("Hello").await?;
//!     Ok(())
//! });
//! let host = Host::builder().agent(greeter.build()?).open().await?;
//! let state = AppState::new(host.runner().clone(), host.apps().clone(), ServerConfig::default());
//! let server = Server::bind("127.0.0.1:0".parse()?, state).await?;
//! println!("listening on {:?}", server.local_addr());
//! # let shutdown = async {};
//! server.serve(shutdown).await; // a future that completes when the server must stop
//! host.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The server gets apps from an [`AppSource`](hatchery::AppSource) only. It stores nothing: sessions, artifacts and
//! memory belong to the services of the runner.

mod error;
mod server;
mod state;

mod api_document;
mod auth;
mod background_runs;
mod base_path;
mod body;
mod connections;
mod cors;
mod descriptors;
mod dev_ui;
mod drafts;
mod extract;
mod graph;
mod guard;
mod headers;
mod json;
mod limit;
mod live;
mod log_throttle;
mod observe;
mod peer;
mod retention;
#[allow(unused_qualifications, reason = "the attributes of operations expand to them")]
mod routes;
mod service;
mod tls;
mod websocket;

pub use error::ApiError;
pub use server::{BindError, Server};
pub use state::{AppState, AppStateBuilder};
pub use tls::check_tls;
