//! The server: apps and tools of a host as tools for MCP clients, artifacts of their sessions and files as resources,
//! and prompts.

mod call;
mod confirmation;
mod content;
mod exposure;
mod files;
mod http;
mod input;
mod logging;
mod progress;
mod prompts;
mod resources;
mod session;
mod session_limit;
mod state;
mod subscriptions;
mod tool_call;

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CallerOrigin, Tool};
use hatchery_engine::{AppDirectory, Runner};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, watch};

use exposure::ExposedTools;
use subscriptions::ArtifactChange;

pub use call::{client_user, is_reserved_user};
pub use exposure::Exposure;
pub use files::FileResource;
pub use http::McpEndpoint;
pub use prompts::{ExposedMessage, ExposedPrompt, PromptContent, PromptParameter};
pub use tool_call::TOOL_CALL_APP;

/// Maximum number of buffered change notifications of a slow client.
const MAX_CHANGES: usize = 256;

/// The apps and tools of a host, which can change at any time.
#[async_trait]
pub trait McpCatalog: AppDirectory {
    /// Returns the qualified names of the tools that may be exposed, such as `dice/roll_die`.
    fn tool_names(&self) -> Vec<String>;

    /// Returns the tool with this qualified name.
    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// Returns a number that changes with the catalog. The receiver has seen the current one.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Waits until everything is loaded that there was at the start. Clients that list the tools once would miss the
    /// rest.
    async fn wait_until_loaded(&self) {}
}

/// A host as an MCP server. Cheap to clone.
#[derive(Clone)]
pub struct McpService(Arc<ServiceInner>);

struct ServiceInner {
    runner: Runner,
    catalog: Arc<dyn McpCatalog>,
    settings: ArcSwap<ServiceSettings>,
    origin: CallerOrigin,
    /// The exposed tools, with the generation of the catalog that has them.
    tools: Mutex<Option<(u64, Arc<ExposedTools>)>>,
    /// Incremented when other tools are exposed.
    exposure_changes: watch::Sender<u64>,
    /// The artifacts that runs of clients have stored.
    changes: broadcast::Sender<ArtifactChange>,
}

/// The settings of a service, which can be replaced.
#[derive(Clone)]
struct ServiceSettings {
    exposure: Exposure,
    max_runs: usize,
}

impl McpService {
    /// Creates a service for clients that reach the host by `origin`.
    pub fn new(runner: Runner, catalog: Arc<dyn McpCatalog>, exposure: Exposure, origin: CallerOrigin) -> Self {
        let (tools, changes) = (Mutex::default(), broadcast::Sender::new(MAX_CHANGES));
        let settings = ArcSwap::from_pointee(ServiceSettings { exposure, max_runs: usize::MAX });
        let exposure_changes = watch::Sender::new(0);
        Self(Arc::new(ServiceInner { runner, catalog, settings, origin, tools, exposure_changes, changes }))
    }

    /// Refuses calls while the runner has this many runs.
    #[must_use]
    pub fn with_max_runs(self, max_runs: usize) -> Self {
        let settings = ServiceSettings::clone(&self.0.settings.load());
        self.0.settings.store(Arc::new(ServiceSettings { max_runs, ..settings }));
        self
    }

    /// Replaces the exposed items, and the number of runs from which calls are refused. Clients are notified that the
    /// tools have changed.
    pub fn reconfigure(&self, exposure: Exposure, max_runs: usize) {
        let before = self.0.settings.swap(Arc::new(ServiceSettings { exposure, max_runs }));
        if before.exposure != self.0.settings.load().exposure {
            *self.0.tools.lock_unpoisoned() = None;
            self.0.exposure_changes.send_modify(|count| *count += 1);
        }
    }

    /// Returns the tools that clients may use, once everything is loaded.
    async fn tools(&self) -> Arc<ExposedTools> {
        self.0.catalog.wait_until_loaded().await;
        self.loaded_tools()
    }

    /// Returns the tools that clients may use now.
    fn loaded_tools(&self) -> Arc<ExposedTools> {
        let generation = *self.0.catalog.changes().borrow();
        let mut tools = self.0.tools.lock_unpoisoned();
        match tools.as_ref() {
            Some((loaded, tools)) if *loaded == generation => tools.clone(),
            _ => {
                let current =
                    Arc::new(ExposedTools::resolve(self.0.catalog.as_ref(), &self.0.settings.load().exposure));
                *tools = Some((generation, current.clone()));
                current
            }
        }
    }

    /// Serves one client over standard input and output. Returns when the client closes the input, or when `stop`
    /// completes.
    ///
    /// # Errors
    /// The reason why the handshake has failed.
    pub async fn serve_stdio(&self, stop: impl Future<Output = ()>) -> Result<(), String> {
        self.serve(tokio::io::stdin(), tokio::io::stdout(), stop).await
    }

    /// Like [`McpService::serve_stdio`], over other streams.
    ///
    /// # Errors
    /// The reason why the handshake has failed.
    pub async fn serve<R, W>(&self, read: R, write: W, stop: impl Future<Output = ()>) -> Result<(), String>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        session::serve(self.clone(), (read, write), stop).await
    }
}
