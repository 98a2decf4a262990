//! `memory`: search in earlier sessions of the user.

use wasmtime::component::HasSelf;

use super::{Access, StoreAccess, allowed};
use crate::contract::bindings::hatchery::agent::memory::{Entry, Host, HostWithStore};
use crate::contract::convert::{ToWit, wit};
use crate::policy::Permission;
use crate::runtime::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn search(accessor: &Access<T>, query: String) -> Result<Vec<Entry>, wit::Error> {
        search(accessor, query).await
    }
}

pub(super) async fn search(mut store: impl StoreAccess, query: String) -> Result<Vec<Entry>, wit::Error> {
    let cx = allowed(&mut store, Permission::Memory)?;
    let entries = cx.search_memory(&query).await?.into_iter().map(|entry| Entry {
        content: entry.content.to_wit(),
        author: entry.author,
        timestamp: entry.timestamp.as_micros(),
    });
    Ok(entries.collect())
}
