//! Eval sets: cases from sessions, files beside agents, and limits.

use super::*;

#[tokio::test]
async fn a_session_becomes_a_case_that_its_app_passes() {
    let models = Models(BTreeMap::new());
    let runner = Runner::new(hatchery_stores::in_memory(Arc::new(models)));
    let (app, evaluations) = (dice(), Evaluations::new(runner.clone(), EvalStore::in_memory()));
    let state = json!({"lang": "en", "user:name": "Ada", "app:shared": 1}).as_object().unwrap().clone();
    runner.services().sessions.create("dice", "ada", Some("s"), state).await.unwrap();
    for message in ["Roll!", "Bye"] {
        let config = RunConfig::default();
        let request = RunRequest { config, ..RunRequest::new("ada", "s", Content::user(message)) };
        runner.run(app.clone(), request).await.unwrap().collect().await.unwrap();
    }
    evaluations.create_set(&app, EvalSet::new("set")).await.unwrap();
    evaluations.add_session(&app, "set", "c", "ada", "s").await.unwrap();
    let stored = evaluations.set(&app, "set").await.unwrap();
    let input = stored.eval_cases[0].session_input.clone().unwrap();
    assert_eq!((&*input.app_name, &*input.user_id), ("dice", "ada"));
    assert_eq!(Value::from(input.state), json!({"lang": "en", "user:name": "Ada"}));
    let result = evaluations.run(&app, request()).await.unwrap();
    assert_eq!(result.eval_case_results[0].final_eval_status, EvalStatus::Passed);
    let run = &result.eval_case_results[0];
    let key = SessionKey::new("dice", run.user_id.as_str(), run.session_id.as_str());
    let session = runner.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(!session.events.is_empty(), "clients show the session of the run");

    let again = evaluations.add_session(&app, "set", "c", "ada", "s").await.unwrap_err();
    assert_eq!(again.to_string(), "eval set `set` already has a case `c`; choose another id, or delete the case first");
    let missing = evaluations.add_session(&app, "set", "d", "ada", "none").await.unwrap_err();
    assert_eq!(missing.code(), "SESSION_NOT_FOUND");
    runner.services().sessions.create("dice", "ada", Some("empty"), JsonMap::new()).await.unwrap();
    let empty = evaluations.add_session(&app, "set", "d", "ada", "empty").await.unwrap_err();
    assert_eq!(empty.to_string(), "session `empty` has no message of its user; send one first");
    let unnamed = evaluations.add_session(&app, "set", " ", "ada", "s").await.unwrap_err();
    assert_eq!(unnamed.to_string(), "the id of an eval case has 1 to 256 bytes and no control characters");
}

#[tokio::test]
async fn cases_are_replaced_and_deleted() {
    let (evaluations, app) = (evaluations(), dice());
    evaluations.create_set(&app, two_cases()).await.unwrap();
    let case = EvalCase { eval_id: "bad".into(), ..EvalCase::default() };
    evaluations.replace_case(&app, "set", case).await.unwrap();
    assert_eq!(evaluations.set(&app, "set").await.unwrap().case("bad").unwrap().conversation.len(), 0);
    evaluations.delete_case(&app, "set", "bad").await.unwrap();
    let again = evaluations.delete_case(&app, "set", "bad").await.unwrap_err();
    assert_eq!(again.code(), "EVAL_CASE_NOT_FOUND");
    evaluations.delete_set(&app, "set").await.unwrap();
    let missing = evaluations.set(&app, "set").await.unwrap_err();
    assert_eq!(missing.to_string(), "eval set not found: set; the sets of `dice`: none");
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn sets_beside_an_agent_are_read_with_their_criteria_and_not_changed() {
    let root = tempfile::tempdir().unwrap();
    let served = root.path().join("served");
    write(&served.join("dice/set.evalset.json"), &serde_json::to_string(&two_cases()).unwrap());
    write(&served.join("dice/test_config.json"), "{\"criteria\": {\"tool_trajectory_avg_score\": 0.5}}");
    let store = || EvalStore::in_folder(root.path().join("data")).with_served_folder(&served);
    let (evaluations, app) = (evaluations_of(store(), Scripted::new()), dice());
    assert_eq!(evaluations.set_ids(&app).await.unwrap(), ["set"]);
    let result = evaluations.run(&app, request()).await.unwrap();
    let passed = result.eval_case_results.iter().all(|run| run.final_eval_status == EvalStatus::Passed);
    assert!(passed && result.eval_case_results[1].overall_eval_metric_results.len() == 1, "{result:?}");

    let expected =
        "eval set `set` is a file of the app, which the host does not change; edit the file, or create another set";
    for error in [
        evaluations.delete_set(&app, "set").await.unwrap_err(),
        evaluations.delete_case(&app, "set", "bad").await.unwrap_err(),
        evaluations.add_case(&app, "set", EvalCase { eval_id: "new".into(), ..EvalCase::default() }).await.unwrap_err(),
    ] {
        assert_eq!((error.code(), error.to_string()), ("EVAL_SET_READ_ONLY", expected.into()));
    }
    assert!(matches!(evaluations.create_set(&app, two_cases()).await.unwrap_err(), EvalError::SetExists(_)));

    // Stored sets are there for the next host.
    evaluations.create_set(&app, EvalSet::new("own")).await.unwrap();
    let next = evaluations_of(store(), Scripted::new());
    assert_eq!(next.set_ids(&app).await.unwrap(), ["own", "set"]);
    assert_eq!(next.result_ids(&app).await.unwrap(), [result.eval_set_result_id]);
    assert_eq!(std::fs::read_dir(&served).unwrap().count(), 1, "nothing is written to the served folder");

    write(&served.join("dice/test_config.json"), "{\"criteria\": {\"speed\": 1}}");
    let error = evaluations.run(&app, request()).await.unwrap_err().to_string();
    assert!(error.starts_with("dice/test_config.json: there is no metric `speed`"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_of_a_served_folder_leads_to_no_other_file() {
    let root = tempfile::tempdir().unwrap();
    let served = root.path().join("served");
    write(&root.path().join("secret/set.evalset.json"), &serde_json::to_string(&two_cases()).unwrap());
    std::fs::create_dir_all(served.join("dice")).unwrap();
    let link = std::os::unix::fs::symlink::<std::path::PathBuf, std::path::PathBuf>;
    link(root.path().join("secret/set.evalset.json"), served.join("dice/set.evalset.json")).unwrap();
    link(root.path().join("secret"), served.join("other")).unwrap();
    let store = EvalStore::in_memory().with_served_folder(&served);
    let code = |app: &str| store.set(app, "set").unwrap_err().code();
    assert_eq!([code("dice"), code("other"), code(".."), code("../secret")], ["EVAL_SET_NOT_FOUND"; 4]);
    assert_eq!(store.set_ids("other").unwrap(), Vec::<String>::new());
}

#[test]
fn an_id_cannot_be_a_path() {
    let store = EvalStore::in_memory();
    for id in ["", "../x", "a/b", ".hidden", "a b", "é", &"x".repeat(101)] {
        assert_eq!(store.set("app", id).unwrap_err().code(), "INVALID_NAME", "{id}");
        let error = store.create_set("app", &EvalSet::new(id)).unwrap_err().to_string();
        assert!(
            error.ends_with("it has 1 to 100 letters, digits, `_`, `-` and `.`, and does not begin with `.`"),
            "{error}"
        );
    }
    store.create_set("app", &EvalSet::new("x".repeat(100))).unwrap();
}

#[tokio::test]
async fn the_sets_and_results_of_an_app_with_a_long_name_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let set_id = "x".repeat(100);
    for name in ["a".repeat(256), "é".repeat(128), "é".repeat(127)] {
        let (evaluations, app) =
            (evaluations_of(EvalStore::in_folder(folder.path()), Scripted::new()), dice_named(&name));
        assert_eq!(evaluations.set_ids(&app).await.unwrap(), Vec::<String>::new());
        let set = EvalSet { eval_set_id: set_id.clone(), ..two_cases() };
        evaluations.create_set(&app, set).await.unwrap();
        let request = EvalRequest { set_id: set_id.clone(), ..EvalRequest::default() };
        let result = evaluations.run(&app, request).await.unwrap();
        assert!(result.eval_set_result_name.starts_with(&format!("{name}_{set_id}_")));
        let stored = evaluations.result(&app, &result.eval_set_result_id).await.unwrap();
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        assert_eq!(stored["evalSetId"], set_id);
    }
}

#[test]
fn the_number_and_the_size_of_sets_are_limited() {
    let store = EvalStore::in_memory();
    let text = "x".repeat(17 << 20);
    let large = set(json!([{"evalId": "c", "conversation": [turn("Hi", json!([]), Some(&text))]}]));
    let error = store.create_set("app", &large).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string()),
        (
            "EVAL_TOO_LARGE",
            "eval set `set` would have more than 16 MiB; leave out large files, or make several sets".into()
        )
    );
    for number in 0..500 {
        store.create_set("app", &EvalSet::new(number.to_string())).unwrap();
    }
    let error = store.create_set("app", &EvalSet::new("more")).unwrap_err();
    assert_eq!(error.to_string(), "an app has at most 500 eval sets; delete one first");
    store.create_set("other", &EvalSet::new("more")).unwrap();
}
