//! Version 0.3: `kind` is the tag, enumerations are in kebab case.

mod objects;

use hatchery_core::JsonMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Version, null_as_default, read, take, write};
use crate::error::A2aError;
use crate::model::{Operation, Outcome, PushAuthentication, PushConfig, SendRequest};
use objects::{WireMessage, WireTask};

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
    accepted_output_modes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocking: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config: Option<WirePush>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WirePush {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication: Option<WireAuthentication>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireAuthentication {
    #[serde(deserialize_with = "null_as_default")]
    schemes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

/// A push configuration with its task.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTaskPush {
    task_id: String,
    push_notification_config: WirePush,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTaskId {
    id: Option<String>,
    history_length: Option<u32>,
    push_notification_config_id: Option<String>,
}

impl From<PushConfig> for WirePush {
    fn from(config: PushConfig) -> Self {
        let PushConfig { id, url, token, authentication, version: _ } = config;
        let authentication = authentication.map(|PushAuthentication { scheme, credentials }| WireAuthentication {
            schemes: vec![scheme],
            credentials,
        });
        Self { id, url, token, authentication }
    }
}

impl From<WirePush> for PushConfig {
    fn from(wire: WirePush) -> Self {
        let authentication = wire.authentication.and_then(|WireAuthentication { schemes, credentials }| {
            Some(PushAuthentication { scheme: schemes.into_iter().next()?, credentials })
        });
        let id = wire.id.filter(|id| !id.is_empty());
        Self { version: Version::V0_3, id, url: wire.url, token: wire.token, authentication }
    }
}

fn wire_task_push(task_id: &str, config: PushConfig) -> Value {
    write(WireTaskPush { task_id: task_id.into(), push_notification_config: config.into() })
}

/// Decodes the parameters of `message/send`. `blocking` is true by default.
fn decode_send(params: Value) -> Result<Box<SendRequest>, String> {
    let WireSend { message, configuration, metadata } = take(params)?;
    let message = message.ok_or("`message` is missing")?.try_into()?;
    Ok(Box::new(SendRequest {
        message,
        accepted_output_modes: configuration.accepted_output_modes,
        history_length: configuration.history_length,
        returns_immediately: configuration.blocking == Some(false),
        push: configuration.push_notification_config.map(Into::into),
        metadata,
    }))
}

fn encode_send(request: SendRequest) -> Value {
    write(WireSend {
        message: Some(request.message.into()),
        configuration: WireConfiguration {
            accepted_output_modes: request.accepted_output_modes,
            history_length: request.history_length,
            blocking: Some(!request.returns_immediately),
            push_notification_config: request.push.map(Into::into),
        },
        metadata: request.metadata,
    })
}

fn id_of(params: &Value) -> Result<String, String> {
    let WireTaskId { id, .. } = read(params)?;
    id.filter(|id| !id.is_empty()).ok_or_else(|| "`id` is missing".into())
}

fn push_ids(params: &Value) -> Result<(String, Option<String>), String> {
    let WireTaskId { push_notification_config_id, .. } = read(params)?;
    Ok((id_of(params)?, push_notification_config_id.filter(|id| !id.is_empty())))
}

/// Returns the operation of a method. `None` if this version does not have the method.
pub(super) fn decode_call(method: &str, params: Value) -> Option<Result<Operation, A2aError>> {
    let operation = match method {
        // `sendMessage` is the name in ADK's documentation.
        "message/send" | "sendMessage" => decode_send(params).map(Operation::Send),
        "message/stream" => decode_send(params).map(Operation::Stream),
        _ => decode_small_call(method, &params)?,
    };
    Some(operation.map_err(A2aError::invalid_params))
}

/// Returns the operation of a method that has no content.
fn decode_small_call(method: &str, params: &Value) -> Option<Result<Operation, String>> {
    Some(match method {
        "tasks/get" => id_of(params).and_then(|id| {
            let WireTaskId { history_length, .. } = read(params)?;
            Ok(Operation::Get { id, history_length })
        }),
        "tasks/cancel" => id_of(params).map(|id| Operation::Cancel { id }),
        "tasks/resubscribe" => id_of(params).map(|id| Operation::Subscribe { id }),
        "tasks/pushNotificationConfig/set" => read::<WireTaskPush>(params).and_then(|wire| {
            let task_id = Some(wire.task_id).filter(|id| !id.is_empty()).ok_or("`taskId` is missing")?;
            Ok(Operation::SetPush { task_id, config: wire.push_notification_config.into() })
        }),
        "tasks/pushNotificationConfig/get" => push_ids(params).map(|(task_id, id)| Operation::GetPush { task_id, id }),
        "tasks/pushNotificationConfig/list" => id_of(params).map(|task_id| Operation::ListPush { task_id }),
        "tasks/pushNotificationConfig/delete" => push_ids(params).and_then(|(task_id, id)| {
            Ok(Operation::DeletePush { task_id, id: id.ok_or("`pushNotificationConfigId` is missing")? })
        }),
        "agent/getAuthenticatedExtendedCard" => Ok(Operation::ExtendedCard),
        _ => return None,
    })
}

pub(super) fn encode_call(operation: Operation) -> (&'static str, Value) {
    match operation {
        Operation::Send(request) => ("message/send", encode_send(*request)),
        Operation::Stream(request) => ("message/stream", encode_send(*request)),
        Operation::Get { id, history_length: None } => ("tasks/get", json!({"id": id})),
        Operation::Get { id, history_length } => ("tasks/get", json!({"id": id, "historyLength": history_length})),
        // Version 0.3 has no such method.
        Operation::List(_) => ("tasks/list", json!({})),
        Operation::Cancel { id } => ("tasks/cancel", json!({"id": id})),
        Operation::Subscribe { id } => ("tasks/resubscribe", json!({"id": id})),
        Operation::SetPush { task_id, config } => {
            ("tasks/pushNotificationConfig/set", wire_task_push(&task_id, config))
        }
        Operation::GetPush { task_id, id } => {
            ("tasks/pushNotificationConfig/get", json!({"id": task_id, "pushNotificationConfigId": id}))
        }
        Operation::ListPush { task_id } => ("tasks/pushNotificationConfig/list", json!({"id": task_id})),
        Operation::DeletePush { task_id, id } => {
            ("tasks/pushNotificationConfig/delete", json!({"id": task_id, "pushNotificationConfigId": id}))
        }
        Operation::ExtendedCard => ("agent/getAuthenticatedExtendedCard", json!({})),
    }
}

pub(super) fn encode_outcome(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Sent(update) => encode_update(update),
        Outcome::Task(task) => write(WireTask::from(task)),
        Outcome::Tasks(page) => page.tasks.into_iter().map(|task| write(WireTask::from(task))).collect(),
        Outcome::Push { task_id, config } => wire_task_push(&task_id, config),
        Outcome::Pushes { task_id, configs } => {
            configs.into_iter().map(|config| wire_task_push(&task_id, config)).collect()
        }
        Outcome::Deleted => Value::Null,
        Outcome::Card(card) => card.to_json(),
    }
}
