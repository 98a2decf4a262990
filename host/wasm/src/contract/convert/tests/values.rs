//! Strategies for arbitrary values of `hatchery-core`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, CodeFile, Compaction, Content, EventActions, EventData, Example, ExecutableCode, Extra,
    FileData, FunctionCall, FunctionDeclaration, FunctionResponse, GenerateContentConfig, JsonMap, LlmRequest,
    LlmResponse, Part, PartData, Timestamp, UsageMetadata,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

pub(super) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i32..1000).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0 + 0.125)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(prop_oneof![inner.clone(), Just(Value::Null)], 0..3).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = JsonMap> {
    vec(("[a-z]{1,6}", value), 0..3)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (format!("x-{key}"), value)).collect())
}

fn map() -> impl Strategy<Value = JsonMap> {
    object(json())
}

pub(super) fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

pub(super) fn maybe() -> impl Strategy<Value = Option<String>> {
    option::of(text())
}

fn extra() -> impl Strategy<Value = Extra> {
    map().prop_map(Extra::from)
}

fn data() -> impl Strategy<Value = PartData> {
    let bytes = vec(any::<u8>(), 0..20);
    prop_oneof![
        Just(PartData::Other),
        text().prop_map(PartData::Text),
        (text(), bytes, maybe()).prop_map(|(mime_type, data, display_name)| {
            PartData::InlineData(Blob { mime_type, data: data.into(), display_name })
        }),
        (text(), maybe(), maybe()).prop_map(|(file_uri, mime_type, display_name)| {
            PartData::FileData(FileData { file_uri, mime_type, display_name })
        }),
        (maybe(), text(), map(), extra()).prop_map(|(id, name, args, extra)| PartData::FunctionCall(FunctionCall {
            id,
            name,
            args,
            extra
        })),
        (maybe(), text(), map(), extra()).prop_map(|(id, name, response, extra)| {
            PartData::FunctionResponse(FunctionResponse { id, name, response, extra })
        }),
        (maybe(), text(), extra()).prop_map(|(language, code, extra)| PartData::ExecutableCode(ExecutableCode {
            language,
            code,
            extra
        })),
        (maybe(), maybe(), extra()).prop_map(|(outcome, output, extra)| {
            PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra })
        }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    (data(), any::<bool>(), option::of(vec(any::<u8>(), 0..9)), extra()).prop_map(
        |(data, thought, signature, extra)| Part {
            data,
            thought,
            thought_signature: signature.map(Bytes::from),
            extra,
        },
    )
}

pub(super) fn content() -> impl Strategy<Value = Content> {
    (maybe(), vec(part(), 0..3)).prop_map(|(role, parts)| Content { role, parts })
}

fn usage() -> impl Strategy<Value = UsageMetadata> {
    (option::of(any::<u64>()), option::of(any::<u64>()), extra()).prop_map(|(prompt, total, extra)| UsageMetadata {
        prompt_token_count: prompt,
        total_token_count: total,
        extra,
        ..UsageMetadata::default()
    })
}

fn compaction() -> impl Strategy<Value = Box<Compaction>> {
    (0i64..1 << 50, 0i64..1 << 50, content()).prop_map(|(start, end, compacted_content)| {
        let (start_timestamp, end_timestamp) = (Timestamp::from_micros(start), Timestamp::from_micros(end));
        Box::new(Compaction { start_timestamp, end_timestamp, compacted_content, extra: Extra::default() })
    })
}

fn actions() -> impl Strategy<Value = EventActions> {
    let flags = (
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        maybe(),
        option::of(any::<bool>()),
    );
    let artifacts = proptest::collection::btree_map(text(), any::<u64>(), 0..3);
    let state = object(prop_oneof![json(), Just(Value::Null)]);
    let deleted = proptest::collection::btree_set(text(), 0..3);
    (state, artifacts, deleted, flags, extra(), extra(), option::of(compaction()), extra()).prop_map(
        |(state_delta, artifact_delta, deleted_artifact_ids, flags, auth, confirmations, compaction, extra)| {
            EventActions {
                deleted_artifact_ids,
                state_delta,
                artifact_delta: artifact_delta.into_iter().collect::<BTreeMap<_, _>>(),
                skip_summarization: flags.0,
                escalate: flags.1,
                end_of_agent: flags.2,
                transfer_to_agent: flags.3,
                end_invocation: flags.4,
                requested_auth_configs: auth,
                requested_tool_confirmations: confirmations,
                compaction,
                extra,
            }
        },
    )
}

pub(super) fn event() -> impl Strategy<Value = EventData> {
    let names = (text(), text(), text(), maybe(), maybe(), maybe());
    let boxed = || option::of(json().prop_map(Box::new));
    let metadata = (option::of(usage().prop_map(Box::new)), maybe(), maybe(), boxed(), boxed(), boxed());
    let rest = (any::<bool>(), option::of(any::<bool>()), any::<i64>(), vec(text(), 0..2), option::of(-8_i32..0));
    (names, option::of(content()), actions(), metadata, rest).prop_map(|(names, content, actions, metadata, rest)| {
        EventData {
            id: names.0,
            invocation_id: names.1,
            author: names.2,
            branch: names.3,
            error_code: names.4,
            error_message: names.5,
            content: content.map(Arc::new),
            actions,
            usage_metadata: metadata.0,
            finish_reason: metadata.1,
            model_version: metadata.2,
            grounding_metadata: metadata.3,
            custom_metadata: metadata.4,
            input_transcription: metadata.5.clone(),
            output_transcription: metadata.5,
            partial: rest.0,
            turn_complete: rest.1,
            interrupted: rest.1,
            timestamp: Timestamp::from_micros(rest.2),
            long_running_tool_ids: rest.3,
            avg_logprobs: rest.4.map(|quarters| f64::from(quarters) / 4.0),
        }
    })
}

fn declaration() -> impl Strategy<Value = FunctionDeclaration> {
    (text(), text(), option::of(json()), option::of(json())).prop_map(|(name, description, parameters, response)| {
        FunctionDeclaration { name, description, parameters, response }
    })
}

pub(super) fn request() -> impl Strategy<Value = LlmRequest> {
    let config = (option::of(any::<u64>()), option::of(vec(text(), 0..2)), option::of(json()), map());
    let config = config.prop_map(|(max_output_tokens, stop_sequences, response_schema, extra)| GenerateContentConfig {
        max_output_tokens,
        stop_sequences,
        response_schema,
        extra,
        ..GenerateContentConfig::default()
    });
    (text(), vec(content(), 0..3), vec(text(), 0..2), vec(declaration(), 0..2), vec(json(), 0..2), config).prop_map(
        |(model, contents, system_instructions, tools, model_tools, config)| LlmRequest {
            model,
            contents: contents.into_iter().map(Arc::new).collect(),
            system_instructions,
            tools: tools.into_iter().map(Arc::new).collect(),
            model_tools,
            config,
            ..LlmRequest::default()
        },
    )
}

pub(super) fn response() -> impl Strategy<Value = LlmResponse> {
    let texts = (maybe(), maybe(), maybe(), maybe());
    (option::of(content()), any::<bool>(), texts, option::of(usage()), option::of(json())).prop_map(
        |(content, partial, texts, usage_metadata, other)| LlmResponse {
            content,
            partial,
            turn_complete: partial.then_some(true),
            interrupted: (!partial).then_some(true),
            finish_reason: texts.0,
            error_code: texts.1,
            error_message: texts.2,
            model_version: texts.3,
            usage_metadata,
            grounding_metadata: other.clone(),
            custom_metadata: other,
            avg_logprobs: partial.then_some(-0.5),
        },
    )
}

pub(super) fn example() -> impl Strategy<Value = Example> {
    (content(), vec(content(), 0..3)).prop_map(|(input, output)| Example { input, output })
}

pub(super) fn file() -> impl Strategy<Value = CodeFile> {
    (text(), vec(any::<u8>(), 0..20), text()).prop_map(|(name, content, mime_type)| CodeFile {
        name,
        content: content.into(),
        mime_type,
    })
}
