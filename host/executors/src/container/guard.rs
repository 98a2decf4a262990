//! Containers that end with their owner.

use hatchery_core::new_event_id;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::engine::{Engine, EngineError};

/// A container that is removed when this is dropped.
pub(super) struct Container {
    engine: Engine,
    name: String,
    /// The permit for one container, held until it is removed. `None` once the removal has begun.
    permit: Option<OwnedSemaphorePermit>,
}

impl Container {
    /// Creates and starts a container. `body` is the body of the request.
    pub(super) async fn start(engine: &Engine, body: Value, permit: OwnedSemaphorePermit) -> Result<Self, EngineError> {
        let name = format!("hatchery-{}", new_event_id());
        let container = Self { engine: engine.clone(), name, permit: Some(permit) };
        // The engine may carry out a cancelled request, so the request is never cancelled: a container without an owner
        // is removed when it has started.
        let starting = tokio::spawn(async move {
            container.engine.create(&container.name, &body).await?;
            container.engine.start(&container.name).await?;
            Ok::<_, EngineError>(container)
        });
        starting.await.unwrap_or_else(|error| Err(EngineError::Unexpected(error.to_string())))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Ends and removes the container.
    pub(super) async fn remove(mut self) {
        if let Some(removal) = self.begin_removal() {
            // Its task does not panic.
            let _ = removal.await;
        }
    }

    /// `None` if the removal has begun, or the runtime has ended: the container ends by itself then.
    fn begin_removal(&mut self) -> Option<JoinHandle<()>> {
        let permit = self.permit.take()?;
        let (engine, name) = (self.engine.clone(), std::mem::take(&mut self.name));
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            engine.remove(&name).await;
            drop(permit);
        }))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.begin_removal());
    }
}
