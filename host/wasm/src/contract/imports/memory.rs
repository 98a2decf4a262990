//! `memory`: search in earlier sessions of the user.

use std::sync::Arc;

use hatchery_core::{CallContext, EarlierCall, Event, EventData, EventWindow, SessionKey, StoreError};
use wasmtime::component::HasSelf;

use super::journal::CallEntry;
use super::{
    Access as Accessor, StoreAccess, begin_read, check_change, check_permission, reserve, reserve_value, wit_error,
};
use crate::contract::bindings::hatchery::agent::memory::{Host, HostWithStore};
use crate::contract::convert::{ToWit, all_from_wit, wit};
use crate::policy::{Access, Permission};
use crate::runtime::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn search(accessor: &Accessor<T>, query: String) -> Result<Vec<wit::MemoryEntry>, wit::Error> {
        search(accessor, query).await
    }

    async fn add_session(accessor: &Accessor<T>, session: Option<String>) -> Result<(), wit::Error> {
        add_session(accessor, session).await
    }

    async fn add_events(accessor: &Accessor<T>, events: Vec<wit::Event>) -> Result<(), wit::Error> {
        add_events(accessor, events).await
    }
}

pub(super) async fn search(mut store: impl StoreAccess, query: String) -> Result<Vec<wit::MemoryEntry>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Memory(Access::Read))?;
    let _reservation = reserve(&mut store, query.len() as u64)?;
    count_embedder_calls(&mut store, &cx, 1)?;
    let _read = begin_read(&mut store).await;
    let entries = cx.search_memory(&query).await?.into_iter().map(|entry| wit::MemoryEntry {
        content: entry.content.to_wit(),
        author: entry.author,
        timestamp: entry.timestamp.as_micros(),
    });
    Ok(entries.collect())
}

pub(super) async fn add_session(mut store: impl StoreAccess, session: Option<String>) -> Result<(), wit::Error> {
    let cx = check_change(&mut store, Permission::Memory(Access::Write)).await?;
    let run = &cx.invocation;
    let _read = begin_read(&mut store).await;
    let session = match session.filter(|id| **id != *run.session_key.id) {
        None => run.session(),
        Some(id) => {
            let key = SessionKey::new(&*run.session_key.app, &*run.session_key.user, id);
            let stored = run.services.sessions.get(&key, EventWindow::All).await?;
            stored.ok_or(StoreError::SessionNotFound(key))?
        }
    };
    count_embedder_calls(&mut store, &cx, session.events.len())?;
    Ok(run.services.memory.add_session(&session).await?)
}

pub(super) async fn add_events(mut store: impl StoreAccess, events: Vec<wit::Event>) -> Result<(), wit::Error> {
    let cx = check_change(&mut store, Permission::Memory(Access::Write)).await?;
    let _reservation = reserve_value(&mut store, &events)?;
    let events: Vec<EventData> = all_from_wit(events)?;
    // Events without an id get a new one, so that a repeated call would add them again.
    let record = CallEntry::new(&cx, "memory.add-events", &events);
    if let EarlierCall::Completed(()) = record.earlier() {
        return Ok(());
    }
    let events: Vec<_> = events.into_iter().map(Event::new).collect::<Vec<Arc<Event>>>();
    count_embedder_calls(&mut store, &cx, events.len())?;
    let run = &cx.invocation;
    run.services.memory.add_events(&run.session_key, &events).await?;
    Ok(record.complete(&()).await?)
}

/// Counts the calls of the memory's embedder for this number of texts as calls of a model.
fn count_embedder_calls(store: &mut impl StoreAccess, cx: &CallContext, texts: usize) -> Result<(), wit::Error> {
    let usage = store.with_state(|state| state.usage.clone());
    for _ in 0..cx.invocation.services.memory.embedder_calls(texts) {
        usage.count_model_call().map_err(|exceeded| wit_error("LIMIT_REACHED", exceeded.for_callers()))?;
        cx.invocation.count_llm_call(&cx.agent)?;
    }
    Ok(())
}
