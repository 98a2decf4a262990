//! The code executors of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ToolError};
use hatchery_engine::Extensions;
use hatchery_executors::VertexExecutor;

use crate::config::{CodeExecutorConfig, ContainerConfig};

/// Executors by name. All agents share an executor, and with it the containers of their sessions.
pub(crate) type CodeExecutors = BTreeMap<String, ConfiguredExecutor>;

/// An executor, or why it cannot be used.
type ConfiguredExecutor = Result<Arc<RevocableExecutor>, String>;

/// Creates the executors of a configuration. Executors in `kept` are reused.
pub(crate) fn create_executors(
    configs: &BTreeMap<String, CodeExecutorConfig>,
    mut kept: CodeExecutors,
) -> CodeExecutors {
    let executor = |(name, config): (&String, &CodeExecutorConfig)| {
        let create = || create(name, config).map(|executor| Arc::new(RevocableExecutor::new(executor)));
        (name.clone(), kept.remove(name).unwrap_or_else(create))
    };
    configs.iter().map(executor).collect()
}

/// Registers the executors by their names.
pub(crate) fn register(executors: &CodeExecutors, extensions: &mut Extensions) {
    for (name, executor) in executors {
        let executor = executor.clone().map(|executor| -> Arc<dyn CodeExecutor> { executor });
        extensions.code_executors.register(name, move |_| executor.clone());
    }
}

/// Withdraws the executors that were removed or are no longer trusted. Returns them, each of them once.
pub(crate) fn withdraw<'a>(
    executors: &'a CodeExecutors,
    configs: &BTreeMap<String, CodeExecutorConfig>,
) -> impl Iterator<Item = &'a Arc<RevocableExecutor>> {
    executors
        .iter()
        .filter_map(|(name, executor)| Some((name, executor.as_ref().ok()?)))
        .filter(|(name, executor)| {
            let is_kept = configs.get(name.as_str()).is_some_and(|config| config.refusal.is_none());
            !is_kept && !executor.is_withdrawn.swap(true, Ordering::Relaxed)
        })
        .map(|(_, executor)| executor)
}

/// An executor until it is withdrawn.
pub(crate) struct RevocableExecutor {
    executor: Arc<dyn CodeExecutor>,
    is_withdrawn: AtomicBool,
}

impl RevocableExecutor {
    fn new(executor: Arc<dyn CodeExecutor>) -> Self {
        Self { executor, is_withdrawn: AtomicBool::new(false) }
    }

    /// Closes the executor. Agents share it, so closing one of their apps does not.
    pub(crate) async fn shut_down(&self) {
        self.executor.close().await;
    }
}

#[async_trait]
impl CodeExecutor for RevocableExecutor {
    fn name(&self) -> &str {
        self.executor.name()
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        if self.is_withdrawn.load(Ordering::Relaxed) {
            let message = format!(
                "the code executor `{}` was removed from hatchery.yaml or is not trusted any more; the operator can review \
                 it with `hatchery trust DIR`",
                self.name()
            );
            return Err(ToolError::Recoverable(message));
        }
        self.executor.execute(input, cx).await
    }
}

/// Creates an executor. The error is for the loader of an agent that refers to it.
fn create(name: &str, config: &CodeExecutorConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    match config {
        CodeExecutorConfig { refusal: Some(refusal), .. } => Err(refusal.clone()),
        CodeExecutorConfig { container: Some(container), .. } => create_container_executor(name, container),
        CodeExecutorConfig { vertex: Some(vertex), .. } => {
            let settings = vertex.settings(name).ok_or("its settings are invalid")?;
            Ok(Arc::new(VertexExecutor::new(name, settings)))
        }
        CodeExecutorConfig { container: None, vertex: None, refusal: None } => Err("it has no settings".into()),
    }
}

#[cfg(unix)]
fn create_container_executor(name: &str, config: &ContainerConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    Ok(Arc::new(hatchery_executors::ContainerExecutor::new(name, config.settings())?))
}

#[cfg(not(unix))]
fn create_container_executor(_: &str, _: &ContainerConfig) -> Result<Arc<dyn CodeExecutor>, String> {
    Err("containers are reached by a Unix socket, which this system does not have".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An executor without code.
    struct Named(&'static str);

    #[async_trait]
    impl CodeExecutor for Named {
        fn name(&self) -> &str {
            self.0
        }

        async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
            Ok(CodeOutput::default())
        }
    }

    #[test]
    fn what_was_removed_or_lost_its_trust_is_withdrawn_once() {
        let executor = |name| (String::from(name), Ok(Arc::new(RevocableExecutor::new(Arc::new(Named(name))))));
        let executors: CodeExecutors = ["kept", "refused", "removed"].map(executor).into();
        let refused = CodeExecutorConfig { refusal: Some("no".into()), ..CodeExecutorConfig::default() };
        let configs: BTreeMap<_, _> =
            [("kept".to_owned(), CodeExecutorConfig::default()), ("refused".to_owned(), refused)].into();
        let withdrawn: Vec<_> = withdraw(&executors, &configs).map(|executor| executor.name()).collect();
        assert_eq!(withdrawn, ["refused", "removed"]);
        assert_eq!(withdraw(&executors, &configs).count(), 0);
        assert!(!executors["kept"].as_ref().unwrap().is_withdrawn.load(Ordering::Relaxed));
    }
}
