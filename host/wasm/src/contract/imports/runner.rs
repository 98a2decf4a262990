//! `runner`: runs of other apps.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::BoxStream;
use hatchery_core::{
    AppRunRequest, AppRunner, CallContext, Content, Event, EventData, JsonMap, RunError, StreamingMode,
};
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::component::{HasSelf, StreamReader};

use super::{Access as Accessor, StoreAccess, check_change, live, reserve, wit_error};
use crate::contract::bindings::hatchery::agent::runner::{Host, HostWithStore};
use crate::contract::convert::{EstimateSize, FromWit, ITEM_SIZE, ParsedSize, ToWit, parse_json, wit};
use crate::contract::stream;
use crate::policy::{Access, Grants, Permission};
use crate::runtime::store::HostState;
use crate::runtime::store::call_usage::CallUsage;
use crate::runtime::store::meter::parsed_size;
use crate::runtime::store::nesting::{MAX_CONCURRENT_CALLS, Nesting};

impl Host for HostState {
    fn list_apps(&mut self) -> Result<Vec<String>, wit::Error> {
        let names = runner(self.context()?)?.app_names();
        let may_run = |app: &String| Permission::Run(app).is_granted(&self.grants, &self.component);
        Ok(names.into_iter().filter(may_run).collect())
    }

    fn cancel(&mut self, invocation_id: String) -> Result<(), wit::Error> {
        self.context()?;
        let unknown = || wit_error("NOT_FOUND", format!("this call has started no run `{invocation_id}`"));
        self.runs.get(&invocation_id).ok_or_else(unknown)?.cancel();
        Ok(())
    }
}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn run(
        accessor: &Accessor<T>,
        request: wit::RunRequest,
    ) -> Result<(wit::RunInfo, StreamReader<wit::Event>), wit::Error> {
        let run = run(accessor, request).await?;
        let info = run.info.clone();
        Ok((info, stream::open(accessor, run)?))
    }

    async fn run_live(
        accessor: &Accessor<T>,
        request: wit::LiveRunRequest,
        requests: StreamReader<wit::LiveRequest>,
    ) -> Result<(String, StreamReader<wit::Event>), wit::Error> {
        let run = live::run(accessor, request).await?;
        let session = run.session().to_owned();
        let (run, sink) = run.with_requests();
        stream::read(accessor, requests, sink)?;
        Ok((session, stream::open(accessor, run)?))
    }
}

/// Returns the runner of the call's run.
pub(super) fn runner(cx: &CallContext) -> Result<&Arc<dyn AppRunner>, wit::Error> {
    cx.invocation.apps.as_ref().ok_or_else(|| wit_error("NO_APPS", "there are no apps to run here"))
}

/// Starts a run of an app.
pub(super) async fn run(mut store: impl StoreAccess, request: wit::RunRequest) -> Result<NestedRun, wit::Error> {
    let cx = check_change(&mut store, Permission::Run(&request.app)).await?;
    for (key, _) in &request.state_delta {
        store.with_state(|state| state.check(Permission::State(Access::Write, key)))?;
    }
    let _reservation = reserve(&mut store, request.estimated_size())?;
    let Admission { nesting, usage, grants, permit } = admit(&mut store, &request.app)?;
    let wit::RunRequest { app, session, message, state_delta, streaming } = request;
    let request = AppRunRequest {
        app,
        session,
        message: Content::from_wit(message)?,
        state_delta: to_state(state_delta)?,
        streaming_mode: if streaming { StreamingMode::On } else { StreamingMode::Off },
    };
    let run = nesting.scope(runner(&cx)?.run(&cx, request)).await?;
    let info = wit::RunInfo { invocation_id: run.invocation_id, session: run.session };
    store.with_state(|state| state.runs.insert(info.invocation_id.clone(), run.cancel));
    Ok(NestedRun { info, events: Some(run.events), is_reported: false, grants, _usage: usage, _permit: permit })
}

/// A run's share of the limits of the call that starts it.
pub(super) struct Admission {
    pub(super) nesting: Nesting,
    pub(super) usage: Arc<CallUsage>,
    pub(super) grants: Arc<Grants>,
    permit: OwnedSemaphorePermit,
}

impl Admission {
    /// Returns the events of a live run as events of a run without its own id.
    pub(super) fn live_run(
        self,
        session: String,
        events: BoxStream<'static, Result<Arc<Event>, RunError>>,
    ) -> NestedRun {
        let info = wit::RunInfo { invocation_id: String::new(), session };
        let Self { nesting: _, usage, grants, permit } = self;
        NestedRun { info, events: Some(events), is_reported: false, grants, _usage: usage, _permit: permit }
    }
}

/// Counts a run of an app as a call of a tool.
///
/// # Errors
/// `LIMIT_REACHED` if the call has started too many, or runs are nested too deeply.
pub(super) fn admit(store: &mut impl StoreAccess, app: &str) -> Result<Admission, wit::Error> {
    let refused = |reason: String| wit_error("LIMIT_REACHED", format!("app `{app}` is not run: {reason}"));
    let (nesting, usage, grants) =
        store.with_state(|state| (state.nesting.clone(), state.usage.clone(), state.grants.clone()));
    let nested = nesting.nested(usage.limits()).map_err(|exceeded| usage.limit_exceeded(exceeded.limit));
    let nesting = nested.and_then(|nested| usage.count_tool_call().map(|()| nested));
    let nesting = nesting.map_err(|exceeded| refused(exceeded.for_callers()))?;
    let permit = nesting.try_acquire();
    let permit = permit.ok_or_else(|| refused(format!("{MAX_CONCURRENT_CALLS} calls run already; wait for some")))?;
    Ok(Admission { nesting, usage, grants, permit })
}

/// Returns the maximum number of bytes that the values of state keys take after parsing.
pub(super) fn state_size(state: &[(String, String)]) -> u64 {
    state.iter().map(|(key, json)| ITEM_SIZE + key.estimated_size() + parsed_size(json)).sum()
}

/// Parses the values of state keys.
pub(super) fn to_state(state: Vec<(String, String)>) -> Result<JsonMap, wit::Error> {
    let parsed = state.into_iter().map(|(key, json)| Ok((key, parse_json(&json, "a state value")?)));
    parsed.collect()
}

/// The events of a run that the guest has started. Dropping it cancels the run.
pub struct NestedRun {
    pub(super) info: wit::RunInfo,
    /// `None` after its end.
    events: Option<BoxStream<'static, Result<Arc<Event>, RunError>>>,
    /// True if the last event reports a failure.
    is_reported: bool,
    /// The grants of the guest, which may not see all state.
    grants: Arc<Grants>,
    /// Shows that the call has an open run.
    _usage: Arc<CallUsage>,
    _permit: OwnedSemaphorePermit,
}

impl NestedRun {
    /// Ends the run with an event that reports `error`.
    pub(super) fn fail(&mut self, error: wit::Error) -> wit::Event {
        self.events = None;
        let invocation_id = self.info.invocation_id.clone();
        let (error_code, error_message) = (Some(error.code), Some(error.message));
        EventData { invocation_id, error_code, error_message, ..EventData::default() }.to_wit()
    }
}

impl Stream for NestedRun {
    type Item = wit::Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<wit::Event>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let item = ready!(events.as_mut().poll_next(cx));
        if !matches!(item, Some(Ok(_))) {
            self.events = None;
        }
        Poll::Ready(match item {
            Some(Ok(event)) => {
                self.is_reported = event.error_code.is_some();
                if self.info.invocation_id != event.invocation_id {
                    self.info.invocation_id.clone_from(&event.invocation_id);
                }
                Some(self.grants.redact_state(event.to_wit()))
            }
            Some(Err(error)) if !self.is_reported => Some(failure(&self.info, &error)),
            Some(Err(_)) | None => None,
        })
    }
}

/// Returns the event of a run that failed before it could report that itself.
fn failure(info: &wit::RunInfo, error: &RunError) -> wit::Event {
    let data = EventData {
        invocation_id: info.invocation_id.clone(),
        error_code: Some(error.code().into()),
        error_message: Some(error.client_message()),
        ..EventData::default()
    };
    data.to_wit()
}

impl EstimateSize for wit::RunRequest {
    fn estimated_size(&self) -> u64 {
        self.message.estimated_size() + self.message.parsed_size() + state_size(&self.state_delta)
    }
}
