//! The services of the host, as each language reaches them.

use std::sync::Arc;

use hatchery_core::{EventWindow, ItemResolver, JsonMap, RunConfig, SessionKey, StreamingMode, TOOL_PROGRESS_KEY};
use hatchery_engine::Plugins;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use super::{Language, ask, catalog, chat, is_same, texts};

pub async fn an_app_is_run_in_a_session_of_the_user(component: Language) {
    let (chat, response) = ask(component, "delegate", json!({"app": "foreman", "text": "hi"})).await;
    let apps = ["foreman", "storyteller"];
    assert_eq!(response, json!({"apps": apps, "session": "errand", "text": "that was all"}));
    let key = SessionKey::new("foreman", "user", "errand");
    let stored = chat.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(
        (texts(&stored.events.iter().cloned().collect::<Vec<_>>()), stored.state.get("lamp")),
        (["hi", "I help", "that was all"].map(Into::into).into(), Some(&json!(1)),)
    );
    let (_, denied) = ask(component, "delegate", json!({"app": "clerk", "text": "hi"})).await;
    assert!(denied["error"].as_str().unwrap().contains("may not run the app `clerk`"), "{denied}");
}

pub async fn code_talks_to_an_app_in_a_live_run(component: Language) {
    let (chat, response) = ask(component, "delegate", json!({"app": "foreman", "text": "live: hi"})).await;
    let expected = json!({"apps": ["foreman", "storyteller"], "session": "talk", "text": "that was all", "rest": 0});
    assert!(is_same(&response, &expected), "{response}");
    let key = SessionKey::new("foreman", "user", "talk");
    let stored = chat.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(texts(&stored.events.iter().cloned().collect::<Vec<_>>()), ["hi", "I help", "that was all"]);
    let (_, denied) = ask(component, "delegate", json!({"app": "clerk", "text": "live: hi"})).await;
    assert!(denied["error"].as_str().unwrap().contains("may not run the app `clerk`"), "{denied}");
}

pub async fn other_sessions_are_created_extended_read_and_deleted(component: Language) {
    let (_, response) = ask(component, "keep_diary", json!({})).await;
    let expected = json!({
        "state": {"mood": "good"}, "author": "chief", "newest": ["Goodbye."], "ids": ["today"], "count": 2, "is_gone": true,
    });
    assert_eq!(response, expected);
}

pub async fn the_memory_is_extended_and_searched(component: Language) {
    let (_, found) = ask(component, "learn", json!({"text": "The lamp is red."})).await;
    assert_eq!(found, json!({"result": ["The lamp is red."]}));
    let (_, found) = ask(component, "learn", json!({"text": "hello"})).await;
    assert_eq!(found, json!({"result": ["hello", "hello"]}), "the message and the note");
}

pub async fn texts_are_compared_by_their_embeddings(component: Language) {
    let (_, same) = ask(component, "compare", json!({"one": "bread", "other": "bread"})).await;
    assert_eq!(same, json!({"models": ["*"], "same": true}));
    let (_, other) = ask(component, "compare", json!({"one": "bread", "other": "lamp"})).await;
    assert_eq!(other["same"], json!(false));
}

pub async fn the_run_its_plugins_and_the_arguments_of_a_tool_are_described(component: Language) {
    let catalog = catalog(component).await;
    let plugins = Plugins::new(vec![catalog.plugin("answerer", JsonMap::new()).unwrap()]).unwrap();
    let model = Scripted::sequence([Reply::call("look", json!({})), Reply::text("done")]);
    let (chat, _) = chat(component, "chief", model, plugins).await;
    let config =
        RunConfig { streaming_mode: StreamingMode::On, max_llm_calls: 5, max_run_bytes: 0, ..RunConfig::default() };
    let (events, error) = chat.say("hello", config).await;
    assert!(error.is_none(), "{error:?}");
    let response = events.iter().flat_map(|event| event.function_responses()).next().unwrap().response.clone();
    let expected = json!({
        "streams": true, "resumable": false, "depth": 0, "calls": 4, "bytes": null, "plugins": ["answerer"],
        "component": component, "nobody": true, "arguments": {"limit": 3}, "key": 32,
    });
    assert!(is_same(&Value::Object(response.clone()), &expected), "{response:?}");
}

pub async fn a_tool_reports_progress_and_reads_the_metadata_of_its_run(component: Language) {
    let model = Scripted::sequence([Reply::call("bake", json!({"loaves": 2000})), Reply::text("done")]);
    let (chat, _) = chat(component, "chief", model, Plugins::default()).await;
    let metadata = JsonMap::from_iter([("tenant".to_owned(), json!("acme"))]);
    let custom_metadata = Some(Arc::new(metadata));
    let config = RunConfig { streaming_mode: StreamingMode::On, custom_metadata, ..RunConfig::default() };
    let (events, error) = chat.say("hello", config).await;
    assert!(error.is_none(), "{error:?}");
    let response = events.iter().flat_map(|event| event.function_responses()).next().expect("a function response");
    assert_eq!(Value::Object(response.response.clone()), json!({"tenant": "acme"}));
    let partial = events.iter().filter(|event| event.partial);
    let reports: Vec<_> =
        partial.filter_map(|event| event.custom_metadata.as_deref()?.get(TOOL_PROGRESS_KEY)).collect();
    let last = json!({
        "progress": 2000.0, "total": 2000.0, "message": "loaf 2000", "name": "bake", "id": response.id,
    });
    assert_eq!(reports.last(), Some(&&last), "the last report always arrives");
    assert!(reports.len() < 500, "{} of 2000 reports were sent", reports.len());
}

pub async fn a_tool_ends_the_run(component: Language) {
    let model = Scripted::sequence([Reply::call("stop", json!({}))]);
    let (chat, _) = chat(component, "chief", model, Plugins::default()).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].actions.end_invocation, Some(true));
}
