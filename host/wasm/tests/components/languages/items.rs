//! The items of a component in each language: agents as data, toolsets, plugins, models and providers.

use std::sync::Arc;

use futures::StreamExt;
use hatchery_core::{
    Blob, CodeFile, CodeInput, Content, Event, EventData, ItemResolver, JsonMap, LiveRequest, LiveResponse, LlmRequest,
    LlmResponse, ModelError, ModelErrorKind, RunConfig, StreamingMode, ToolError, Transcription,
};
use hatchery_engine::Plugins;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use super::{Language, ask, catalog, chat};
use crate::imports::CapturedLog;
use crate::support::{context, transcript};

pub async fn an_agent_relays_the_events_of_its_sub_agent(component: Language) {
    let (chat, _) = chat(component, "foreman", Scripted::new(), Plugins::default()).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let expected = [("helper", "I help"), ("foreman", "that was all")];
    assert_eq!(transcript(&events), expected.map(|(author, text)| (author.into(), text.into())));
}

pub async fn an_agent_as_data_has_tools_of_every_kind(component: Language) {
    let model = Scripted::sequence([Reply::call("clerk", json!({"request": "2 + 2?"})), "four".into(), "done".into()]);
    let (chat, model) = chat(component, "chief", model, Plugins::default()).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let requests = model.requests();
    let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    let expected =
        ["scale", "look", "clerk", "delegate", "keep_diary", "learn", "compare", "bake", "stop", "greet_user"];
    assert_eq!(names, expected);
    let system = requests[0].system_instructions.join("\n");
    for part in ["READ_ONLY", "Yes.", "/*PLANNING*/"] {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert_eq!(requests[1].system_instructions[0], "Speak to user.", "the agent that is called as a tool");
    let response = events.iter().flat_map(|event| event.function_responses()).next().unwrap();
    assert_eq!(Value::Object(response.response.clone()), json!({"result": "four"}));
    assert_eq!(chat.session().await.state.get("meddled"), None);
}

pub async fn a_tool_that_an_agent_wants_confirmed_waits_for_a_person(component: Language) {
    let model = Scripted::sequence([Reply::call("scale", json!({"number": 3})), "done".into()]);
    let (chat, _) = chat(component, "chief", model, Plugins::default()).await;
    let (events, _) = chat.say("hello", RunConfig::default()).await;
    assert!(events.iter().any(|event| !event.actions.requested_tool_confirmations.is_empty()), "{events:?}");
}

pub async fn the_tools_of_a_toolset_are_computed_for_each_run(component: Language) {
    let (chat, response) = ask(component, "greet_user", json!({"loudly": true})).await;
    assert_eq!(response, json!({"greeted": "user", "args": {"loudly": true}}));
    assert_eq!(chat.session().await.state.get("greeted"), Some(&json!("user")));
}

pub async fn code_of_the_model_is_run_between_two_model_calls(component: Language) {
    let (chat, model) = chat(component, "chief", Scripted::sequence(["<<abc>>", "done"]), Plugins::default()).await;
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let requests = model.requests();
    let result = requests[1].contents.iter().map(|content| content.text()).collect::<String>();
    assert!(result.contains("[[") && result.contains("cba"), "{result}");
}

pub async fn a_plugin_changes_messages_requests_and_events(component: Language) {
    let catalog = catalog(component).await;
    let args = JsonMap::from_iter([("text".to_owned(), json!("Be kind."))]);
    let plugins = Plugins::new(vec![catalog.plugin("answerer", args).unwrap()]).unwrap();
    let (chat, model) = chat(component, "clerk", Scripted::sequence(["good day"]), plugins).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    catalog.plugin("answerer", JsonMap::new()).unwrap().close().await;
    drop(guard);
    assert!(error.is_none(), "{error:?}");
    let request = &model.requests()[0];
    assert_eq!(request.contents.iter().last().unwrap().text(), "HELLO");
    assert_eq!(request.system_instructions.last().unwrap(), "Be kind.");
    assert_eq!(events[0].custom_metadata.as_deref(), Some(&json!({"seen": true})));
    assert_eq!(log.lines("hatchery::component"), ["a run has ended", "the plugin is closed"]);
}

pub async fn a_plugin_is_told_of_a_failed_run(component: Language) {
    let catalog = catalog(component).await;
    let plugins = Plugins::new(vec![catalog.plugin("answerer", JsonMap::new()).unwrap()]).unwrap();
    let model = Scripted::new().default_reply(Reply::status(429, "slow down"));
    let (chat, _) = chat(component, "clerk", model, plugins).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    drop(guard);
    assert_eq!(error.expect("a failure").code(), "MODEL_RATE_LIMITED");
    assert_eq!(log.lines("hatchery::component"), ["a run has failed: MODEL_RATE_LIMITED"]);
}

pub async fn a_model_streams_or_answers_at_once_and_fails_with_its_own_error(component: Language) {
    let catalog = catalog(component).await;
    let name = format!("component:{component}/parrot");
    let ask = async |text: &str, mode| -> Result<Vec<LlmResponse>, ModelError> {
        let contents = [Arc::new(Content::user(text))].into_iter().collect();
        let request = LlmRequest { contents, ..LlmRequest::default() };
        let stream = catalog.model(&name)?.generate(request, mode).await?;
        stream.collect::<Vec<_>>().await.into_iter().collect()
    };
    let answer = |responses: &[LlmResponse]| -> Vec<String> {
        responses.iter().filter_map(|response| response.content.as_ref()).map(Content::text).collect()
    };
    let pieces = ask("one two", StreamingMode::On).await.unwrap();
    assert_eq!(answer(&pieces), ["one ", "two"]);
    assert!(pieces.iter().all(|piece| piece.partial));
    let whole = ask("one two", StreamingMode::Off).await.unwrap();
    assert_eq!(answer(&whole), ["one two"]);
    for (text, mode, message) in [
        ("nothing", StreamingMode::Off, "there is nothing to say"),
        ("nothing", StreamingMode::On, "there is nothing to say"),
        ("then stop", StreamingMode::On, "it stopped"),
    ] {
        // A failure in the middle of an answer is its last response.
        let last = |pieces: Vec<LlmResponse>| pieces.last().and_then(|piece| piece.error_message.clone());
        let error = ask(text, mode).await.map_or_else(|error| Some(error.to_string()), last).unwrap_or_default();
        assert!(error.contains(message), "{error}");
    }
}

pub async fn a_live_model_repeats_what_it_hears_until_it_is_closed_or_fails(component: Language) {
    let catalog = catalog(component).await;
    let model = catalog.model(&format!("component:{component}/starling")).unwrap();
    assert!(model.capabilities().live);
    let connection = model.connect(LlmRequest::default()).await.unwrap();
    let message = |text: &str| LiveRequest::content(Content::user(text));
    let sound = Blob { mime_type: "audio/pcm".into(), data: vec![0; 3].into(), display_name: None };
    let heard = Transcription { text: "3 bytes".into(), finished: true };
    for (request, response) in [
        (message("one"), LiveResponse::Content(Content::model("one"))),
        (LiveRequest::Blob(sound), LiveResponse::OutputTranscription(heard)),
        (message("two"), LiveResponse::Content(Content::model("two"))),
    ] {
        connection.send(request).await.unwrap();
        assert_eq!(connection.receive().await.unwrap().unwrap(), response);
        assert_eq!(connection.receive().await.unwrap().unwrap(), LiveResponse::TurnComplete);
    }
    connection.close().await;
    assert!(connection.receive().await.is_none());
    let connection = model.connect(LlmRequest::default()).await.unwrap();
    connection.send(message("stop")).await.unwrap();
    let error = connection.receive().await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::RateLimited, "it stopped"));
}

pub async fn code_runs_events_are_summarized_and_examples_selected(component: Language) {
    let catalog = catalog(component).await;
    let cx = context(&catalog);
    let reverse = catalog.code_executor("reverse").unwrap();
    let data = CodeFile { name: "data.csv".into(), mime_type: "text/csv".into(), content: "1,2".into() };
    let input = CodeInput { code: "abc".into(), input_files: vec![data.clone()], ..CodeInput::default() };
    let output = reverse.execute(input, &cx).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.output_files), ("cba", vec![data]));
    match reverse.execute(CodeInput::default(), &cx).await {
        Err(ToolError::Recoverable(message)) => assert_eq!(message, "there is no code"),
        other => panic!("{other:?}"),
    }
    let events: Vec<_> = (0..2).map(|_| Event::new(EventData::default())).collect();
    let count = catalog.summarizer("count").unwrap();
    assert_eq!(count.summarize(&events, &cx).await.unwrap(), Some(Content::model("2 events")));
    assert_eq!(count.summarize(&[], &cx).await.unwrap(), None);
    let examples = catalog.examples("echo").unwrap().examples("Really?", &cx).await.unwrap();
    assert_eq!((examples[0].input.text(), examples[0].output[0].text()), ("Really?".into(), "Yes.".into()));
}
