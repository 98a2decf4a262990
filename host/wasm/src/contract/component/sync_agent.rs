//! The run of a custom agent that is asked for each of its events. The next is asked for when the one before is stored.

use tokio::sync::{mpsc, oneshot};
use wasmtime::Store;

use super::agent::Yielded;
use crate::contract::bindings::exports::hatchery::agent::sync_guest_agents::Guest;
use crate::contract::convert::wit;
use crate::contract::relay::Relay;
use crate::runtime::store::HostState;

/// Asks the guest for events until there are no more, and sends them to where they are stored.
pub(super) async fn run_to_end(
    mut store: Store<HostState>,
    guest: Guest,
    name: String,
    sender: mpsc::Sender<Yielded>,
    relay: &Relay,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let turn = match guest.call_run(&mut store, &name).await? {
        Ok(turn) => turn,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let event = match guest.turn().call_next(&mut store, turn).await? {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        };
        let held = relay.claim(&event.id);
        let (done, stored) = oneshot::channel();
        // Whoever stores the events has ended the run, and says why, if either fails.
        if sender.send(Yielded { event, held, done }).await.is_err() || stored.await.is_err() {
            break;
        }
    }
    turn.resource_drop_async(&mut store).await?;
    Ok(Ok(()))
}
