use std::path::Path;

use hatchery_engine::build::custom;
use serde_json::json;

use super::*;
use crate::Host;

const AGENT: &str = "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n";

/// Opens a folder with the app `hello`, whose model answers `Hi`, and an app in Rust.
async fn host(folder: &Path) -> (Host, AppTests) {
    fs::create_dir_all(folder.join("hello")).unwrap();
    fs::write(folder.join("hello/root_agent.yaml"), AGENT).unwrap();
    fs::write(folder.join("hello/answers.yaml"), "turns:\n  - reply: Hi\n").unwrap();
    let native = custom("native", |cx| async move {
        cx.say("Hello").await?;
        Ok(())
    });
    let host = Host::builder().folder(folder).agent(native.build().unwrap()).open().await.unwrap();
    let tests = host.apps().app_files().unwrap().tests();
    (host, tests)
}

/// Returns a session in which the app `hello` gives these answers to one message.
fn session(answers: &[&str]) -> JsonMap {
    let answers = answers.iter().map(
        |answer| json!({"author": "hello", "content": {"role": "model", "parts": [{"text": answer}]}, "timestamp": 2.5}),
    );
    let message = json!({"author": "user", "content": {"role": "user", "parts": [{"text": "Good morning"}]}});
    let events: Vec<_> = [message].into_iter().chain(answers).collect();
    json!({"events": events, "appName": "hello", "lastUpdateTime": 2.5}).as_object().unwrap().clone()
}

#[tokio::test]
async fn a_test_runs_without_the_model_of_its_app_and_is_rebuilt_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (host, tests) = host(folder.path()).await;
    let app = host.app("hello").unwrap();
    assert_eq!(tests.write("hello", "greeting", session(&["Good day"])).await.unwrap(), "greeting.json");
    let turns = tests.run(host.runner(), &app, "greeting").await.unwrap();
    let [TestedTurn { message, events, problem: None }] = turns.as_slice() else { panic!("{turns:?}") };
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((message.as_str(), event.content.as_ref().unwrap().text().as_str()), ("Good morning", "Good day"));

    assert_eq!(tests.rebuild(host.runner(), &app, "greeting.json").await.unwrap(), "greeting.json");
    let rebuilt: Value = serde_json::from_slice(&tests.read("hello", "greeting").await.unwrap()).unwrap();
    assert_eq!(rebuilt["events"][0]["content"]["parts"][0]["text"], "Good morning");
    assert_eq!(rebuilt["events"][1]["content"]["parts"][0]["text"], "Hi");
    assert_eq!((rebuilt["events"].as_array().unwrap().len(), &rebuilt["appName"]), (2, &json!("hello")));
    assert_eq!(rebuilt.get("lastUpdateTime"), None);
    let turns = tests.run(host.runner(), &app, "greeting").await.unwrap();
    assert!(turns.iter().all(|turn| turn.problem.is_none()), "{turns:?}");
    assert_eq!(host.services().sessions.list("hello", "test").await.unwrap().len(), 0, "nothing is stored");
}

#[tokio::test]
async fn a_test_with_other_events_reports_the_first_turn_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let (host, tests) = host(folder.path()).await;
    tests.write("hello", "twice", session(&["One", "Two"])).await.unwrap();
    let turns = tests.run(host.runner(), &host.app("hello").unwrap(), "twice").await.unwrap();
    let problem = turns[0].problem.as_deref().unwrap();
    assert!(problem.starts_with("the events differ from the recorded ones\n--- recorded\n+++ now\n"), "{problem}");
    assert!(problem.lines().any(|line| line == "-        \"text\": \"Two\""), "{problem}");
    assert_eq!(turns.len(), 1);
}

#[tokio::test]
async fn a_test_whose_run_fails_is_not_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let (host, tests) = host(folder.path()).await;
    tests.write("hello", "greeting", session(&["Good day"])).await.unwrap();
    let before = tests.read("hello", "greeting").await.unwrap();
    fs::remove_file(folder.path().join("hello/answers.yaml")).unwrap();
    let error = tests.rebuild(host.runner(), &host.app("hello").unwrap(), "greeting").await.unwrap_err();
    assert!(error.to_string().starts_with("greeting.json is unchanged, because the run failed: "), "{error}");
    assert_eq!(tests.read("hello", "greeting").await.unwrap(), before);
}

#[tokio::test]
async fn tests_are_listed_read_and_deleted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, tests) = host(folder.path()).await;
    assert_eq!(tests.names("hello").await.unwrap(), Vec::<String>::new());
    for name in ["b.json", "a"] {
        tests.write("hello", name, session(&["Hi"])).await.unwrap();
    }
    let inside = folder.path().join("hello/tests");
    fs::write(inside.join("notes.txt"), "").unwrap();
    fs::create_dir(inside.join("c.json")).unwrap();
    assert_eq!(tests.names("hello").await.unwrap(), ["a.json", "b.json"]);
    let text = fs::read_to_string(inside.join("a.json")).unwrap();
    assert!(text.starts_with("{\n  \"appName\": \"hello\",\n  \"events\": [") && text.ends_with("}\n"), "{text}");
    assert_eq!(tests.delete("hello", "a").await.unwrap(), "a.json");
    let error = tests.read("hello", "a").await.unwrap_err();
    assert_eq!(error.to_string(), "test not found: a.json; the tests of `hello`: b.json");
    let error = tests.write("hello", "c", session(&["Hi"])).await.unwrap_err();
    assert_eq!(error.to_string(), "`c.json` is a folder or a link; choose another name, or remove it");
}

#[tokio::test]
async fn only_sessions_with_a_message_are_written_under_names_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, tests) = host(folder.path()).await;
    for name in ["", "../x", "a/b", ".hidden", "a b", "a\\b", "ä", &"n".repeat(96)] {
        let error = tests.write("hello", name, session(&["Hi"])).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("`{name}` cannot be the name of a test; ")), "{error}");
    }
    assert_eq!(tests.write("hello", &"n".repeat(95), session(&["Hi"])).await.unwrap().len(), 100);
    for (session, reason) in [
        (json!({}), "missing field `events`"),
        (json!({"events": []}), "none of its events is a message of the user"),
        (json!({"events": [{"author": "hello"}]}), "none of its events is a message of the user"),
    ] {
        let error = tests.write("hello", "x", session.as_object().unwrap().clone()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("x.json is not a test: {reason}")), "{error}");
    }
    let large = session(&["x".repeat(16 << 20).as_str()]);
    let error = tests.write("hello", "x", large).await.unwrap_err();
    assert_eq!(error.to_string(), "x.json has more than 16 MiB; make a test of a shorter session");
    assert_eq!(tests.names("hello").await.unwrap().len(), 1);
}

#[test]
fn sessions_are_parsed_on_threads_for_blocking_work() {
    const THREADS: usize = 4;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(THREADS).build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (_host, tests) = host(folder.path()).await;
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        for _ in 0..THREADS {
            let gate = gate.clone();
            tokio::task::spawn_blocking(move || gate.lock().unwrap().recv());
        }
        let mut write = std::pin::pin!(tests.write("hello", "x", JsonMap::new()));
        tokio::select! {
            biased;
            written = &mut write => panic!("it did not wait for a thread: {written:?}"),
            () = std::future::ready(()) => {}
        }
        drop(release);
        let error = write.await.unwrap_err().to_string();
        assert!(error.starts_with("x.json is not a test: missing field `events`"), "{error}");
    });
}

#[tokio::test]
async fn an_app_has_a_limited_number_of_tests() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, tests) = host(folder.path()).await;
    let inside = folder.path().join("hello/tests");
    fs::create_dir(&inside).unwrap();
    for number in 0..MAX_TESTS {
        fs::write(inside.join(format!("{number}.json")), "{}").unwrap();
    }
    tests.write("hello", "7", session(&["Hi"])).await.unwrap();
    let error = tests.write("hello", "more", session(&["Hi"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the app `hello` has 500 tests, which is the maximum; delete one first");
}

#[tokio::test]
async fn an_app_without_a_folder_has_no_tests() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, tests) = host(folder.path()).await;
    assert_eq!(tests.names("native").await.unwrap(), Vec::<String>::new());
    let error = tests.write("native", "a", session(&["Hi"])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the app `native` has no folder of its own for tests; create the folder `native` in the served folder"
    );
    fs::create_dir(folder.path().join("native")).unwrap();
    tests.write("native", "a", session(&["Hi"])).await.unwrap();
    assert_eq!(tests.names("native").await.unwrap(), ["a.json"]);
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_not_followed() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let (_host, tests) = host(folder.path()).await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a.json"), "{}").unwrap();
    symlink(outside.path(), folder.path().join("hello/tests")).unwrap();
    for error in [
        tests.names("hello").await.unwrap_err(),
        tests.read("hello", "a").await.unwrap_err(),
        tests.write("hello", "a", session(&["Hi"])).await.unwrap_err(),
        tests.delete("hello", "a").await.unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            "`tests` in the folder of the app `hello` is a file or a link; replace it by a folder"
        );
    }
    fs::remove_file(folder.path().join("hello/tests")).unwrap();
    fs::create_dir(folder.path().join("hello/tests")).unwrap();
    symlink(outside.path().join("a.json"), folder.path().join("hello/tests/a.json")).unwrap();
    assert_eq!(tests.names("hello").await.unwrap(), Vec::<String>::new());
    assert!(matches!(tests.read("hello", "a").await.unwrap_err(), AppTestsError::NotFound { .. }));
    let refused = tests.write("hello", "a", session(&["Hi"])).await.unwrap_err();
    assert!(matches!(refused, AppTestsError::NotAFile(_)), "{refused}");
    assert_eq!(fs::read_to_string(outside.path().join("a.json")).unwrap(), "{}");
}

#[tokio::test]
async fn a_change_of_a_test_does_not_reload_its_app() {
    let folder = tempfile::tempdir().unwrap();
    let (host, tests) = host(folder.path()).await;
    let before = host.apps().report();
    tests.write("hello", "a", session(&["Hi"])).await.unwrap();
    fs::write(folder.path().join("hello/tests/broken.json"), "{").unwrap();
    let catalog = host.catalog_handle().unwrap();
    catalog.reload_now().await;
    assert_eq!(host.apps().report(), before);
    fs::write(folder.path().join("hello/root_agent.yaml"), AGENT.replace("Greet", "Greet warmly")).unwrap();
    catalog.reload_now().await;
    assert!(host.apps().report().generation > before.generation);
}
