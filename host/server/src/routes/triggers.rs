//! Triggers: a message of Pub/Sub, or an event of Eventarc, starts a run in a session of its own.
//!
//! The answer is the acknowledgement, sent when the run has ended. After any other status than 200 the service delivers
//! the event again, in another session.

mod message;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use backon::{BackoffBuilder, ExponentialBuilder};
use hatchery::TriggerSource;
use hatchery_core::{CallerOrigin, Content, IdKind, JsonMap, RunConfig, RunError};
use hatchery_engine::tasks::run_to_completion;
use hatchery_engine::{App, RunRequest};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::routes;
use uuid::Uuid;

use self::message::{PubSubTriggerRequest, Trigger};
use super::run::trace_parent;
use crate::api_document::ApiRouter;
use crate::auth::Principal;
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, check_user_is_not_host};
use crate::state::AppState;

/// Maximum number of retries of a run that was refused because of too many requests.
const MAX_RETRIES: usize = 3;

/// Maximum delay before a retry. If a model asks for a longer delay, the run fails and the service delivers the event
/// again.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The state key with the identity of the delivery. Tools recognize by it an event that is delivered again.
const DELIVERY_KEY: &str = "trigger_delivery";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(pubsub)).routes(routes!(eventarc)).layer(Extension(LargeBody))
}

/// The answer to an event whose run has ended.
#[derive(Serialize, ToSchema)]
struct TriggerResponse {
    /// `success`.
    status: &'static str,
}

/// Runs an app with a message of a Pub/Sub push subscription, and answers when the run has ended.
#[utoipa::path(
    post,
    path = "/apps/{app}/trigger/pubsub",
    tag = "triggers",
    request_body = PubSubTriggerRequest,
    responses((status = 200, description = "The run has ended", body = TriggerResponse))
)]
async fn pubsub(
    State(state): State<AppState>,
    principal: Principal,
    Params(app): Params<String>,
    headers: HeaderMap,
    Json(body): Json<PubSubTriggerRequest>,
) -> Result<axum::Json<TriggerResponse>, ApiError> {
    check_enabled(&state, TriggerSource::Pubsub)?;
    let app = state.app(&app)?;
    process(state, &principal, app, Trigger::from_message(body)?, &headers).await
}

/// Runs an app with a CloudEvent, such as one of Eventarc, and answers when the run has ended.
#[utoipa::path(
    post,
    path = "/apps/{app}/trigger/eventarc",
    tag = "triggers",
    request_body = Object,
    responses((status = 200, description = "The run has ended", body = TriggerResponse))
)]
async fn eventarc(
    State(state): State<AppState>,
    principal: Principal,
    Params(app): Params<String>,
    headers: HeaderMap,
    Json(body): Json<JsonMap>,
) -> Result<axum::Json<TriggerResponse>, ApiError> {
    check_enabled(&state, TriggerSource::Eventarc)?;
    let app = state.app(&app)?;
    process(state, &principal, app, Trigger::from_event(&body, &headers), &headers).await
}

fn check_enabled(state: &AppState, source: TriggerSource) -> Result<(), ApiError> {
    if state.config().triggers.contains(&source) {
        return Ok(());
    }
    let detail = format!("this server takes no events of `{}`", source.label());
    let error = ApiError::new(StatusCode::NOT_FOUND, "TRIGGER_DISABLED", detail);
    Err(error.advise(format_args!("to take them, add `{}` to server.triggers in hatchery.yaml", source.label())))
}

/// Runs the app in a new session. A client that disconnects stops waiting for a permit. It does not end a run, unless
/// it is configured so.
async fn process(
    state: AppState,
    principal: &Principal,
    app: Arc<App>,
    trigger: Trigger,
    headers: &HeaderMap,
) -> Result<axum::Json<TriggerResponse>, ApiError> {
    let user = user(principal, trigger.user)?;
    let cancel = CancellationToken::new();
    let _guard = (state.config().cancel_on_disconnect == Some(true)).then(|| cancel.clone().drop_guard());
    let request = RunRequest {
        state_delta: JsonMap::from_iter([(DELIVERY_KEY.to_owned(), trigger.delivery)]),
        config: RunConfig { auto_create_session: true, ..RunConfig::default() },
        origin: CallerOrigin::Http,
        trace_parent: trace_parent(headers),
        cancel,
        ..RunRequest::new(user, Uuid::new_v4().to_string(), Content::user(trigger.text))
    };
    let permit = acquire_permit(&state).await?;
    run_to_completion(async move { Ok(run_with_retries(&state, &app, request, permit).await) }).await??;
    Ok(axum::Json(TriggerResponse { status: "success" }))
}

/// Returns the user of the run: the user of the credentials, or else the one that the event names.
fn user(principal: &Principal, named: String) -> Result<String, ApiError> {
    let own = principal.scope().and_then(|scope| scope.user.as_deref());
    let user = own.map_or(named, str::to_owned);
    check_user_is_not_host(&user)?;
    IdKind::User.check(&user).map_err(RunError::from)?;
    Ok(user)
}

async fn run_with_retries(
    state: &AppState,
    app: &Arc<App>,
    first: RunRequest,
    mut permit: OwnedSemaphorePermit,
) -> Result<(), ApiError> {
    let backoff =
        ExponentialBuilder::new().with_min_delay(state.config().trigger_retry_delay).with_max_delay(MAX_DELAY);
    let mut request = first.clone();
    for delay in backoff.with_max_times(MAX_RETRIES).with_jitter().build() {
        let Err(failure) = run_once(state, app, request, permit).await else { return Ok(()) };
        let Some(delay) = failure.retry_delay(delay) else { return Err(failure.into()) };
        tracing::warn!(app = %app.name, session = %first.session, ?delay, "the run of an event is tried again");
        run_until_stopped(state, tokio::time::sleep(delay)).await?;
        permit = acquire_permit(state).await?;
        request = failure.next_request(&first);
    }
    run_once(state, app, request, permit).await.map_err(ApiError::from)
}

/// Runs to the end, and then releases the permit.
async fn run_once(
    state: &AppState,
    app: &Arc<App>,
    request: RunRequest,
    _permit: OwnedSemaphorePermit,
) -> Result<(), Failure> {
    let permit = state.acquire_run_permit()?;
    let mut id = request.invocation_id.clone();
    let run = state.runner().run_inline(app.clone(), request, permit).await;
    let mut run = run.map_err(|error| Failure::of_run(error, id.clone()))?;
    while let Some(item) = run.next().await {
        match item {
            Ok(event) => id = Some(event.invocation_id.clone()),
            Err(error) => return Err(Failure::of_run(error, id)),
        }
    }
    Ok(())
}

/// Waits for a permit to run an event, until the server stops.
async fn acquire_permit(state: &AppState) -> Result<OwnedSemaphorePermit, ApiError> {
    let permit = run_until_stopped(state, state.triggers().clone().acquire_owned()).await?;
    // The semaphore is never closed.
    permit.map_err(|_| RunError::Stopped.into())
}

/// Waits for `work`, until the server stops.
async fn run_until_stopped<T>(state: &AppState, work: impl Future<Output = T>) -> Result<T, ApiError> {
    state.stop().run_until_cancelled(work).await.ok_or_else(|| RunError::Stopped.into())
}

/// The reason why an event is not processed.
enum Failure {
    /// The host does not start runs at the moment.
    Refused(ApiError),
    /// The run has failed. The id is known if it has begun.
    Run { error: Box<ApiError>, id: Option<String> },
}

impl Failure {
    fn of_run(error: RunError, id: Option<String>) -> Self {
        Self::Run { error: Box::new(error.into()), id }
    }

    /// Returns the time until the next attempt. `None` if there is none.
    fn retry_delay(&self, backoff: Duration) -> Option<Duration> {
        match self {
            Self::Run { error, .. } if error.status == StatusCode::TOO_MANY_REQUESTS => {
                let requested = error.retry_after.unwrap_or_default();
                (requested <= MAX_DELAY).then(|| requested.max(backoff))
            }
            Self::Run { .. } | Self::Refused(_) => None,
        }
    }

    /// Returns the request of the next attempt. It continues a run that has begun, so that no call is repeated.
    fn next_request(self, first: &RunRequest) -> RunRequest {
        let first = first.clone();
        match self {
            Self::Run { id: Some(id), .. } => {
                RunRequest { message: None, invocation_id: Some(id), state_delta: JsonMap::new(), ..first }
            }
            Self::Run { id: None, .. } | Self::Refused(_) => first,
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            // The sender has made no mistake that it could correct.
            Failure::Run { error, .. } if error.status.is_client_error() => {
                Self { status: StatusCode::INTERNAL_SERVER_ERROR, ..*error }
            }
            Failure::Run { error, .. } => *error,
        }
    }
}
