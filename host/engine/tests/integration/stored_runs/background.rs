//! Runs in the background, which another host continues if their host dies.

use hatchery_core::{RunConfig, RunTransition};
use tokio_util::sync::CancellationToken;

use super::*;

fn apps() -> [String; 1] {
    ["app".into()]
}

/// Starts a background run on a host that stops in the middle of it.
async fn interrupted_in_background(app: &mut Harness, tool: &HeldTool, id: &str) {
    let custom_metadata = Some(Arc::new(map(json!({"ticket": 7}))));
    let config = RunConfig { custom_metadata, ..RunConfig::default() };
    let request = RunRequest { config, ..with_id(id) };
    let accepted = app.runner.run_in_background(app.app.clone(), request).await.unwrap();
    assert!(accepted.is_background && accepted.state.is_active());
    tool.entered.notified().await;
    app.runner.stop_runs();
    restart(app).await;
}

#[tokio::test]
async fn a_background_run_is_continued_by_another_host() {
    let (mut app, tool) = held_app().await;
    interrupted_in_background(&mut app, &tool, "r1").await;
    let interrupted = app.runner.interrupted_runs(&apps(), 10).await.unwrap();
    assert_eq!(interrupted.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["r1"]);
    tool.opened.add_permits(1);
    app.runner.continue_run(app.app.clone(), &interrupted[0], CancellationToken::new()).await.unwrap();
    assert_eq!(app.runner.interrupted_runs(&apps(), 10).await.unwrap(), [], "this host has it now");
    let (events, _, run) = follow(&app, "r1", 0).await;
    assert_eq!(events.last().unwrap(), "root: done");
    assert_eq!((run.state, run.attempts, run.request), (RunState::Done, 2, None));
    let last = app.session().await.events.last().cloned().unwrap();
    assert_eq!(last.custom_metadata.as_deref(), Some(&json!({"ticket": 7})), "also after the change of hosts");
    let repeated = app.runner.run_in_background(app.app.clone(), with_id("r1")).await.unwrap();
    assert_eq!(repeated, stored(&app, "r1").await);
}

#[tokio::test]
async fn a_background_run_that_was_accepted_only_is_begun_by_another_host() {
    let (app, tool) = held_app().await;
    tool.opened.add_permits(1);
    let request = json!({"message": {"role": "user", "parts": [{"text": "hi"}]}, "stateDelta": {"k": 1}});
    let run = StoredRun { is_background: true, request: Some(request.to_string()), ..StoredRun::new(key(), "r1", 0) };
    runs(&app).add(&run).await.unwrap();
    let interrupted = app.runner.interrupted_runs(&apps(), 10).await.unwrap();
    app.runner.continue_run(app.app.clone(), &interrupted[0], CancellationToken::new()).await.unwrap();
    let (events, ..) = follow(&app, "r1", 0).await;
    assert_eq!(events.last().unwrap(), "root: done");
    assert_eq!(app.state().await["k"], 1);
}

#[tokio::test]
async fn a_background_run_fails_after_ten_attempts() {
    let (mut app, tool) = held_app().await;
    interrupted_in_background(&mut app, &tool, "r1").await;
    for _ in 0..9 {
        let interrupted = app.runner.interrupted_runs(&apps(), 10).await.unwrap();
        app.runner.continue_run(app.app.clone(), &interrupted[0], CancellationToken::new()).await.unwrap();
        tool.entered.notified().await;
        app.runner.stop_runs();
        restart(&mut app).await;
    }
    assert_eq!(app.runner.interrupted_runs(&apps(), 10).await.unwrap(), []);
    let failure = stored(&app, "r1").await.failure.unwrap();
    assert_eq!(failure.code, "RUN_GIVEN_UP");
    assert_eq!(failure.message, "the run was given up after 10 attempts: its host died in each of them");
}

#[tokio::test]
async fn the_answers_to_a_background_run_are_no_attempts() {
    let (app, _) = held_app().await;
    let run = StoredRun { is_background: true, ..StoredRun::new(key(), "r1", 0) };
    runs(&app).add(&run).await.unwrap();
    // The run waits for ten answers, and its host dies after the last one.
    for transition in [RunTransition::Start, RunTransition::Wait].into_iter().cycle().take(21) {
        runs(&app).change(&key(), "r1", None, &transition).await.unwrap();
    }
    let interrupted = app.runner.interrupted_runs(&apps(), 10).await.unwrap();
    assert_eq!(interrupted.iter().map(|run| (&*run.id, run.attempts)).collect::<Vec<_>>(), [("r1", 1)]);
}

#[tokio::test]
async fn only_a_new_message_can_run_in_the_background() {
    let (app, _) = held_app().await;
    for request in [
        RunRequest::resume(USER, SESSION, "r1"),
        RunRequest::new(USER, SESSION, tool_response("c1", "held", json!({}))),
    ] {
        let error = app.runner.run_in_background(app.app.clone(), request).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "only a run that begins with a new message can run in the background; continue this one without `background`"
        );
    }
}
