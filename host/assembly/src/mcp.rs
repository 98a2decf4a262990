//! The apps and tools of the host for MCP clients.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallerOrigin, Tool};
use hatchery_engine::{App, AppDirectory, CatalogSource};
use hatchery_mcp::{Browser, Exposure, McpCatalog, McpError, McpService};
use hatchery_wasm::CatalogHandle;
use tokio::sync::watch;

use crate::config::Config;
use crate::host::Host;
use crate::host_key;
use crate::services;
use crate::source::{AppSource, ComponentReport};
use crate::storage::Storage;

/// The apps of the host, and the tools of its components.
struct ExposedCatalog {
    apps: Arc<dyn AppSource>,
    items: Arc<dyn CatalogSource>,
    /// The folder. `None` if all apps are native.
    catalog: Option<CatalogHandle>,
}

impl AppDirectory for ExposedCatalog {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.apps.app(name)
    }

    fn app_names(&self) -> Vec<String> {
        self.apps.app_names()
    }
}

#[async_trait]
impl McpCatalog for ExposedCatalog {
    fn tool_names(&self) -> Vec<String> {
        let components = self.apps.report().components;
        let names = |component: &ComponentReport| {
            component.tools.iter().map(|tool| format!("{}/{tool}", component.name)).collect::<Vec<_>>()
        };
        components.iter().flat_map(names).collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.items.snapshot().resolver.tool(name).ok()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        match &self.catalog {
            Some(catalog) => catalog.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    async fn wait_until_loaded(&self) {
        if let Some(catalog) = &self.catalog {
            catalog.wait_until_loaded().await;
        }
    }
}

/// Returns the exposure of the configuration, with these additional patterns of tools.
pub(crate) fn exposure(config: &Config, tools: &[String]) -> Exposure {
    let expose = config.mcp.expose.clone();
    // Invalid prompts are errors when the file is read.
    let prompts = expose.prompts.into_iter().filter_map(|(name, prompt)| Some((name, prompt.prompt().ok()?)));
    Exposure {
        apps: expose.apps,
        tools: expose.tools.into_iter().chain(tools.iter().cloned()).collect(),
        private: config.components.iter().filter(|(_, it)| it.private).map(|(name, _)| name.clone()).collect(),
        prompts: prompts.collect(),
        resources: expose.resources.iter().map(|(uri, resource)| resource.resource(uri)).collect(),
    }
}

impl Host {
    /// Lets a person grant access to an MCP server of a configuration. The tokens are stored in `storage`, for hosts
    /// with this configuration.
    ///
    /// # Errors
    /// If there is no such server, it cannot be reached, or access is not granted.
    pub async fn login(
        config: &Config,
        storage: &Storage,
        server: &str,
        browser: &dyn Browser,
    ) -> Result<(), McpError> {
        // Reqwest has no default provider. An application may have installed another one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        if matches!(storage, Storage::InMemory) || config.session_service.as_deref() == Some("memory:") {
            let message =
                "sessions are in memory, and credentials with them, so the login would be lost; keep sessions on disk";
            return Err(McpError::Authorization(message.into()));
        }
        let signer = host_key::open(config, storage, |name| std::env::var_os(name));
        let signer = signer.map_err(|error| McpError::Authorization(error.to_string()))?;
        let credentials = services::credentials(config, storage, &signer);
        config.mcp.servers(&credentials).login(server, browser).await
    }

    /// Returns the host as an MCP server, for clients that reach it by `origin`. It offers the apps and tools that the
    /// configuration in force exposes, and the tools that match these patterns.
    pub fn mcp_service(&self, origin: CallerOrigin, tools: Vec<String>) -> McpService {
        let catalog = Arc::new(ExposedCatalog {
            apps: self.apps().clone(),
            items: self.catalog_source().clone(),
            catalog: self.catalog_handle().cloned(),
        });
        self.live().add_mcp_service(tools, |exposure, max_runs| {
            McpService::new(self.runner().clone(), catalog, exposure, origin).with_max_runs(max_runs)
        })
    }
}
