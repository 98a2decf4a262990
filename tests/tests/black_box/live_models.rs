//! Live runs with a live model: a fake of the Live API of Gemini speaks with the agent, and a client with the host.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use hatchery_test_services::serve_http;
use hatchery_tests::host::{TIMEOUT, USER};
use hatchery_tests::{Folder, Frame, Host, Live, event, paths};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

/// The server's ends of connections.
struct Gemini {
    url: String,
    connections: Mutex<mpsc::UnboundedReceiver<Connection>>,
}

/// One connection of the host, after its setup.
struct Connection {
    setup: Value,
    received: mpsc::UnboundedReceiver<Value>,
    sent: mpsc::UnboundedSender<Value>,
}

impl Gemini {
    async fn start() -> Self {
        let (sender, connections) = mpsc::unbounded_channel();
        let url = serve_http(Router::new().fallback(accept).with_state(Arc::new(sender))).await;
        Self { url, connections: Mutex::new(connections) }
    }

    /// Serves an app `voice` with this model, and a session `s`.
    async fn host(&self, config: &str) -> Result<Host> {
        let folder = Folder::empty()?;
        folder.put("seeker.wasm", paths::component("seeker")?)?;
        if !config.is_empty() {
            folder.write("hatchery.yaml", config)?;
        }
        folder.write(
            "voice/root_agent.yaml",
            "name: voice\nmodel: gemini-2.5-flash-native-audio-preview-12-2025\ninstruction: Speak.\n\
             tools:\n  - name: seeker/time_and_chance\n",
        )?;
        let environment = [("GOOGLE_API_KEY", "k"), ("GOOGLE_GEMINI_BASE_URL", self.url.as_str())];
        let host = Host::serve_with_environment(&folder, &environment).await?;
        host.create_session("voice", "s").await?;
        Ok(host)
    }

    async fn accepted(&self) -> Result<Connection> {
        let mut connections = self.connections.lock().await;
        tokio::time::timeout(TIMEOUT, connections.recv()).await?.context("the server has ended")
    }
}

async fn accept(
    State(connections): State<Arc<mpsc::UnboundedSender<Connection>>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| async move {
        // The test fails where it waits for the connection or its frames.
        let _ = converse(socket, &connections).await;
    })
}

async fn converse(mut socket: WebSocket, connections: &mpsc::UnboundedSender<Connection>) -> Result<()> {
    let setup = socket.recv().await.context("no setup")??;
    let setup = serde_json::from_str(setup.to_text()?)?;
    socket.send(Message::binary(br#"{"setupComplete": {}}"#.to_vec())).await?;
    let (incoming, received) = mpsc::unbounded_channel();
    let (sent, mut outgoing) = mpsc::unbounded_channel::<Value>();
    connections.send(Connection { setup, received, sent })?;
    loop {
        tokio::select! {
            frame = socket.recv() => match frame.context("the host has left")?? {
                Message::Text(text) => incoming.send(serde_json::from_str(&text)?)?,
                Message::Close(_) => return Ok(()),
                _ => {}
            },
            json = outgoing.recv() => match json {
                Some(json) => socket.send(Message::text(json.to_string())).await?,
                None => return Ok(()),
            },
        }
    }
}

impl Connection {
    fn send(&self, json: Value) -> Result<()> {
        Ok(self.sent.send(json)?)
    }

    fn say(&self, transcription: &str) -> Result<()> {
        self.send(json!({"serverContent": {"outputTranscription": {"text": transcription}}}))
    }

    async fn next(&mut self) -> Result<Option<Value>> {
        Ok(tokio::time::timeout(TIMEOUT, self.received.recv()).await?)
    }

    async fn expect(&mut self, expected: Value) -> Result<()> {
        let received = self.next().await?.context("the host has left")?;
        ensure!(received == expected, "received {received}, not {expected}");
        Ok(())
    }
}

fn pcm(rate: u32, data: &str) -> Value {
    json!({"mimeType": format!("audio/pcm;rate={rate}"), "data": data})
}

fn user(text: &str) -> Value {
    json!({"clientContent": {"turns": [{"role": "user", "parts": [{"text": text}]}], "turnComplete": true}})
}

async fn next_event(live: &mut Live) -> Result<Value> {
    match live.next().await? {
        Frame::Json(event) => Ok(event),
        Frame::Close(code, reason) => bail!("closed with {code} {reason}"),
    }
}

/// Checks the next events by the members that they must have.
async fn expect_events(live: &mut Live, expected: &[Value]) -> Result<()> {
    for members in expected {
        let event = next_event(live).await?;
        for (key, value) in members.as_object().context("an object")? {
            ensure!(event.get(key).unwrap_or(&Value::Null) == value, "`{key}` is not {value} in {event}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_live_model_hears_speaks_and_calls_tools_and_its_words_are_stored() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.send(&json!({"blob": {"mime_type": "audio/pcm;rate=16000", "data": "AQI="}})).await?;
    let mut model = gemini.accepted().await?;
    let setup = &model.setup["setup"];
    ensure!(setup["generationConfig"]["responseModalities"] == json!(["AUDIO"]), "{setup}");
    ensure!(setup["tools"][0]["functionDeclarations"][0]["name"] == "time_and_chance", "{setup}");
    model.expect(json!({"realtimeInput": {"audio": pcm(16000, "AQI=")}})).await?;

    model.send(json!({"serverContent": {"inputTranscription": {"text": "What time "}}}))?;
    model.send(json!({"serverContent": {"inputTranscription": {"text": "is it?"}}}))?;
    model.send(json!({"serverContent": {"modelTurn": {"parts": [{"inlineData": pcm(24000, "AwQ=")}]}}}))?;
    model.say("One moment")?;
    let call = json!({"id": "c1", "name": "time_and_chance", "args": {}});
    model.send(json!({"toolCall": {"functionCalls": [call]}}))?;
    let speech = json!({"role": "model", "parts": [{"inlineData": pcm(24000, "AwQ=")}]});
    let chunk = |text: &str| json!({"text": text, "finished": false});
    let whole = |text: &str| json!({"text": text, "finished": true});
    expect_events(
        &mut live,
        &[
            json!({"author": "user", "partial": true, "inputTranscription": chunk("What time ")}),
            json!({"author": "user", "partial": true, "inputTranscription": chunk("is it?")}),
            json!({"author": "voice", "partial": true, "content": speech}),
            json!({"author": "voice", "partial": true, "outputTranscription": chunk("One moment")}),
            json!({"author": "user", "partial": null, "inputTranscription": whole("What time is it?")}),
            json!({"author": "voice", "partial": null, "outputTranscription": whole("One moment")}),
            json!({"author": "voice", "content": {"role": "model", "parts": [{"functionCall": call}]}}),
        ],
    )
    .await?;
    let answer = next_event(&mut live).await?;
    let response = event::tool_response(std::slice::from_ref(&answer), "time_and_chance")?;
    let sent = json!([{"id": "c1", "name": "time_and_chance", "response": response}]);
    model.expect(json!({"toolResponse": {"functionResponses": sent}})).await?;

    model.say("It is noon")?;
    model.send(json!({"serverContent": {"turnComplete": true}, "usageMetadata": {"totalTokenCount": 7}}))?;
    expect_events(
        &mut live,
        &[
            json!({"partial": true, "outputTranscription": chunk("It is noon")}),
            json!({"outputTranscription": whole("It is noon"), "turnComplete": true, "usageMetadata": {"totalTokenCount": 7}}),
        ],
    )
    .await?;

    live.say("Write a poem").await?;
    model.expect(user("Write a poem")).await?;
    let text = |text: &str| json!({"role": "model", "parts": [{"text": text}]});
    model.send(json!({"serverContent": {"modelTurn": text("Roses ")}}))?;
    model.send(json!({"serverContent": {"modelTurn": text("are")}}))?;
    model.send(json!({"serverContent": {"interrupted": true}}))?;
    model.send(json!({"serverContent": {"turnComplete": true}}))?;
    expect_events(
        &mut live,
        &[
            json!({"partial": true, "content": text("Roses ")}),
            json!({"partial": true, "content": text("are")}),
            json!({"partial": null, "content": text("Roses are"), "interrupted": true}),
            json!({"partial": true, "turnComplete": true}),
        ],
    )
    .await?;
    live.send(&json!({"close": true})).await?;
    ensure!(live.closed().await? == (1000, String::new()));
    ensure!(model.next().await?.is_none());

    let session = host.session("voice", "s").await?;
    let stored = session["events"].as_array().context("events")?;
    let summary: Vec<_> =
        stored.iter().map(|event| (event["author"].as_str().unwrap_or_default(), text_or_tool(event))).collect();
    let expected = [
        ("user", "What time is it?"),
        ("voice", "One moment"),
        ("voice", "time_and_chance()"),
        ("voice", "time_and_chance"),
        ("voice", "It is noon"),
        ("user", "Write a poem"),
        ("voice", "Roses are"),
    ];
    ensure!(summary == expected.map(|(author, text)| (author, text.to_owned())), "{summary:?}");
    ensure!(!session.to_string().contains("inlineData"), "speech is stored: {session}");

    // The next connection continues with the conversation, and requests no response by itself.
    let mut again = Live::connect(&host, "voice", "s").await?;
    again.say("Go on").await?;
    let mut model = gemini.accepted().await?;
    let history = model.next().await?.context("no history")?;
    let turns: Vec<_> = history["clientContent"]["turns"].as_array().into_iter().flatten().collect();
    ensure!(turns.first().is_some_and(|turn| turn["parts"][0]["text"] == "What time is it?"), "{history}");
    ensure!(turns.last().is_some_and(|turn| turn["parts"][0]["text"] == "Go on"), "{history}");
    ensure!(history["clientContent"]["turnComplete"] == true, "{history}");
    Ok(())
}

/// Returns the text of an event, or the name of the tool that it is about.
fn text_or_tool(event: &Value) -> String {
    let text = event::text(event);
    for transcription in ["inputTranscription", "outputTranscription"] {
        if let Some(text) = event.pointer(&format!("/{transcription}/text")).and_then(Value::as_str) {
            return text.into();
        }
    }
    let name = |key: &str| event.pointer(&format!("/content/parts/0/{key}/name")).and_then(Value::as_str);
    match (name("functionCall"), name("functionResponse")) {
        (Some(call), _) => format!("{call}()"),
        (_, Some(response)) => response.into(),
        (None, None) => text,
    }
}

#[tokio::test]
async fn a_call_that_the_model_cancels_has_a_response_in_the_history_only() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("What time is it?").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("What time is it?")).await?;
    // A tool that does not exist answers at once; the cancellation may come before or after that.
    model.send(json!({"toolCall": {"functionCalls": [{"id": "c1", "name": "time_and_chance", "args": {}}]}}))?;
    model.send(json!({"toolCallCancellation": {"ids": ["c1"]}}))?;
    let call = next_event(&mut live).await?;
    ensure!(call["content"]["parts"][0]["functionCall"]["id"] == "c1", "{call}");
    let response = next_event(&mut live).await?;
    ensure!(response["content"]["parts"][0]["functionResponse"]["id"] == "c1", "{response}");
    live.say("Never mind").await?;
    if model.next().await? != Some(user("Never mind")) {
        model.expect(user("Never mind")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_hangs_up_disconnects_the_model_and_ends_the_run() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("Hello").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("Hello")).await?;
    live.close().await?;
    ensure!(model.next().await?.is_none());
    // The session is free again once the run has ended.
    let path = format!("/apps/voice/users/{USER}/sessions/s/runs");
    let poll = async {
        loop {
            let runs = host.get(&path).await?.json(200)?;
            if runs["runs"][0]["state"] == "done" {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await?
}

#[tokio::test]
async fn a_host_that_stops_closes_the_connection_to_the_model() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("Hello").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("Hello")).await?;
    let stopping = tokio::spawn(host.stop());
    ensure!(live.closed().await? == (1001, "the server stops; connect again".to_owned()));
    ensure!(model.next().await?.is_none());
    ensure!(stopping.await??);
    Ok(())
}

#[tokio::test]
async fn a_host_that_stops_lets_the_model_finish_its_turn() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("Hello").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("Hello")).await?;
    model.say("Good ")?;
    next_event(&mut live).await?;
    let address = host.url.trim_start_matches("http://").to_owned();
    let stopping = tokio::spawn(host.stop());
    let refused = async { while TcpStream::connect(&address).await.is_ok() {} };
    tokio::time::timeout(TIMEOUT, refused).await?;
    model.say("bye")?;
    model.send(json!({"serverContent": {"turnComplete": true}}))?;
    let whole = json!({"text": "Good bye", "finished": true});
    expect_events(&mut live, &[json!({"partial": true}), json!({"outputTranscription": whole, "turnComplete": true})])
        .await?;
    ensure!(live.closed().await? == (1001, "the server stops; connect again".to_owned()));
    ensure!(stopping.await??);
    Ok(())
}

#[tokio::test]
async fn turns_of_a_live_model_count_as_model_calls() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("apps: {voice: {max_llm_calls: 1}}\n").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("Hello").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("Hello")).await?;
    for text in ["one", "two"] {
        model.say(text)?;
        model.send(json!({"serverContent": {"turnComplete": true}}))?;
    }
    let (code, reason) = live.closed().await?;
    ensure!(code == 1011 && reason.contains("Max number of llm calls"), "{code} {reason}");
    let metrics = host.get("/metrics").await?.text;
    let calls = "hatchery_model_calls_total{model=\"gemini-2.5-flash-native-audio-preview-12-2025\",error=\"\"} 1";
    ensure!(metrics.contains(calls), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn what_a_live_model_cannot_take_closes_the_connection_as_wrong_input() -> Result<()> {
    let gemini = Gemini::start().await;
    let host = gemini.host("").await?;
    let mut live = Live::connect(&host, "voice", "s").await?;
    live.say("Hello").await?;
    let mut model = gemini.accepted().await?;
    model.expect(user("Hello")).await?;
    live.send(&json!({"blob": {"mimeType": "application/pdf", "data": "AQI="}})).await?;
    let (code, reason) = live.closed().await?;
    ensure!(code == 1008 && reason.contains("no `application/pdf`"), "{code} {reason}");
    Ok(())
}

#[tokio::test]
async fn a_live_model_of_a_component_speaks_through_the_route() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("gallery.wasm", paths::component("gallery")?)?;
    folder.write("bird/root_agent.yaml", "name: bird\nmodel: component:gallery/parrot\ninstruction: Repeat.\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("bird", "s").await?;
    let mut live = Live::connect(&host, "bird", "s").await?;
    let answer = live.ask("good morning").await?;
    ensure!(answer.iter().any(|event| event["content"]["parts"][0]["text"] == "good morning"), "{answer:?}");
    live.send(&json!({"blob": {"mimeType": "audio/pcm;rate=16000", "data": "AQID"}})).await?;
    let answer = live.turn().await?;
    ensure!(answer.iter().any(|event| event["inputTranscription"]["text"] == "3 bytes"), "{answer:?}");
    let sound = |event: &Value| event["content"]["parts"][0]["inlineData"]["data"] == "AQID";
    ensure!(answer.iter().any(sound), "the sound comes back: {answer:?}");
    live.say("fail").await?;
    let (code, reason) = live.closed().await?;
    ensure!(code != 1000 && reason.contains("too much noise"), "{code} {reason}");
    Ok(())
}

#[tokio::test]
async fn a_script_speaks_live_without_a_key_and_speech_is_saved_if_the_client_asks_for_it() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("bird/root_agent.yaml", "name: bird\nmodel: scripted-live:bird/answers.yaml\ninstruction: Sing.\n")?;
    folder.write(
        "bird/answers.yaml",
        "turns:\n  - when: {user: sound}\n    reply: I hear you.\n  - reply: Good morning.\n",
    )?;
    let host = Host::serve(&folder).await?;
    // A tenth of a second.
    let speech = pcm(16000, &format!("{}AAA=", "AAAA".repeat(1066)));
    for (session, parameter) in [("s1", "save_live_blob=true"), ("s2", "saveLiveBlob=true"), ("s3", "modalities=AUDIO")]
    {
        host.create_session("bird", session).await?;
        let query = format!("app_name=bird&user_id={USER}&session_id={session}&{parameter}");
        let mut live = Live::open(&host, &query).await?;
        live.send(&json!({"blob": speech})).await?;
        live.send(&json!({"audioStreamEnd": true})).await?;
        let answer = live.turn().await?;
        let has = |check: fn(&Value) -> bool| answer.iter().any(check);
        ensure!(has(|event| event["inputTranscription"]["text"] == "0.1 s of sound"), "{answer:?}");
        ensure!(has(|event| event["outputTranscription"]["text"].as_str().is_some_and(|text| text.contains("hear"))));
        ensure!(
            has(|event| event["content"]["parts"][0]["inlineData"]["mimeType"] == "audio/pcm;rate=24000"),
            "{answer:?}"
        );
        live.send(&json!({"close": true})).await?;
        let artifacts = format!("/apps/bird/users/{USER}/sessions/{session}/artifacts");
        let names = host.get(&artifacts).await?.json(200)?;
        let names: Vec<_> = names.as_array().context("names")?.iter().filter_map(Value::as_str).collect();
        if session == "s3" {
            assert_eq!(names, [""; 0]);
            continue;
        }
        let [input, output] = names.as_slice() else { bail!("{names:?}") };
        ensure!(input.starts_with("live_input_") && output.starts_with("live_output_"), "{names:?}");
        let heard = host.get(&format!("{artifacts}/{input}")).await?.json(200)?;
        assert_eq!(heard["inlineData"]["data"], speech["data"]);
        let spoken = host.get(&format!("{artifacts}/{output}")).await?.json(200)?;
        assert_eq!(spoken["inlineData"]["mimeType"], "audio/pcm;rate=24000");
    }
    Ok(())
}
