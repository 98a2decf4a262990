//! Runs as resources: listed, read, followed, cancelled, and started in the background.

use std::time::Duration;

use hatchery::ServerConfig;
use hatchery_core::{RunService, RunState, SessionKey, StoredRun, TurnStart};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::support::{FolderServer, Host, chunks, post_bytes, problem, run_body, success, wait_for};

const SESSION: &str = "/apps/waits/users/u/sessions/s";

fn body_of(app: &str, id: &str) -> Value {
    let mut body = run_body(app, "hello");
    body["runId"] = json!(id);
    body
}

/// Sends a request for the events of a run. Returns the frames, once the stream has ended.
async fn follow(host: &Host, path: &str, headers: &str) -> Vec<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
    let (head, frames) = chunks(&host.exchange(request.as_bytes()).await);
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
    frames
}

/// Returns the texts, and the fields before the data, of frames with an event each.
fn parse(frames: &[String]) -> Vec<(String, String)> {
    let parse = |frame: &String| {
        let (fields, data) = frame.split_once("data: ").unwrap();
        let data: Value = serde_json::from_str(data.trim_end()).unwrap();
        let text = data["content"]["parts"][0]["text"].as_str().or(data["state"].as_str()).unwrap();
        (fields.trim_end().to_owned(), text.to_owned())
    };
    frames.iter().map(parse).collect()
}

fn expected(parts: &[(&str, &str)]) -> Vec<(String, String)> {
    parts.iter().map(|(fields, text)| ((*fields).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_run_can_be_read_and_names_its_error() {
    let host = Host::start().await;
    host.session("fails").await;
    let response = host.post("/run", &body_of("fails", "a/run")).await;
    assert_eq!(response.headers()["x-hatchery-run"], "a/run");
    problem(response, 500, "AGENT_FAILED").await;
    let run = host.get_json("/apps/fails/users/u/sessions/s/runs/a%2Frun").await;
    let times = (run["accepted"].as_f64().unwrap(), run["updated"].as_f64().unwrap());
    assert!(times.0 > 1e9 && times.1 > times.0, "{run}");
    let expected = json!({
        "id": "a/run", "appName": "fails", "userId": "u", "sessionId": "s", "state": "failed",
        "error": {"code": "AGENT_FAILED", "message": "agent `fails`: the oven is cold"}, "background": false,
        "cancelRequested": false, "attempts": 1, "accepted": run["accepted"], "updated": run["updated"],
    });
    assert_eq!(run, expected);
}

#[tokio::test]
async fn a_repeated_request_of_a_failed_run_has_the_status_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [("limited", "rate_limited", 429, "MODEL_RATE_LIMITED"), ("down", "503", 502, "MODEL_SERVER_ERROR")];
    for (app, error, _, _) in cases {
        let path = folder.path().join(app);
        std::fs::create_dir(&path).unwrap();
        let agent = format!("name: {app}\nmodel: scripted:{app}/answers.yaml\ninstruction: Greet.\n");
        std::fs::write(path.join("root_agent.yaml"), agent).unwrap();
        let script = format!("turns: [{{ error: {{ code: {error}, message: no }} }}]\n");
        std::fs::write(path.join("answers.yaml"), script).unwrap();
    }
    let server = FolderServer::start(folder.path(), ServerConfig::default()).await;
    for (app, _, status, code) in cases {
        success(server.post(&format!("/apps/{app}/users/u/sessions/s"), &json!({})).await).await;
        for _ in 0..2 {
            problem(server.post("/run", &body_of(app, "r1")).await, status, code).await;
        }
    }
}

#[tokio::test]
async fn the_runs_of_a_session_are_listed_in_pages() {
    let host = Host::start().await;
    host.session("says").await;
    for id in ["r1", "r2", "r3"] {
        let response = host.post("/run", &body_of("says", id)).await;
        assert_eq!(response.headers()["x-hatchery-run"], id);
    }
    let path = "/apps/says/users/u/sessions/s/runs";
    let ids = |page: &Value| {
        let runs = page["runs"].as_array().unwrap().iter();
        runs.map(|run| (run["id"].as_str().unwrap().to_owned(), run["state"].clone())).collect::<Vec<_>>()
    };
    let first = host.get_json(&format!("{path}?limit=2")).await;
    assert_eq!(ids(&first), [("r3".into(), json!("done")), ("r2".into(), json!("done"))]);
    for key in ["pageToken", "page_token"] {
        let rest = host.get_json(&format!("{path}?limit=2&{key}={}", first["nextPageToken"])).await;
        assert_eq!((ids(&rest), rest.get("nextPageToken")), (vec![("r1".into(), json!("done"))], None));
    }
    for limit in ["0", "1001"] {
        let error = problem(host.get(&format!("{path}?limit={limit}")).await, 400, "BAD_INPUT").await;
        assert_eq!(error["detail"], "`limit` is a number from 1 to 1000");
    }
}

#[tokio::test]
async fn an_unknown_run_or_session_is_404() {
    let host = Host::start().await;
    host.session("says").await;
    for (path, code) in [
        ("/apps/says/users/u/sessions/s/runs/r1", "RUN_NOT_FOUND"),
        ("/apps/says/users/u/sessions/s/runs/r1/events", "RUN_NOT_FOUND"),
        ("/apps/says/users/u/sessions/x/runs", "SESSION_NOT_FOUND"),
        ("/apps/says/users/u/sessions/x/runs/r1", "SESSION_NOT_FOUND"),
        ("/apps/says/users/u/sessions/x/runs/r1/events", "SESSION_NOT_FOUND"),
        ("/apps/nobody/users/u/sessions/x/runs", "APP_NOT_FOUND"),
    ] {
        problem(host.get(path).await, 404, code).await;
    }
    let path = "/apps/says/users/u/sessions/s/runs/r1/cancel";
    let error = problem(host.post(path, &json!({})).await, 404, "RUN_NOT_FOUND").await;
    assert_eq!(error["detail"], "Run not found: r1");
}

#[tokio::test]
async fn the_events_of_a_run_are_its_stored_events_and_the_events_that_follow() {
    let host = Host::start().await;
    host.session("waits").await;
    let run = host.connect(&post_bytes("/run_sse", &body_of("waits", "r1"))).await;
    wait_for(&host.signals.started).await;
    let path = format!("{SESSION}/runs/r1/events");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut live = BufReader::new(host.connect(request.as_bytes()).await).lines();
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("Waiting.")) {
        lines.push(live.next_line().await.unwrap().unwrap());
    }
    host.signals.resume.add_permits(1);
    while let Some(line) = live.next_line().await.unwrap() {
        lines.push(line);
    }
    let of_live: Vec<_> = lines.iter().filter(|line| line.starts_with("id: ") || line.starts_with("event: ")).collect();
    assert_eq!(of_live, ["id: 2", "id: 3", "event: end"], "{lines:?}");

    let all = expected(&[("id: 2", "Waiting."), ("id: 3", "Done."), ("event: end", "done")]);
    assert_eq!(parse(&follow(&host, &path, "").await), all);
    assert_eq!(parse(&follow(&host, &format!("{path}?after=2"), "").await), all[1..]);
    assert_eq!(parse(&follow(&host, &path, "Last-Event-ID: 2\r\n").await), all[1..]);
    assert_eq!(parse(&follow(&host, &format!("{path}?after=0"), "Last-Event-ID: 3\r\n").await), all[2..]);
    assert_eq!(parse(&follow(&host, &format!("{path}?after={}", u64::MAX), "").await), all[2..]);
    let bad = host.request(reqwest::Method::GET, &path).header("Last-Event-ID", "x").send().await.unwrap();
    let error = problem(bad, 400, "BAD_INPUT").await;
    assert_eq!(error["detail"], "the header `Last-Event-ID` is not the id of an event of this stream");
    drop(run);
}

#[tokio::test]
async fn a_follower_of_an_idle_run_gets_keep_alive_comments() {
    let config = ServerConfig { keep_alive: Duration::from_millis(10), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("waits").await;
    host.post("/run", &background("waits", "r1")).await;
    wait_for(&host.signals.started).await;
    let request = format!("GET {SESSION}/runs/r1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut lines = BufReader::new(host.connect(request.as_bytes()).await).lines();
    while lines.next_line().await.unwrap().expect("the stream ended in silence") != ": keep-alive" {}
    host.signals.resume.add_permits(1);
}

#[tokio::test]
async fn a_run_is_cancelled_by_a_request() {
    let host = Host::start().await;
    host.session("waits").await;
    let run = host.connect(&post_bytes("/run_sse", &body_of("waits", "r1"))).await;
    wait_for(&host.signals.started).await;
    let cancelled = host.post_json(&format!("{SESSION}/runs/r1/cancel"), &json!({})).await;
    assert_eq!(cancelled["state"], "cancelled");
    wait_for(&host.signals.cancelled).await;
    drop(run);
    problem(host.post("/run", &body_of("waits", "r1")).await, 503, "CANCELLED").await;
    let mut resume = run_body("waits", "hello");
    resume["newMessage"] = Value::Null;
    resume["invocationId"] = json!("r1");
    let error = problem(host.post("/run", &resume).await, 400, "BAD_INPUT").await;
    assert_eq!(error["detail"], "run `r1` was cancelled; send the message again as a new one");
}

fn background(app: &str, id: &str) -> Value {
    let mut body = body_of(app, id);
    body["background"] = json!(true);
    body
}

#[tokio::test]
async fn a_background_run_is_accepted_at_once_and_can_be_followed() {
    let host = Host::start().await;
    host.session("waits").await;
    for _ in 0..2 {
        let response = host.post("/run", &background("waits", "a/b")).await;
        assert_eq!(response.status(), 202);
        let location = response.headers()["location"].to_str().unwrap().to_owned();
        assert_eq!(location, format!("{SESSION}/runs/a%2Fb"));
        let run: Value = response.json().await.unwrap();
        assert_eq!((&run["id"], &run["background"]), (&json!("a/b"), &json!(true)));
    }
    wait_for(&host.signals.started).await;
    host.signals.resume.add_permits(1);
    let frames = parse(&follow(&host, &format!("{SESSION}/runs/a%2Fb/events"), "").await);
    assert_eq!(frames, expected(&[("id: 2", "Waiting."), ("id: 3", "Done."), ("event: end", "done")]));
    let mut answer = background("waits", "r2");
    answer["runId"] = Value::Null;
    answer["invocationId"] = json!("a/b");
    let error = problem(host.post("/run", &answer).await, 400, "BAD_INPUT").await;
    assert!(error["detail"].as_str().unwrap().starts_with("only a run that begins with a new message"), "{error}");
}

#[tokio::test]
async fn the_background_run_of_a_dead_host_is_continued_by_a_server() {
    let host = Host::start().await;
    host.session("says").await;
    let request = json!({"message": {"role": "user", "parts": [{"text": "hello"}]}});
    let key = SessionKey::new("says", "u", "s");
    let runs: &dyn RunService = host.services.sessions.runs().unwrap();
    // The state of a host that ends right after it has accepted a run.
    let run = StoredRun { is_background: true, request: Some(request.to_string()), ..StoredRun::new(key, "r1", 0) };
    runs.add(&run).await.unwrap();
    let frames = follow(&host, "/apps/says/users/u/sessions/s/runs/r1/events", "").await;
    assert_eq!(parse(&frames), expected(&[("id: 2", "You said: hello"), ("event: end", "done")]));
}

#[tokio::test]
async fn a_run_of_a_dead_host_is_interrupted_once_its_lease_has_ended() {
    let host = Host::start().await;
    host.session("waits").await;
    let (key, sessions) = (SessionKey::new("waits", "u", "s"), &host.services.sessions);
    let runs: &dyn RunService = sessions.runs().unwrap();
    // The state of a run of another host.
    let turn_start = sessions.begin_turn(&key, None, Duration::from_secs(60)).await.unwrap();
    let TurnStart::Begun(turn) = turn_start else { panic!("it is held") };
    runs.start(&StoredRun::new(key.clone(), "r1", 0), turn.fence).await.unwrap();
    let states = async || {
        let list = host.get_json(&format!("{SESSION}/runs")).await;
        let mut states = Vec::new();
        for listed in list["runs"].as_array().unwrap() {
            let id = listed["id"].as_str().unwrap();
            assert_eq!(host.get_json(&format!("{SESSION}/runs/{id}")).await, *listed);
            states.push(format!("{id} {}", listed["state"].as_str().unwrap()));
        }
        states
    };
    assert_eq!(states().await, ["r1 running"]);
    sessions.renew_turn(&key, turn.fence, Duration::ZERO).await.unwrap();
    assert_eq!(states().await, ["r1 interrupted"]);
    assert_eq!(runs.get(&key, "r1").await.unwrap().unwrap().state, RunState::Running, "nothing is written");
    // It stays so while another run has the session.
    let mut second = host.connect(&post_bytes("/run", &body_of("waits", "r2"))).await;
    wait_for(&host.signals.started).await;
    assert_eq!(states().await, ["r2 running", "r1 interrupted"]);
    host.signals.resume.add_permits(1);
    second.read_to_end(&mut Vec::new()).await.unwrap();
    let cancelled = host.post_json(&format!("{SESSION}/runs/r1/cancel"), &json!({})).await;
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(states().await, ["r2 done", "r1 cancelled"]);
}

#[tokio::test]
async fn a_background_run_counts_as_an_active_run() {
    let host = Host::with(ServerConfig { max_concurrent_runs: 1, ..ServerConfig::default() }).await;
    host.session("waits").await;
    let first = host.post("/run", &background("waits", "r1")).await;
    assert_eq!(first.status(), 202);
    problem(host.post("/run", &background("waits", "r2")).await, 503, "BUSY").await;
    wait_for(&host.signals.started).await;
    host.signals.resume.add_permits(1);
    let run = success(host.get(&format!("{SESSION}/runs/r1")).await).await;
    assert_eq!(run["id"], "r1");
}
