//! Other apps, other sessions, memory, plugins and embeddings in the mock host.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::Host;
use hatchery_guest::{DynamicTool, EventWindow, PluginInfo, RemainingLimits, StreamingMode, ToolsetExport};

#[derive(Deserialize, JsonSchema)]
struct Question {
    text: String,
}

/// Passes a question on.
#[tool]
async fn delegate(question: Question, cx: ToolContext) -> Result<String, Error> {
    let request = RunRequest::new("clerk", question.text).session("desk").state("urgent", true)?;
    cx.runner().run(request).await?.text().await
}

#[test]
fn code_runs_a_mock_app_and_reads_its_answer() {
    let host = Host::new().runs_app("clerk", |request| {
        [Event::text("One moment."), Event::text(format!("You said {}.", request.message.text()))]
    });
    assert_eq!(host.call::<String>(delegate, json!({"text": "hi"})), Ok("You said hi.".into()));
    let requests = host.run_requests();
    assert_eq!((requests[0].session.as_deref(), &requests[0].state_delta["urgent"]), (Some("desk"), &json!(true)));
}

#[test]
fn a_run_that_fails_is_an_error_and_an_unknown_app_names_what_to_add() {
    let failed =
        || Event { error_code: Some("BROKEN".into()), error_message: Some("it broke".into()), ..Event::default() };
    let host = Host::new().runs_app("clerk", move |_| [failed()]);
    let error = host.call::<String>(delegate, json!({"text": "hi"})).unwrap_err();
    assert_eq!(error.to_string(), "it broke");
    let error = Host::new().call::<String>(delegate, json!({"text": "hi"})).unwrap_err().to_string();
    assert!(error.contains(".runs_app(\"clerk\""), "{error}");
}

/// Passes questions on in one conversation.
#[tool]
async fn interview(question: Question, cx: ToolContext) -> Result<Vec<String>, Error> {
    let run = cx.runner().run_live(LiveRunRequest::new("clerk").session("desk")).await?;
    let mut answers = Vec::new();
    for word in question.text.split(' ') {
        match word {
            "(knock)" => run.send(LiveRequest::ActivityStart).await?,
            word => run.send(LiveRequest::text(word)).await?,
        }
        while let Some(event) = run.next().await? {
            if event.turn_complete == Some(true) {
                break;
            }
            answers.push(event.text_content());
        }
    }
    run.close().await;
    assert_eq!(run.next().await?, None);
    assert_eq!(run.send(LiveRequest::text("late")).await.unwrap_err().code, "LIVE_CLOSED");
    Ok(answers)
}

#[test]
fn code_talks_to_a_mock_app_in_a_live_run() {
    let host = Host::new().runs_app("clerk", |request| [Event::text(format!("You said {}.", request.message.text()))]);
    let answers = host.call::<Vec<String>>(interview, json!({"text": "one two"}));
    assert_eq!(answers, Ok(vec!["You said one.".into(), "You said two.".into()]));
    assert!(host.run_requests().iter().all(|request| request.session.as_deref() == Some("desk")));
    let refused = host.call::<Vec<String>>(interview, json!({"text": "(knock)"})).unwrap_err().to_string();
    assert_eq!(refused, "the mock host answers complete messages only");
    let unknown = Host::new().call::<Vec<String>>(interview, json!({"text": "one"})).unwrap_err().to_string();
    assert!(unknown.contains(".runs_app(\"clerk\""), "{unknown}");
}

/// Cancels what it has started.
#[tool]
async fn hesitate(cx: ToolContext) -> Result<Vec<String>, Error> {
    let run = cx.runner().run(RunRequest::new("clerk", "go")).await?;
    run.cancel()?;
    cx.runner().list_apps()
}

#[test]
fn cancelled_runs_are_recorded() {
    let host = Host::new().runs_app("clerk", |_| [Event::text("late")]);
    assert_eq!(host.call::<Vec<String>>(hesitate, ()), Ok(vec!["clerk".into()]));
    assert_eq!(host.cancelled_runs(), ["e-run-1"]);
}

/// Writes the diary.
#[tool]
async fn write_diary(cx: ToolContext) -> Result<Value, Error> {
    let diary = cx.sessions("diary");
    diary.create(Some("today"), [("mood".to_owned(), json!("good"))].into_iter().collect()).await?;
    diary.append("today", Event::text("Dear diary.")).await?;
    let newest = diary.events("old", EventWindow::all().recent(1), 0, 10).await?;
    let listed: Vec<_> = diary.list(0, 10).await?.into_iter().map(|session| session.id).collect();
    diary.delete("old").await?;
    let own = cx.sessions("app").append("session", Event::text("x")).await.unwrap_err().code;
    Ok(json!([newest[0].text_content(), listed, diary.get("old").await?.is_none(), own]))
}

#[test]
fn other_sessions_are_created_read_and_deleted() {
    let host = Host::new().other_session("diary", "old", [Event::text("one"), Event::text("two")]);
    let result: Value = host.call(write_diary, ()).unwrap();
    assert_eq!(result, json!(["two", ["today", "old"], true, "SESSION_IN_USE"]));
    assert_eq!(host.session_events("diary", "today").unwrap()[0].text_content(), "Dear diary.");
    assert!(host.session_events("diary", "old").is_none());
}

/// Remembers the session, another one and a note.
#[tool]
async fn remember(cx: ToolContext) -> Result<usize, Error> {
    cx.memory().add_session().await?;
    cx.memory().add_session_by_id("old").await?;
    let note = Event::text("a note about bread");
    cx.memory().add_events([note.clone(), note]).await?;
    Ok(cx.memory().search("bread").await?.len())
}

#[test]
fn added_memory_is_found_once() {
    let host = Host::new().user_says("I like bread").other_session("app", "old", [Event::text("bread and butter")]);
    assert_eq!(host.call::<usize>(remember, ()), Ok(3));
    assert_eq!(host.memory().len(), 3);
}

/// Describes its surroundings.
#[tool]
async fn look(cx: ToolContext) -> Result<Value, Error> {
    let info = cx.info()?;
    let vectors = cx.embed("local:hashed-ngrams", ["a", "bc"]).await?;
    cx.end_invocation()?;
    Ok(json!([
        info.streaming_mode == StreamingMode::Sse,
        info.is_resumable,
        info.remaining.model_calls,
        cx.plugins()?.len(),
        cx.plugin("audit")?.map(|plugin| plugin.hooks),
        cx.arguments::<Value>()?,
        cx.models()?,
        vectors,
    ]))
}

#[test]
fn a_test_sets_up_the_run_its_plugins_arguments_and_embeddings() {
    let audit = PluginInfo { name: "audit".into(), hooks: vec!["on-event".into()], component: None };
    let host = Host::new()
        .streaming_mode(StreamingMode::Sse)
        .resumable(true)
        .remaining(RemainingLimits { model_calls: Some(3), ..RemainingLimits::default() })
        .has_plugin(audit)
        .arguments(json!({"limit": 1}))
        .may_use_model("local:*")
        .embedder(|text| vec![text.len() as f32]);
    let seen: Value = host.call(look, ()).unwrap();
    assert_eq!(seen, json!([true, true, 3, 1, ["on-event"], {"limit": 1}, ["local:*"], [[1.0], [2.0]]]));
    assert!(host.has_ended_invocation());
}

/// Tries to change the session.
async fn meddle(cx: Context) -> Result<String, Error> {
    let codes = [
        cx.set_state("x", 1).unwrap_err().code,
        cx.artifacts().save("x", Part::text("x")).await.unwrap_err().code,
        cx.memory().add_session().await.unwrap_err().code,
        cx.sessions("diary").delete("x").await.unwrap_err().code,
    ];
    Ok(codes.join(" "))
}

#[agent]
fn scribe() -> LlmAgent {
    LlmAgent::new("scribe").instruction_fn(meddle)
}

#[test]
fn an_instruction_only_reads() {
    assert_eq!(Host::new().instruction(scribe), Ok("READ_ONLY READ_ONLY READ_ONLY READ_ONLY".into()));
}

/// Offers its tool to administrators only.
fn admin() -> ToolsetExport {
    ToolsetExport::new("admin", async |cx: Context| {
        let ban = DynamicTool::new("ban", "Bans a user.", |args: Value, _| async move { Ok(args["user"].clone()) });
        Ok(if cx.state::<bool>("admin")?.unwrap_or(false) { vec![ban, look().into()] } else { Vec::new() })
    })
}

#[test]
fn a_toolset_computes_its_tools() {
    let host = Host::new();
    assert_eq!(host.toolset_tools(admin), Ok(Vec::new()));
    let refused = host.call_in(admin, "ban", json!({"user": "eve"})).unwrap_err();
    assert_eq!(refused.to_string(), "toolset `admin` has no tool `ban` now");
    let host = host.state("admin", true);
    assert_eq!(host.toolset_tools(admin), Ok(vec!["ban".into(), "look".into()]));
    assert_eq!(host.call_in(admin, "ban", json!({"user": "eve"})), Ok(json!("eve")));
}
