//! Live models of components: one instance per connection, in its own task, as for the answer of a model. At most
//! one request and one response wait between the two sides. Dropping the connection ends the task.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream;
use hatchery_core::sync::MutexExt;
use hatchery_core::{LiveConnection, LiveRequest, LiveResponse, LlmRequest, ModelError, ModelErrorKind};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::Instrument;
use wasmtime::Store;

use super::Component;
use super::exports::{LiveModelExports, Profile};
use super::model::{GuestItem, ItemSender};
use crate::contract::bindings::exports::hatchery::agent::{guest_live_models, sync_guest_live_models};
use crate::contract::convert::live::{live_config_to_json, live_request_to_wit, live_response};
use crate::contract::convert::{EstimateSize, ParsedSize, ToWit, to_model_error, wit};
use crate::contract::stream::{open, read_to_end};
use crate::error::CallError;
use crate::runtime::limits::Limit;
use crate::runtime::store::nesting::Nesting;
use crate::runtime::store::{CallOrigin, HostState};

pub(super) struct LiveModel {
    pub(super) component: Arc<Component>,
    pub(super) exports: LiveModelExports,
    pub(super) name: String,
}

impl LiveModel {
    /// Opens a connection. `model` is the full name, for errors.
    pub(super) async fn connect(self, request: &LlmRequest, model: String) -> Result<GuestConnection, ModelError> {
        let Self { component, exports, name } = self;
        let (request_sender, requests) = mpsc::channel(1);
        let (sender, responses) = mpsc::channel(1);
        let (opened, is_open) = oneshot::channel();
        let config = live_config_to_json(request.live_connect_config.as_ref());
        let mut request = request.to_wit();
        if let Some(content) = request.contents.pop_if(|content| content.role.as_deref() == Some("user")) {
            let first = wit::LiveRequest::Content(wit::LiveMessage { content, partial: false });
            // The channel has room for one request.
            let _ = request_sender.try_send(first);
        }
        let call = ConnectCall { name, request, config, requests, responses: sender.clone(), opened };
        let (called, model_name) = (component.clone(), model.clone());
        // The task below is outside of the caller's.
        let calling_run = Nesting::calling_run();
        let run = async move {
            let call = called.sandbox.run(CallOrigin::Model(calling_run), |mut store, instance| {
                Box::pin(async move {
                    match exports {
                        Profile::Async(exports) => {
                            let guest = exports.load(&mut store, &instance)?;
                            run_to_end(store, guest, call).await
                        }
                        Profile::Sync(exports) => {
                            let guest = exports.load(&mut store, &instance)?;
                            run_sync_to_end(store, guest, call).await
                        }
                    }
                })
            });
            let failure = match call.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => to_model_error(error, &model_name),
                Err(error) => error.into_model_error(&model_name),
            };
            // This fails if the connection was dropped.
            let _ = sender.send(Err(failure)).await;
        };
        let mut guest = JoinSet::new();
        guest.spawn(run.in_current_span());
        let connection = GuestConnection {
            component,
            model,
            calling_run,
            requests: Mutex::new(Some(request_sender)),
            responses: Responses { receiver: responses, guest, has_failed: false }.into(),
        };
        if is_open.await.is_ok() {
            return Ok(connection);
        }
        let failure = connection.receive().await.and_then(Result::err);
        let message = "it ended before the connection was open";
        Err(failure.unwrap_or_else(|| ModelError::new(ModelErrorKind::Server, &connection.model, message)))
    }
}

/// The arguments of `connect`, with the host's ends of both directions.
struct ConnectCall {
    name: String,
    request: wit::LlmRequest,
    config: String,
    requests: mpsc::Receiver<wit::LiveRequest>,
    responses: mpsc::Sender<GuestItem<wit::LiveResponse>>,
    /// Notified that the guest has accepted the connection.
    opened: oneshot::Sender<()>,
}

/// Runs the guest until its stream has ended and it has no tasks left.
async fn run_to_end(
    mut store: Store<HostState>,
    guest: guest_live_models::Guest,
    call: ConnectCall,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let ConnectCall { name, request, config, mut requests, responses, opened } = call;
    let sink = ItemSender::new(responses);
    let run = store.run_concurrent(async move |accessor| {
        let requests = match open(accessor, stream::poll_fn(move |cx| requests.poll_recv(cx))) {
            Ok(requests) => requests,
            Err(error) => return wasmtime::error::Ok(Err(error)),
        };
        let responses = match guest.call_connect(accessor, name, request, config, requests).await? {
            Ok(responses) => responses,
            Err(error) => return Ok(Err(error)),
        };
        // This fails if the connection was dropped.
        let _ = opened.send(());
        read_to_end(accessor, responses, sink).await?;
        Ok(Ok(()))
    });
    run.await?
}

/// Passes requests to the guest one by one, each when it has no more responses to the previous one.
async fn run_sync_to_end(
    mut store: Store<HostState>,
    guest: sync_guest_live_models::Guest,
    call: ConnectCall,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let ConnectCall { name, request, config, mut requests, responses, opened } = call;
    let connection = match guest.call_connect(&mut store, &name, &request, &config).await? {
        Ok(connection) => connection,
        Err(error) => return Ok(Err(error)),
    };
    // These fail if the connection was dropped.
    let _ = opened.send(());
    let functions = guest.connection();
    loop {
        match functions.call_receive(&mut store, connection).await? {
            Ok(Some(response)) => match responses.send(Ok(response)).await {
                Ok(()) => continue,
                Err(_) => break,
            },
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        let Some(request) = requests.recv().await else { break };
        if let Err(error) = functions.call_send(&mut store, connection, &request).await? {
            return Ok(Err(error));
        }
    }
    connection.resource_drop_async(&mut store).await?;
    Ok(Ok(()))
}

/// A connection to a guest. Each request and each response has at most `limits.result` bytes.
pub(super) struct GuestConnection {
    component: Arc<Component>,
    model: String,
    /// The key of the run whose code has connected; `None` for other callers.
    calling_run: Option<usize>,
    /// `None` once the connection is closed.
    requests: Mutex<Option<mpsc::Sender<wit::LiveRequest>>>,
    responses: tokio::sync::Mutex<Responses>,
}

struct Responses {
    receiver: mpsc::Receiver<GuestItem<wit::LiveResponse>>,
    /// The guest's task, which is aborted on drop.
    guest: JoinSet<()>,
    has_failed: bool,
}

impl GuestConnection {
    fn check_size(&self, item: &impl EstimateSize) -> Result<(), ModelError> {
        let limits = &self.component.sandbox.limits;
        if item.estimated_size() > limits.result {
            return Err(CallError::from(limits.exceeded(Limit::Result)).into_model_error(&self.model));
        }
        Ok(())
    }

    /// Converts a response, and checks it against the contract.
    fn accept(&self, response: wit::LiveResponse) -> Result<LiveResponse, ModelError> {
        self.check_size(&response)?;
        let failed = |error: CallError| error.into_model_error(&self.model);
        let _reservation = self.component.reserve_parsed(self.calling_run, response.parsed_size()).map_err(failed)?;
        live_response(response, &self.model).map_err(|error| failed(CallError::Contract(error.to_string())))?
    }
}

#[async_trait]
impl LiveConnection for GuestConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        let Some(request) = live_request_to_wit(&request) else { return Ok(()) };
        self.check_size(&request)?;
        let sender = self.requests.lock_unpoisoned().clone();
        if let Some(sender) = sender {
            // This fails if the guest has ended, which `receive` reports with the reason.
            let _ = sender.send(request).await;
        }
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        let mut responses = self.responses.lock().await;
        if responses.has_failed {
            return None;
        }
        let next = match responses.receiver.recv().await {
            Some(Ok(response)) => self.accept(response),
            Some(Err(error)) => Err(error),
            None => match responses.guest.join_next().await? {
                Ok(()) => return None,
                Err(error) => {
                    let message = format!("its call was aborted: {error}");
                    Err(ModelError::new(ModelErrorKind::Server, &self.model, message))
                }
            },
        };
        if next.is_err() {
            responses.has_failed = true;
            responses.guest.abort_all();
        }
        Some(next)
    }

    async fn close(&self) {
        self.requests.lock_unpoisoned().take();
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::FunctionCall;
    use serde_json::json;

    use super::*;
    use crate::contract::component::tests::described;
    use crate::runtime::limits::Limits;

    /// Receives this response from a guest.
    async fn receive(component: Arc<Component>, response: wit::LiveResponse) -> Result<LiveResponse, ModelError> {
        let (sender, receiver) = mpsc::channel(1);
        sender.send(Ok(response)).await.unwrap();
        let connection = GuestConnection {
            component,
            model: "component:made/model".into(),
            calling_run: None,
            requests: Mutex::new(None),
            responses: Responses { receiver, guest: JoinSet::new(), has_failed: false }.into(),
        };
        connection.receive().await.expect("a response")
    }

    #[tokio::test]
    async fn json_in_a_response_counts_to_the_memory_as_it_is_after_parsing() {
        let limits = Limits { memory: 4 << 20, ..Limits::default() };
        let component = Arc::new(described("(component)", limits).await.unwrap());
        let calling = |args: serde_json::Value| {
            let args = args.as_object().cloned().unwrap_or_default();
            let call = FunctionCall { id: Some("c".into()), name: "f".into(), args, ..FunctionCall::default() };
            wit::LiveResponse::ToolCalls(vec![call.to_wit()])
        };
        receive(component.clone(), calling(json!({"a": "x".repeat(400_000)}))).await.unwrap();
        let numbers = calling(json!({"a": vec![0; 200_000]}));
        let error = receive(component.clone(), numbers).await.unwrap_err();
        assert_eq!(error.to_string(), "model `component:made/model`: it exceeded its limit of 4 MiB of memory");
        assert_eq!(component.sandbox.engine.memory_in_use(), 0, "nothing is charged after the response");
    }
}
