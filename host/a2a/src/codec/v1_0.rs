//! Version 1.0: members are tags, enumerations are in upper case. Keys are read in snake case too, as readers of the
//! protocol's definition in Protocol Buffers do.

mod objects;

use hatchery_core::{JsonMap, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Version, null_as_default, read, take, write};
use crate::error::A2aError;
use crate::model::{ListRequest, Operation, Outcome, PushAuthentication, PushConfig, SendRequest, TaskPage, TaskState};
use objects::{WireMessage, WireTask, state_from_name, state_name};

pub(super) use objects::{decode_task, decode_update, encode_update};

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSend {
    message: Option<WireMessage>,
    #[serde(deserialize_with = "null_as_default")]
    configuration: WireConfiguration,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireConfiguration {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[serde(alias = "accepted_output_modes")]
    accepted_output_modes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "history_length")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_as_default")]
    #[serde(alias = "return_immediately")]
    return_immediately: bool,
    #[serde(skip_serializing_if = "Option::is_none", alias = "pushNotificationConfig")]
    #[serde(alias = "task_push_notification_config")]
    task_push_notification_config: Option<WirePush>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePush {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[serde(alias = "task_id")]
    task_id: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication: Option<WireAuthentication>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireAuthentication {
    scheme: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTaskId {
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "history_length")]
    history_length: Option<u32>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireList {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "page_size")]
    page_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "page_token")]
    page_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "history_length")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "status_timestamp_after")]
    status_timestamp_after: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    #[serde(alias = "include_artifacts")]
    include_artifacts: bool,
}

fn wire_push(task_id: &str, config: PushConfig) -> WirePush {
    let PushConfig { id, url, token, authentication, version: _ } = config;
    let authentication =
        authentication.map(|PushAuthentication { scheme, credentials }| WireAuthentication { scheme, credentials });
    WirePush { id, task_id: task_id.into(), url, token, authentication }
}

impl From<WirePush> for PushConfig {
    fn from(wire: WirePush) -> Self {
        let authentication = wire
            .authentication
            .map(|WireAuthentication { scheme, credentials }| PushAuthentication { scheme, credentials });
        let id = wire.id.filter(|id| !id.is_empty());
        let token = wire.token.filter(|token| !token.is_empty());
        Self { version: Version::V1_0, id, url: wire.url, token, authentication }
    }
}

fn decode_send(params: Value) -> Result<Box<SendRequest>, String> {
    let WireSend { message, configuration, metadata } = take(params)?;
    let message = message.ok_or("`message` is missing")?.try_into()?;
    Ok(Box::new(SendRequest {
        message,
        accepted_output_modes: configuration.accepted_output_modes,
        history_length: configuration.history_length,
        returns_immediately: configuration.return_immediately,
        push: configuration.task_push_notification_config.map(Into::into),
        metadata,
    }))
}

fn encode_send(request: SendRequest) -> Value {
    write(WireSend {
        message: Some(request.message.into()),
        configuration: WireConfiguration {
            accepted_output_modes: request.accepted_output_modes,
            history_length: request.history_length,
            return_immediately: request.returns_immediately,
            task_push_notification_config: request.push.map(|push| wire_push("", push)),
        },
        metadata: request.metadata,
    })
}

fn id_of(params: &Value) -> Result<String, String> {
    let WireTaskId { id, .. } = read(params)?;
    id.filter(|id| !id.is_empty()).ok_or_else(|| "`id` is missing".into())
}

/// Reads the ids of a push configuration and its task.
fn push_ids(params: &Value) -> Result<(String, Option<String>), String> {
    let WireTaskId { id, task_id, .. } = read(params)?;
    let task_id = task_id.filter(|id| !id.is_empty()).ok_or("`taskId` is missing")?;
    Ok((task_id, id.filter(|id| !id.is_empty())))
}

fn decode_list(params: &Value) -> Result<ListRequest, String> {
    let wire: WireList = read(params)?;
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let state = match non_empty(wire.status).filter(|name| name != state_name(TaskState::Unknown)) {
        Some(name) => Some(state_from_name(&name).ok_or("`status` is not the name of a state")?),
        None => None,
    };
    let changed_since = match non_empty(wire.status_timestamp_after) {
        Some(text) => {
            let invalid = "`statusTimestampAfter` is not a time in UTC such as `2026-05-01T12:00:00Z`";
            Some(Timestamp::from_iso(&text).ok_or(invalid)?)
        }
        None => None,
    };
    Ok(ListRequest {
        context_id: non_empty(wire.context_id),
        state,
        changed_since,
        page_size: wire.page_size,
        page_token: non_empty(wire.page_token),
        history_length: wire.history_length,
        includes_artifacts: wire.include_artifacts,
    })
}

/// Returns the operation of a method. Returns the parameters if this version does not have the method.
pub(super) fn decode_call(method: &str, params: Value) -> Result<Result<Operation, A2aError>, Value> {
    let operation = match method {
        "SendMessage" => decode_send(params).map(Operation::Send),
        "SendStreamingMessage" => decode_send(params).map(Operation::Stream),
        _ => match decode_small_call(method, &params) {
            Some(operation) => operation,
            None => return Err(params),
        },
    };
    Ok(operation.map_err(A2aError::invalid_params))
}

/// Returns the operation of a method that has no content.
fn decode_small_call(method: &str, params: &Value) -> Option<Result<Operation, String>> {
    Some(match method {
        "GetTask" => id_of(params).and_then(|id| {
            let WireTaskId { history_length, .. } = read(params)?;
            Ok(Operation::Get { id, history_length })
        }),
        "ListTasks" => decode_list(params).map(Operation::List),
        "CancelTask" => id_of(params).map(|id| Operation::Cancel { id }),
        "SubscribeToTask" => id_of(params).map(|id| Operation::Subscribe { id }),
        "CreateTaskPushNotificationConfig" => read::<WirePush>(params).and_then(|wire| {
            let task_id = Some(wire.task_id.clone()).filter(|id| !id.is_empty()).ok_or("`taskId` is missing")?;
            Ok(Operation::SetPush { task_id, config: wire.into() })
        }),
        "GetTaskPushNotificationConfig" => push_ids(params).map(|(task_id, id)| Operation::GetPush { task_id, id }),
        "ListTaskPushNotificationConfigs" => push_ids(params).map(|(task_id, _)| Operation::ListPush { task_id }),
        "DeleteTaskPushNotificationConfig" => push_ids(params)
            .and_then(|(task_id, id)| Ok(Operation::DeletePush { task_id, id: id.ok_or("`id` is missing")? })),
        "GetExtendedAgentCard" => Ok(Operation::ExtendedCard),
        _ => return None,
    })
}

pub(super) fn encode_call(operation: Operation) -> (&'static str, Value) {
    match operation {
        Operation::Send(request) => ("SendMessage", encode_send(*request)),
        Operation::Stream(request) => ("SendStreamingMessage", encode_send(*request)),
        Operation::Get { id, history_length } => {
            ("GetTask", write(WireTaskId { id: Some(id), task_id: None, history_length }))
        }
        Operation::List(request) => {
            let ListRequest {
                context_id,
                state,
                changed_since,
                page_size,
                page_token,
                history_length,
                includes_artifacts,
            } = request;
            let status = state.map(|state| state_name(state).to_owned());
            let include_artifacts = includes_artifacts;
            let status_timestamp_after = changed_since.map(Timestamp::to_iso);
            let wire = WireList {
                context_id,
                status,
                page_size,
                page_token,
                history_length,
                status_timestamp_after,
                include_artifacts,
            };
            ("ListTasks", write(wire))
        }
        Operation::Cancel { id } => ("CancelTask", json!({"id": id})),
        Operation::Subscribe { id } => ("SubscribeToTask", json!({"id": id})),
        Operation::SetPush { task_id, config } => {
            ("CreateTaskPushNotificationConfig", write(wire_push(&task_id, config)))
        }
        Operation::GetPush { task_id, id } => {
            ("GetTaskPushNotificationConfig", json!({"taskId": task_id, "id": id.as_deref().unwrap_or_default()}))
        }
        Operation::ListPush { task_id } => ("ListTaskPushNotificationConfigs", json!({"taskId": task_id})),
        Operation::DeletePush { task_id, id } => {
            ("DeleteTaskPushNotificationConfig", json!({"taskId": task_id, "id": id}))
        }
        Operation::ExtendedCard => ("GetExtendedAgentCard", json!({})),
    }
}

pub(super) fn encode_outcome(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Sent(update) => encode_update(update),
        Outcome::Task(task) => write(WireTask::from(task)),
        Outcome::Tasks(TaskPage { tasks, next_page_token, page_size, total }) => json!({
            "tasks": tasks.into_iter().map(|task| write(WireTask::from(task))).collect::<Vec<_>>(),
            "nextPageToken": next_page_token, "pageSize": page_size, "totalSize": total,
        }),
        Outcome::Push { task_id, config } => write(wire_push(&task_id, config)),
        Outcome::Pushes { task_id, configs } => {
            let configs: Vec<_> = configs.into_iter().map(|config| write(wire_push(&task_id, config))).collect();
            json!({"configs": configs, "nextPageToken": ""})
        }
        Outcome::Deleted => json!({}),
        Outcome::Card(card) => card.to_json(),
    }
}
