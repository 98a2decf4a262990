//! The code executors of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ToolError};
use hatchery_engine::Extensions;
use hatchery_executors::VertexExecutor;

use crate::config::{CodeExecutorConfig, ContainerConfig};

/// Flags by executor name: true once the executor is withdrawn.
pub(crate) type Withdrawals = BTreeMap<String, Arc<AtomicBool>>;

/// Registers the executors by their names. All agents share an executor, and with it the containers of their sessions.
pub(crate) fn register(configs: &BTreeMap<String, CodeExecutorConfig>, extensions: &mut Extensions) -> Withdrawals {
    let mut withdrawals = Withdrawals::new();
    for (name, config) in configs {
        let is_withdrawn = Arc::<AtomicBool>::default();
        let executor = create(name, config).map(|executor| -> Arc<dyn CodeExecutor> {
            Arc::new(RevocableExecutor { executor, is_withdrawn: is_withdrawn.clone() })
        });
        extensions.code_executors.register(name, move |_| executor.clone());
        withdrawals.insert(name.clone(), is_withdrawn);
    }
    withdrawals
}

/// Withdraws the executors that were removed or are not trusted any more. Returns their names, each of them once.
pub(crate) fn withdraw<'a>(
    withdrawals: &'a Withdrawals,
    configs: &BTreeMap<String, CodeExecutorConfig>,
) -> impl Iterator<Item = &'a str> {
    withdrawals
        .iter()
        .filter(|(name, is_withdrawn)| {
            let is_kept = configs.get(*name).is_some_and(|config| config.refusal.is_none());
            !is_kept && !is_withdrawn.swap(true, Ordering::Relaxed)
        })
        .map(|(name, _)| name.as_str())
}

/// An executor until it is withdrawn.
struct RevocableExecutor {
    executor: Arc<dyn CodeExecutor>,
    is_withdrawn: Arc<AtomicBool>,
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
                 it with `hatchery trust DIR` and start the host again",
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_was_removed_or_lost_its_trust_is_withdrawn_once() {
        let names = ["kept", "refused", "removed"];
        let withdrawals: Withdrawals = names.map(|name| (name.to_owned(), Arc::default())).into();
        let refused = CodeExecutorConfig { refusal: Some("no".into()), ..CodeExecutorConfig::default() };
        let configs: BTreeMap<_, _> =
            [("kept".to_owned(), CodeExecutorConfig::default()), ("refused".to_owned(), refused)].into();
        let withdrawn: BTreeSet<_> = withdraw(&withdrawals, &configs).collect();
        assert_eq!(withdrawn, BTreeSet::from(["refused", "removed"]));
        assert_eq!(withdraw(&withdrawals, &configs).count(), 0);
        assert!(!withdrawals["kept"].load(Ordering::Relaxed));
    }
}
