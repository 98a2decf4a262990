//! Runs of other apps.

use futures::stream;

use super::super::list;
use super::super::scope::Scope;
use super::StreamReader;
use crate::bindings::wit::types;
use crate::content::Content;
use crate::convert::read_state;
use crate::error::Error;
use crate::runner::RunRequest;

pub(crate) fn list_apps() -> Result<Vec<String>, types::Error> {
    Ok(Scope::of_session()?.world.borrow().apps.keys().cloned().collect())
}

pub(crate) async fn run(
    request: types::RunRequest,
) -> Result<(types::RunInfo, StreamReader<types::Event>), types::Error> {
    let scope = Scope::of_change()?;
    let request = RunRequest {
        message: Content::try_from(request.message)?,
        state_delta: read_state(request.state_delta)?,
        app: request.app,
        session: request.session,
        streaming: request.streaming,
    };
    let (app, info) = {
        let mut world = scope.world.borrow_mut();
        world.run_requests.push(request.clone());
        let number = world.run_requests.len();
        let app = world.apps.get(&request.app).cloned().ok_or_else(|| {
            let known: Vec<_> = world.apps.keys().cloned().collect();
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
        (app, types::RunInfo { invocation_id: format!("e-run-{number}"), session })
    };
    let events = app(request);
    let complete = |event| scope.world.borrow_mut().complete(event, "agent").into();
    let events: Vec<_> = events.into_iter().map(complete).collect();
    Ok((info, StreamReader::new(stream::iter(events))))
}

pub(crate) fn cancel(invocation_id: &str) -> Result<(), types::Error> {
    let scope = Scope::of_session()?;
    let mut world = scope.world.borrow_mut();
    let number = invocation_id.strip_prefix("e-run-").and_then(|number| number.parse::<usize>().ok());
    if number.is_none_or(|number| number > world.run_requests.len()) {
        return Err(Error::new("NOT_FOUND", format!("this call has started no run `{invocation_id}`")).into());
    }
    world.cancelled_runs.push(invocation_id.to_owned());
    Ok(())
}
