//! Runs of other apps.

use futures::{StreamExt, stream};

use super::super::list;
use super::super::mock_state::MockApp;
use super::super::scope::Scope;
use super::StreamReader;
use crate::bindings::wit::types;
use crate::content::Content;
use crate::convert::read_state;
use crate::error::Error;
use crate::event::Event;
use crate::live::LiveRequest;
use crate::runner::RunRequest;

pub(crate) fn list_apps() -> Result<Vec<String>, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().apps.keys().cloned().collect())
}

pub(crate) async fn run(
    request: types::RunRequest,
) -> Result<(types::RunInfo, StreamReader<types::Event>), types::Error> {
    let scope = Scope::for_change()?;
    let request = RunRequest {
        message: Content::try_from(request.message)?,
        state_delta: read_state(request.state_delta)?,
        app: request.app,
        session: request.session,
        streaming: request.streaming,
    };
    let (app, info) = begin(&scope, &request)?;
    let events = app(request);
    let complete = |event| scope.mock.borrow_mut().complete(event, "agent").into();
    let events: Vec<_> = events.into_iter().map(complete).collect();
    Ok((info, StreamReader::new(stream::iter(events))))
}

/// Records a request. Returns the app that answers it, and the ids of its run.
fn begin(scope: &Scope, request: &RunRequest) -> Result<(MockApp, types::RunInfo), Error> {
    let mut mock = scope.mock.borrow_mut();
    mock.run_requests.push(request.clone());
    let number = mock.run_requests.len();
    let app = mock.apps.get(&request.app).cloned().ok_or_else(|| {
        let known: Vec<_> = mock.apps.keys().cloned().collect();
        let message = format!(
            "App not found: {}; the apps are {}; add `.runs_app(\"{}\", |request| [Event::text(\"…\")])` to the \
             test's host",
            request.app,
            list(&known),
            request.app
        );
        Error::new("NOT_FOUND", message)
    })?;
    let session = request.session.clone().unwrap_or_else(|| format!("session-{number}"));
    Ok((app, types::RunInfo { invocation_id: format!("e-run-{number}"), session }))
}

/// Answers each message as a run of the mock app, whose last event ends the turn.
pub(crate) async fn run_live(
    request: types::LiveRunRequest,
    requests: StreamReader<types::LiveRequest>,
) -> Result<(String, StreamReader<types::Event>), types::Error> {
    let scope = Scope::for_change()?;
    let types::LiveRunRequest { app, session, config: _ } = request;
    let request = RunRequest { session, streaming: true, ..RunRequest::new(app, "") };
    let session = request.session.clone().unwrap_or_else(|| "live-session".into());
    let request = RunRequest { session: Some(session.clone()), ..request };
    let turns = stream::unfold(Some(requests), move |requests| {
        let (scope, request) = (scope.clone(), request.clone());
        async move {
            let mut requests = requests?;
            let message = requests.next().await?;
            let turn = turn(&scope, request, message);
            let has_failed = turn.iter().any(|event| event.error_code.is_some());
            Some((stream::iter(turn), (!has_failed).then_some(requests)))
        }
    });
    Ok((session, StreamReader::new(turns.flatten())))
}

/// Returns the events of a turn of a live run.
fn turn(scope: &Scope, request: RunRequest, message: types::LiveRequest) -> Vec<types::Event> {
    let failed =
        |error: Error| Event { error_code: Some(error.code), error_message: Some(error.message), ..Event::default() };
    let content = match LiveRequest::try_from(message) {
        Ok(LiveRequest::Content { content, partial: false }) => Ok(content),
        Ok(_) => Err(Error::new("BAD_INPUT", "the mock host answers complete messages only")),
        Err(error) => Err(error),
    };
    let answer = content.and_then(|message| {
        let request = RunRequest { message, ..request };
        let (app, _) = begin(scope, &request)?;
        Ok(app(request))
    });
    let end = || Event { partial: true, turn_complete: Some(true), ..Event::default() };
    let events = answer.map_or_else(|error| vec![failed(error)], |events| events.into_iter().chain([end()]).collect());
    events.into_iter().map(|event| scope.mock.borrow_mut().complete(event, "agent").into()).collect()
}

pub(crate) fn cancel(invocation_id: &str) -> Result<(), types::Error> {
    let scope = Scope::for_session()?;
    let mut mock = scope.mock.borrow_mut();
    let number = invocation_id.strip_prefix("e-run-").and_then(|number| number.parse::<usize>().ok());
    if number.is_none_or(|number| number > mock.run_requests.len()) {
        return Err(Error::new("NOT_FOUND", format!("this call has started no run `{invocation_id}`")).into());
    }
    mock.cancelled_runs.push(invocation_id.to_owned());
    Ok(())
}
