//! The exports of a component, as the host sees them.

use futures::executor::block_on;

use super::ExportList;
use crate::bindings::agents::exports::hatchery::agent::guest_agents::{self as agents, Guest as _};
use crate::bindings::callbacks::exports::hatchery::agent::guest_callbacks as callbacks;
use crate::bindings::code_executors::exports::hatchery::agent::guest_code_executors::{self as code, Guest as _};
use crate::bindings::examples::exports::hatchery::agent::guest_examples::{self as examples, Guest as _};
use crate::bindings::models::exports::hatchery::agent::guest_models::{self as models, Guest as _};
use crate::bindings::plugins::exports::hatchery::agent::guest_plugins::{self as plugins, Guest as _};
use crate::bindings::summarizers::exports::hatchery::agent::guest_summarizers::{self as summarizers, Guest as _};
use crate::bindings::tools::exports::hatchery::agent::guest_tools::{self as tools, Guest as _};
use crate::bindings::wit::types;
use crate::plugin::AnyPlugin;
use crate::prelude::*;
use crate::{Agent, AnyCallback, CodeExecutor, ExampleProvider, Model, Summarizer, Tool};

#[tool(confirm)]
async fn noon() -> &'static str {
    "noon"
}

async fn brief(_cx: Context) -> Result<String, Error> {
    Ok("Be brief.".into())
}

/// Knows the time.
#[agent]
fn clock() -> LlmAgent {
    LlmAgent::new("clock").model("m").instruction_fn(brief).tool(noon).config("temperature", 0.5).output_key("time")
}

/// Waits.
#[agent(model = "m", tools = [noon])]
async fn waiter(_cx: AgentContext) -> Result<(), Error> {
    Ok(())
}

#[callback(before_tool)]
async fn trim(call: &mut ToolCall) -> Result<Option<Value>, Error> {
    call.args.clear();
    Ok(None)
}

#[callback(before_tool)]
async fn deny(call: &ToolCall) -> Result<Option<String>, Error> {
    Ok((call.tool == "rm").then(|| "no".into()))
}

#[callback(on_tool_error)]
async fn mend(call: &ToolCall, error: Error) -> Result<Option<Value>, Error> {
    Ok(Some(json!({ "tool": call.tool, "code": error.code })))
}

#[callback(on_model_error)]
async fn repair(request: LlmRequest, error: &Error) -> Result<Option<LlmResponse>, Error> {
    Ok(Some(LlmResponse::text(format!("{} failed with {}", request.model, error.code))))
}

#[callback(after_tool)]
async fn shorten(_call: &ToolCall, response: &mut Value) -> Result<Option<Value>, Error> {
    *response = json!({ "short": true });
    Ok(None)
}

struct RunCounter;

#[plugin]
impl RunCounter {
    async fn on_user_message(message: &mut Content) -> Result<Option<Content>, Error> {
        message.parts.push(Part::text("!"));
        Ok(None)
    }

    async fn before_run() -> Result<Option<Content>, Error> {
        Ok(Some(Content::model("closed")))
    }

    async fn on_event(event: &Event) -> Result<Option<Event>, Error> {
        Ok(event.partial.then(|| Event::text("…")))
    }

    async fn on_run_error(error: Error) -> Result<(), Error> {
        Err(error)
    }

    async fn before_tool(call: &mut ToolCall) -> Result<Option<Value>, Error> {
        call.args.clear();
        Ok(None)
    }
}

#[code_executor]
async fn shout(input: CodeInput) -> Result<CodeOutput, ToolError> {
    if input.code.is_empty() {
        return Err(ToolError::recoverable("there is no code"));
    }
    Ok(CodeOutput { stdout: input.code.to_uppercase(), stderr: String::new(), output_files: input.input_files })
}

#[summarizer]
async fn counter(events: &[Event]) -> Result<Option<Content>, Error> {
    Ok((!events.is_empty()).then(|| Content::model(events.len().to_string())))
}

#[examples(name = "all-sums")]
async fn sums(query: &str) -> Result<Vec<Example>, Error> {
    Ok(vec![Example::new(query, "4").then(Content::user("Thanks"))])
}

#[model]
async fn broken(_request: &LlmRequest, _answer: Answer) -> Result<(), Error> {
    Err(Error::new("BROKEN", "it broke"))
}

struct Component;

impl ExportList<Agent> for Component {
    fn items() -> Vec<Agent> {
        let tree = SequentialAgent::new("day").sub_agent(LoopAgent::new("hours").max_iterations(24).sub_agent(clock));
        vec![tree.sub_agent(waiter).sub_agent("other/night").into(), clock().into()]
    }
}

impl ExportList<Tool> for Component {
    fn items() -> Vec<Tool> {
        vec![noon()]
    }
}

impl ExportList<AnyCallback> for Component {
    fn items() -> Vec<AnyCallback> {
        vec![trim().into(), deny().into(), mend().into(), shorten().into(), repair().into()]
    }
}

impl ExportList<AnyPlugin> for Component {
    fn items() -> Vec<AnyPlugin> {
        vec![AnyPlugin::for_plugin::<RunCounter>()]
    }
}

impl ExportList<CodeExecutor> for Component {
    fn items() -> Vec<CodeExecutor> {
        vec![shout()]
    }
}

impl ExportList<Summarizer> for Component {
    fn items() -> Vec<Summarizer> {
        vec![counter()]
    }
}

impl ExportList<ExampleProvider> for Component {
    fn items() -> Vec<ExampleProvider> {
        vec![sums()]
    }
}

impl ExportList<Model> for Component {
    fn items() -> Vec<Model> {
        vec![broken()]
    }
}

#[test]
fn agents_are_listed_once_and_before_their_sub_agents() {
    let specs = <Component as agents::Guest>::describe();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["day", "hours", "clock", "waiter"]);
    assert_eq!(specs[0].sub_agents, ["hours", "waiter", "other/night"]);
    assert!(matches!(specs[1].kind, agents::AgentKind::Loop(Some(24))));
    assert_eq!(specs[2].description, "Knows the time.");
    let agents::AgentKind::Llm(clock) = &specs[2].kind else { panic!("not an LLM agent") };
    assert_eq!(names_of(&clock.tools), ["noon"]);
    assert_eq!(clock.config.as_deref(), Some(r#"{"temperature":0.5}"#));
    assert_eq!(clock.output_key.as_deref(), Some("time"));
    assert!(matches!(clock.instruction, agents::Instruction::Computed));
    assert!(matches!(clock.global_instruction, agents::Instruction::None));
    let agents::AgentKind::Custom(waiter) = &specs[3].kind else { panic!("not a custom agent") };
    assert_eq!((waiter.model.as_deref(), names_of(&waiter.tools)), (Some("m"), vec!["noon"]));
}

struct Ambiguous;

impl ExportList<Agent> for Ambiguous {
    fn items() -> Vec<Agent> {
        let helper = |text: &str| LlmAgent::new("helper").instruction(text);
        let morning = SequentialAgent::new("morning").sub_agent(helper("Wake up.")).sub_agent(clock);
        vec![morning.into(), SequentialAgent::new("evening").sub_agent(helper("Sleep.")).sub_agent(clock).into()]
    }
}

#[test]
fn different_agents_of_one_name_are_all_listed_so_that_the_host_refuses_them() {
    let specs = <Ambiguous as agents::Guest>::describe();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["morning", "helper", "clock", "evening", "helper"]);
}

fn names_of(tools: &[agents::ToolUse]) -> Vec<&str> {
    tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[test]
fn an_instruction_is_computed_for_the_agent_that_has_one() {
    assert_eq!(block_on(Component::compute_instruction("clock".into(), false)).unwrap(), "Be brief.");
    let error = block_on(Component::compute_instruction("clock".into(), true)).unwrap_err();
    assert_eq!(error.message, "this component has no computed instruction of agent `clock`");
}

#[test]
fn only_a_custom_agent_runs_here() {
    let error = block_on(Component::run("clock".into())).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("NOT_FOUND", "this component has no custom agent `clock`")
    );
}

#[test]
fn an_unknown_tool_is_named_in_the_error() {
    let spec = &<Component as tools::Guest>::describe()[0];
    assert_eq!((spec.declaration.name.as_str(), spec.requires_confirmation), ("noon", true));
    assert_eq!(block_on(Component::call("noon".into(), "{}".into())).unwrap(), r#""noon""#);
    let error = block_on(Component::call("moon".into(), "{}".into())).unwrap_err();
    let types::ToolError::Fatal(error) = error else { panic!("not fatal") };
    assert_eq!(error.message, "this component has no tool `moon`");
}

#[test]
fn arguments_that_are_not_json_are_an_error_for_the_model() {
    let error = crate::__private::arguments::<Value>("noon", "{").unwrap_err();
    assert!(error.to_string().starts_with("the arguments of `noon` are not JSON: EOF"), "{error}");
}

fn before_tool(name: &str, tool: &str) -> Result<types::ToolAction, types::Error> {
    block_on(<Component as callbacks::Guest>::before_tool(name.into(), call(tool)))
}

fn call(tool: &str) -> types::ToolCall {
    types::ToolCall { tool: tool.into(), args: r#"{"a":1}"#.into() }
}

fn failure() -> types::Error {
    types::Error { code: "BROKEN".into(), message: "it broke".into() }
}

#[test]
fn a_callback_continues_revises_or_answers() {
    assert!(matches!(before_tool("deny", "ls"), Ok(types::ToolAction::Proceed)));
    assert!(matches!(before_tool("trim", "ls"), Ok(types::ToolAction::Revise(args)) if args == "{}"));
    let answer = r#"{"result":"no"}"#;
    assert!(matches!(before_tool("deny", "rm"), Ok(types::ToolAction::Respond(json)) if json == answer));
}

#[test]
fn a_callback_at_the_wrong_point_is_an_error_that_names_its_own_point() {
    assert_eq!(
        block_on(<Component as callbacks::Guest>::before_agent("trim".into())).unwrap_err().message,
        "callback `trim` is for before-tool"
    );
    assert_eq!(before_tool("x", "ls").unwrap_err().message, "this component has no callback `x`");
    let points: Vec<_> = <Component as callbacks::Guest>::describe().into_iter().map(|spec| spec.points).collect();
    assert_eq!(points.concat(), ["before-tool", "before-tool", "on-tool-error", "after-tool", "on-model-error"]);
}

#[test]
fn a_failure_is_replaced_by_an_answer() {
    let mended = block_on(<Component as callbacks::Guest>::on_tool_error("mend".into(), call("rm"), failure()));
    assert_eq!(mended.unwrap().as_deref(), Some(r#"{"tool":"rm","code":"BROKEN"}"#));
    let request = LlmRequest::new("m", "hello").into();
    let mended = block_on(<Component as callbacks::Guest>::on_model_error("repair".into(), request, failure()));
    assert_eq!(LlmResponse::try_from(mended.unwrap().unwrap()).unwrap().text_content(), "m failed with BROKEN");
}

#[test]
fn in_place_changes_replace_the_original() {
    let answer = block_on(<Component as callbacks::Guest>::after_tool("shorten".into(), call("ls"), "{}".into()));
    assert_eq!(answer.unwrap().as_deref(), Some(r#"{"short":true}"#));
}

#[test]
fn a_plugin_lists_only_its_hooks() {
    let specs = <Component as plugins::Guest>::describe();
    assert_eq!((specs.len(), specs[0].name.as_str()), (1, "run_counter"));
    assert_eq!(specs[0].hooks, ["on-user-message", "before-run", "on-event", "on-run-error", "before-tool"]);
    let error = block_on(<Component as plugins::Guest>::after_run("run_counter".into())).unwrap_err();
    assert_eq!(
        error.message,
        "plugin `run_counter` has no hook `after_run`; it has on-user-message, before-run, on-event, on-run-error, before-tool"
    );
    let error = block_on(<Component as plugins::Guest>::before_run("x".into())).unwrap_err();
    assert_eq!(error.message, "this component has no plugin `x`");
}

#[test]
fn a_hook_changes_replaces_or_keeps_its_argument() {
    let name = || String::from("run_counter");
    let changed = block_on(Component::on_user_message(name(), Content::user("Hi").into())).unwrap().unwrap();
    assert_eq!(Content::try_from(changed).unwrap().text(), "Hi!");
    let answer = block_on(Component::before_run(name())).unwrap().unwrap();
    assert_eq!(Content::try_from(answer).unwrap().text(), "closed");
    let partial = Event { partial: true, ..Event::default() };
    let replaced = block_on(Component::on_event(name(), partial.into())).unwrap().unwrap();
    assert_eq!(Event::try_from(replaced).unwrap().text_content(), "…");
    assert!(block_on(Component::on_event(name(), Event::default().into())).unwrap().is_none());
    let revised = block_on(<Component as plugins::Guest>::before_tool(name(), call("ls")));
    assert!(matches!(revised, Ok(types::ToolAction::Revise(args)) if args == "{}"));
    assert_eq!(block_on(Component::on_run_error(name(), failure())).unwrap_err().code, "BROKEN");
}

#[test]
fn an_executor_gets_code_and_returns_files() {
    assert_eq!(<Component as code::Guest>::describe(), ["shout"]);
    let file = || code::CodeFile { name: "a.csv".into(), mime_type: "text/csv".into(), content: vec![1, 2] };
    let input = |code: &str| code::CodeInput { code: code.into(), input_files: vec![file()], execution_id: None };
    let output = block_on(Component::execute("shout".into(), input("print"))).unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("PRINT", ""));
    let written = &output.output_files[0];
    assert_eq!(
        (written.name.as_str(), written.mime_type.as_str(), written.content.as_slice()),
        ("a.csv", "text/csv", [1, 2].as_slice())
    );
    let refused = block_on(Component::execute("shout".into(), input(""))).unwrap_err();
    assert!(matches!(refused, types::ToolError::Recoverable(message) if message == "there is no code"));
    let unknown = block_on(Component::execute("whisper".into(), input("print"))).unwrap_err();
    let message = "this component has no code executor `whisper`";
    assert!(matches!(unknown, types::ToolError::Fatal(error) if error.message == message));
}

#[test]
fn a_summarizer_may_return_no_summary() {
    assert_eq!(<Component as summarizers::Guest>::describe(), ["counter"]);
    let summarize = |events| block_on(Component::summarize("counter".into(), events)).unwrap();
    let summary = summarize(vec![Event::text("a").into(), Event::text("b").into()]).unwrap();
    assert_eq!(Content::try_from(summary).unwrap().text(), "2");
    assert!(summarize(Vec::new()).is_none());
}

#[test]
fn a_provider_returns_examples_for_a_query() {
    assert_eq!(<Component as examples::Guest>::describe(), ["all-sums"]);
    let chosen = block_on(Component::examples("all-sums".into(), "2 + 2".into())).unwrap();
    assert_eq!(Content::try_from(chosen[0].input.clone()).unwrap(), Content::user("2 + 2"));
    let output: Vec<_> = chosen[0].output.iter().map(|content| Content::try_from(content.clone()).unwrap()).collect();
    assert_eq!(output, [Content::model("4"), Content::user("Thanks")]);
    let error = block_on(Component::examples("sums".into(), "2 + 2".into())).unwrap_err();
    assert_eq!(error.message, "this component has no example provider `sums`");
}

#[test]
fn a_model_that_fails_before_it_answers_returns_no_stream() {
    assert_eq!(<Component as models::Guest>::describe(), ["broken"]);
    for streaming in [false, true] {
        let request = LlmRequest::new("", "hello").into();
        let error = block_on(Component::generate("broken".into(), request, streaming)).err().unwrap();
        assert_eq!((error.code.as_str(), error.message.as_str()), ("BROKEN", "it broke"));
    }
}

fn llm(agent: LlmAgent) -> agents::LlmAgent {
    let Agent { kind, .. } = agent.into();
    let agents::AgentKind::Llm(llm) = kind.into() else { panic!("not an LLM agent") };
    llm
}

#[test]
fn an_agent_describes_its_options() {
    let equipped = llm(LlmAgent::new("a")
        .toolset("search")
        .toolset(Toolset::new("mail").only(["read", "list"]).prefix("mail_"))
        .examples([Example::new("2 + 2", "4")])
        .planner(Thinking::new().budget(512).include_thoughts().with("thinkingLevel", "low"))
        .run_code(CodeRunner::new("python/starlark").error_retries(0).stateful().optimize_data_file())
        .on_model_error(repair)
        .on_tool_error("guards/mend"));
    let sets: Vec<_> =
        equipped.toolsets.iter().map(|set| (set.name.as_str(), set.only.join(" "), set.prefix.as_deref())).collect();
    assert_eq!(sets, [("search", String::new(), None), ("mail", "read list".into(), Some("mail_"))]);
    assert!(matches!(&equipped.examples, agents::Examples::Fixed(examples) if examples.len() == 1));
    let thinking = r#"{"thinkingBudget":512,"includeThoughts":true,"thinkingLevel":"low"}"#;
    assert!(matches!(&equipped.planner, agents::Planner::Thinking(config) if config == thinking));
    let agents::CodeExecution::Host(runner) = &equipped.code_execution else { panic!("the host runs no code") };
    assert_eq!((runner.executor.as_str(), runner.error_retries), ("python/starlark", Some(0)));
    assert!(runner.stateful && runner.optimize_data_file);
    assert_eq!((equipped.on_model_error, equipped.on_tool_error), (vec!["repair".into()], vec!["guards/mend".into()]));
}

#[test]
fn an_agent_refers_to_executors_and_providers_by_item() {
    let agent = llm(LlmAgent::new("a").run_code(shout).examples_from(sums).planner(Planner::PlanReAct));
    assert!(matches!(&agent.code_execution, agents::CodeExecution::Host(runner) if runner.executor == "shout"
        && runner.error_retries.is_none() && !runner.stateful && !runner.optimize_data_file));
    assert!(matches!(&agent.examples, agents::Examples::Chosen(provider) if provider == "all-sums"));
    assert!(matches!(agent.planner, agents::Planner::PlanReAct));
    let agent = llm(LlmAgent::new("b").examples_from("school/sums").run_code_in_model());
    assert!(matches!(&agent.examples, agents::Examples::Chosen(provider) if provider == "school/sums"));
    assert!(matches!(agent.code_execution, agents::CodeExecution::BuiltIn));
    assert!(matches!(agent.planner, agents::Planner::None));
}
