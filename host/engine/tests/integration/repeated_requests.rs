//! Requests with a run id: a repeated one attaches to its run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::{Content, Event, EventData, JsonMap, ModelErrorKind, Services, SessionKey};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};

use crate::support::*;

fn with_id(id: &str, text: &str) -> RunRequest {
    RunRequest { run_id: Some(id.into()), ..RunRequest::new(USER, SESSION, Content::user(text)) }
}

#[tokio::test]
async fn a_repeated_request_with_a_run_id_attaches_to_the_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root =
        llm_with("root", calls_then_answers(&["one"], "done"), |llm| llm.tools = vec![counting_tool("one", &runs)]);
    let app = Harness::new(root).await;
    let first = app.runner.run(app.app.clone(), with_id("my/run", "hi")).await.unwrap();
    // The same while it is in progress, and after it has ended.
    let second = app.runner.run(app.app.clone(), with_id("my/run", "hi")).await.unwrap();
    let first = first.collect().await.unwrap();
    assert!(first.iter().all(|event| event.invocation_id == "my/run"));
    assert_eq!(briefs(&second.collect().await.unwrap()), briefs(&first));
    let third = app.runner.run(app.app.clone(), with_id("my/run", "something else")).await.unwrap();
    assert_eq!(briefs(&third.collect().await.unwrap()), briefs(&first));
    assert_eq!((app.session().await.events.len(), runs.load(Ordering::Relaxed)), (4, 1));
    let other = app.runner.run(app.app.clone(), with_id("another", "hi")).await.unwrap();
    other.collect().await.unwrap();
    assert_eq!(app.session().await.events.len(), 8);
}

#[tokio::test]
async fn a_repeated_request_continues_an_interrupted_run() {
    let app = Arc::new(App::new("app", counting_agent("root", &["one", "two"], "done")).unwrap());
    let services = services();
    services.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let crashing = CrashingSessions::new(services.sessions.clone(), 3);
    let first = Runner::new(Services { sessions: Arc::new(crashing), ..services.clone() });
    assert!(first.run(app.clone(), with_id("r1", "hi")).await.unwrap().collect().await.is_err());
    first.drain().await;
    let second = Runner::new(services).run(app, with_id("r1", "hi")).await.unwrap().collect().await.unwrap();
    assert_eq!(
        briefs(&second),
        [
            "root: call one{}",
            r#"root: answer one{"result":1}"#,
            "root: call two{}",
            r#"root: answer two{"result":2}"#,
            "root: done"
        ]
    );
}

#[tokio::test]
async fn a_repeated_request_returns_the_failure_of_its_run() {
    let model = Scripted::sequence([Reply::error(ModelErrorKind::Server, "no"), Reply::text("not now")]);
    let app = Harness::new(llm("root", model)).await;
    for _ in 0..2 {
        let mut run = app.runner.run(app.app.clone(), with_id("r1", "hi")).await.unwrap();
        let event = run.next().await.unwrap().unwrap();
        assert!(brief(&event).starts_with("root: error MODEL_SERVER_ERROR"), "{}", brief(&event));
        assert_eq!(run.next().await.unwrap().unwrap_err().code(), "MODEL_SERVER_ERROR");
    }
    assert_eq!(app.session().await.events.len(), 2);
}

#[tokio::test]
async fn an_id_of_a_run_has_a_form() {
    let app = Harness::new(counting_agent("root", &[], "done")).await;
    for id in ["", " ", "a\nb", &"x".repeat(257)] {
        let error = app.runner.run(app.app.clone(), with_id(id, "hi")).await.unwrap_err();
        assert_eq!(error.to_string(), "the id of a run has 1 to 256 bytes and no control characters");
    }
    let both = RunRequest { invocation_id: Some("e-1".into()), ..with_id("r1", "hi") };
    let error = app.runner.run(app.app.clone(), both).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request has an id for a new run and an invocation to resume; leave one of them out"
    );
    let forged = EventData { invocation_id: "r1".into(), author: "user".into(), ..EventData::default() };
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.append(&key, &Event::new(forged)).await.unwrap();
    let error = app.runner.run(app.app.clone(), with_id("r1", "hi")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the session has events of a run `r1` that this host did not record; use another id for a new run"
    );
}
