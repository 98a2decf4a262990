//! Routes of sessions and memory.

use hatchery_core::{EventWindow, JsonMap, SessionKey};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::session_import::importing;
use crate::support::{Host, post_bytes, problem, run_body, success, wait_for};
use hatchery_test_support::AuditCapture;

pub const SESSIONS: &str = "/apps/says/users/u/sessions";

#[tokio::test]
async fn a_session_without_a_body_gets_an_id_and_has_every_key() {
    let host = Host::start().await;
    let session = success(host.request(Method::POST, SESSIONS).send().await.unwrap()).await;
    assert_eq!(session["id"].as_str().unwrap().len(), 36);
    assert_eq!(session["appName"], "says");
    assert_eq!(session["userId"], "u");
    assert_eq!(session["state"], json!({}));
    assert_eq!(session["events"], json!([]));
    let seconds = session["lastUpdateTime"].as_f64().unwrap();
    assert!((1e9..1e10).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_session_takes_its_id_and_state_from_the_body() {
    let host = Host::start().await;
    for (key, id) in [("sessionId", "a"), ("session_id", "b")] {
        let session = host.post_json(SESSIONS, &json!({key: id, "state": {"k": 1}})).await;
        assert_eq!(session["id"], id);
        assert_eq!(session["state"], json!({"k": 1}));
        assert_eq!(host.get_json(&format!("{SESSIONS}/{id}")).await, session);
    }
    for body in [json!({"sessionId": null, "state": null, "events": null}), json!(null)] {
        assert_eq!(host.post_json(SESSIONS, &body).await["state"], json!({}), "{body}");
    }
}

#[tokio::test]
async fn a_session_with_an_id_in_the_path_takes_wrapped_and_raw_state() {
    let host = Host::start().await;
    let cases = [
        (json!({"state": {"k": 1}}), json!({"k": 1})),
        (json!({"state": null}), json!({})),
        (json!({"k": 1, "l": 2}), json!({"k": 1, "l": 2})),
        (json!({"state": {"k": 1}, "l": 2}), json!({"state": {"k": 1}, "l": 2})),
        (json!({"state": "open"}), json!({"state": "open"})),
        (json!({}), json!({})),
        (json!(null), json!({})),
    ];
    for (index, (body, state)) in cases.into_iter().enumerate() {
        let session = host.post_json(&format!("{SESSIONS}/{index}"), &body).await;
        assert_eq!(session["state"], state, "{body}");
    }
    let session = success(host.request(Method::POST, &format!("{SESSIONS}/bare")).send().await.unwrap()).await;
    assert_eq!(session["id"], "bare");
}

#[tokio::test]
async fn an_id_can_be_used_once() {
    let host = Host::start().await;
    host.session("says").await;
    let body = problem(host.post(&format!("{SESSIONS}/s"), &json!({})).await, 409, "SESSION_EXISTS").await;
    assert_eq!(body["detail"], "Session already exists: s; send messages to it, or create one with another id");
    problem(host.post(SESSIONS, &json!({"sessionId": "s"})).await, 409, "SESSION_EXISTS").await;
}

#[tokio::test]
async fn names_in_paths_are_percent_decoded() {
    let host = Host::start().await;
    let session = host.post_json("/apps/says/users/a%40b.c/sessions/my%20own%2Fid", &json!({})).await;
    assert_eq!(session["userId"], "a@b.c");
    assert_eq!(session["id"], "my own/id");
}

#[tokio::test]
async fn sessions_are_listed_newest_first_without_events_and_evaluations() {
    let host = Host::start().await;
    for id in ["first", "s", "adk-eval-session-1", "ADK_EVAL_2", "___eval___session___3"] {
        host.post_json(&format!("{SESSIONS}/{id}"), &json!({"k": id})).await;
    }
    host.post_json("/run", &run_body("says", "hello")).await;
    host.post_json(&format!("{SESSIONS}/last"), &json!({})).await;
    let list = host.get_json(SESSIONS).await;
    let ids: Vec<_> = list.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["last", "s", "first"]);
    assert_eq!(list[1]["events"], json!([]));
    assert_eq!(list[2]["state"], json!({"k": "first"}));
    assert_eq!(host.get_json("/apps/says/users/other/sessions").await, json!([]));
}

#[tokio::test]
async fn events_of_a_session_can_be_limited_by_number_and_time() {
    let host = importing().await;
    let events: Vec<_> =
        (1..=4).map(|n| json!({"id": n.to_string(), "author": "user", "timestamp": 100.0 + f64::from(n)})).collect();
    host.post_json(SESSIONS, &json!({"sessionId": "s", "events": events})).await;
    for (query, expected) in [
        ("", vec!["1", "2", "3", "4"]),
        ("?numRecentEvents=2", vec!["3", "4"]),
        ("?num_recent_events=0", vec![]),
        ("?numRecentEvents=9", vec!["1", "2", "3", "4"]),
        ("?afterTimestamp=103", vec!["3", "4"]),
        ("?after_timestamp=102&numRecentEvents=1", vec!["4"]),
    ] {
        let session = host.get_json(&format!("{SESSIONS}/s{query}")).await;
        let ids: Vec<_> =
            session["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    let body = problem(host.get(&format!("{SESSIONS}/s?numRecentEvents=many")).await, 422, "INVALID_REQUEST").await;
    assert!(body["detail"].as_str().unwrap().contains("numRecentEvents"), "{body}");
}

/// Returns all pages of a list, and the query of each next page.
async fn pages(host: &Host, path: &str, first: &str) -> Vec<Value> {
    let (mut query, mut pages) = (Some(first.to_owned()), Vec::new());
    while let Some(next) = query {
        let response = host.get(&format!("{path}?{next}")).await;
        let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        query = link.map(|link| {
            let query = link.strip_prefix("<?").and_then(|link| link.strip_suffix(">; rel=\"next\""));
            query.unwrap_or_else(|| panic!("{link}")).to_owned()
        });
        pages.push(success(response).await);
    }
    pages
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn sessions_are_listed_in_pages_that_link_to_the_next_one() {
    let host = Host::start().await;
    for id in ["a", "b.1", "adk-eval-session-1", "c&d=%"] {
        host.post_json(SESSIONS, &json!({"sessionId": id})).await;
    }
    let listed = pages(&host, SESSIONS, "limit=2").await;
    assert_eq!(listed.iter().map(ids).collect::<Vec<_>>(), [vec!["c&d=%"], vec!["b.1", "a"]], "{listed:?}");
    let listed = pages(&host, SESSIONS, "limit=1").await;
    assert_eq!(listed.iter().flat_map(ids).collect::<Vec<_>>(), ["c&d=%", "b.1", "a"]);
    assert_eq!(pages(&host, SESSIONS, "limit=4").await.len(), 1, "no link leads behind the end");
    for (query, detail) in [
        ("limit=0", "`limit` is a number from 1 to 1000"),
        ("limit=1001", "`limit` is a number from 1 to 1000"),
        ("pageToken=x.a", "`pageToken` is not from the link of a page; begin with the first page"),
    ] {
        let body = problem(host.get(&format!("{SESSIONS}?{query}")).await, 400, "BAD_INPUT").await;
        assert_eq!(body["detail"], detail);
    }
    let body = problem(host.get(&format!("{SESSIONS}?limit=x")).await, 422, "INVALID_REQUEST").await;
    assert_eq!(body["detail"], "invalid query: limit: invalid digit found in string");
}

#[tokio::test]
async fn events_of_a_session_are_read_in_pages() {
    let host = importing().await;
    let events: Vec<_> = (1..=5).map(|n| json!({"id": n.to_string(), "author": "user"})).collect();
    host.post_json(SESSIONS, &json!({"sessionId": "s", "events": events})).await;
    let path = format!("{SESSIONS}/s");
    for (first, expected) in [
        ("limit=2", vec![vec!["1", "2"], vec!["3", "4"], vec!["5"]]),
        ("after=3&limit=2", vec![vec!["4", "5"]]),
        ("after=1", vec![vec!["2", "3", "4", "5"]]),
        ("after=9", vec![vec![]]),
    ] {
        let read = pages(&host, &path, first).await;
        assert_eq!(read.iter().map(|page| ids(&page["events"])).collect::<Vec<_>>(), expected, "{first}");
    }
    let body = problem(host.get(&format!("{path}?after=1&numRecentEvents=1")).await, 400, "BAD_INPUT").await;
    assert_eq!(body["detail"], "`after` and `limit` cannot be combined with `numRecentEvents` and `afterTimestamp`");
}

#[tokio::test]
async fn state_is_updated_by_an_event_of_the_user() {
    let host = Host::start().await;
    host.post_json(&format!("{SESSIONS}/s"), &json!({"old": 1, "kept": 2})).await;
    for key in ["stateDelta", "state_delta"] {
        let response = host
            .request(Method::PATCH, &format!("{SESSIONS}/s"))
            .json(&json!({key: {"old": null, "new": key}}))
            .send()
            .await
            .unwrap();
        let session = success(response).await;
        assert_eq!(session["state"], json!({"kept": 2, "new": key}));
        let event = session["events"].as_array().unwrap().last().unwrap();
        assert_eq!(event["author"], "user");
        assert!(event["invocationId"].as_str().unwrap().starts_with("p-"), "{event}");
        assert_eq!(event["actions"]["stateDelta"], json!({"old": null, "new": key}));
    }
    let response = host.request(Method::PATCH, &format!("{SESSIONS}/s")).json(&json!({})).send().await.unwrap();
    let body = problem(response, 422, "INVALID_REQUEST").await;
    assert!(body["detail"].as_str().unwrap().contains("missing field `stateDelta`"), "{body}");
}

#[tokio::test]
async fn temporary_state_of_an_update_and_of_an_import_is_not_stored() {
    let host = importing().await;
    host.session("says").await;
    let state = json!({"kept": 1, "temp:gone": 2});
    let update = host.request(Method::PATCH, &format!("{SESSIONS}/s")).json(&json!({"stateDelta": state}));
    let updated = success(update.send().await.unwrap()).await;
    let import = json!({"events": [{"author": "says", "actions": {"stateDelta": state}}]});
    let imported = host.post_json(SESSIONS, &import).await;
    for session in [updated, imported] {
        assert_eq!(session["state"], json!({"kept": 1}));
        assert_eq!(session["events"][0]["actions"]["stateDelta"], json!({"kept": 1}));
    }
}

#[tokio::test]
async fn a_deleted_session_no_longer_exists_and_can_be_deleted_again() {
    let audit = AuditCapture::capture();
    let host = Host::start().await;
    host.session("says").await;
    for _ in 0..2 {
        let response = host.request(Method::DELETE, &format!("{SESSIONS}/s")).send().await.unwrap();
        assert_eq!(response.status(), 204);
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
    let body = problem(host.get(&format!("{SESSIONS}/s")).await, 404, "SESSION_NOT_FOUND").await;
    assert_eq!(
        body["detail"],
        "Session not found: appName=says, userId=u, sessionId=s; create it with POST /apps/says/users/u/sessions/s"
    );
    let lines: Vec<_> = audit.lines().into_iter().filter(|line| line.contains("deletion")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for part in ["app=says", "user=u", "session=s", "decision=\"deleted\""] {
        assert!(line.contains(part), "{line} lacks {part}");
    }
}

#[tokio::test]
async fn an_unknown_app_is_404_for_every_session_route() {
    let host = Host::start().await;
    for (method, path) in [
        (Method::GET, "/apps/nobody/users/u/sessions"),
        (Method::POST, "/apps/nobody/users/u/sessions"),
        (Method::GET, "/apps/nobody/users/u/sessions/s"),
        (Method::POST, "/apps/nobody/users/u/sessions/s"),
        (Method::PATCH, "/apps/nobody/users/u/sessions/s"),
        (Method::DELETE, "/apps/nobody/users/u/sessions/s"),
        (Method::GET, "/apps/nobody/users/u/sessions/s/artifacts"),
    ] {
        let mut request = host.request(method.clone(), path);
        if method == Method::PATCH {
            request = request.json(&json!({"stateDelta": {}}));
        }
        let body = problem(request.send().await.unwrap(), 404, "APP_NOT_FOUND").await;
        let detail = "App not found: nobody; available: `fails`, `floods`, `says`, `streams`, `waits`";
        assert_eq!(body["detail"], detail, "{method} {path}");
    }
}

#[tokio::test]
async fn an_update_of_an_unknown_session_is_404() {
    let host = Host::start().await;
    let request = host.request(Method::PATCH, &format!("{SESSIONS}/s")).json(&json!({"stateDelta": {"k": 1}}));
    problem(request.send().await.unwrap(), 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn the_state_can_be_updated_during_a_run() {
    let host = Host::start().await;
    host.session("waits").await;
    let mut run = host.connect(&post_bytes("/run", &run_body("waits", "hello"))).await;
    wait_for(&host.signals.started).await;
    let changed =
        host.request(Method::PATCH, "/apps/waits/users/u/sessions/s").json(&json!({"stateDelta": {"mood": "good"}}));
    assert_eq!(success(changed.send().await.unwrap()).await["state"]["mood"], "good");
    host.signals.resume.add_permits(1);
    let mut answer = String::new();
    run.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Done."), "{answer}");
    let session = host.get_json("/apps/waits/users/u/sessions/s").await;
    assert_eq!(session["state"]["mood"], "good");
    assert_eq!(session["events"].as_array().unwrap().len(), 4, "{session}");
}

#[tokio::test]
async fn an_event_that_could_not_be_read_again_is_rejected() {
    let host = importing().await;
    host.session("says").await;
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let path = "/apps/says/users/u/sessions/s";
    let response = host.request(Method::PATCH, path).json(&json!({"stateDelta": {"a": deep}})).send().await.unwrap();
    let body = problem(response, 422, "INVALID_EVENT").await;
    assert_eq!(body["detail"], "an event cannot be stored: `actions.stateDelta` is nested more than 100 levels deep");
    assert_eq!(host.get_json(path).await["events"], json!([]));
    let actions = json!({"state_delta": {"user:a": 1}});
    let events = json!({"sessionId": "imported", "events": [{"author": "says", "actions": actions}]});
    let body = problem(host.post("/apps/says/users/u/sessions", &events).await, 422, "INVALID_EVENT").await;
    assert_eq!(
        body["detail"],
        "an event cannot be stored: `actions` has `state_delta` among its further keys, but that is a field of actions"
    );
    problem(host.get("/apps/says/users/u/sessions/imported").await, 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn a_session_is_added_to_the_memory_and_found() {
    let host = Host::start().await;
    host.session("says").await;
    success(host.post("/run", &run_body("says", "The lamp is red.")).await).await;
    let memory = "/apps/says/users/u/memory";
    let query = format!("{memory}?query=lamp");
    assert_eq!(host.get_json(&query).await, json!({"memories": []}));
    let added = host.request(Method::PATCH, memory).json(&json!({"sessionId": "s"})).send().await.unwrap();
    assert_eq!(added.status(), 204);
    let found = host.get_json(&query).await;
    let mut authors: Vec<_> = found["memories"].as_array().unwrap().iter().map(|entry| &entry["author"]).collect();
    authors.sort_by_key(|author| author.as_str());
    assert_eq!(authors, ["says", "user"]);
    let missing = host.request(Method::PATCH, memory).json(&json!({"sessionId": "nowhere"})).send().await.unwrap();
    problem(missing, 404, "SESSION_NOT_FOUND").await;
    let app = host.request(Method::GET, "/apps/nobody/users/u/memory?query=x").send().await.unwrap();
    problem(app, 404, "APP_NOT_FOUND").await;
    let query = host.request(Method::GET, memory).send().await.unwrap();
    problem(query, 422, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn what_the_memory_has_of_a_session_is_deleted_and_the_session_stays() {
    let audit = AuditCapture::capture();
    let host = Host::start().await;
    let memory = "/apps/says/users/u/memory";
    for id in ["s", "other"] {
        host.post_json(&format!("{SESSIONS}/{id}"), &json!({})).await;
        let run = json!({
            "appName": "says", "userId": "u", "sessionId": id,
            "newMessage": {"role": "user", "parts": [{"text": "The lamp is red."}]},
        });
        success(host.post("/run", &run).await).await;
        let added = host.request(Method::PATCH, memory).json(&json!({"sessionId": id})).send().await.unwrap();
        assert_eq!(added.status(), 204);
    }
    let count = async || {
        let found = host.get_json(&format!("{memory}?query=lamp")).await;
        found["memories"].as_array().unwrap().len()
    };
    assert_eq!(count().await, 4);
    let deleted = host.request(Method::DELETE, &format!("{memory}?sessionId=s")).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    assert_eq!(count().await, 2);
    host.get_json(&format!("{SESSIONS}/s")).await;
    let lines: Vec<_> = audit.lines().into_iter().filter(|line| line.contains("deletion")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for part in ["app=says", "user=u", "session=s", "action=\"delete from the memory\"", "decision=\"deleted\""] {
        assert!(line.contains(part), "{line} lacks {part}");
    }
    let unnamed = host.request(Method::DELETE, memory).send().await.unwrap();
    problem(unnamed, 422, "INVALID_REQUEST").await;
    let app = host.request(Method::DELETE, "/apps/nobody/users/u/memory?sessionId=s").send().await.unwrap();
    problem(app, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn no_request_reaches_the_sessions_of_the_host() {
    let host = Host::start().await;
    let key = SessionKey::new("says", "A2A_PUSH", "s");
    let state = JsonMap::from_iter([("secret".to_owned(), json!("t0ken"))]);
    host.services.sessions.create(&key.app, &key.user, Some(&key.id), state).await.unwrap();
    let sessions = "/apps/says/users/A2A_PUSH/sessions";
    let paths = [
        (Method::GET, sessions.to_owned()),
        (Method::POST, sessions.to_owned()),
        (Method::GET, format!("{sessions}/s")),
        (Method::GET, "/apps/says/users/A2A%5FPUSH/sessions/s".into()),
        (Method::POST, format!("{sessions}/t")),
        (Method::PATCH, format!("{sessions}/s")),
        (Method::DELETE, format!("{sessions}/s")),
        (Method::POST, format!("{sessions}/s/close")),
        (Method::GET, format!("{sessions}/s/artifacts")),
        (Method::GET, format!("{sessions}/s/artifacts/a")),
        (Method::GET, format!("{sessions}/s/events/e/graph")),
        (Method::GET, format!("{sessions}/s/runs")),
        (Method::GET, "/apps/says/users/A2A_PUSH/memory?query=x".into()),
    ];
    for (method, path) in paths {
        let body = json!({"stateDelta": {"secret": "mine"}});
        let response = host.request(method.clone(), &path).json(&body).send().await.unwrap();
        let detail = problem(response, 404, "USER_RESERVED").await["detail"].clone();
        assert_eq!(detail, "the user id `A2A_PUSH` is reserved for the host; choose another one", "{method} {path}");
    }
    for path in ["/run", "/run_sse"] {
        let mut body = run_body("says", "Hi");
        body["userId"] = "A2A_PUSH".into();
        let response = host.request(Method::POST, path).json(&body).send().await.unwrap();
        problem(response, 404, "SESSION_NOT_FOUND").await;
    }
    let stored = host.services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((stored.state.get("secret").cloned(), stored.events.len()), (Some(json!("t0ken")), 0));
}
