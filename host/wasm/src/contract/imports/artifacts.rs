//! `artifacts`: the artifacts of the session.

use hatchery_core::{ArtifactStream, MAX_LOADED_BYTES, Part, PartData, Timestamp};
use wasmtime::component::HasSelf;

use super::{Access as Accessor, StoreAccess, check_change, check_permission, reserve, reserve_value};
use crate::contract::bindings::hatchery::agent::artifacts::{Host, HostWithStore};
use crate::contract::convert::{FromWit, ToWit, parse_object, to_json, wit};
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

    async fn save_with(
        accessor: &Accessor<T>,
        name: String,
        part: wit::Part,
        custom_metadata: String,
    ) -> Result<u64, wit::Error> {
        save_with(accessor, name, part, custom_metadata).await
    }

    async fn get_version(
        accessor: &Accessor<T>,
        name: String,
        version: Option<u64>,
    ) -> Result<Option<wit::ArtifactVersion>, wit::Error> {
        get_version(accessor, name, version).await
    }

    async fn delete(accessor: &Accessor<T>, name: String) -> Result<(), wit::Error> {
        delete(accessor, name).await
    }
}

pub(super) async fn save(mut store: impl StoreAccess, name: String, part: wit::Part) -> Result<u64, wit::Error> {
    let cx = check_change(&mut store, Permission::Artifacts(Access::Write)).await?;
    let _reservation = reserve_value(&mut store, &part)?;
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

pub(super) async fn save_with(
    mut store: impl StoreAccess,
    name: String,
    part: wit::Part,
    custom_metadata: String,
) -> Result<u64, wit::Error> {
    let cx = check_change(&mut store, Permission::Artifacts(Access::Write)).await?;
    let _reservation = (reserve_value(&mut store, &part)?, reserve_value(&mut store, &custom_metadata)?);
    let custom_metadata = parse_object(&custom_metadata, "the custom metadata")?;
    Ok(cx.save_artifact_with(&name, &Part::from_wit(part)?, &custom_metadata).await?)
}

/// Returns the metadata of a version. Its bytes are not read.
pub(super) async fn get_version(
    mut store: impl StoreAccess,
    name: String,
    version: Option<u64>,
) -> Result<Option<wit::ArtifactVersion>, wit::Error> {
    let run = check_permission(&mut store, Permission::Artifacts(Access::Read))?.invocation;
    let (artifacts, key) = (&run.services.artifacts, &run.session_key);
    let version = match version {
        Some(version) => Some(version),
        None => artifacts.versions(key, &name).await?.last().copied(),
    };
    let Some(version) = version else { return Ok(None) };
    let Some(artifact) = artifacts.load_stream(key, &name, Some(version)).await? else { return Ok(None) };
    let ArtifactStream { part, created, custom_metadata, len, .. } = artifact;
    let (mime_type, size) = match part.data {
        PartData::InlineData(blob) => (Some(blob.mime_type), len),
        PartData::FileData(file) => (file.mime_type, 0),
        PartData::Text(text) => (None, text.len() as u64),
        _ => (None, 0),
    };
    let (created, custom_metadata) = (created.map(Timestamp::as_micros), to_json(&custom_metadata));
    Ok(Some(wit::ArtifactVersion { version, mime_type, size, created, custom_metadata }))
}

pub(super) async fn delete(mut store: impl StoreAccess, name: String) -> Result<(), wit::Error> {
    let cx = check_change(&mut store, Permission::Artifacts(Access::Write)).await?;
    Ok(cx.delete_artifact(&name).await?)
}
