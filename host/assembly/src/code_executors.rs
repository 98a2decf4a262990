//! The code executors of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::CodeExecutor;
use hatchery_engine::Extensions;
use hatchery_executors::VertexExecutor;

use crate::config::{CodeExecutorConfig, ContainerConfig};

/// Registers the executors by their names. All agents share an executor, and with it the containers of their sessions.
pub(crate) fn register(configs: &BTreeMap<String, CodeExecutorConfig>, extensions: &mut Extensions) {
    for (name, config) in configs {
        let executor = create(name, config);
        extensions.code_executors.register(name, move |_| executor.clone());
    }
}

/// Creates an executor. The error is for the loader of an agent that refers to it.
fn create(name: &str, config: &CodeExecutorConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    match config {
        CodeExecutorConfig { refusal: Some(refusal), .. } => Err(refusal.clone()),
        CodeExecutorConfig { container: Some(container), .. } => in_containers(name, container),
        CodeExecutorConfig { vertex: Some(vertex), .. } => {
            let settings = vertex.settings(name).ok_or("its settings are invalid")?;
            Ok(Arc::new(VertexExecutor::new(name, settings)))
        }
        CodeExecutorConfig { container: None, vertex: None, refusal: None } => Err("it has no settings".into()),
    }
}

#[cfg(unix)]
fn in_containers(name: &str, config: &ContainerConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    Ok(Arc::new(hatchery_executors::ContainerExecutor::new(name, config.settings())?))
}

#[cfg(not(unix))]
fn in_containers(_: &str, _: &ContainerConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    Err("containers are reached by a Unix socket, which this system does not have".into())
}
