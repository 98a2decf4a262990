//! `artifacts`: the artifacts of the session.

use hatchery_core::{MAX_LOADED_BYTES, Part};
use wasmtime::component::HasSelf;

use super::{Access as Accessor, StoreAccess, check_change, check_permission, reserve};
use crate::contract::bindings::hatchery::agent::artifacts::{Host, HostWithStore};
use crate::contract::convert::{EstimateSize, FromWit, ToWit, wit};
use crate::policy::{Access, Permission};
use crate::runtime::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn save(accessor: &Accessor<T>, name: String, part: wit::Part) -> Result<u64, wit::Error> {
        save(accessor, name, part).await
    }

    async fn load(accessor: &Accessor<T>, name: String, version: Option<u64>) -> Result<Option<wit::Part>, wit::Error> {
        load(accessor, name, version).await
    }

    async fn list(accessor: &Accessor<T>) -> Result<Vec<String>, wit::Error> {
        list(accessor).await
    }

    async fn versions(accessor: &Accessor<T>, name: String) -> Result<Vec<u64>, wit::Error> {
        versions(accessor, name).await
    }

    async fn delete(accessor: &Accessor<T>, name: String) -> Result<(), wit::Error> {
        delete(accessor, name).await
    }
}

pub(super) async fn save(mut store: impl StoreAccess, name: String, part: wit::Part) -> Result<u64, wit::Error> {
    let cx = check_change(&mut store, Permission::Artifacts(Access::Write)).await?;
    let _reservation = reserve(&mut store, part.estimated_size())?;
    Ok(cx.save_artifact(&name, &Part::from_wit(part)?).await?)
}

pub(super) async fn load(
    mut store: impl StoreAccess,
    name: String,
    version: Option<u64>,
) -> Result<Option<wit::Part>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Artifacts(Access::Read))?;
    let run = &cx.invocation;
    let Some(artifact) = run.services.artifacts.load_stream(&run.session_key, &name, version).await? else {
        return Ok(None);
    };
    // The bytes are copied into the component's memory.
    let _reservation = reserve(&mut store, artifact.len)?;
    Ok(Some(artifact.into_part(&name, MAX_LOADED_BYTES).await?.to_wit()))
}

pub(super) async fn list(mut store: impl StoreAccess) -> Result<Vec<String>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Artifacts(Access::Read))?;
    Ok(cx.list_artifacts().await?)
}

pub(super) async fn versions(mut store: impl StoreAccess, name: String) -> Result<Vec<u64>, wit::Error> {
    let run = check_permission(&mut store, Permission::Artifacts(Access::Read))?.invocation;
    Ok(run.services.artifacts.versions(&run.session_key, &name).await?)
}

pub(super) async fn delete(mut store: impl StoreAccess, name: String) -> Result<(), wit::Error> {
    let cx = check_change(&mut store, Permission::Artifacts(Access::Write)).await?;
    Ok(cx.delete_artifact(&name).await?)
}
