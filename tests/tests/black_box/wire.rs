//! Routes of ADK clients besides runs, and the wire format of answers.

use anyhow::{Context, Result};
use hatchery_tests::event::{self, text_at};
use hatchery_tests::host::{USER, events_in, events_of, message, session_path};
use hatchery_tests::{Folder, Host, paths};
use reqwest::Method;
use serde_json::{Value, json};

/// An agent whose model streams chunks with a pause before each.
const SLOW: [(&str, &str); 2] = [
    ("slow/root_agent.yaml", "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Speak slowly.\n"),
    (
        "slow/answers.yaml",
        "turns:\n  - chunk_delay_ms: 100\n    reply:\n      - text: [\"one \", \"two \", \"three \", \"four\"]\n",
    ),
];

async fn slow_host(folder: &Folder) -> Result<Host> {
    for (name, text) in SLOW {
        folder.write(name, text)?;
    }
    Host::serve(folder).await
}

#[tokio::test]
async fn the_host_announces_where_it_listens_and_what_it_serves() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    assert_eq!(
        host.announcement["apps"],
        json!(["concierge", "data-analyst", "dice", "greeter", "help-desk", "trip-planner", "web-fetch"]),
        "{}",
        host.announcement
    );
    assert_eq!(host.announcement["failed"], json!([]), "{}", host.announcement);
    assert_eq!(host.url, format!("http://{}", text_at(&host.announcement, "/address")));
    assert_eq!(host.get("/health").await?.json(200)?, json!({"status": "ok"}));
    assert_eq!(text_at(&host.get("/version").await?.json(200)?, "/version"), env!("CARGO_PKG_VERSION"));
    assert!(host.stop().await?, "it ends without violation when asked to");
    Ok(())
}

#[tokio::test]
async fn apps_are_listed_by_name_and_in_detail() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    assert_eq!(
        host.get("/list-apps").await?.json(200)?,
        json!(["concierge", "data-analyst", "dice", "greeter", "help-desk", "trip-planner", "web-fetch"])
    );
    let detailed = host.get("/list-apps?detailed=true").await?.json(200)?;
    let planner = detailed["apps"].as_array().context("apps")?.iter().find(|app| app["name"] == "trip-planner");
    let planner = planner.context("trip-planner")?;
    assert_eq!(planner["rootAgentName"], "trip_planner");
    assert_eq!(planner["description"], "Plans a trip.");
    assert_eq!(
        (&planner["language"], &planner["agents"]["trip_planner"]["kind"]),
        (&json!("yaml"), &json!("sequential"))
    );
    assert!(!detailed.to_string().contains("JsonSchema"), "schemas of tools: {detailed}");
    let dice = host.get("/apps/dice/app-info").await?.json(200)?;
    assert_eq!((&dice["language"], &dice["rootAgentName"]), (&json!("wasm"), &json!("dice")));
    let tools = dice["agents"]["dice"]["tools"].as_array().context("tools")?;
    let roll = tools.iter().map(|tool| &tool["functionDeclarations"][0]).find(|tool| tool["name"] == "roll_die");
    assert_eq!(roll.context("roll_die")?["parametersJsonSchema"]["type"], "object");
    let structure = host.get("/dev/apps/dice/build_graph").await?.json(200)?;
    let readme = std::fs::read_to_string(paths::repository().join("sample-agents/dice/README.md"))?;
    assert_eq!((&structure["root_agent"]["name"], &structure["readme"]), (&json!("dice"), &json!(readme)));
    Ok(())
}

#[tokio::test]
async fn the_root_redirects_to_the_developer_ui() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    let page = host.get("/").await?;
    assert!(page.status == 200 && page.text.contains("<title>Hatchery</title>"), "{}", page.text);
    let (_, script) = page.text.split_once("src=\"./").context("a script")?;
    let (script, _) = script.split_once('"').context("the end of its path")?;
    let script = host.get(&format!("/dev-ui/{script}")).await?;
    assert_eq!(script.status, 200);
    assert!(!script.text.is_empty());
    Ok(())
}

#[tokio::test]
async fn sessions_are_created_listed_read_changed_and_deleted() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    let sessions = format!("/apps/greeter/users/{USER}/sessions");

    let body = json!({"state": {"mood": "good", "user:name": "Ada"}});
    let created = host.post(&format!("{sessions}/first"), &body).await?.json(200)?;
    assert_eq!(created["id"], "first");
    assert_eq!(created["appName"], "greeter");
    assert_eq!(created["userId"], USER);
    assert_eq!(created["state"], json!({"mood": "good", "user:name": "Ada"}));
    assert_eq!(created["events"], json!([]));
    assert!(created["lastUpdateTime"].is_f64(), "{created}");

    let unnamed = host.post(&sessions, &json!({})).await?.json(200)?;
    assert!(!text_at(&unnamed, "/id").is_empty());
    assert_eq!(unnamed["state"], json!({"user:name": "Ada"}), "a user's state is in all sessions of the user");

    host.run("greeter", "first", "Hello").await?;
    let read = host.session("greeter", "first").await?;
    assert_eq!(read["events"].as_array().map(Vec::len), Some(3), "the user's message and two answers: {read}");
    assert_eq!(read["state"]["visits"], 1);
    let recent = host.get(&format!("{sessions}/first?numRecentEvents=1")).await?.json(200)?;
    assert_eq!(recent["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(recent["events"][0], read["events"][2]);

    let change = host.request(Method::PATCH, &session_path("greeter", "first"));
    let change = host.send(change.json(&json!({"stateDelta": {"mood": "better", "visits": null}}))).await?.json(200)?;
    assert_eq!(change["state"]["mood"], "better");
    assert_eq!(change["state"].get("visits"), None, "null removes a key: {change}");

    let listed = host.get(&sessions).await?.json(200)?;
    let mut ids: Vec<_> = listed.as_array().context("a list")?.iter().map(|session| text_at(session, "/id")).collect();
    ids.sort();
    let mut expected = vec!["first", text_at(&unnamed, "/id")];
    expected.sort();
    assert_eq!(ids, expected);

    assert_eq!(host.delete(&session_path("greeter", "first")).await?.status, 204);
    host.get(&session_path("greeter", "first")).await?.error(404, "SESSION_NOT_FOUND")?;
    Ok(())
}

#[tokio::test]
async fn artifacts_are_saved_in_versions_listed_read_and_deleted() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("greeter", "s").await?;
    let artifacts = format!("{}/artifacts", session_path("greeter", "s"));
    let save = async |name: &str, data: &str| {
        let part = json!({"inlineData": {"mimeType": "text/plain", "data": data}});
        host.post(&artifacts, &json!({"filename": name, "artifact": part})).await?.json(200)
    };
    assert_eq!(save("notes/a.txt", "b25l").await?["version"], 0);
    assert_eq!(save("notes/a.txt", "dHdv").await?["version"], 1);
    save("user:b.txt", "b25l").await?;

    let mut names: Vec<String> = serde_json::from_value(host.get(&artifacts).await?.json(200)?)?;
    names.sort();
    assert_eq!(names, ["notes/a.txt", "user:b.txt"]);
    let newest = host.get(&format!("{artifacts}/notes/a.txt")).await?.json(200)?;
    assert_eq!(newest, json!({"inlineData": {"mimeType": "text/plain", "data": "dHdv"}}));
    assert_eq!(host.get(&format!("{artifacts}/notes/a.txt/versions")).await?.json(200)?, json!([0, 1]));
    let first = host.get(&format!("{artifacts}/notes/a.txt/versions/0")).await?.json(200)?;
    assert_eq!(first["inlineData"]["data"], "b25l");

    assert_eq!(host.delete(&format!("{artifacts}/notes/a.txt")).await?.status, 204);
    host.get(&format!("{artifacts}/notes/a.txt")).await?.error(404, "ARTIFACT_NOT_FOUND")?;
    Ok(())
}

#[tokio::test]
async fn calls_and_responses_of_tools_are_paired_by_id() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    let events = host.ask("dice", "s", "Throw two dice").await?;
    let ids = |kind: &str| -> Vec<String> {
        let parts = events.iter().flat_map(event::parts).filter_map(|part| part.get(kind));
        parts.map(|part| text_at(part, "/id").to_owned()).collect()
    };
    let (calls, responses) = (ids("functionCall"), ids("functionResponse"));
    assert_eq!(calls.len(), 2, "{events:?}");
    assert!(calls.iter().all(|id| !id.is_empty()) && calls[0] != calls[1], "{calls:?}");
    assert_eq!(calls, responses);
    let run = text_at(&events[0], "/invocationId");
    assert!(run.starts_with("e-") && events.iter().all(|event| text_at(event, "/invocationId") == run), "{events:?}");
    assert!(events.iter().all(|event| event["author"] == "dice"), "the user's message is not sent back: {events:?}");
    let last = events.last().context("events")?;
    assert_eq!(last["finishReason"], "STOP", "{last}");
    assert!(last["usageMetadata"]["totalTokenCount"].is_u64(), "{last}");
    Ok(())
}

#[tokio::test]
async fn a_stream_is_one_data_line_per_event_and_nothing_is_null() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("dice", "s").await?;
    let mut body = message("dice", "s", "Roll a die with 20 sides");
    body["streaming"] = json!(true);
    body["stateDelta"] = Value::Null;
    let answer = host.post("/run_sse", &body).await?;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let lines: Vec<&str> = answer.text.split("\n\n").filter(|frame| !frame.is_empty()).collect();
    assert!(lines.len() >= 4, "a call, a response, pieces and an answer: {}", answer.text);
    for line in lines {
        let json = line.strip_prefix("data: ").with_context(|| line.to_owned())?;
        assert!(!json.contains('\n') && !json.contains(":null"), "{json}");
        event::check(&serde_json::from_str(json)?)?;
    }
    assert!(!answer.text.contains("state_delta") && answer.text.contains("\"stateDelta\""), "{}", answer.text);
    Ok(())
}

#[tokio::test]
async fn the_progress_of_a_tool_in_a_component_is_streamed_and_its_run_has_the_metadata_of_the_request() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    folder.write(
        "climber/root_agent.yaml",
        "name: climber\nmodel: scripted:climber/answers.yaml\ninstruction: Climb.\ntools:\n  - name: seeker/climb\n",
    )?;
    folder.write(
        "climber/answers.yaml",
        "turns:\n  - when: {tool: climb}\n    reply: done\n  - reply: [{call: {name: climb, args: {metres: 20000}}}]\n",
    )?;
    let host = Host::serve(&folder).await?;
    host.create_session("climber", "s").await?;
    let mut body = message("climber", "s", "go");
    body["streaming"] = json!(true);
    body["customMetadata"] = json!({"tenant": "acme"});
    let answer = host.post("/run_sse", &body).await?;
    let lines = answer.text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    let events: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    events.iter().try_for_each(event::check)?;
    assert_eq!(event::tool_response(&events, "climb")?, &json!({"tenant": "acme"}));
    let reports: Vec<_> = events.iter().filter_map(|event| event["customMetadata"].get("tool_progress")).collect();
    let last = reports.last().context("the last report always arrives")?;
    assert_eq!(
        (&last["name"], &last["progress"], &last["total"], &last["message"]),
        (&json!("climb"), &json!(20000.0), &json!(20000.0), &json!("20000 m"))
    );
    assert!(reports.len() < 1000, "{} of 20000 reports were sent", reports.len());
    let session = host.get(&session_path("climber", "s")).await?.json(200)?;
    assert!(!session.to_string().contains("tool_progress"), "progress is not stored: {session}");
    Ok(())
}

#[tokio::test]
async fn a_client_may_write_snake_case() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("greeter", "s").await?;
    let body = json!({
        "app_name": "greeter", "user_id": USER, "session_id": "s", "new_message": {"parts": [{"text": "Hello"}]},
        "state_delta": {"user:name": "Ada"},
    });
    let events = events_of(&host.post("/run", &body).await?.json(200)?)?;
    assert_eq!(event::texts(&events)[0], "Hello again, Ada!", "{events:?}");
    Ok(())
}

#[tokio::test]
async fn the_first_chunk_is_sent_before_the_last_is_produced() -> Result<()> {
    let folder = Folder::empty()?;
    let host = slow_host(&folder).await?;
    host.create_session("slow", "s").await?;
    let mut stream = host.stream("slow", "s", "go", true).await?;
    let first = stream.next().await?.context("a first piece")?;
    assert_eq!(event::text(&first), "one ");
    let stored = host.session("slow", "s").await?;
    assert_eq!(
        stored["events"].as_array().map(Vec::len),
        Some(1),
        "pieces are not stored, and the answer is not there yet"
    );
    let rest = stream.collect().await?;
    assert_eq!(rest.iter().map(event::text).collect::<Vec<_>>(), ["two ", "three ", "four", "one two three four"]);
    Ok(())
}

#[tokio::test]
async fn a_disconnect_does_not_end_the_run() -> Result<()> {
    let folder = Folder::empty()?;
    let host = slow_host(&folder).await?;
    host.create_session("slow", "s").await?;
    let mut stream = host.stream("slow", "s", "go", true).await?;
    stream.next().await?.context("a first piece")?;
    drop(stream);
    // Turns of one session come in sequence: this one waits for the one that was left.
    host.run("slow", "s", "again").await?;
    let stored = host.session("slow", "s").await?;
    let texts = event::texts(stored["events"].as_array().context("events")?);
    assert_eq!(texts, ["go", "one two three four", "again", "one two three four"]);
    Ok(())
}

#[tokio::test]
async fn sessions_do_not_wait_for_each_other() -> Result<()> {
    let folder = Folder::with_samples()?;
    let host = slow_host(&folder).await?;
    host.create_session("slow", "s").await?;
    let mut stream = host.stream("slow", "s", "go", true).await?;
    stream.next().await?.context("a first piece")?;
    host.ask("greeter", "other", "Hello").await?;
    let stored = host.session("slow", "s").await?;
    assert_eq!(stored["events"].as_array().map(Vec::len), Some(1), "the slow answer was still under way: {stored}");
    assert!(stream.collect().await?.len() > 1);
    Ok(())
}

#[tokio::test]
async fn an_agent_in_code_forwards_drops_and_adds_events() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("relay.wasm", paths::component("relay")?)?;
    folder.write("relay.yaml", std::fs::read(paths::repository().join("tests/components/relay/relay.yaml"))?)?;
    let host = Host::serve(&folder).await?;
    host.create_session("relay", "s").await?;
    let events = host.stream("relay", "s", "hi", true).await?.collect().await?;
    assert!(event::check_partial_events(&events)? > 1, "the model's pieces come through the component: {events:?}");
    assert_eq!(event::texts(&events), ["I heard: hi", "two", "three", "dropped: one"]);
    let stored = event::texts(&events_in(&host.session("relay", "s").await?)?);
    assert_eq!(stored, ["hi", "I heard: hi", "two", "three", "dropped: one"], "what was dropped is not stored");
    Ok(())
}
