//! The services in the context of code.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::{Host, ModelAnswer};
use hatchery_guest::{MemoryEntry, RunInfo};

/// Runs the code of a test with a context.
macro_rules! in_host {
    ($host:expr, async |$cx:ident| $code:expr) => {{
        #[agent(model = "own", tools = ["find", "other/look_up", add])]
        async fn code($cx: AgentContext) -> Result<(), Error> {
            $code;
            Ok(())
        }
        let events = $host.run(code);
        let failure = events.iter().find_map(|event| event.error_message.clone());
        assert_eq!(failure, None);
        events
    }};
}

/// The error of code that fails.
macro_rules! failure_in_host {
    ($host:expr, async |$cx:ident| $code:expr) => {{
        #[agent(tools = ["find", pay])]
        async fn code($cx: AgentContext) -> Result<(), Error> {
            $code.await
        }
        let failed = $host.run(code).pop().unwrap();
        (failed.error_code.unwrap(), failed.error_message.unwrap())
    }};
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    to: String,
}

/// Adds one to a state key.
#[tool]
async fn add(args: Add, cx: ToolContext) -> Result<u32, ToolError> {
    let sum = cx.state::<u32>(&args.to)?.unwrap_or(0) + 1;
    cx.set_state(&args.to, sum)?;
    Ok(sum)
}

#[tool(confirm)]
async fn pay() -> &'static str {
    "paid"
}

#[test]
fn state_shows_own_changes_at_once_and_null_deletes() {
    let host = Host::new().state("a", 1).state("b", 2).state("gone", true).state("gone", Value::Null);
    in_host!(host, async |cx| {
        cx.set_state("user:c", "x")?;
        cx.delete_state("a")?;
        assert_eq!((cx.state::<u32>("a")?, cx.state::<u32>("b")?), (None, Some(2)));
        assert_eq!(Value::Object(cx.all_state()?), json!({ "b": 2, "user:c": "x" }));
    });
    assert_eq!(Value::Object(host.all_state()), json!({ "b": 2, "user:c": "x" }));
}

#[test]
fn state_of_a_run_ends_with_it() {
    let host = Host::new().user_says("one");
    let events = in_host!(host, async |cx| {
        cx.set_state("temp:x", 1)?;
        cx.set_state("app:y", 2)?;
        cx.say("done").await?;
        assert_eq!(cx.state::<u32>("temp:x")?, Some(1));
    });
    assert_eq!(Value::Object(events[0].actions.state_delta.clone()), json!({ "app:y": 2 }));
    let host = host.user_says("two");
    in_host!(host, async |cx| {
        assert_eq!(cx.info()?.invocation_id, "e-2");
        assert_eq!((cx.state::<u32>("temp:x")?, cx.state::<u32>("app:y")?), (None, Some(2)));
    });
}

#[test]
fn the_user_message_is_readable_and_in_the_history() {
    let host = Host::new().event(Event::text("Welcome").with_state("seen", true)).user_says("hello");
    in_host!(host, async |cx| {
        assert_eq!(cx.user_content()?, Content::user("hello"));
        assert_eq!((cx.event_count()?, cx.state::<bool>("seen")?), (2, Some(true)));
        let authors: Vec<_> = cx.events(0, 10)?.into_iter().map(|event| event.author).collect();
        assert_eq!(authors, ["agent", "user"]);
        assert_eq!(cx.events(1, 1)?[0].text_content(), "hello");
        assert!(cx.events(2, 1)?.is_empty());
    });
}

#[test]
fn the_error_without_a_user_message_says_what_to_add() {
    let failure = failure_in_host!(Host::new(), async |cx| async { cx.user_content().map(|_| ()) });
    let message = "there is no user message; add `.user_says(\"…\")` to the test's host";
    assert_eq!(failure, ("NOT_SET_UP".into(), message.into()));
}

#[test]
fn the_info_of_a_run_names_its_app_and_its_agent() {
    in_host!(Host::new().app("shop"), async |cx| {
        let RunInfo { app, agent, function_call_id, .. } = cx.info()?;
        assert_eq!((app.as_str(), agent.as_str(), function_call_id), ("shop", "code", None));
    });
}

#[test]
fn the_metadata_of_a_run_is_readable_and_empty_by_default() {
    in_host!(Host::new().run_metadata("tenant", "acme").run_metadata("trace", json!({ "id": 7 })), async |cx| {
        assert_eq!(Value::Object(cx.run_metadata()?), json!({ "tenant": "acme", "trace": { "id": 7 } }));
    });
    in_host!(Host::new(), async |cx| {
        assert!(cx.run_metadata()?.is_empty());
    });
}

#[test]
fn artifacts_have_versions_from_zero() {
    let host = Host::new().artifact("report.txt", Part::text("draft")).artifact("user:photo", Part::text("p"));
    let events = in_host!(host, async |cx| {
        let artifacts = cx.artifacts();
        assert_eq!(artifacts.save("report.txt", Part::text("final")).await?, 1);
        assert_eq!(artifacts.load("report.txt").await?, Some(Part::text("final")));
        assert_eq!(artifacts.load_version("report.txt", 0).await?, Some(Part::text("draft")));
        assert_eq!(artifacts.load_version("report.txt", 2).await?, None);
        assert_eq!(artifacts.load("other").await?, None);
        assert_eq!(artifacts.list().await?, ["report.txt", "user:photo"]);
        assert_eq!(artifacts.versions("report.txt").await?, [0, 1]);
        artifacts.delete("user:photo").await?;
        assert_eq!(artifacts.list().await?, ["report.txt"]);
        assert_eq!(artifacts.save("user:photo", Part::text("q")).await?, 0);
    });
    assert_eq!(events[0].actions.artifact_delta, [("report.txt".into(), 1), ("user:photo".into(), 0)]);
    assert_eq!(host.artifact_versions("report.txt"), [Part::text("draft"), Part::text("final")]);
}

#[test]
fn a_version_of_an_artifact_has_metadata() {
    let host = Host::new().artifact("chart", Part::bytes("image/png", [1, 2, 3]));
    in_host!(host, async |cx| {
        let artifacts = cx.artifacts();
        assert_eq!(artifacts.save_with("chart", Part::text("grün"), json!({"author": "ada"})).await?, 1);
        let newest = artifacts.version("chart", None).await?.expect("a version");
        assert_eq!((newest.version, newest.mime_type, newest.size), (1, None, 5));
        assert_eq!(Value::Object(newest.custom_metadata), json!({"author": "ada"}));
        let first = artifacts.version("chart", Some(0)).await?.expect("a version");
        assert_eq!((first.version, first.mime_type.as_deref(), first.size), (0, Some("image/png"), 3));
        assert!(first.custom_metadata.is_empty() && first.created_micros < newest.created_micros);
        assert_eq!((artifacts.version("chart", Some(2)).await?, artifacts.version("other", None).await?), (None, None));
    });
    assert_eq!(host.artifact_metadata("chart")[1]["author"], "ada");
    let (code, message) = failure_in_host!(Host::new(), async |cx| async {
        cx.artifacts().save_with("chart", Part::text("x"), json!(["ada"])).await.map(|_| ())
    });
    assert_eq!(code, "BAD_JSON");
    assert!(message.starts_with("the custom metadata: invalid type: sequence, expected a map"), "{message}");
}

#[test]
fn an_artifact_needs_a_valid_name() {
    for (name, reason) in [
        ("user:", "an artifact needs a name"),
        ("/etc", "the name of an artifact cannot start with `/`"),
        ("a/../b", "the name of an artifact cannot have `..` between its slashes"),
        ("a\0", "the name of an artifact cannot hold a NUL character"),
    ] {
        let host = Host::new().state("name", name);
        let failure = failure_in_host!(host, async |cx| async {
            let name: String = cx.state("name")?.unwrap_or_default();
            cx.artifacts().save(&name, Part::text("x")).await.map(|_| ())
        });
        assert_eq!(failure, ("INVALID_NAME".into(), format!("invalid name `{name}`: {reason}")));
    }
}

#[test]
fn memory_returns_entries_that_share_words_with_the_query() {
    let old = MemoryEntry { content: Content::model("Tea is hot"), author: Some("cook".into()), timestamp_micros: 5 };
    let host = Host::new().remembers("Ada likes tea").remembers("Bob likes coffee").remembers_entry(old);
    in_host!(host, async |cx| {
        let found = cx.memory().search("Does Ada like TEA?").await?;
        let found: Vec<_> = found.iter().map(|entry| (entry.content.text(), entry.author.as_deref())).collect();
        assert_eq!(found, [("Ada likes tea".to_owned(), Some("user")), ("Tea is hot".to_owned(), Some("cook"))]);
        assert!(cx.memory().search("water").await?.is_empty());
    });
}

#[test]
fn a_component_reads_the_settings_of_the_test() {
    in_host!(Host::new().config("language", "en").config("retries", 3), async |cx| {
        assert_eq!(cx.config::<String>("language")?.as_deref(), Some("en"));
        assert_eq!((cx.config::<u8>("retries")?, cx.config::<u8>("other")?), (Some(3), None));
    });
}

#[test]
fn log_lines_are_kept_with_their_levels() {
    let host = Host::new();
    in_host!(host, async |cx| {
        log::info("greeted", &[("visits", &3)]);
        log::error("broken", &[]);
        cx.info()?;
    });
    let lines: Vec<_> = host.log_lines().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["info greeted visits=3", "error broken"]);
}

#[test]
fn a_model_answers_at_once_or_streams_and_then_answers_completely() {
    let host = Host::new().model(|_| ModelAnswer::chunks(["Hel", "lo"]));
    in_host!(host, async |cx| {
        assert_eq!(cx.generate(LlmRequest::new("big", "Hi")).await?.text_content(), "Hello");
        let mut answer = cx.stream(LlmRequest::new("", "Hi")).await?;
        let mut reply = Vec::new();
        while let Some(piece) = answer.next().await? {
            reply.push((piece.text_content(), piece.partial));
        }
        assert_eq!(reply, [("Hel".to_owned(), true), ("lo".to_owned(), true), ("Hello".to_owned(), false)]);
        assert_eq!(answer.next().await?, None);
    });
    let models: Vec<_> = host.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["big", "own"]);
}

#[test]
fn a_model_fails_before_or_during_its_answer() {
    let limited = || Error::new("MODEL_RATE_LIMITED", "later");
    let host = Host::new().model(move |_| ModelAnswer::chunks(["Hel"]).then_fails(limited()));
    in_host!(host, async |cx| {
        assert_eq!(cx.generate(LlmRequest::new("", "Hi")).await.unwrap_err().code, "MODEL_RATE_LIMITED");
        let mut answer = cx.stream(LlmRequest::new("", "Hi")).await?;
        assert_eq!(answer.next().await?.unwrap().text_content(), "Hel");
        assert_eq!(answer.next().await.unwrap_err().code, "MODEL_RATE_LIMITED");
    });
    in_host!(Host::new().model(move |_| limited()), async |cx| {
        assert!(cx.stream(LlmRequest::new("", "Hi")).await.is_err());
    });
}

#[test]
fn the_error_without_a_model_says_what_to_add() {
    let failure = failure_in_host!(Host::new(), async |cx| async {
        cx.generate(LlmRequest::new("gemini", "Hi")).await.map(|_| ())
    });
    let message = "model `gemini`: there is none; add `.model(|request| \"…\")` to the test's host";
    assert_eq!(failure, ("MODEL_UNKNOWN".into(), message.into()));
}

#[test]
fn a_tool_is_called_by_its_own_name() {
    let host = Host::new()
        .tool("find", |args| Ok(json!({ "found": args["q"] })))
        .tool("other/look_up", |_| Err(ToolError::fatal(Error::new("BROKEN", "no index"))));
    in_host!(host, async |cx| {
        assert_eq!(cx.call_tool::<Value>("find", &json!({ "q": 1 })).await?, json!({ "found": 1 }));
        let error = cx.call_tool::<Value>("look_up", &json!({})).await.unwrap_err();
        assert_eq!(error, ToolError::fatal(Error::new("BROKEN", "no index")));
    });
    let calls: Vec<_> = host.tool_calls().into_iter().map(|call| (call.tool, Value::Object(call.args))).collect();
    assert_eq!(calls, [("find".to_owned(), json!({ "q": 1 })), ("look_up".to_owned(), json!({}))]);
}

#[test]
fn a_tool_of_the_component_runs_with_its_callers_changes() {
    let host = Host::new().state("n", 1).own_tool(add);
    in_host!(host, async |cx| {
        cx.set_state("n", 5)?;
        assert_eq!(cx.call_tool::<u32>("add", &json!({ "to": "n" })).await?, 6);
        assert_eq!(cx.state::<u32>("n")?, Some(6));
        let error = cx.call_tool::<u32>("add", &json!({})).await.unwrap_err();
        assert_eq!(error, ToolError::recoverable("bad arguments for `add`: missing field `to`"));
    });
}

#[test]
fn a_tool_that_requires_confirmation_cannot_be_called_by_code() {
    let host = Host::new().own_tool(pay);
    let (_, message) = failure_in_host!(host, async |cx| async { Ok(cx.call_tool::<()>("pay", &json!({})).await?) });
    let reason = "it requires confirmation, which only a tool call of an LLM agent's model can wait for";
    assert_eq!(message, format!("tool `pay` cannot be called here: {reason}"));
}

#[test]
fn the_error_of_an_unknown_tool_says_what_to_add_and_where() {
    let call = |host: Host| {
        failure_in_host!(host, async |cx| async {
            let name: String = cx.state("name")?.unwrap_or_default();
            Ok(cx.call_tool::<()>(&name, &json!({})).await?)
        })
    };
    let (code, message) = call(Host::new().state("name", "find"));
    assert_eq!(code, "TOOL_FAILED");
    assert_eq!(
        message,
        "there is no tool `find`; the tools are `find`, `pay`; add `.tool(\"find\", |args| Ok(json!({})))` to the test's host"
    );
    let (_, message) = call(Host::new().state("name", "x").tool("x", Ok));
    assert_eq!(
        message,
        "there is no tool `x`; the tools are `find`, `pay`; add it to the agent's, as in `#[agent(tools = [x])]`"
    );
}

#[test]
fn calls_can_run_concurrently() {
    let host = Host::new().model(|request| request.contents[0].text()).tool("find", |_| Ok(json!("found")));
    in_host!(host, async |cx| {
        let nothing = json!({});
        let (reply, found) =
            futures::join!(cx.generate(LlmRequest::new("", "said")), cx.call_tool::<String>("find", &nothing));
        assert_eq!((reply?.text_content().as_str(), found?.as_str()), ("said", "found"));
    });
}
