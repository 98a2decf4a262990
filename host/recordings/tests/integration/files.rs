//! Files of recorded sessions: they round-trip, and files of ADK can be read and replayed.

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Agent, AgentKind, Blob, Content, EventActions, FunctionCall, FunctionDeclaration, FunctionResponse, JsonMap,
    LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part, PartData, ToolError, UsageMetadata,
};
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{
    FILE_NAME, ModelCall, RecordedCall, Recording, Recordings, Replayer, ToolCall, ToolOutcome, UserMessage,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

/// Data of users and models: any text, any keys.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "",
            "yes",
            "null",
            "~",
            "1.0",
            "0x1",
            " lead",
            "a: b",
            "# c",
            "two\nlines\n",
            "- x",
            "é\u{85}"
        ])
        .prop_map(Into::into),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e12f64..1e12).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((text(), inner), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn user_map() -> impl Strategy<Value = JsonMap> {
    vec((text(), json_value()), 0..4).prop_map(|entries| entries.into_iter().collect())
}

/// Keys of ADK that this version does not know.
fn unknown_fields() -> impl Strategy<Value = JsonMap> {
    let key = prop::sample::select(vec!["videoMetadata", "willContinue", "topModel2", "kind"]);
    let value =
        prop_oneof![any::<bool>().prop_map(Value::from), text().prop_map(|text| json!({ "startOffset": text }))];
    vec((key.prop_map(String::from), value), 0..2).prop_map(|entries| entries.into_iter().collect())
}

fn call() -> impl Strategy<Value = FunctionCall> {
    (option::of(text()), text(), user_map(), unknown_fields()).prop_map(|(id, name, args, extra)| FunctionCall {
        id,
        name,
        args,
        extra: extra.into(),
    })
}

fn response() -> impl Strategy<Value = FunctionResponse> {
    (option::of(text()), text(), user_map(), unknown_fields())
        .prop_map(|(id, name, response, extra)| FunctionResponse { id, name, response, extra: extra.into() })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..8).prop_map(Bytes::from)
}

fn part() -> impl Strategy<Value = Part> {
    let data = prop_oneof![
        text().prop_map(PartData::Text),
        call().prop_map(PartData::FunctionCall),
        response().prop_map(PartData::FunctionResponse),
        bytes().prop_map(|data| PartData::InlineData(Blob { mime_type: "image/png".into(), data, ..Blob::default() })),
    ];
    (data, any::<bool>(), option::of(bytes()), unknown_fields()).prop_map(
        |(data, thought, thought_signature, extra)| Part { data, thought, thought_signature, extra: extra.into() },
    )
}

fn content() -> impl Strategy<Value = Content> {
    (option::of(Just("model".to_owned())), vec(part(), 0..3)).prop_map(|(role, parts)| Content { role, parts })
}

fn function_declaration() -> impl Strategy<Value = Arc<FunctionDeclaration>> {
    (text(), text(), option::of(user_map()), option::of(user_map())).prop_map(
        |(name, description, parameters, response)| {
            let (parameters, response) = (parameters.map(Value::Object), response.map(Value::Object));
            Arc::new(FunctionDeclaration { name, description, parameters, response })
        },
    )
}

fn request() -> impl Strategy<Value = LlmRequest> {
    let instruction = option::of(any::<String>().prop_filter("not empty", |text| !text.is_empty()));
    let tools = (vec(function_declaration(), 0..3), vec(Just(json!({"googleSearch": {}})), 0..2));
    (text(), vec(content(), 0..3), instruction, tools, option::of(user_map()), option::of(0.0..2.0f64)).prop_map(
        |(model, contents, instruction, (tools, model_tools), schema, temperature)| {
            let mut request = LlmRequest {
                model,
                contents: contents.into_iter().map(Arc::new).collect(),
                system_instructions: instruction.into_iter().collect(),
                tools,
                model_tools,
                ..LlmRequest::default()
            };
            request.config.temperature = temperature;
            request.config.response_schema = schema.map(Value::Object);
            request.config.extra = map(json!({"thinkingConfig": {"includeThoughts": true}}));
            request
        },
    )
}

fn model_response() -> impl Strategy<Value = LlmResponse> {
    (option::of(content()), any::<bool>(), option::of(text()), option::of(any::<u64>()), option::of(user_map()))
        .prop_map(|(content, partial, error_message, tokens, custom)| LlmResponse {
            content,
            partial,
            finish_reason: Some("STOP".into()),
            error_message,
            usage_metadata: tokens
                .map(|tokens| UsageMetadata { total_token_count: Some(tokens), ..Default::default() }),
            custom_metadata: custom.map(Value::Object),
            ..LlmResponse::default()
        })
}

fn model_call() -> impl Strategy<Value = RecordedCall> {
    let error = (text(), option::of(any::<u16>())).prop_map(|(message, status)| ModelError {
        status,
        ..ModelError::new(ModelErrorKind::RateLimited, "m", message)
    });
    (request(), vec(model_response(), 0..3), option::of(error))
        .prop_map(|(request, responses, error)| RecordedCall::Model(ModelCall { request, responses, error }))
}

fn tool_call() -> impl Strategy<Value = RecordedCall> {
    let outcome = prop_oneof![
        response().prop_map(ToolOutcome::Object),
        response().prop_map(ToolOutcome::Value),
        text().prop_map(|message| ToolOutcome::Error(ToolError::Recoverable(message))),
        (text(), text(), text()).prop_map(|(tool, code, message)| {
            ToolOutcome::Error(ToolError::Fatal { tool, code: code.into(), message })
        }),
        Just(ToolOutcome::Pending),
        Just(ToolOutcome::Interrupted),
    ];
    let actions =
        (user_map(), option::of(text()), option::of(any::<bool>())).prop_map(|(state_delta, to, escalate)| {
            EventActions { state_delta, transfer_to_agent: to, escalate, ..EventActions::default() }
        });
    (call(), outcome, option::of(actions))
        .prop_map(|(call, outcome, actions)| RecordedCall::Tool(ToolCall { call, outcome, actions }))
}

fn recordings() -> impl Strategy<Value = Recordings> {
    let recording = (0..3usize, text(), prop_oneof![model_call(), tool_call()])
        .prop_map(|(user_message_index, agent, call)| Recording { user_message_index, agent, call });
    let message = (prop_oneof![content(), text().prop_map(Content::user)], user_map(), option::of(text()))
        .prop_map(|(content, state_delta, error_code)| UserMessage { content, state_delta, error_code });
    (option::of(text()), user_map(), vec(message, 0..3), vec(recording, 0..4)).prop_map(
        |(app, initial_state, user_messages, recordings)| Recordings { app, initial_state, user_messages, recordings },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_round_trips(recordings in recordings()) {
        let yaml = recordings.to_yaml().unwrap();
        let parsed = Recordings::parse(&yaml);
        prop_assert!(parsed.is_ok(), "{:?}\n{}", parsed, yaml);
        prop_assert_eq!(parsed.unwrap(), recordings, "{}", yaml);
    }
}

#[test]
fn keys_of_adk_are_written_in_its_format() {
    let roll = FunctionDeclaration {
        name: "roll".into(),
        parameters: Some(json!({"type": "object", "properties": {"maxSides": {"type": "integer"}}})),
        ..FunctionDeclaration::default()
    };
    let image = Blob { mime_type: "image/png".into(), data: Bytes::from_static(&[0xff, 0xef]), ..Blob::default() };
    let request = LlmRequest {
        model: "gemini-2.5-flash".into(),
        contents: [Arc::new(Content::new("user", vec![PartData::InlineData(image).into()]))].into_iter().collect(),
        system_instructions: vec!["Roll.".into()],
        tools: vec![Arc::new(roll)],
        ..LlmRequest::default()
    };
    let args = map(json!({"maxSides": 6}));
    let call = FunctionCall { id: Some("adk-1".into()), name: "roll".into(), args, ..FunctionCall::default() };
    let actions = EventActions { state_delta: map(json!({"lastRoll": 3})), ..EventActions::default() };
    let recording = |call| Recording { user_message_index: 0, agent: "dice".into(), call };
    let recordings = Recordings {
        recordings: vec![
            recording(RecordedCall::Model(ModelCall {
                request,
                responses: vec![LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::text("3") }],
                error: None,
            })),
            recording(RecordedCall::Tool(ToolCall {
                call,
                outcome: ToolOutcome::Error(ToolError::Recoverable("lost".into())),
                actions: Some(actions),
            })),
        ],
        ..Recordings::default()
    };
    let expected = "\
recordings:
- user_message_index: 0
  agent_index: 0
  agent_name: dice
  llm_recording:
    llm_request:
      model: gemini-2.5-flash
      contents:
      - role: user
        parts:
        - inline_data:
            mime_type: image/png
            data: _-8=
      config:
        system_instruction: Roll.
        tools:
        - function_declarations:
          - name: roll
            parameters_json_schema:
              type: object
              properties:
                maxSides:
                  type: integer
    llm_responses:
    - content:
        role: model
        parts:
        - text: '3'
      finish_reason: STOP
- user_message_index: 0
  agent_index: 1
  agent_name: dice
  tool_recording:
    tool_call:
      id: adk-1
      name: roll
      args:
        maxSides: 6
    tool_response:
      id: adk-1
      name: roll
      response:
        error: lost
    tool_error:
      message: lost
    actions:
      state_delta:
        lastRoll: 3
";
    assert_eq!(recordings.to_yaml().unwrap(), expected);
}

#[test]
fn errors_name_the_entry() {
    let error = |yaml: &str| Recordings::parse(yaml).unwrap_err().to_string();
    assert!(error("recordings:\n- user_message_index: x\n").contains("recordings[0].user_message_index: invalid type"));
    let neither = "recordings:\n- {user_message_index: 0, agent_name: a}\n";
    assert_eq!(error(neither), "recordings[0]: expected either `llm_recording`, `live_recording` or `tool_recording`");
    assert_eq!(error("user_messages: [{}]"), "user_messages[0]: missing field `text` or `content`");
}

/// A file of ADK for Python: sorted keys, no ids in the conversation, arguments in prompts as Python literals, the
/// older key of a single response, and unknown keys.
const PYTHON_RECORDING: &str = r#"
recordings:
- agent_index: 0
  agent_name: root
  user_message_index: 0
  llm_recording:
    llm_request:
      cache_config: null
      config:
        http_options: {headers: {x-goog-api-client: google-adk/1.0}}
        labels: {adk_agent_name: root}
        system_instruction:
          parts: [{text: INSTRUCTION}]
          role: user
        tools:
        - function_declarations:
          - name: look
            parameters: {properties: {placeName: {type: STRING, nullable: null}}, type: OBJECT}
          - description: Hands the conversation over to another agent.
            name: transfer_to_agent
            parameters_json_schema:
              properties:
                agent_name: {description: The agent to hand over to., enum: [helper], type: string}
              required: [agent_name]
              type: object
      contents:
      - parts: [{text: where?}]
        role: user
      live_connect_config: {input_audio_transcription: {}}
      model: scripted
    llm_response:
      content:
        parts:
        - function_call: {args: {placeName: Oslo}, name: look}
        - function_call: {args: {agent_name: helper}, name: transfer_to_agent}
        role: model
      usage_metadata: {total_token_count: 3, prompt_tokens_details: [{modality: TEXT, token_count: 3}]}
- agent_name: root
  user_message_index: 0
  tool_recording:
    tool_call: {args: {placeName: Oslo}, id: adk-1, name: look}
    tool_response: {id: adk-1, name: look, response: {found: true}}
- agent_name: root
  user_message_index: 0
  tool_recording:
    tool_call: {args: {agent_name: helper}, id: adk-2, name: transfer_to_agent}
    tool_response: {id: adk-2, name: transfer_to_agent, response: {}}
- agent_name: helper
  user_message_index: 0
  llm_recording:
    llm_request:
      config: {system_instruction: HELPER}
      contents:
      - parts: [{text: where?}]
        role: user
      - parts:
        - text: "For context:"
        - text: "[root] called tool `look` with parameters: {'placeName': 'Oslo'}"
        - text: "[root] called tool `transfer_to_agent` with parameters: {'agent_name': 'helper'}"
        role: user
      - parts:
        - text: "For context:"
        - text: "[root] `look` tool returned result: {'found': True}"
        - text: "[root] `transfer_to_agent` tool returned result: {}"
        role: user
      model: scripted
    llm_responses:
    - content: {parts: [{text: 'In '}], role: model}
      partial: true
    - content: {parts: [{text: In Oslo.}], role: model}
"#;

fn searching_agent() -> Agent {
    let no_replies = || Scripted::sequence(Vec::<Reply>::new());
    let look = FunctionDeclaration {
        parameters: Some(json!({"type": "object", "properties": {"placeName": {"type": "string"}}})),
        ..declaration("look").as_ref().clone()
    };
    let helper = llm_with("helper", no_replies(), |llm| {
        llm.disallow_transfer_to_parent = true;
        llm.disallow_transfer_to_peers = true;
    });
    let mut root = llm_with("root", no_replies(), |llm| llm.tools = vec![Arc::new(PanickingTool(Arc::new(look)))]);
    if let AgentKind::Llm(llm) = &mut root.kind {
        llm.instruction = hatchery_core::Instruction::Template("Find it.".into());
    }
    root.with_sub_agents(vec![helper])
}

/// A tool that must not be called in a replay.
struct PanickingTool(Arc<FunctionDeclaration>);

#[async_trait::async_trait]
impl hatchery_core::Tool for PanickingTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, _: &hatchery_core::CallContext) -> Result<Value, ToolError> {
        panic!("a replay runs no tool")
    }
}

#[tokio::test]
async fn a_recording_of_adk_for_python_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let instruction = "\"Find it.\\n\\nYou are an agent. Your internal name is \\\"root\\\". The description about you is \
        \\\"Does root.\\\".\\n\\nYou can hand the conversation over to one of these agents:\\n\\nAgent name: helper\\nAgent \
        description: Does helper.\\n\\nIf you are the best to answer by your description, answer. If another agent is better, \
        call `transfer_to_agent` with its name, and say nothing beside the call.\"";
    let helper = "\"Be brief.\\n\\nYou are an agent. Your internal name is \\\"helper\\\". The description about you is \
        \\\"Does helper.\\\".\"";
    let yaml = PYTHON_RECORDING.replace("INSTRUCTION", instruction).replace("HELPER", helper);
    std::fs::write(folder.path().join(FILE_NAME), yaml).unwrap();
    let mut app = Harness::new(searching_agent()).await;
    let plugins = Plugins::new(vec![Arc::new(Replayer::from_folder(folder.path()))]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    let transcript = app.transcript("where?").await;
    assert_eq!(transcript.last().map(String::as_str), Some("helper: In Oslo."), "{transcript:?}");
    let session = app.session().await;
    let ids: Vec<_> = session.events[1].function_calls().filter_map(|call| call.id.as_deref()).collect();
    assert_eq!(ids, ["adk-1", "adk-2"], "calls without an id get the id of the recorded tool call");
}

#[test]
fn recordings_are_loaded_from_text_path_and_reader() {
    let text = "app: dice\nrecordings: []\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    std::fs::write(&path, text).unwrap();
    let parsed = Recordings::parse(text).unwrap();
    assert_eq!(Recordings::from_path(&path).unwrap(), parsed);
    assert_eq!(Recordings::from_reader(text.as_bytes()).unwrap(), parsed);
    assert!(Recordings::from_path(folder.path().join("missing.yaml")).is_err());
    assert!(Recordings::from_reader("app: [".as_bytes()).is_err());
}
