//! `clock`: waiting.

use std::time::Duration;

use wasmtime::component::HasSelf;

use super::Access;
use crate::contract::bindings::hatchery::agent::clock::{Host, HostWithStore};
use crate::runtime::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn sleep(_: &Access<T>, nanoseconds: u64) {
        tokio::time::sleep(Duration::from_nanos(nanoseconds)).await;
    }
}
