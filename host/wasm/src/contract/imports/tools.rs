//! `tools`: other tools of the agent. A denied or unknown tool is a recoverable error, which the model sees.

use hatchery_core::{ToolError, truncate_bytes};
use tokio::task::JoinSet;
use tracing::Instrument;
use wasmtime::component::HasSelf;

use super::{Access, StoreAccess, context, reserve};
use crate::contract::bindings::hatchery::agent::tools::{Host, HostWithStore};
use crate::contract::convert::{parse_object, to_json, wit};
use crate::policy::Permission;
use crate::runtime::store::HostState;
use crate::runtime::store::meter::parsed_size;
use crate::runtime::store::nesting::MAX_CONCURRENT_CALLS;

/// Maximum number of bytes of a name in the error of a call that takes too much memory.
const MAX_SHOWN_NAME: usize = 128;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn call(accessor: &Access<T>, name: String, args: String) -> Result<String, wit::ToolError> {
        call(accessor, name, args).await
    }
}

/// Calls a tool in its own task.
pub(super) async fn call(mut store: impl StoreAccess, name: String, args: String) -> Result<String, wit::ToolError> {
    let cx = context(&mut store).map_err(wit::ToolError::Fatal)?;
    let host = cx.host().map_err(|error| wit::ToolError::Fatal(error.into()))?.clone();
    let reservation = reserve(&mut store, name.len() as u64 + parsed_size(&args));
    let _reservation = reservation.map_err(|error| {
        let name = truncate_bytes(&name, MAX_SHOWN_NAME);
        wit::ToolError::Recoverable(format!("tool `{name}` is not called: {}", error.message))
    })?;
    let args = parse_object(&args, "the arguments").map_err(|error| wit::ToolError::Recoverable(error.to_string()))?;
    let (nesting, usage) = store.with_state(|state| (state.nesting.clone(), state.usage.clone()));
    let nested = nesting.nested(usage.limits()).map_err(|exceeded| usage.limit_exceeded(exceeded.limit));
    let counted = nested.and_then(|nested| usage.count_tool_call().map(|()| nested));
    let nesting = counted.map_err(|exceeded| {
        wit::ToolError::Recoverable(format!("tool `{name}` is not called: {}", exceeded.for_callers()))
    })?;
    let _permit = nesting.try_acquire().ok_or_else(|| {
        wit::ToolError::Recoverable(format!(
            "tool `{name}` is not called: {MAX_CONCURRENT_CALLS} calls run already; wait for some"
        ))
    })?;
    // Dropping the set, with this call or the Wasmtime store, aborts the task.
    let mut task = JoinSet::new();
    let (grants, component, log) =
        store.with_state(|state| (state.grants.clone(), state.component.clone(), state.log.clone()));
    let call = async move {
        let check = |tool: &str| {
            let checked = grants.check(&component, Permission::Tool(tool));
            // The model can continue without this tool.
            checked.map_err(|denial| ToolError::Recoverable(denial.report(&log).message))
        };
        host.call_checked_tool(&cx, &name, args, &check).await
    };
    task.spawn(nesting.scope(call).in_current_span());
    match task.join_next().await {
        Some(Ok(Ok(result))) => Ok(to_json(&result)),
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Err(_)) | None => Err(wit::ToolError::Recoverable("the tool call was aborted".into())),
    }
}

impl From<ToolError> for wit::ToolError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self::Recoverable(message),
            ToolError::Fatal { code, message, .. } => Self::Fatal(wit::Error { code: code.into_owned(), message }),
        }
    }
}
