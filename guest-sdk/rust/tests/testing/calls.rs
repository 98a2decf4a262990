//! Running tools, models and other items that take one input.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::Host;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Roll {
    sides: u32,
}

/// Rolls a die that always shows its highest number.
#[tool]
async fn roll_die(roll: Roll, cx: ToolContext) -> Result<u32, ToolError> {
    cx.set_state("last_roll", roll.sides)?;
    match roll.sides {
        0 => Err(ToolError::recoverable("a die has sides")),
        666 => Err(ToolError::fatal("the die is haunted")),
        sides => Ok(sides),
    }
}

#[tool]
async fn whoami(cx: &ToolContext) -> Result<Value, ToolError> {
    let info = cx.info()?;
    Ok(json!([info.app, info.user, info.session, info.agent, info.branch, info.invocation_id, info.function_call_id]))
}

#[test]
fn a_tool_takes_json_and_returns_its_result() {
    let host = Host::new();
    let rolled: u32 = host.call(roll_die, json!({ "sides": 20 })).unwrap();
    assert_eq!((rolled, host.state_value("last_roll")), (20, Some(20)));
}

/// Returns its own key, and the key of a call which it makes.
#[tool]
async fn keys(nested: Nested, cx: &ToolContext) -> Result<Value, ToolError> {
    let inner = if nested.deep { cx.call_tool("keys", &json!({ "deep": false })).await? } else { Value::Null };
    Ok(json!([cx.idempotency_key()?, inner]))
}

#[derive(Deserialize, JsonSchema)]
struct Nested {
    deep: bool,
}

#[test]
fn every_tool_call_has_an_idempotency_key_of_its_own() {
    let host = Host::new().own_tool(keys);
    assert_eq!(host.call::<Value>(keys, json!({ "deep": true })).unwrap(), json!(["key-1", ["key-2", null]]));
    assert_eq!(host.call::<Value>(keys, json!({ "deep": false })).unwrap(), json!(["key-3", null]));
}

#[test]
fn a_tool_takes_its_own_arguments() {
    assert_eq!(Host::new().call::<u32>(roll_die, Roll { sides: 6 }), Ok(6));
}

#[test]
fn invalid_arguments_have_the_error_that_a_model_gets() {
    let error = Host::new().call::<u32>(roll_die, json!({ "sides": "six" })).unwrap_err();
    let message = "bad arguments for `roll_die`: `sides`: invalid type: string \"six\", expected u32";
    assert_eq!(error, ToolError::recoverable(message));
}

#[test]
fn state_of_a_tool_is_stored_unless_it_ends_the_run() {
    let host = Host::new();
    assert_eq!(host.call::<u32>(roll_die, Roll { sides: 0 }), Err(ToolError::recoverable("a die has sides")));
    assert_eq!(host.state_value("last_roll"), Some(0));
    assert!(matches!(host.call::<u32>(roll_die, Roll { sides: 666 }), Err(ToolError::Fatal(_))));
    assert_eq!(host.state_value("last_roll"), Some(0));
}

#[test]
fn a_tool_reads_the_ids_of_its_run() {
    let host = Host::new();
    let first: Value = host.call(whoami, ()).unwrap();
    assert_eq!(first, json!(["app", "user", "session", "agent", null, "e-1", "call-1"]));
    let host = host.app("dice").user("ada").session("s").agent("roller").branch("a.b");
    let second: Value = host.call(whoami, ()).unwrap();
    assert_eq!(second, json!(["dice", "ada", "s", "roller", "a.b", "e-1", "call-2"]));
}

#[test]
#[should_panic(
    expected = "`whoami` gave `[\"app\",\"user\",\"session\",\"agent\",null,\"e-1\",\"call-1\"]`, which is not of the requested type"
)]
fn a_result_of_another_shape_fails_the_test() {
    let _ = Host::new().call::<u32>(whoami, ());
}

#[test]
#[should_panic(expected = "the state key `name` is `\"Ada\"`, which is not of the requested type")]
fn a_state_key_of_another_shape_fails_the_test() {
    let _ = Host::new().state("name", "Ada").state_value::<u32>("name");
}

#[test]
fn the_error_without_a_host_says_how_to_create_one() {
    let error = futures::executor::block_on(whoami().call(json!({}))).unwrap_err();
    let ToolError::Recoverable(message) = error else { panic!("{error}") };
    assert!(message.starts_with("there is no host here:"), "{message}");
    assert!(message.contains("`hatchery_guest::testing::Host`"), "{message}");
}

#[test]
fn hosts_of_other_threads_are_separate() {
    let threads: Vec<_> = (1..=8)
        .map(|sides| {
            std::thread::spawn(move || {
                let host = Host::new();
                host.call::<u32>(roll_die, Roll { sides }).unwrap();
                host.state_value::<u32>("last_roll")
            })
        })
        .collect();
    let rolled: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    assert_eq!(rolled, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Calls another tool and stores its result in the state.
#[tool]
async fn ask(cx: ToolContext) -> Result<u32, ToolError> {
    let rolled: u32 = cx.call_tool("roll_die", &json!({ "sides": 4 })).await?;
    cx.set_state("asked", rolled)?;
    Ok(rolled)
}

#[test]
fn nested_hosts_are_separate() {
    let host = Host::new().tool("roll_die", |args| {
        let inner = Host::new();
        inner.call::<Value>(roll_die, args)
    });
    assert_eq!(host.call::<u32>(ask, ()), Ok(4));
    assert_eq!(Value::Object(host.all_state()), json!({ "asked": 4 }));
}

#[model]
async fn parrot(request: LlmRequest, answer: Answer, cx: Context) -> Result<(), Error> {
    for word in request.contents[0].text().split_inclusive(' ') {
        answer.say(word).await?;
    }
    log::debug("said it", &[]);
    answer.say(cx.config::<String>("farewell")?.unwrap_or_default()).await?;
    cx.state::<u32>("x")?;
    Ok(())
}

#[test]
fn a_model_returns_its_partial_responses_and_has_no_session() {
    let host = Host::new().config("farewell", " bye");
    let pieces = host.stream(parrot, LlmRequest::new("", "hello you"));
    let texts: Vec<_> = pieces.iter().flatten().map(|piece| piece.text_content()).collect();
    assert_eq!(texts, ["hello ", "you", " bye"]);
    let error = Error::new("NO_SESSION", "there is no session in a call of a component's model");
    assert_eq!(pieces.last(), Some(&Err(error.clone())));
    assert_eq!(host.answer(parrot, LlmRequest::new("", "hello")), Err(error));
    assert_eq!(host.log_lines().len(), 2);
}

#[model]
async fn echo(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    answer.say("you said ").await?;
    answer.say(request.contents[0].text()).await
}

#[test]
fn the_complete_answer_of_a_model_joins_its_partial_responses() {
    let whole = Host::new().answer(echo, LlmRequest::new("", "hello")).unwrap();
    assert_eq!((whole.text_content().as_str(), whole.partial), ("you said hello", false));
}

#[code_executor]
async fn keeper(input: CodeInput, cx: Context) -> Result<CodeOutput, ToolError> {
    cx.artifacts().save("code.txt", Part::text(input.code.clone())).await?;
    Ok(CodeOutput { stdout: input.code, ..CodeOutput::default() })
}

#[test]
fn a_code_executor_runs_code() {
    let host = Host::new();
    assert_eq!(host.execute(keeper, CodeInput::new("1 + 1")).unwrap().stdout, "1 + 1");
    assert_eq!(host.artifact_versions("code.txt"), [Part::text("1 + 1")]);
}

#[summarizer]
async fn minutes(events: Vec<Event>, cx: Context) -> Result<Option<Content>, Error> {
    let texts: Vec<String> = events.iter().map(Event::text_content).collect();
    Ok(cx.generate(LlmRequest::new("small", texts.join(" "))).await?.content)
}

#[test]
fn a_summarizer_calls_a_model() {
    let host = Host::new().model(|request| format!("In short: {}", request.contents[0].text()));
    let summary = host.summarize(minutes, [Event::text("a"), Event::text("b")]).unwrap().unwrap();
    assert_eq!((summary.text().as_str(), host.requests()[0].model.as_str()), ("In short: a b", "small"));
}

#[examples]
async fn sums(query: String, cx: Context) -> Result<Vec<Example>, Error> {
    let answer: String = cx.state("answer")?.ok_or("no answer")?;
    Ok(vec![Example::new(query, answer)])
}

#[test]
fn a_provider_chooses_examples() {
    assert_eq!(Host::new().state("answer", "4").examples(sums, "2 + 2"), Ok(vec![Example::new("2 + 2", "4")]));
    assert_eq!(Host::new().examples(sums, "2 + 2"), Err(Error::from("no answer")));
}

#[agent]
fn clerk() -> LlmAgent {
    LlmAgent::new("clerk")
        .instruction_fn(async |cx: Context| {
            let info = cx.info()?;
            Ok(format!("{} serves {}.", info.agent, cx.state::<String>("user:name")?.unwrap_or_default()))
        })
        .global_instruction("Be {tone}.")
}

#[test]
fn an_instruction_is_computed_or_constant() {
    let host = Host::new().state("user:name", "Ada");
    assert_eq!(host.instruction(clerk).as_deref(), Ok("clerk serves Ada."));
    assert_eq!(host.global_instruction(clerk).as_deref(), Ok("Be {tone}."));
}

#[test]
#[should_panic(expected = "agent `day` is not an LLM agent, so it has no instruction")]
fn other_agents_have_no_instruction() {
    let _ = Host::new().instruction(|| SequentialAgent::new("day"));
}
