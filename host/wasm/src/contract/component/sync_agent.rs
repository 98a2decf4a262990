//! Custom agents of the synchronous profile: the host asks for each event when the previous one is stored, or taken if
//! it is partial.

use tokio::sync::mpsc;
use wasmtime::Store;

use super::agent::YieldedEvent;
use crate::contract::bindings::exports::hatchery::agent::sync_guest_agents::Guest;
use crate::contract::convert::wit;
use crate::contract::sub_agent_relay::SubAgentRelay;
use crate::runtime::store::HostState;

/// Asks the guest for events until it has no more, and sends them to the session.
pub(super) async fn run_to_end(
    mut store: Store<HostState>,
    guest: Guest,
    name: String,
    sender: mpsc::Sender<YieldedEvent>,
    relay: &SubAgentRelay,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let run = match guest.call_run(&mut store, &name).await? {
        Ok(run) => run,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let event = match guest.agent_run().call_next(&mut store, run).await? {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        };
        let (event, emitted) = YieldedEvent::new(event, relay);
        // If either fails, the run has ended with its own error.
        if sender.send(event).await.is_err() {
            break;
        }
        if let Some(emitted) = emitted
            && emitted.await.is_err()
        {
            break;
        }
    }
    run.resource_drop_async(&mut store).await?;
    Ok(Ok(()))
}
