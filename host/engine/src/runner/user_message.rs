//! The user's message at the beginning of a turn, or during a live run: plugins, artifacts, the proof, and the event.

use std::sync::Arc;

use hatchery_core::{CallContext, Claim, Content, Event, EventData, JsonMap, RunError, USER_AUTHOR, check_message};
use tokio::sync::oneshot;

use super::blobs;
use super::event_log::EventLog;
use crate::run::RunContext;

/// The user's message and state changes in a turn.
pub(super) struct UserInput {
    /// `None` if an interrupted run is resumed without a message, or a live run begins without one.
    pub(super) message: Option<Arc<Content>>,
    pub(super) state_delta: JsonMap,
    /// Dropped once the message is stored.
    pub(super) begun: Option<oneshot::Sender<()>>,
}

/// The relation of a message to its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Begins the run: it is signed, and it is the run's user content.
    First,
    /// Responds to a resumed run, or arrives during a live run.
    Further,
}

/// Appends the user's message and state delta. Returns the stored message.
pub(super) async fn append_user_message(
    run: &RunContext,
    cx: &CallContext,
    log: &EventLog,
    UserInput { message, state_delta, begun: _begun }: UserInput,
    kind: MessageKind,
) -> Result<Option<Arc<Event>>, RunError> {
    let RunContext { invocation, plugins, .. } = run;
    let state_delta = invocation.apply_temp_state(state_delta);
    cx.actions().state_delta.extend(state_delta);
    let Some(mut message) = message else {
        if !cx.actions().is_empty() {
            log.append_user_event(Event::new(event_data(cx, USER_AUTHOR, None))).await?;
        }
        return Ok(None);
    };
    if let Some(replacement) = plugins.on_user_message(cx, &message).await? {
        check_message(&replacement)?;
        message = Arc::new(with_role(replacement, USER_AUTHOR));
        if kind == MessageKind::First {
            log.set_user_content(message.clone());
        }
    }
    let message = blobs::save_as_artifacts(cx, message).await?;
    let mut data = event_data(cx, USER_AUTHOR, Some(message));
    if kind == MessageKind::First {
        invocation.signer.sign(&invocation.session_key, &mut data, Claim::Run);
    }
    let message = Event::new(data);
    log.append_user_event(message.clone()).await?;
    Ok(Some(message))
}

/// Returns an event of the run itself, with the pending actions of `cx`.
pub(super) fn event_data(cx: &CallContext, author: &str, content: Option<Arc<Content>>) -> EventData {
    let mut actions = cx.take_actions();
    actions.state_delta = cx.invocation.apply_temp_state(actions.state_delta);
    let invocation_id = cx.invocation.id.clone();
    let mut data = EventData { invocation_id, author: author.into(), content, actions, ..EventData::default() };
    cx.invocation.run_config.add_custom_metadata(&mut data);
    data
}

/// Returns a content with this role, unless it has one.
pub(super) fn with_role(mut content: Content, role: &str) -> Content {
    content.role.get_or_insert_with(|| role.into());
    content
}
