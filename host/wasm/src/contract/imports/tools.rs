//! `tools`: other tools of the agent. A refusal is for the model that wanted what needed the tool, as is an unknown name.

use hatchery_core::ToolError;
use tokio::task::JoinSet;
use tracing::Instrument;
use wasmtime::component::HasSelf;

use super::{Access, Reach, context, hold};
use crate::contract::bindings::hatchery::agent::tools::{Host, HostWithStore};
use crate::contract::convert::{object, text, wit};
use crate::policy::Permission;
use crate::runtime::store::HostState;
use crate::runtime::store::meter::parsed_size;
use crate::runtime::store::nesting::MOST_AT_ONCE;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn call(accessor: &Access<T>, name: String, args: String) -> Result<String, wit::ToolError> {
        call(accessor, name, args).await
    }
}

/// Calls a tool in a task of its own.
pub(super) async fn call(mut store: impl Reach, name: String, args: String) -> Result<String, wit::ToolError> {
    let cx = context(&mut store).map_err(wit::ToolError::Fatal)?;
    let host = cx.host().map_err(|error| wit::ToolError::Fatal(error.into()))?.clone();
    let held = hold(&mut store, parsed_size(&args));
    let _held =
        held.map_err(|error| wit::ToolError::Model(format!("tool `{name}` is not called: {}", error.message)))?;
    let args = object(&args, "the arguments").map_err(|error| wit::ToolError::Model(error.to_string()))?;
    let (nesting, tally) = store.reach(|state| (state.nesting.clone(), state.tally.clone()));
    let deeper = nesting.deeper(tally.limits()).map_err(|hit| tally.exceed(hit.limit));
    let taken = deeper.and_then(|deeper| tally.tool_call().map(|()| deeper));
    let nesting = taken.map_err(|hit| wit::ToolError::Model(format!("tool `{name}` is not called: {hit}")))?;
    let _place = nesting.place().ok_or_else(|| {
        wit::ToolError::Model(format!("tool `{name}` is not called: {MOST_AT_ONCE} calls run already; wait for some"))
    })?;
    // The set ends the task when the guest, or its store, drops this call.
    let mut task = JoinSet::new();
    let (grants, component, output) =
        store.reach(|state| (state.grants.clone(), state.component.clone(), state.output.clone()));
    let call = async move {
        let check = |tool: &str| {
            let checked = grants.check(&component, Permission::Tool(tool));
            // The model that asked for this can do without.
            checked.map_err(|denial| ToolError::Recoverable(denial.report(&output).message))
        };
        host.call_checked_tool(&cx, &name, args, &check).await
    };
    task.spawn(nesting.scope(call).in_current_span());
    match task.join_next().await {
        Some(Ok(Ok(result))) => Ok(text(&result)),
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Err(_)) | None => Err(wit::ToolError::Model("the tool broke off".into())),
    }
}

impl From<ToolError> for wit::ToolError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self::Model(message),
            ToolError::Fatal { code, message, .. } => Self::Fatal(wit::Error { code: code.into_owned(), message }),
        }
    }
}
