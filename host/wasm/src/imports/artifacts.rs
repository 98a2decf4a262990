//! `artifacts`: the session's files.

use hatchery_core::Part;
use wasmtime::component::HasSelf;

use super::{Access, context};
use crate::bindings::hatchery::agent::artifacts::{Host, HostWithStore};
use crate::convert::{FromWit, ToWit, wit};
use crate::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn save(accessor: &Access<T>, name: String, part: wit::Part) -> Result<u64, wit::Error> {
        let cx = context(accessor)?;
        Ok(cx.save_artifact(&name, &Part::from_wit(part)?).await?)
    }

    async fn load(accessor: &Access<T>, name: String, version: Option<u64>) -> Result<Option<wit::Part>, wit::Error> {
        let cx = context(accessor)?;
        Ok(cx.load_artifact(&name, version).await?.map(|part| part.to_wit()))
    }

    async fn list(accessor: &Access<T>) -> Result<Vec<String>, wit::Error> {
        let cx = context(accessor)?;
        Ok(cx.list_artifacts().await?)
    }

    async fn versions(accessor: &Access<T>, name: String) -> Result<Vec<u64>, wit::Error> {
        let run = context(accessor)?.invocation;
        Ok(run.services.artifacts.versions(&run.session_key, &name).await?)
    }

    async fn delete(accessor: &Access<T>, name: String) -> Result<(), wit::Error> {
        let run = context(accessor)?.invocation;
        Ok(run.services.artifacts.delete(&run.session_key, &name).await?)
    }
}
