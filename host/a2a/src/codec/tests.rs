//! Round trips of all messages in both wire versions, and errors of malformed ones.

use bytes::Bytes;
use hatchery_core::JsonMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::{
    Artifact, ArtifactUpdate, Message, Part, PartContent, PushAuthentication, PushConfig, Role, SendRequest,
    StatusUpdate, TaskState, TaskStatus,
};

const VERSIONS: [Version; 2] = [Version::V0_3, Version::V1_0];

fn metadata() -> impl Strategy<Value = JsonMap> {
    prop::collection::btree_map("[a-z_]{1,6}", json_value(), 0..3).prop_map(|map| map.into_iter().collect())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        ".{0,12}".prop_map(PartContent::Text),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| PartContent::Raw(Bytes::from(bytes))),
        "https://[a-z]{1,8}\\.example/[a-z]{0,4}".prop_map(PartContent::Url),
        json_value().prop_map(PartContent::Data),
    ];
    let file = (prop::option::of("[a-z]{1,5}/[a-z]{1,5}"), prop::option::of("[a-z.]{1,8}"));
    (content, file, metadata()).prop_map(|(content, (media_type, filename), metadata)| {
        // Version 0.3 has types and names of files only.
        let is_file = matches!(content, PartContent::Raw(_) | PartContent::Url(_));
        Part { content, media_type: media_type.filter(|_| is_file), filename: filename.filter(|_| is_file), metadata }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let ids = ("[a-z0-9-]{1,8}", prop::option::of("[a-z0-9]{1,8}"), prop::option::of("[a-z0-9]{1,8}"));
    let lists = (prop::collection::vec("urn:[a-z]{1,4}", 0..2), prop::collection::vec("[a-z]{1,4}", 0..2));
    let parts = prop::collection::vec(part(), 0..4);
    (ids, any::<bool>(), parts, metadata(), lists).prop_map(|(ids, is_user, parts, metadata, lists)| Message {
        id: ids.0,
        context_id: ids.1,
        task_id: ids.2,
        role: if is_user { Role::User } else { Role::Agent },
        parts,
        metadata,
        extensions: lists.0,
        reference_task_ids: lists.1,
    })
}

fn artifact() -> impl Strategy<Value = Artifact> {
    let texts = ("[a-z0-9]{1,8}", prop::option::of(".{0,8}"), prop::option::of(".{0,8}"));
    (texts, prop::collection::vec(part(), 0..3), metadata()).prop_map(|((id, name, description), parts, metadata)| {
        Artifact { id, name, description, parts, metadata, extensions: Vec::new() }
    })
}

fn status() -> impl Strategy<Value = TaskStatus> {
    (prop::sample::select(TaskState::ALL.to_vec()), prop::option::of(message()))
        .prop_map(|(state, message)| TaskStatus { state, message, timestamp: None })
}

fn update() -> impl Strategy<Value = Update> {
    let ids = || ("[a-z0-9]{1,8}", "[a-z0-9]{1,8}");
    prop_oneof![
        message().prop_map(Update::Message),
        (ids(), status(), prop::collection::vec(artifact(), 0..3), prop::collection::vec(message(), 0..3), metadata())
            .prop_map(|((id, context_id), status, artifacts, history, metadata)| {
                Update::Task(Task { id, context_id, status, artifacts, history, metadata })
            }),
        (ids(), status(), metadata()).prop_map(|((task_id, context_id), status, metadata)| {
            Update::Status(StatusUpdate { task_id, context_id, status, metadata })
        }),
        (ids(), artifact(), any::<bool>(), any::<bool>(), metadata()).prop_map(
            |((task_id, context_id), artifact, append, last_chunk, metadata)| {
                Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata })
            }
        ),
    ]
}

proptest! {
    #[test]
    fn updates_are_read_as_they_were_written(update in update()) {
        for version in VERSIONS {
            let wire = version.encode_update(update.clone());
            prop_assert_eq!(version.decode_update(wire.clone()).unwrap(), update.clone(), "{}", wire);
        }
    }

    #[test]
    fn messages_are_sent_as_they_were_written(
        message in message(), history_length in prop::option::of(0_u32..9), returns_immediately in any::<bool>(),
        push in prop::option::of(("[a-z]{1,4}", prop::option::of("[a-z]{1,4}"))), metadata in metadata(),
    ) {
        let push = push.map(|(id, token)| PushConfig {
            version: Version::V1_0,
            id: Some(id),
            url: "https://hooks.example/a".into(),
            token,
            authentication: Some(PushAuthentication { scheme: "Bearer".into(), credentials: Some("c".into()) }),
        });
        let request = SendRequest {
            message, accepted_output_modes: vec!["text/plain".into()], history_length, returns_immediately, push, metadata,
        };
        for version in VERSIONS {
            let push = request.push.clone().map(|push| PushConfig { version, ..push });
            let operation = Operation::Send(Box::new(SendRequest { push, ..request.clone() }));
            let (method, params) = version.encode_call(operation.clone());
            let (decoded_version, decoded) = Version::decode_call(method, params).unwrap();
            prop_assert_eq!((decoded_version, decoded.unwrap()), (version, operation.clone()));
        }
    }

    #[test]
    fn anything_of_a_peer_is_read_or_refused(value in json_value()) {
        for version in VERSIONS {
            let _ = version.decode_update(value.clone());
            let _ = version.decode_task(value.clone());
        }
        for method in ["message/send", "SendMessage", "ListTasks", "tasks/get", "tasks/pushNotificationConfig/set"] {
            let _ = Version::decode_call(method, value.clone());
        }
    }

    #[test]
    fn texts_in_task_ids_have_one_spelling(text in ".{0,40}") {
        let encoded = encode_url_safe(&text);
        prop_assert!(encoded.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_')));
        prop_assert_eq!(decode_url_safe(&encoded), Some(text));
    }
}

#[test]
fn all_other_operations_are_read_as_they_were_written() {
    let id = || "t".to_owned();
    let config = |version| PushConfig {
        version,
        id: Some("c".into()),
        url: "https://hooks.example".into(),
        ..PushConfig::default()
    };
    let operations = |version| {
        [
            Operation::Get { id: id(), history_length: Some(3) },
            Operation::Get { id: id(), history_length: None },
            Operation::Cancel { id: id() },
            Operation::Subscribe { id: id() },
            Operation::SetPush { task_id: id(), config: config(version) },
            Operation::GetPush { task_id: id(), id: Some("c".into()) },
            Operation::ListPush { task_id: id() },
            Operation::DeletePush { task_id: id(), id: "c".into() },
            Operation::ExtendedCard,
        ]
    };
    for version in VERSIONS {
        for operation in operations(version) {
            let (method, params) = version.encode_call(operation.clone());
            assert_eq!(Version::decode_call(method, params), Some((version, Ok(operation.clone()))), "{method}");
        }
    }
}

#[test]
fn each_version_has_its_own_form() {
    let message = Message {
        id: "m".into(),
        role: Role::Agent,
        parts: vec![
            Part::text("hi"),
            Part { media_type: Some("image/png".into()), ..Part::new(PartContent::Raw(Bytes::from_static(b"\xff"))) },
            Part::new(PartContent::Data(json!([1]))),
        ],
        ..Message::default()
    };
    let update = Update::Status(StatusUpdate {
        task_id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus { state: TaskState::InputRequired, message: Some(message), timestamp: None },
        metadata: JsonMap::new(),
    });
    assert_eq!(
        Version::V1_0.encode_update(update.clone()),
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {
            "state": "TASK_STATE_INPUT_REQUIRED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [
                {"text": "hi"}, {"raw": "/w==", "mediaType": "image/png"}, {"data": [1]},
            ]},
        }}})
    );
    assert_eq!(
        Version::V0_3.encode_update(update),
        json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": true, "status": {
            "state": "input-required",
            "message": {"kind": "message", "messageId": "m", "role": "agent", "parts": [
                {"kind": "text", "text": "hi"},
                {"kind": "file", "file": {"bytes": "/w==", "mimeType": "image/png"}},
                {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": true}},
            ]},
        }})
    );
}

#[test]
fn data_of_a_peer_keeps_its_keys() {
    for (data, metadata, expected) in [
        (json!({"value": 7, "unit": "km"}), json!({}), json!({"value": 7, "unit": "km"})),
        (json!({"value": 7}), json!({}), json!({"value": 7})),
        (json!({"value": 7, "unit": "km"}), json!({"data_part_compat": true}), json!({"value": 7, "unit": "km"})),
        (json!({"value": 7}), json!({"data_part_compat": true}), json!(7)),
    ] {
        let part = json!({"kind": "data", "data": data, "metadata": metadata});
        let message = json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [part]});
        let Update::Message(message) = Version::V0_3.decode_update(message).unwrap() else { panic!("not a message") };
        assert_eq!(message.parts[0].content, PartContent::Data(expected), "{part}");
    }
}

#[test]
fn versions_count_by_their_first_two_numbers() {
    for (name, version) in
        [("0.3", Some(Version::V0_3)), ("0.3.1", Some(Version::V0_3)), ("1.0.1", Some(Version::V1_0))]
    {
        assert_eq!(Version::from_name(name), version);
    }
    for name in ["", "0.2", "1.1", "2.0", "x"] {
        assert_eq!(Version::from_name(name), None, "{name}");
    }
}

#[test]
fn keys_of_version_1_may_be_in_snake_case() {
    let get = Version::decode_call("GetTask", json!({"id": "t", "history_length": 1})).unwrap().1.unwrap();
    assert_eq!(get, Operation::Get { id: "t".into(), history_length: Some(1) });
    let push = Version::decode_call("ListTaskPushNotificationConfigs", json!({"task_id": "t"})).unwrap().1.unwrap();
    assert_eq!(push, Operation::ListPush { task_id: "t".into() });
}

#[test]
fn malformed_parameters_are_named() {
    let error = |method: &str, params: Value| Version::decode_call(method, params).unwrap().1.unwrap_err().message;
    assert_eq!(error("message/send", json!({})), "`message` is missing");
    assert_eq!(error("GetTask", json!({})), "`id` is missing");
    let two = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a", "url": "b"}]}});
    assert_eq!(error("SendMessage", two), "a part has exactly one of `text`, `raw`, `url` and `data`");
    let file = json!({"message": {"messageId": "m", "role": "user", "parts": [{"kind": "file", "file": {}}]}});
    assert_eq!(error("message/send", file), "a file has exactly one of `bytes` and `uri`");
    let text = json!({"id": "t", "historyLength": "many"});
    for method in ["GetTask", "tasks/get"] {
        let expected = "`historyLength`: invalid type: string \"many\", expected u32";
        assert_eq!(error(method, text.clone()), expected, "{method}");
    }
    let number = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": 1}]}});
    let expected = "`message.parts[0].text`: invalid type: integer `1`, expected a string";
    assert_eq!(error("SendMessage", number), expected);
}
