//! What the host sees of a component.

use super::{AgentSet, ToolSet, agents, agents::Guest as _, tools, tools::Guest as _};
use crate::bindings::callbacks::exports::hatchery::agent::guest_callbacks::{self as callbacks, Guest as _};
use crate::bindings::wit::types;
use crate::callback::CallbackSet;
use crate::prelude::*;
use crate::{Agent, AnyCallback, Tool};
use futures::executor::block_on;

#[tool]
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

struct Component;

impl AgentSet for Component {
    fn agents() -> Vec<Agent> {
        let tree = SequentialAgent::new("day").sub_agent(LoopAgent::new("hours").max_iterations(24).sub_agent(clock));
        vec![tree.sub_agent(waiter).sub_agent("other/night").into(), clock().into()]
    }
}

impl ToolSet for Component {
    fn tools() -> Vec<Tool> {
        vec![noon()]
    }
}

impl CallbackSet for Component {
    fn callbacks() -> Vec<AnyCallback> {
        vec![trim().into(), deny().into()]
    }
}

#[test]
fn agents_are_told_once_each_before_those_below_it() {
    let specs = <Component as agents::Guest>::describe();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["day", "hours", "clock", "waiter"]);
    assert_eq!(specs[0].sub_agents, ["hours", "waiter", "other/night"]);
    assert!(matches!(specs[1].kind, agents::AgentKind::Loop(Some(24))));
    assert_eq!(specs[2].description, "Knows the time.");
    let agents::AgentKind::Llm(clock) = &specs[2].kind else { panic!("not an LLM agent") };
    assert_eq!(clock.tools, ["noon"]);
    assert_eq!(clock.config.as_deref(), Some(r#"{"temperature":0.5}"#));
    assert_eq!(clock.output_key.as_deref(), Some("time"));
    assert!(matches!(clock.instruction, agents::Instruction::Computed));
    assert!(matches!(clock.global_instruction, agents::Instruction::None));
    let agents::AgentKind::Custom(waiter) = &specs[3].kind else { panic!("not a custom agent") };
    assert_eq!((waiter.model.as_deref(), waiter.tools.as_slice()), (Some("m"), ["noon".to_owned()].as_slice()));
}

#[test]
fn an_instruction_is_computed_for_the_agent_that_has_one() {
    assert_eq!(block_on(Component::instruct("clock".into(), false)).unwrap(), "Be brief.");
    let error = block_on(Component::instruct("clock".into(), true)).unwrap_err();
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
fn an_unknown_tool_is_named() {
    assert_eq!(<Component as tools::Guest>::describe()[0].declaration.name, "noon");
    assert_eq!(block_on(Component::call("noon".into(), "{}".into())).unwrap(), r#""noon""#);
    let error = block_on(Component::call("moon".into(), "{}".into())).unwrap_err();
    let types::ToolError::Fatal(error) = error else { panic!("not fatal") };
    assert_eq!(error.message, "this component has no tool `moon`");
}

#[test]
fn arguments_that_are_not_json_are_told_to_the_model() {
    let error = crate::__private::arguments::<Value>("noon", "{").unwrap_err();
    assert!(error.to_string().starts_with("the arguments of `noon` are not JSON: EOF"), "{error}");
}

fn before_tool(name: &str, tool: &str) -> Result<callbacks::ToolAction, types::Error> {
    let call = callbacks::ToolCall { tool: tool.into(), args: r#"{"a":1}"#.into() };
    block_on(Component::before_tool(name.into(), call))
}

#[test]
fn a_callback_goes_on_revises_or_answers() {
    assert!(matches!(before_tool("deny", "ls"), Ok(callbacks::ToolAction::Proceed)));
    assert!(matches!(before_tool("trim", "ls"), Ok(callbacks::ToolAction::Revise(args)) if args == "{}"));
    let answer = r#"{"result":"no"}"#;
    assert!(matches!(before_tool("deny", "rm"), Ok(callbacks::ToolAction::Respond(json)) if json == answer));
}

#[test]
fn a_callback_at_the_wrong_point_is_an_error_that_says_where_it_belongs() {
    assert_eq!(
        block_on(Component::before_agent("trim".into())).unwrap_err().message,
        "callback `trim` is for before-tool"
    );
    assert_eq!(before_tool("x", "ls").unwrap_err().message, "this component has no callback `x`");
    let points: Vec<_> = <Component as callbacks::Guest>::describe().into_iter().map(|spec| spec.points).collect();
    assert_eq!(points, [["before-tool"], ["before-tool"]]);
}
