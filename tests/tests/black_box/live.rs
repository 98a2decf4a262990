//! Live runs over WebSocket with models that are not live: turn by turn. The conversations of all samples are in
//! `samples.rs`.

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::{TIMEOUT, USER};
use hatchery_tests::{Folder, Frame, Host, Live, event, paths};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;

/// Serves an app `parrot` that repeats what the user says, and is slow at the word `slow`.
async fn serve(config: &str) -> Result<Host> {
    serve_folder(&Folder::empty()?, config).await
}

async fn serve_folder(folder: &Folder, config: &str) -> Result<Host> {
    if !config.is_empty() {
        folder.write("hatchery.yaml", config)?;
    }
    folder
        .write("parrot/root_agent.yaml", "name: parrot\nmodel: scripted:parrot/answers.yaml\ninstruction: Repeat.\n")?;
    folder.write(
        "parrot/answers.yaml",
        "turns:\n  - when: {user: slow}\n    delay_ms: 600000\n    reply: late\n  - when: {user: pause}\n    delay_ms: 3000\n    \
         reply: after a pause\n  - reply: 'You said: {user}'\n",
    )?;
    Host::serve(folder).await
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_default()
}

async fn expect_close(live: &mut Live, code: u16, reason: &str) -> Result<()> {
    let (actual, words) = live.closed().await?;
    ensure!(actual == code && words.contains(reason), "closed with {actual} {words:?}, not with {code} {reason:?}");
    Ok(())
}

#[tokio::test]
async fn a_tool_is_called_in_a_live_run_and_the_events_are_stored() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("dice.wasm", paths::component("dice")?)?;
    folder.put("dice/answers.yaml", std::fs::read(paths::repository().join("sample-agents/dice/answers.yaml"))?)?;
    let host = Host::serve(&folder).await?;
    host.create_session("dice", "s").await?;
    let mut live = Live::connect(&host, "dice", "s").await?;
    let mut events = live.ask("Roll a die with 20 sides").await?;
    ensure!(event::tool_response(&events, "roll_die")?.get("result").is_some_and(Value::is_u64), "{events:?}");
    ensure!(event::check_partial_events(&events)? > 0, "{events:?}");
    events.extend(live.ask("Hello").await?);
    let runs: Vec<_> = events.iter().map(|event| text(&event["invocationId"])).collect();
    ensure!(runs.first() != runs.last(), "each turn is a run: {runs:?}");
    // Between the turns the session is free for others.
    host.run("dice", "s", "Hello").await?;
    live.send(&json!({"close": true})).await?;
    ensure!(live.closed().await? == (1000, String::new()));
    let stored = host.session("dice", "s").await?;
    let stored = stored["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    for event in events.iter().filter(|event| !event::is_partial(event)) {
        ensure!(stored.contains(event), "{event} is not in {stored:?}");
    }
    ensure!(stored.iter().all(|event| event.get("partial").is_none() && event.get("turnComplete").is_none()));
    Ok(())
}

#[tokio::test]
async fn parts_of_a_message_and_all_in_an_activity_are_one_turn() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let query = format!("appName=parrot&userId={USER}&sessionId=s&modalities=TEXT&modalities=audio");
    let mut live = Live::open(&host, &query).await?;
    let content = |text: &str| json!({"parts": [{"text": text}]});
    live.send(&json!({"content": content("one "), "partial": true})).await?;
    live.send(&json!({"content": content("two"), "state_delta": {"mood": "good"}})).await?;
    ensure!(event::texts(&live.turn().await?) == ["You said: one two"]);
    live.send(&json!({"activity_start": {}})).await?;
    live.send(&json!({"content": content("three ")})).await?;
    live.send(&json!({"blob": {"mime_type": "image/png", "data": "AQID"}})).await?;
    live.send(&json!({"content": content("four"), "activityEnd": {}})).await?;
    ensure!(event::texts(&live.turn().await?) == ["You said: three four"]);
    // What is sent before the answer is read is answered in order.
    live.say("five").await?;
    live.send(&json!({"content": content("six"), "close": true})).await?;
    ensure!(event::texts(&live.turn().await?) == ["You said: five"]);
    ensure!(event::texts(&live.turn().await?) == ["You said: six"]);
    expect_close(&mut live, 1000, "").await?;
    let session = host.session("parrot", "s").await?;
    ensure!(session["state"]["mood"] == "good", "{session}");
    ensure!(session["events"][2]["content"]["parts"][1]["inlineData"]["data"] == "AQID", "{session}");
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_connection_is_told_in_its_close_frame() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let required = "query parameter is required and cannot be empty";
    for (query, code, reason) in [
        ("user_id=tester&session_id=s", 1008, format!("app_name {required}")),
        ("app_name=parrot&session_id=s&user_id=", 1008, format!("user_id {required}")),
        ("app_name=parrot&user_id=tester", 1008, format!("session_id {required}")),
        ("app_name=crow&user_id=tester&session_id=s", 1011, "Runner unavailable: App not found: crow".into()),
        ("app_name=parrot&user_id=tester&session_id=other", 1002, "Session not found".into()),
        (
            "app_name=parrot&user_id=tester&session_id=s&modalities=SMELL",
            1008,
            "`SMELL` is not a modality; use TEXT, AUDIO, VIDEO".into(),
        ),
    ] {
        expect_close(&mut Live::open(&host, query).await?, code, &reason).await?;
    }
    let answer = host.get("/run_live?app_name=parrot").await?;
    let upgrade = answer.headers.get("upgrade").and_then(|value| value.to_str().ok()).map(str::to_owned);
    ensure!(upgrade.as_deref() == Some("websocket"), "{upgrade:?}");
    let answer = answer.json(426)?;
    ensure!(answer["code"] == "UPGRADE_REQUIRED", "{answer}");
    Ok(())
}

#[tokio::test]
async fn pages_of_other_sites_cannot_connect() -> Result<()> {
    let host = serve("").await?;
    let handshake = |name: &str, value: &str| {
        host.request(Method::GET, "/run_live")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header(name, value)
    };
    for (name, value) in [("origin", "https://example.com"), ("sec-fetch-site", "cross-site")] {
        host.send(handshake(name, value)).await?.json(403)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_malformed_frame_is_answered_and_the_connection_stays_open() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    let call = r#"{"content": {"parts": [{"functionCall": {"name": "x"}}]}}"#;
    for (frame, details) in [
        ("{", "EOF while parsing an object"),
        ("{}", "it has none of `content`"),
        (call, "content.parts[0] is a `functionCall`"),
    ] {
        live.send_text(frame).await?;
        let Frame::Json(answer) = live.next().await? else { anyhow::bail!("closed after {frame}") };
        ensure!(answer["error"] == "Invalid JSON format for LiveRequest", "{answer}");
        ensure!(text(&answer["details"]).contains(details), "{answer}");
    }
    ensure!(event::texts(&live.ask("hello").await?) == ["You said: hello"]);
    Ok(())
}

#[tokio::test]
async fn frames_that_cannot_be_taken_end_the_connection_with_the_reason() -> Result<()> {
    let host = serve("server: {small_body_limit: 2 KiB}\n").await?;
    host.create_session("parrot", "s").await?;
    let mut large = Live::connect(&host, "parrot", "s").await?;
    large.say(&"x".repeat(3 << 10)).await?;
    expect_close(&mut large, 1009, "a frame has at most 2048 bytes").await?;
    let mut huge = Live::connect(&host, "parrot", "s").await?;
    huge.say(&"x".repeat(9 << 10)).await?;
    expect_close(&mut huge, 1009, "a frame has at most 2048 bytes").await?;
    let mut binary = Live::connect(&host, "parrot", "s").await?;
    binary.send_bytes(vec![1, 2]).await?;
    expect_close(&mut binary, 1003, "send text frames").await?;
    let mut audio = Live::connect(&host, "parrot", "s").await?;
    audio.send(&json!({"blob": {"mime_type": "audio/pcm;rate=16000", "data": "AAAA"}})).await?;
    expect_close(&mut audio, 1008, "agent `parrot` has no live model and takes no `audio/pcm;rate=16000`").await?;
    ensure!(host.session("parrot", "s").await?["events"].as_array().is_none_or(Vec::is_empty));
    Ok(())
}

#[tokio::test]
async fn two_clients_of_one_session_are_answered_one_after_the_other() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut one = Live::connect(&host, "parrot", "s").await?;
    let mut two = Live::connect(&host, "parrot", "s").await?;
    for number in 0..5 {
        let (first, second) = (format!("one {number}"), format!("two {number}"));
        let (first, second) = tokio::try_join!(one.ask(&first), two.ask(&second))?;
        ensure!(event::texts(&first) == [format!("You said: one {number}")], "{first:?}");
        ensure!(event::texts(&second) == [format!("You said: two {number}")], "{second:?}");
    }
    let session = host.session("parrot", "s").await?;
    let events = session["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let runs: Vec<_> =
        events.chunks(2).map(|turn| turn.iter().map(|event| text(&event["invocationId"])).collect()).collect();
    ensure!(runs.len() == 10 && runs.iter().all(|run: &Vec<_>| run[0] == run[1]), "the turns are mixed: {runs:?}");
    Ok(())
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_turn() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    live.say("slow").await?;
    wait_for_state(&host, "running").await?;
    live.close().await?;
    wait_for_state(&host, "cancelled").await?;
    // Without a close frame, too.
    let mut live = Live::connect(&host, "parrot", "s").await?;
    live.say("slow").await?;
    wait_for_state(&host, "running").await?;
    drop(live);
    wait_for_state(&host, "cancelled").await?;
    ensure!(event::texts(&host.run("parrot", "s", "hello").await?) == ["You said: hello"]);
    Ok(())
}

/// Waits until a run of session `s` is in this state and, unless it is `running`, none runs.
async fn wait_for_state(host: &Host, state: &str) -> Result<()> {
    wait_for_states(host, |states| states.contains(&state) && (state == "running" || !states.contains(&"running")))
        .await
}

/// Waits until the states of the runs of session `s` fulfil a condition.
async fn wait_for_states(host: &Host, condition: impl Fn(&[&str]) -> bool) -> Result<()> {
    let path = format!("/apps/parrot/users/{USER}/sessions/s/runs?limit=100");
    let mut runs = Value::Null;
    let poll = async {
        loop {
            runs = host.get(&path).await?.json(200)?;
            let runs = runs.get("runs").and_then(Value::as_array).into_iter().flatten();
            let states: Vec<_> = runs.map(|run| event::text_at(run, "/state")).collect();
            if condition(&states) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(TIMEOUT, poll).await;
    ended.with_context(|| format!("the runs are in other states: {runs}"))?
}

#[tokio::test]
async fn a_turn_that_fails_ends_the_connection_with_its_error() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("mute/root_agent.yaml", "name: mute\nmodel: scripted:mute/missing.yaml\ninstruction: Talk.\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("mute", "s").await?;
    let mut live = Live::connect(&host, "mute", "s").await?;
    live.say("hello").await?;
    let Frame::Json(failure) = live.next().await? else { anyhow::bail!("closed at once") };
    let message = text(&failure["errorMessage"]).to_owned();
    ensure!(!message.is_empty() && failure["author"] == "mute", "{failure}");
    let (code, reason) = live.closed().await?;
    ensure!(code == 1011 && message.starts_with(&reason), "{code} {reason}: {message}");
    Ok(())
}

#[tokio::test]
async fn the_next_turn_of_an_open_connection_runs_the_newest_agent() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("parrot/new.yaml", "turns:\n  - reply: 'I am new'\n")?;
    let host = serve_folder(&folder, "").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    ensure!(event::texts(&live.ask("hello").await?) == ["You said: hello"]);
    let generation = |components: &Value| components["generation"].as_u64().unwrap_or_default();
    let before = generation(&host.components().await?);
    folder.put("parrot/root_agent.yaml", "name: parrot\nmodel: scripted:parrot/new.yaml\ninstruction: Repeat.\n")?;
    host.wait_until("there is a newer generation", |components| generation(components) > before).await?;
    ensure!(event::texts(&live.ask("hello").await?) == ["I am new"]);
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_the_connection() -> Result<()> {
    let host = serve("server: {write_timeout: 500ms}\n").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    // The answers are far more than the buffers of two sockets hold.
    let message = "x".repeat(500 << 10);
    let mut sent = Ok(());
    for _ in 0..200 {
        sent = live.say(&message).await;
        if sent.is_err() {
            break;
        }
    }
    let error = sent.err().context("the host reads for ever")?;
    ensure!(error.downcast_ref::<tungstenite::Error>().is_some(), "{error:#}");
    // The last run is cancelled, unless its answer was waiting to be sent.
    wait_for_states(&host, |states| !states.is_empty() && !states.contains(&"running")).await
}

#[tokio::test]
async fn an_idle_connection_is_closed() -> Result<()> {
    let host = serve("server: {live_idle_timeout: 200ms}\n").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    expect_close(&mut live, 1001, "nothing was sent for 0.2 s").await
}

#[tokio::test]
async fn a_connection_counts_as_a_run() -> Result<()> {
    let host = serve("server: {max_concurrent_runs: 1}\n").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    ensure!(event::texts(&live.ask("hello").await?) == ["You said: hello"]);
    let mut other = Live::connect(&host, "parrot", "s").await?;
    expect_close(&mut other, 1013, "the maximum of 1 run is active").await?;
    live.close().await?;
    // The close frame is answered before the run has ended.
    let free = async {
        while host.run("parrot", "s", "hello").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, free).await.context("the closed connection still counts")
}

#[tokio::test]
async fn a_host_that_stops_finishes_no_new_turn_and_says_so() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut idle = Live::connect(&host, "parrot", "s").await?;
    ensure!(event::texts(&idle.ask("hello").await?) == ["You said: hello"]);
    let stopping = tokio::spawn(host.stop());
    expect_close(&mut idle, 1001, "the server stops; connect again").await?;
    ensure!(stopping.await??, "its exit code is not 0");
    Ok(())
}

/// Sends a request again and again until the host closes the connection, which it does with this code and reason.
async fn send_until_closed(mut live: Live, request: &Value, code: u16, reason: &str) -> Result<()> {
    for _ in 0..2000 {
        // Fails once the host has closed the connection.
        if live.send(request).await.is_err() {
            break;
        }
    }
    expect_close(&mut live, code, reason).await
}

#[tokio::test]
async fn a_message_that_never_ends_closes_the_connection() -> Result<()> {
    let host = serve("server: {small_body_limit: 2 KiB, body_limit: 8 KiB}\n").await?;
    host.create_session("parrot", "s").await?;
    let text = |text: &str| json!({"content": {"parts": [{"text": text}]}, "partial": true});
    let live = Live::connect(&host, "parrot", "s").await?;
    let too_large = "the parts of a message have at most 8192 bytes together";
    send_until_closed(live, &text(&"x".repeat(1 << 10)), 1008, too_large).await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    live.send(&json!({"activityStart": {}})).await?;
    let image = json!({"blob": {"mimeType": "image/png", "data": "A".repeat(1 << 10)}});
    send_until_closed(live, &image, 1008, too_large).await?;
    ensure!(host.session("parrot", "s").await?["events"].as_array().is_none_or(Vec::is_empty));
    Ok(())
}

#[tokio::test]
async fn parts_of_a_message_use_the_memory_of_bodies_until_it_is_answered() -> Result<()> {
    let host = serve("server: {small_body_limit: 64 KiB, body_limit: 1 MiB, body_memory: 1 MiB}\n").await?;
    host.create_session("parrot", "s").await?;
    let part = json!({"content": {"parts": [{"text": "x".repeat(32 << 10)}]}, "partial": true});
    let live = Live::connect(&host, "parrot", "s").await?;
    send_until_closed(live, &part, 1013, "other requests use all memory for bodies").await?;
    let free = async {
        loop {
            let mut live = Live::connect(&host, "parrot", "s").await?;
            if live.ask("hello").await.is_ok() {
                return anyhow::Ok(live);
            }
        }
    };
    let mut live = tokio::time::timeout(TIMEOUT, free).await.context("the memory is never free")??;
    for _ in 0..100 {
        live.send(&part).await?;
        live.say("x").await?;
        ensure!(event::texts(&live.turn().await?).len() == 1, "the memory is free again after each answer");
    }
    Ok(())
}

#[tokio::test]
async fn a_turn_of_a_connection_does_not_count_as_another_run() -> Result<()> {
    let host = serve("server: {max_concurrent_runs: 2}\n").await?;
    host.create_session("parrot", "s").await?;
    host.create_session("parrot", "other").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    live.say("slow").await?;
    wait_for_state(&host, "running").await?;
    ensure!(event::texts(&host.run("parrot", "other", "hello").await?) == ["You said: hello"]);
    Ok(())
}

#[tokio::test]
async fn a_host_that_stops_ends_the_turn_and_begins_none_that_waits() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut live = Live::connect(&host, "parrot", "s").await?;
    for text in ["pause", "second", "third"] {
        live.say(text).await?;
    }
    wait_for_state(&host, "running").await?;
    let stopping = tokio::spawn(host.stop());
    ensure!(event::texts(&live.turn().await?) == ["after a pause"]);
    let Frame::Close(1001, _) = live.next().await? else { anyhow::bail!("another turn has begun") };
    ensure!(stopping.await??, "its exit code is not 0");
    Ok(())
}
