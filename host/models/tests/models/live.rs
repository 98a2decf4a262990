//! Live connections to Gemini and to OpenAI. A fake server plays a script per connection: the frames that it must
//! receive, and those that it sends.

mod access_tokens;
mod broken_connections;
mod realtime;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use hatchery_core::{
    Blob, Content, FunctionCall, FunctionDeclaration, FunctionResponse, JsonMap, LiveConnectConfig, LiveConnection,
    LiveRequest, LiveResponse, LlmRequest, ModelError, ModelErrorKind, ModelResolver, PartData, Transcription,
};
use hatchery_models::{GoogleCloud, ModelProviders, Service, Settings};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::{METADATA_PATH, user_request};

const MODEL: &str = "gemini-2.5-flash-native-audio-preview-12-2025";
const VERTEX_MODEL: &str = "vertex/gemini-live-2.5-flash";
const TIMEOUT: Duration = Duration::from_secs(20);

/// A step of a server's script.
enum Step {
    /// The next frame of the client is this JSON.
    Expect(Value),
    /// Sends JSON as a text frame.
    Send(Value),
    /// Sends JSON as a binary frame, as the real server does.
    SendBinary(Value),
    Close(u16, &'static str),
    /// Ends the connection without a close frame.
    Break,
    /// Neither reads nor writes any more.
    Hang,
}

/// The number of a connection, and the first deviation from its script.
type Report = (usize, Result<(), String>);

struct Server {
    settings: Settings,
    model: &'static str,
    reports: mpsc::UnboundedReceiver<Report>,
    connections: usize,
}

/// The scripts of the connections to come, with their numbers.
type Steps = VecDeque<(usize, Vec<Step>)>;

#[derive(Clone)]
struct Scripts {
    left: Arc<Mutex<Steps>>,
    reports: mpsc::UnboundedSender<Report>,
    /// The path and a header of the handshake.
    handshake: [&'static str; 3],
}

impl Server {
    /// Starts a server for Gemini.
    async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let path = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
        Self::start_for(Service::Gemini, MODEL, "", [path, "x-goog-api-key", "s3cret"], scripts).await
    }

    async fn start_for(
        service: Service,
        model: &'static str,
        base_path: &str,
        handshake: [&'static str; 3],
        scripts: Vec<Vec<Step>>,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{base_path}", listener.local_addr().unwrap());
        let settings = Settings::default().with_key(service, "s3cret").with_base_url(service, &*url);
        let connections = scripts.len();
        let (sender, reports) = mpsc::unbounded_channel();
        let left = Arc::new(Mutex::new(scripts.into_iter().enumerate().collect()));
        let token = json!({"access_token": "the-token", "expires_in": 3_599});
        let token = get(move || std::future::ready(Json(token.clone())));
        let router = Router::new().route(METADATA_PATH, token).fallback(accept).with_state(Scripts {
            left,
            reports: sender,
            handshake,
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { settings, model, reports, connections }
    }

    /// Starts a server for Vertex AI, with the metadata server of the machine.
    async fn start_vertex(scripts: Vec<Vec<Step>>) -> Self {
        let path = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent";
        let handshake = [path, "authorization", "Bearer the-token"];
        let mut server = Self::start_for(Service::Vertex, VERTEX_MODEL, "", handshake, scripts).await;
        let url = server.settings.connections[&Service::Vertex].base_url.clone().unwrap();
        server.settings.connections.get_mut(&Service::Vertex).unwrap().api_key = None;
        server.settings.google_cloud = GoogleCloud {
            project: Some("my-project".into()),
            location: Some("europe-west4".into()),
            metadata_host: url.as_str().strip_prefix("http://").map(Into::into),
            ..GoogleCloud::default()
        };
        server
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let model = ModelProviders::with_defaults(self.settings.clone()).model(self.model).unwrap();
        assert!(model.capabilities().live);
        tokio::time::timeout(TIMEOUT, model.connect(request)).await.unwrap()
    }

    /// Waits until all scripts were played.
    async fn check(mut self) {
        for _ in 0..self.connections {
            let (number, result) = tokio::time::timeout(TIMEOUT, self.reports.recv()).await.unwrap().unwrap();
            result.unwrap_or_else(|error| panic!("connection {number}: {error}"));
        }
    }
}

async fn accept(State(scripts): State<Scripts>, upgrade: WebSocketUpgrade, request: Request) -> Response {
    let [path, name, value] = scripts.handshake;
    assert_eq!((request.uri().to_string().as_str(), request.headers()[name].to_str().unwrap()), (path, value));
    upgrade.on_upgrade(move |mut socket| async move {
        let (number, script) = scripts.left.lock().unwrap().pop_front().expect("a script for each connection");
        let mut result = Ok(());
        for step in script {
            result = play(&mut socket, step).await;
            if result.is_err() {
                break;
            }
        }
        let _ = scripts.reports.send((number, result));
    })
}

async fn play(socket: &mut WebSocket, step: Step) -> Result<(), String> {
    let sent = match step {
        Step::Expect(expected) => {
            let frame = tokio::time::timeout(TIMEOUT, socket.recv()).await.map_err(|_| format!("no {expected}"))?;
            let Some(Ok(Message::Text(text))) = &frame else { return Err(format!("{frame:?} in place of {expected}")) };
            let received: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            return if received == expected { Ok(()) } else { Err(format!("received {received}, not {expected}")) };
        }
        Step::Send(json) => socket.send(Message::text(json.to_string())).await,
        Step::SendBinary(json) => socket.send(Message::binary(json.to_string().into_bytes())).await,
        Step::Close(code, reason) => {
            socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
        }
        Step::Break => return Ok(()),
        Step::Hang => std::future::pending().await,
    };
    sent.map_err(|error| error.to_string())
}

fn setup(resumption: Value) -> Value {
    json!({"setup": {
        "model": format!("models/{MODEL}"),
        "generationConfig": {"responseModalities": ["AUDIO"]},
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
        "sessionResumption": resumption,
    }})
}

/// The beginning of a connection without a history.
fn begin(resumption: Value) -> Vec<Step> {
    vec![Step::Expect(setup(resumption)), Step::SendBinary(json!({"setupComplete": {}}))]
}

fn script(begin: Vec<Step>, rest: Vec<Step>) -> Vec<Step> {
    begin.into_iter().chain(rest).collect()
}

fn empty_request() -> LlmRequest {
    LlmRequest { live_connect_config: Some(LiveConnectConfig::default().with_defaults()), ..LlmRequest::default() }
}

/// A request whose connection is continued without long delays.
fn impatient_request() -> LlmRequest {
    let retry = json!({"httpOptions": {"retryOptions": {"initialDelay": 0.001, "jitter": 0.0}}});
    LlmRequest { config: serde_json::from_value(retry).unwrap(), ..empty_request() }
}

fn text_frame(text: &str) -> Value {
    json!({"clientContent": {"turns": [{"role": "user", "parts": [{"text": text}]}], "turnComplete": true}})
}

fn text_request(text: &str) -> LiveRequest {
    LiveRequest::content(Content::user(text))
}

async fn receive(connection: &dyn LiveConnection) -> Option<Result<LiveResponse, ModelError>> {
    tokio::time::timeout(TIMEOUT, connection.receive()).await.unwrap()
}

async fn received(connection: &dyn LiveConnection, count: usize) -> Vec<LiveResponse> {
    let mut responses = Vec::new();
    while responses.len() < count {
        responses.push(receive(connection).await.unwrap().unwrap());
    }
    responses
}

fn output(text: &str) -> LiveResponse {
    LiveResponse::OutputTranscription(Transcription { text: text.into(), finished: false })
}

fn audio(bytes: &[u8]) -> Content {
    let blob = Blob { mime_type: "audio/pcm;rate=24000".into(), data: bytes.to_vec().into(), display_name: None };
    Content::new("model", vec![PartData::InlineData(blob).into()])
}

fn audio_frame(data: &str) -> Value {
    let part = json!({"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": data}});
    json!({"serverContent": {"modelTurn": {"role": "model", "parts": [part]}}})
}

#[tokio::test]
async fn vertex_ai_gets_an_access_token_and_the_full_name_of_the_model() {
    let name = "projects/my-project/locations/europe-west4/publishers/google/models/gemini-live-2.5-flash";
    let mut setup = setup(json!({}));
    setup["setup"]["model"] = json!(name);
    let server = Server::start_vertex(vec![vec![
        Step::Expect(setup),
        Step::SendBinary(json!({"setupComplete": {}})),
        Step::Expect(text_frame("hi")),
        Step::Send(json!({"serverContent": {"outputTranscription": {"text": "hello"}}})),
        Step::Send(json!({"serverContent": {"turnComplete": true}})),
    ]])
    .await;
    let connection = server.connect(empty_request()).await.unwrap();
    connection.send(text_request("hi")).await.unwrap();
    assert_eq!(received(&*connection, 2).await, [output("hello"), LiveResponse::TurnComplete]);
    server.check().await;
}

#[tokio::test]
async fn the_setup_has_all_of_the_request_and_the_history_follows_it() {
    let tool = json!({"name": "roll_die", "description": "Rolls.", "parametersJsonSchema": {"type": "object"}});
    let setup = json!({"setup": {
        "model": format!("models/{MODEL}"),
        "generationConfig": {
            "temperature": 0.5,
            "responseModalities": ["TEXT"],
            "speechConfig": {"languageCode": "de-DE"},
            "enableAffectiveDialog": true,
        },
        "systemInstruction": {"parts": [{"text": "Be brief.\n\nBe kind."}]},
        "tools": [{"functionDeclarations": [tool]}, {"googleSearch": {}}],
        "inputAudioTranscription": {},
        "proactivity": {"proactiveAudio": true},
        "contextWindowCompression": {"slidingWindow": {}},
        "sessionResumption": {},
    }});
    let history = json!({"clientContent": {
        "turns": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "hello"}]},
        ],
        "turnComplete": false,
    }});
    let server = Server::start(vec![vec![
        Step::Expect(setup),
        Step::Send(json!({"setupComplete": {}})),
        Step::Expect(history),
        Step::Expect(text_frame("go on")),
    ]])
    .await;
    let tool = FunctionDeclaration {
        name: "roll_die".into(),
        description: "Rolls.".into(),
        parameters: Some(json!({"type": "object"})),
        response: None,
    };
    let config = json!({
        "temperature": 0.5, "httpOptions": {"extraBody": {"contextWindowCompression": {"slidingWindow": {}}}}
    });
    let live = LiveConnectConfig {
        response_modalities: vec!["TEXT".into()],
        speech_config: Some(json!({"languageCode": "de-DE"})),
        proactivity: Some(json!({"proactiveAudio": true})),
        enable_affective_dialog: Some(true),
        ..LiveConnectConfig::default()
    };
    let mut request = LlmRequest {
        system_instructions: vec!["Be brief.".into(), "Be kind.".into()],
        tools: vec![Arc::new(tool)],
        model_tools: vec![json!({"googleSearch": {}})],
        config: serde_json::from_value(config).unwrap(),
        live_connect_config: Some(live.with_defaults()),
        ..user_request("hi")
    };
    request.contents.push_back(Arc::new(Content::model("hello")));
    let connection = server.connect(request).await.unwrap();
    connection.send(text_request("go on")).await.unwrap();
    server.check().await;
}

#[tokio::test]
async fn a_connection_can_be_closed_while_a_response_is_awaited_and_once_more() {
    let server = Server::start(vec![script(begin(json!({})), vec![Step::Hang])]).await;
    let connection = server.connect(empty_request()).await.unwrap();
    let (response, ()) = tokio::join!(receive(&*connection), connection.close());
    assert!(response.is_none());
    connection.close().await;
    assert!(receive(&*connection).await.is_none());
}

#[tokio::test]
async fn each_kind_of_input_is_a_frame_of_its_own() {
    let realtime = |input: Value| Step::Expect(json!({"realtimeInput": input}));
    let pcm = json!({"mimeType": "audio/pcm;rate=16000", "data": "AQI="});
    let jpeg = json!({"mimeType": "image/jpeg", "data": "AwQ="});
    let server = Server::start(vec![script(
        begin(json!({})),
        vec![
            realtime(json!({"activityStart": {}})),
            realtime(json!({"audio": pcm})),
            realtime(json!({"video": jpeg})),
            realtime(json!({"activityEnd": {}})),
            realtime(json!({"audioStreamEnd": true})),
            Step::Expect(text_frame("hi")),
        ],
    )])
    .await;
    let connection = server.connect(empty_request()).await.unwrap();
    let blob = |mime_type: &str, data: &'static [u8]| {
        LiveRequest::Blob(Blob { mime_type: mime_type.into(), data: data.into(), display_name: None })
    };
    let error = connection.send(blob("application/pdf", b"x")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(error.message, "a live connection takes audio and images, and no `application/pdf`");
    for request in [
        LiveRequest::ActivityStart,
        blob("audio/pcm;rate=16000", &[1, 2]),
        blob("image/jpeg", &[3, 4]),
        LiveRequest::ActivityEnd,
        LiveRequest::AudioStreamEnd,
        text_request("hi"),
    ] {
        connection.send(request).await.unwrap();
    }
    server.check().await;
}

#[tokio::test]
async fn speech_and_calls_of_tools_arrive_in_order() {
    let call = json!({"toolCall": {"functionCalls": [{"id": "c1", "name": "roll_die", "args": {"sides": 6}}]}});
    let response = json!({"toolResponse": {
        "functionResponses": [{"id": "c1", "name": "roll_die", "response": {"result": 4}}]
    }});
    let server = Server::start(vec![script(
        begin(json!({})),
        vec![
            Step::Send(json!({"serverContent": {"inputTranscription": {"text": "Roll "}}})),
            Step::Send(json!({"serverContent": {"inputTranscription": {"text": "a die", "finished": true}}})),
            Step::SendBinary(audio_frame("AQI=")),
            Step::Send(json!({"serverContent": {"outputTranscription": {"text": "One moment"}}})),
            Step::Send(call),
            Step::SendBinary(audio_frame("AwQ=")),
            Step::Expect(response),
            Step::Send(json!({"toolCallCancellation": {"ids": ["c2"]}})),
            Step::Send(json!({"serverContent": {"interrupted": true}})),
            Step::Send(json!({"serverContent": {"generationComplete": true}})),
            Step::Send(json!({"serverContent": {"turnComplete": true}, "usageMetadata": {
                "promptTokenCount": 3, "responseTokenCount": 4, "totalTokenCount": 7,
                "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": 4}],
            }})),
            Step::Close(1000, ""),
        ],
    )])
    .await;
    let connection = server.connect(empty_request()).await.unwrap();
    let transcription =
        |text: &str, finished| LiveResponse::InputTranscription(Transcription { text: text.into(), finished });
    let args = JsonMap::from_iter([("sides".to_owned(), json!(6))]);
    let call = FunctionCall { id: Some("c1".into()), name: "roll_die".into(), args, ..FunctionCall::default() };
    let expected = [
        transcription("Roll ", false),
        transcription("a die", true),
        LiveResponse::Content(audio(&[1, 2])),
        output("One moment"),
        LiveResponse::ToolCalls(vec![call]),
        LiveResponse::Content(audio(&[3, 4])),
    ];
    assert_eq!(received(&*connection, 6).await, expected);
    let result = FunctionResponse {
        id: Some("c1".into()),
        name: "roll_die".into(),
        response: JsonMap::from_iter([("result".to_owned(), json!(4))]),
        ..FunctionResponse::default()
    };
    connection.send(LiveRequest::ToolResponses(vec![result])).await.unwrap();
    let rest = received(&*connection, 4).await;
    assert_eq!(rest[..2], [LiveResponse::ToolCallsCancelled(vec!["c2".into()]), LiveResponse::Interrupted]);
    let LiveResponse::Usage(usage) = &rest[2] else { panic!("{rest:?}") };
    let expected = json!({
        "promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7,
        "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 4}],
    });
    assert_eq!((json!(usage), &rest[3]), (expected, &LiveResponse::TurnComplete));
    assert_eq!(receive(&*connection).await, None);
    server.check().await;
}

#[tokio::test]
async fn a_refused_setup_is_an_error_without_the_key() {
    let server =
        Server::start(vec![vec![Step::Expect(setup(json!({}))), Step::Close(1008, "the key s3cret is not valid")]])
            .await;
    let error = server.connect(empty_request()).await.err().unwrap();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert!(error.message.starts_with("Gemini has closed the connection: the key"), "{error}");
    assert!(!error.message.contains("s3cret"), "{error}");
    server.check().await;
}

#[tokio::test]
async fn a_model_that_is_not_live_refuses_to_connect() {
    let settings = Settings::default().with_key(Service::Gemini, "k").with_key(Service::OpenAi, "k");
    let providers = ModelProviders::with_defaults(settings);
    for name in ["gemini-2.5-flash", "gpt-5"] {
        let model = providers.model(name).unwrap();
        let error = model.connect(LlmRequest { model: name.into(), ..LlmRequest::default() }).await.err().unwrap();
        assert!(error.message.starts_with("the model is not live; choose one that is"), "{error}");
        assert!(!model.capabilities().live);
    }
}
