//! Agents that are code.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{AgentContext, AgentId, CallContext, Custom, Event, EventSink, RunError};

use super::host::Host;
use super::past::Past;
use super::{Frame, Lane, Outcome};

/// Runs the code. Code has no steps that could be skipped: when an interrupted run goes on, it runs again from its beginning, and what it
/// says is taken to be what it said the first time.
pub(super) async fn run(frame: &Arc<Frame>, id: AgentId, custom: &Custom, lane: Lane) -> Result<Outcome, RunError> {
    let host = Arc::new(Host::new(frame.clone(), id, lane.past.clone()));
    let name: Arc<str> = frame.agent(id).name.as_str().into();
    let call = CallContext::new(frame.invocation.clone(), name.clone(), lane.branch).with_host(host.clone());
    let sink = Arc::new(Retelling { agent: name, past: lane.past, host: host.clone(), inner: lane.sink });
    let cx = AgentContext { call, sink };
    let result = custom.code.run(cx.clone()).await;
    if host.is_paused() {
        return Ok(Outcome::Paused);
    }
    result?;
    // What it has set since it last said something.
    cx.flush().await?;
    Ok(Outcome::Done)
}

/// Where the code's events go.
struct Retelling {
    agent: Arc<str>,
    past: Arc<Past>,
    host: Arc<Host>,
    inner: Arc<dyn EventSink>,
}

#[async_trait]
impl EventSink for Retelling {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        if self.host.is_paused() {
            return Err(RunError::Stopped);
        }
        if self.past.is_over() || event.author != *self.agent {
            return self.inner.emit(event).await;
        }
        if event.partial {
            return Ok(event);
        }
        match self.past.take(&self.agent, |_| true) {
            Some(stored) => self.inner.emit(stored).await,
            None => {
                self.past.go_live(&self.agent)?;
                self.inner.emit(event).await
            }
        }
    }
}
