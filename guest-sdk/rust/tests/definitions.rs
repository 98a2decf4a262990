//! The items that the macros generate from functions.
#![allow(clippy::panic, clippy::unwrap_used, reason = "these are tests, also outside the test functions")]

use futures::executor::block_on;
use hatchery_guest::prelude::*;
use hatchery_guest::{Callback, Plugin, SubAgentRef, Tool, ToolRef, ToolUse};

/// Where to look.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Place {
    /// The city.
    city: String,
    /// How far around it, in kilometres.
    #[serde(default)]
    radius: Option<Range>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Range {
    from: u32,
    to: u32,
}

/// Looks around.
///
/// Returns its input.
#[tool]
async fn look(place: Place) -> Result<Place, ToolError> {
    Ok(place)
}

/// Counts the letters.
#[tool(name = "count-letters", long_running)]
async fn count_letters(place: Place) -> usize {
    place.city.len()
}

#[tool]
async fn noon() -> &'static str {
    "noon"
}

/// Goes one step.
#[tool]
async fn r#move() -> u32 {
    1
}

/// Reads a number out of a name.
#[tool]
async fn number(place: Place) -> Result<u32, std::num::ParseIntError> {
    place.city.parse()
}

#[tool(confirm)]
async fn breaks() -> Result<(), ToolError> {
    Err(ToolError::fatal("the disk is full"))
}

#[tool]
async fn with_context(cx: &ToolContext) -> bool {
    // Only its type matters here: it can be asked in a host.
    size_of_val(cx) == 0
}

fn fails(tool: fn() -> Tool, args: Value) -> ToolError {
    block_on(tool().call(args)).unwrap_err()
}

#[test]
fn a_tool_has_the_functions_name_and_comment() {
    assert_eq!(
        (look().name, look().description, look().long_running),
        ("look", "Looks around.\n\nReturns its input.", false)
    );
    assert_eq!((count_letters().name, count_letters().long_running), ("count-letters", true));
    assert_eq!(r#move().name, "move");
    assert!(breaks().requires_confirmation && !look().requires_confirmation);
    assert_eq!(look.tool_use(), ToolUse::new("look"));
    assert_eq!("other/search".tool_use(), ToolUse::new("other/search"));
}

#[test]
fn a_schema_has_no_references_and_the_comments_of_the_fields() {
    let schema = (look().parameters)().unwrap();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["city"]));
    assert_eq!(schema["properties"]["city"], json!({ "type": "string", "description": "The city." }));
    let text = schema.to_string();
    assert!(text.contains(r#""from""#), "{text}");
    for absent in ["$schema", "$ref", "$defs", "title"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    assert_eq!((noon().parameters)(), None);
}

#[test]
fn a_tool_takes_and_returns_json() {
    let place = json!({ "city": "Oslo", "radius": { "from": 1, "to": 20 } });
    assert_eq!(block_on(look().call(place.clone())).unwrap(), place);
    assert_eq!(block_on(count_letters().call(place)).unwrap(), 4);
    assert_eq!(block_on(noon().call(json!({}))).unwrap(), "noon");
    assert_eq!(block_on(with_context().call(json!({}))).unwrap(), true);
}

#[test]
fn whole_numbers_written_as_floats_are_integers() {
    let place = json!({ "city": "Oslo", "radius": { "from": 1.0, "to": 20.0 } });
    assert_eq!(block_on(look().call(place)).unwrap()["radius"]["to"], 20);
}

#[test]
fn invalid_arguments_are_an_error_for_the_model_that_names_the_field() {
    assert_eq!(fails(look, json!({})), ToolError::recoverable("bad arguments for `look`: missing field `city`"));
    assert_eq!(
        fails(look, json!({ "city": "Oslo", "radius": { "from": "one", "to": 2 } })),
        ToolError::recoverable("bad arguments for `look`: `radius.from`: invalid type: string \"one\", expected u32")
    );
    assert_eq!(
        fails(look, json!({ "city": "Oslo", "radius": { "from": 1.5, "to": 2 } })),
        ToolError::recoverable(
            "bad arguments for `look`: `radius.from`: invalid type: floating point `1.5`, expected u32"
        )
    );
}

#[test]
fn a_failure_goes_to_the_model_unless_it_is_fatal() {
    assert_eq!(fails(number, json!({ "city": "x" })), ToolError::recoverable("invalid digit found in string"));
    let ToolError::Fatal(error) = fails(breaks, json!({})) else { panic!("not fatal") };
    assert_eq!((error.code.as_str(), error.message.as_str()), (hatchery_guest::COMPONENT_FAILED, "the disk is full"));
}

/// Trims the arguments.
#[callback(before_tool, name = "trim-arguments")]
async fn trim(call: &mut ToolCall, _cx: &CallbackContext) -> Result<Option<Value>, Error> {
    for value in call.args.values_mut() {
        if let Some(text) = value.as_str() {
            *value = text.trim().into();
        }
    }
    Ok(None)
}

/// Answers for the model.
#[callback(before_model)]
async fn answer(request: &LlmRequest) -> Result<Option<LlmResponse>, Error> {
    Ok((request.contents.is_empty()).then(|| LlmResponse::text("say something")))
}

/// Puts a bracket around answers.
#[callback(after_tool)]
async fn bracket(call: ToolCall, response: Value) -> Result<Option<Value>, Error> {
    Ok(Some(json!({ "tool": call.tool, "inner": response })))
}

/// Never answers.
#[callback(before_agent)]
async fn silent(_cx: CallbackContext) -> Result<Option<Content>, Error> {
    Ok(None)
}

/// Plans.
#[agent]
fn planner() -> LlmAgent {
    LlmAgent::new("planner").tool(look).tool("exit_loop").before_tool(trim).before_model(answer).after_tool(bracket)
}

/// Comes twice.
#[agent(description = "Greets.", sub_agents = [planner, "other/helper"], tools = [look], before_agent = [silent])]
async fn host(cx: AgentContext) -> Result<(), Error> {
    cx.run_sub_agent("planner").await
}

/// Notes what happens.
struct Notes;

#[plugin(name = "notebook")]
impl Notes {
    async fn after_run(_cx: &CallbackContext) -> Result<(), Error> {
        Ok(())
    }
}

struct RateLimit;

#[plugin]
impl RateLimit {
    async fn on_tool_error(_call: ToolCall, error: &Error) -> Result<Option<String>, Error> {
        Ok(Some(error.code.clone()))
    }
}

struct HTTPLog;

#[plugin]
impl HTTPLog {
    async fn close() -> Result<(), Error> {
        Ok(())
    }
}

/// Adds what is in lines.
#[code_executor(name = "adding-machine")]
async fn add(input: &CodeInput, _cx: Context) -> Result<CodeOutput, std::num::ParseIntError> {
    let sum: i64 = input.code.lines().map(str::parse::<i64>).sum::<Result<_, _>>()?;
    Ok(CodeOutput { stdout: sum.to_string(), ..CodeOutput::default() })
}

#[summarizer]
async fn nothing(_events: Vec<Event>) -> Result<Option<Content>, Error> {
    Ok(None)
}

#[examples]
async fn none(_query: String, _cx: &Context) -> Result<Vec<Example>, Error> {
    Ok(Vec::new())
}

/// Repeats the message.
#[model]
async fn parrot(answer: &Answer, request: &LlmRequest) -> Result<(), Error> {
    for content in &request.contents {
        answer.send(Content::model(content.text())).await?;
    }
    Ok(())
}

hatchery_guest::export! {
    tools: [look, count_letters],
    agents: [host],
    callbacks: [trim, answer, bracket, silent],
    plugins: [Notes, RateLimit, HTTPLog],
    code_executors: [add],
    summarizers: [nothing],
    examples: [none],
    models: [parrot],
}

#[test]
fn a_callback_is_named_after_its_function_or_by_its_option() {
    let Callback { name, .. } = trim();
    assert_eq!(name, "trim-arguments");
    assert_eq!(silent().name, "silent");
}

#[test]
fn agents_refer_to_agents_by_item_and_by_name() {
    use hatchery_guest::SubAgent;
    assert!(matches!(planner.sub_agent(), SubAgent::Agent(_)));
    assert!(matches!("other/helper".sub_agent(), SubAgent::Named(name) if name == "other/helper"));
}

#[test]
fn a_plugin_is_named_after_its_type_or_by_its_option() {
    assert_eq!((RateLimit::NAME, HTTPLog::NAME, Notes::NAME), ("rate_limit", "http_log", "notebook"));
}

#[test]
fn every_other_item_is_named_after_its_function_or_by_its_option() {
    assert_eq!(
        (add().name, nothing().name, none().name, parrot().name),
        ("adding-machine", "nothing", "none", "parrot")
    );
}

#[test]
fn an_executor_runs_code_without_a_host() {
    assert_eq!(block_on(add().execute(CodeInput::new("1\n2"))).unwrap().stdout, "3");
    let error = block_on(add().execute(CodeInput::new("one"))).unwrap_err();
    assert_eq!(error, ToolError::recoverable("invalid digit found in string"));
}

#[test]
fn a_model_answers_without_a_host() {
    let answer = block_on(parrot().answer(LlmRequest::new("", "hello"))).unwrap();
    assert_eq!(answer.text_content(), "hello");
}
