//! Agents, tools and callbacks from builders and closures.

use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, CallContext, Content, Example, ExampleProvider, Examples, IncludeContents, Instruction, JsonMap,
    LlmAgent, LlmRequest, LlmResponse, ModelErrorKind, Part, Planner, RunError, Tool, ToolError, ToolExecution,
};
use hatchery_engine::build::{BuildError, FunctionTool, custom, function_tool, llm, loop_agent, parallel, sequential};
use hatchery_engine::builtin::ExitLoop;
use hatchery_engine::toolsets::StaticToolset;
use hatchery_models::scripted::{Reply, Scripted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{FixedCallback, Harness, declaration, map, tool};

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first.
    a: i64,
    b: Option<i64>,
}

#[derive(Serialize)]
struct Sum {
    sum: i64,
}

fn add() -> FunctionTool {
    function_tool("add", "Adds.", |args: Add, _| async move { Ok(Sum { sum: args.a + args.b.unwrap_or(0) }) })
}

/// Calls a tool with these arguments, then answers "done".
fn calling(name: &str, args: Value) -> Arc<Scripted> {
    Arc::new(Scripted::sequence([Reply::call(name, args), Reply::text("done")]))
}

/// Returns the answer of a tool for these arguments, as the model gets it.
async fn answer(tool: FunctionTool, args: Value) -> String {
    let model = calling(&tool.declaration().name, args);
    let root = llm("root").model_instance("scripted", model).tool(tool).build().unwrap();
    Harness::new(root).await.transcript("hi").await[1].clone()
}

fn as_llm(agent: &Agent) -> &LlmAgent {
    match &agent.kind {
        AgentKind::Llm(llm) => llm,
        other => panic!("{}", other.label()),
    }
}

fn error_of(agent: Result<Agent, BuildError>) -> String {
    agent.err().unwrap().to_string()
}

#[tokio::test]
async fn a_closure_is_a_tool_with_typed_arguments() {
    assert_eq!(answer(add(), json!({"a": 1, "b": 2})).await, "root: answer add{\"sum\":3}");
    assert_eq!(answer(add(), json!({"a": 1})).await, "root: answer add{\"sum\":1}");
}

#[test]
fn the_schema_of_a_tool_comes_from_the_type_of_its_arguments() {
    assert_eq!(
        *add().declaration().parameters.as_ref().unwrap(),
        json!({
            "type": "object",
            "properties": {
                "a": {"description": "The first.", "type": "integer", "format": "int64"},
                "b": {"type": ["integer", "null"], "format": "int64"}
            },
            "required": ["a"]
        })
    );
}

const REJECTED: &str = "the arguments do not match the parameters of `add`, which has not run: ";

#[tokio::test]
async fn the_error_of_invalid_arguments_names_the_field_to_the_model() {
    assert_eq!(
        answer(add(), json!({"a": "one"})).await,
        format!("root: answer add{{\"error\":\"{REJECTED}at `/a`: \\\"one\\\" is not of type \\\"integer\\\"\"}}")
    );
    assert_eq!(
        answer(add(), json!({})).await,
        format!("root: answer add{{\"error\":\"{REJECTED}\\\"a\\\" is a required property\"}}")
    );
}

#[tokio::test]
async fn whole_numbers_written_as_floats_are_integers() {
    assert_eq!(answer(add(), json!({"a": 20.0})).await, "root: answer add{\"sum\":20}");
}

#[tokio::test]
async fn arguments_may_be_any_json_with_a_custom_schema() {
    let schema = json!({"type": "object", "properties": {"x": {}}});
    let echo = function_tool("echo", "", |args: JsonMap, _| async move { Ok(args) });
    assert_eq!(echo.declaration().parameters, None);
    let echo = echo.parameters(schema.clone());
    assert_eq!(echo.declaration().parameters, Some(schema));
    assert_eq!(answer(echo, json!({"x": 1.5})).await, "root: answer echo{\"x\":1.5}");
}

#[tokio::test]
async fn a_closure_as_a_tool_sets_state_and_fails_as_any_tool() {
    let note = function_tool("note", "", |args: JsonMap, cx: CallContext| async move {
        cx.set_state("noted", Value::Object(args));
        Err::<(), _>(ToolError::Recoverable("no more paper".into()))
    });
    let model = calling("note", json!({"x": 1}));
    let app = Harness::new(llm("root").model_instance("scripted", model).tool(note).build().unwrap()).await;
    assert_eq!(app.transcript("hi").await[1], "root: answer note{\"error\":\"no more paper\"}");
    assert_eq!(app.state().await, json!({"noted": {"x": 1}}));
}

#[tokio::test]
async fn the_error_of_a_result_that_is_not_json_goes_to_the_model() {
    let odd = function_tool("odd", "", |_: JsonMap, _| async { Ok(std::collections::BTreeMap::from([((1, 2), 3)])) });
    let text = answer(odd, json!({})).await;
    assert!(text.contains("the result of `odd` cannot be written as JSON: key must be a string"), "{text}");
}

#[tokio::test]
async fn a_long_running_closure_without_a_result_pauses_the_run() {
    let order = function_tool("order", "", |_: JsonMap, _| async { Ok(None::<i32>) }).long_running();
    let model = Arc::new(Scripted::sequence([Reply::call("order", json!({})).with_id("c1")]));
    let app = Harness::new(llm("root").model_instance("scripted", model).tool(order).build().unwrap()).await;
    assert_eq!(app.run("hi").await[0].long_running_tool_ids, ["c1"]);
}

#[test]
fn a_tool_may_require_confirmation() {
    assert!(!Tool::requires_confirmation(&add()));
    assert!(Tool::requires_confirmation(&add().requires_confirmation()));
}

#[tokio::test]
async fn closures_of_several_calls_run_at_the_same_time() {
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let meet = function_tool("meet", "", move |_: JsonMap, _| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            Ok("met")
        }
    });
    let twice = Reply::call("meet", json!({})).and_call("meet", json!({}));
    let model = Arc::new(Scripted::sequence([twice, Reply::text("done")]));
    let mut app = Harness::new(llm("root").model_instance("scripted", model).tool(meet).build().unwrap()).await;
    app.config.tool_execution = ToolExecution::Parallel;
    assert_eq!(app.transcript("hi").await[1], "root: answer meet{\"result\":\"met\"}; answer meet{\"result\":\"met\"}");
}

#[tokio::test]
async fn a_closure_computes_an_instruction_for_each_model_call() {
    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let root = llm("root")
        .model_instance("scripted", model.clone())
        .global_instruction_fn(|cx| async move { Ok(format!("All serve {}.", cx.invocation.session_key.user)) })
        .instruction_fn(|cx| async move { Ok(format!("{} events so far.", cx.invocation.events().len())) })
        .build();
    let app = Harness::new(root.unwrap()).await;
    app.run("hi").await;
    app.run("again").await;
    assert_eq!(model.requests()[0].system_instructions[..2], ["All serve ada.", "1 events so far."]);
    assert_eq!(model.requests()[1].system_instructions[1], "3 events so far.");
}

#[tokio::test]
async fn closures_run_before_and_after_an_agent() {
    let root = llm("root")
        .model_instance("scripted", Arc::new(Scripted::new().default_reply("model")))
        .before_agent_fn(|cx| {
            Box::pin(async move {
                cx.set_state("seen", json!(true));
                Ok(None)
            })
        })
        .after_agent_fn(|cx| Box::pin(async move { Ok(Some(Content::model(format!("{} was here", cx.agent)))) }));
    let app = Harness::new(root.build().unwrap()).await;
    assert_eq!(app.transcript("hi").await, ["root: ", "root: model", "root: root was here"]);
    assert_eq!(app.state().await, json!({"seen": true}));
}

/// An `async fn` as a callback.
async fn be_kind(_: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
    request.system_instructions.push("Be kind.".into());
    Ok(None)
}

#[tokio::test]
async fn closures_change_the_request_and_the_response_of_a_model() {
    let model = Arc::new(Scripted::sequence(["hello"]));
    let root = llm("root")
        .model_instance("scripted", model.clone())
        .before_model_fn(|cx, request| Box::pin(be_kind(cx, request)))
        .after_model_fn(|_, response| {
            Box::pin(async move {
                let text = response.content.as_ref().map(Content::text).unwrap_or_default();
                Ok(Some(LlmResponse::text(text.to_uppercase())))
            })
        });
    assert_eq!(Harness::new(root.build().unwrap()).await.transcript("hi").await, ["root: HELLO"]);
    assert_eq!(model.requests()[0].system_instructions.last().unwrap(), "Be kind.");
}

#[tokio::test]
async fn a_closure_answers_a_model_error() {
    let model = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down"));
    let root = llm("root").model_instance("scripted", Arc::new(model)).on_model_error_fn(|_, request, error| {
        Box::pin(async move { Ok(Some(LlmResponse::text(format!("{} said: {error}", request.model)))) })
    });
    let events = Harness::new(root.build().unwrap()).await.transcript("hi").await;
    assert!(events[0].starts_with("root: scripted said: model `scripted`: "), "{events:?}");
}

#[tokio::test]
async fn closures_change_arguments_and_answers_of_tools_and_answer_their_errors() {
    let strict = function_tool("strict", "", |args: JsonMap, _| async move {
        match args.get("allowed") {
            Some(_) => Ok(args),
            None => Err(ToolError::Recoverable("not allowed".into())),
        }
    });
    let tries = [Reply::call("strict", json!({"n": 1})), Reply::call("strict", json!({"n": 2})), Reply::text("done")];
    let root = llm("root")
        .model_instance("scripted", Arc::new(Scripted::sequence(tries)))
        .tool(strict)
        .before_tool_fn(|_, tool, args| {
            Box::pin(async move {
                if args["n"] == 1 {
                    args.insert("allowed".into(), json!(tool));
                }
                Ok(None)
            })
        })
        .after_tool_fn(|_, _, args, response| {
            Box::pin(async move {
                let mut response = response.clone();
                response.insert("n".into(), args["n"].clone());
                Ok(Some(response))
            })
        })
        .on_tool_error_fn(|_, tool, _, error| {
            Box::pin(async move { Ok(Some(map(json!({"recovered": format!("{tool}: {error}")})))) })
        });
    let events = Harness::new(root.build().unwrap()).await.transcript("hi").await;
    assert_eq!(events[1], "root: answer strict{\"n\":1,\"allowed\":\"strict\"}");
    assert_eq!(events[3], "root: answer strict{\"recovered\":\"strict: not allowed\",\"n\":2}");
}

#[tokio::test]
async fn callbacks_run_in_the_order_in_which_they_were_added() {
    let root = llm("root")
        .model_instance("scripted", Arc::new(Scripted::new()))
        .before_model_fn(|_, _| Box::pin(async { Ok(Some(LlmResponse::text("first"))) }))
        .before_model(FixedCallback { name: "second", model: Some("second"), ..FixedCallback::default() }.arc());
    assert_eq!(Harness::new(root.build().unwrap()).await.transcript("hi").await, ["root: first"]);
}

#[test]
fn every_field_of_an_llm_agent_can_be_set() {
    let example = Example { input: Content::user("hi"), output: vec![Content::model("hello")] };
    let agent = llm("root")
        .description("Does it.")
        .model("gemini-2.5-flash")
        .instruction("Be brief.")
        .static_instruction("Be fixed.")
        .static_instruction_part(Part::text("Be still."))
        .global_instruction("Be kind.")
        .tool(add())
        .tool(ExitLoop::default())
        .tools([tool("echo", |args, _| Ok(args.into()))])
        .toolset(StaticToolset::new("more"))
        .examples([example])
        .planner(Planner::PlanReAct)
        .code_execution(hatchery_core::CodeExecution::BuiltIn)
        .without_history()
        .input_schema::<Add>()
        .output_json_schema(json!({"type": "array"}))
        .output_key("answer")
        .max_steps(3)
        .disallow_transfer_to_parent()
        .disallow_transfer_to_peers()
        .config("temperature", 0.5)
        .config("thinkingConfig", json!({"thinkingBudget": 1}))
        .sub_agent(llm("child"))
        .build()
        .unwrap();
    let llm = as_llm(&agent);
    assert_eq!((agent.name.as_str(), agent.description.as_str()), ("root", "Does it."));
    assert_eq!(llm.model.as_ref().unwrap().name(), "gemini-2.5-flash");
    assert!(matches!(&llm.instruction, Instruction::Template(text) if text == "Be brief."));
    assert!(matches!(&llm.global_instruction, Instruction::Template(text) if text == "Be kind."));
    assert_eq!(llm.static_instruction, ["Be fixed.", "Be still."].map(Part::text));
    let tools: Vec<_> = llm.tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
    assert_eq!(tools, ["add", "exit_loop", "echo"]);
    assert_eq!(llm.toolsets[0].name(), "more");
    assert!(matches!(&llm.examples, Some(Examples::Fixed(examples)) if examples.len() == 1));
    assert_eq!(llm.planner, Some(Planner::PlanReAct));
    assert!(matches!(llm.code_execution, Some(hatchery_core::CodeExecution::BuiltIn)));
    assert_eq!(llm.include_contents, IncludeContents::None);
    assert_eq!(llm.input_schema.as_ref().unwrap()["required"], json!(["a"]));
    assert_eq!(llm.output_schema, Some(json!({"type": "array"})));
    assert_eq!((llm.output_key.as_deref(), llm.max_steps), (Some("answer"), Some(3)));
    assert!(llm.disallow_transfer_to_parent && llm.disallow_transfer_to_peers);
    let config = serde_json::to_value(&llm.generate_content_config).unwrap();
    assert_eq!(config, json!({"temperature": 0.5, "thinkingConfig": {"thinkingBudget": 1}}));
    assert_eq!(agent.sub_agents[0].name, "child");
}

struct NoExamples;

#[async_trait::async_trait]
impl ExampleProvider for NoExamples {
    async fn examples(&self, _: &str, _: &CallContext) -> Result<Vec<Example>, RunError> {
        Ok(Vec::new())
    }
}

#[test]
fn examples_can_be_chosen_for_each_call() {
    let agent = llm("root").example_provider(Arc::new(NoExamples)).build().unwrap();
    assert!(matches!(as_llm(&agent).examples, Some(Examples::Chosen(_))));
}

#[tokio::test]
async fn workflows_and_code_are_built_and_run() {
    let answering = |name: &str, text: &'static str| {
        custom(name, move |cx| async move {
            cx.say(text).await?;
            Ok(())
        })
    };
    let root = sequential("root")
        .description("All of it.")
        .sub_agent(loop_agent("rounds").max_iterations(2).sub_agent(answering("a", "A")))
        .sub_agent(parallel("branches").sub_agent(answering("b", "B").build().unwrap()))
        .build()
        .unwrap();
    assert_eq!(Harness::new(root).await.transcript("hi").await, ["a: A", "a: A", "b: B"]);
}

#[tokio::test]
async fn code_calls_the_tools_and_the_model_that_it_was_given() {
    let model = Arc::new(Scripted::new().default_reply("hm"));
    let root = custom("root", |cx| async move {
        let host = cx.call.host()?;
        let (name, _) = host.model(&cx.call)?;
        let sum = host.call_tool(&cx.call, "add", map(json!({"a": 2}))).await?;
        cx.say(format!("{name} {sum}")).await?;
        Ok(())
    });
    let root = root.model_instance("scripted", model).tool(add()).build().unwrap();
    assert_eq!(Harness::new(root).await.transcript("hi").await, ["root: scripted {\"sum\":2}"]);
}

#[tokio::test]
async fn code_saves_artifacts_with_metadata() {
    let root = custom("root", |cx| async move {
        cx.call.save_artifact_with("a.txt", &Part::text("one"), &map(json!({"author": "ada"}))).await?;
        cx.say("saved").await?;
        Ok(())
    });
    let app = Harness::new(root.build().unwrap()).await;
    app.run("hi").await;
    let session = app.session().await;
    let saved = app.runner.services().artifacts.load_stream(&session.key, "a.txt", None).await.unwrap().unwrap();
    assert_eq!((saved.part, json!(saved.custom_metadata)), (Part::text("one"), json!({"author": "ada"})));
    let deltas: Vec<_> = session.events.iter().map(|event| json!(event.actions.artifact_delta)).collect();
    assert!(deltas.contains(&json!({"a.txt": 0})), "{deltas:?}");
}

#[test]
fn a_name_that_cannot_be_used_is_refused() {
    assert_eq!(error_of(sequential("user").build()), "agent name `user` is reserved for messages of users");
    assert_eq!(error_of(custom("", |_| async { Ok(()) }).build()), "agent name `` is empty");
}

#[test]
fn the_error_of_an_invalid_sub_agent_names_that_agent() {
    let root = parallel("root").sub_agent(llm("fine")).sub_agent(loop_agent("a.b")).sub_agent(llm("user"));
    assert_eq!(
        error_of(root.build()),
        "agent name `a.b` may not hold a dot, which joins the names of parallel branches"
    );
}

#[test]
fn two_tools_of_one_name_are_refused_and_both_are_named() {
    let more = function_tool("add", "Adds more.", |_: JsonMap, _| async { Ok(1) });
    assert_eq!(
        error_of(llm("root").tool(add()).tool(ExitLoop::default()).tool(more).build()),
        "agent `root`: two tools are named `add` to the model: number 1 (\"Adds.\") and number 3 (\"Adds more.\"); rename one, or leave it out"
    );
    let silent = || tool("hush", |_, _| Ok(json!(1)));
    assert_eq!(
        error_of(custom("root", |_| async { Ok(()) }).tools([silent(), silent()]).build()),
        "agent `root`: two tools are named `hush` to the model: number 1 and number 2; rename one, or leave it out"
    );
    assert_eq!(declaration("hush").description, "");
}

#[test]
fn names_that_no_model_takes_for_a_tool_are_refused() {
    for (name, reason) in [
        ("", "is empty"),
        ("-a", "must start with a letter, a digit or `_`"),
        ("a b", "may hold only letters, digits, `_`, `-` and dots"),
        ("transfer_to_agent", "is reserved for a built-in tool"),
        ("set_model_response", "is reserved for a built-in tool"),
        ("adk_request_confirmation", "is reserved for a built-in tool"),
    ] {
        let named = function_tool(name, "", |_: JsonMap, _| async { Ok(1) });
        assert_eq!(error_of(llm("root").tool(named).build()), format!("agent `root`: tool name `{name}` {reason}"));
    }
}

#[test]
fn an_invalid_schema_is_refused() {
    for (schema, reason) in [
        (json!("Sum"), "it is \"Sum\", not an object"),
        (json!({"type": "text"}), "`type` can be null, boolean, object, array, number, integer, string, not \"text\""),
        (json!({"type": "object", "properties": ["a"]}), "`properties` is [\"a\"], not an object"),
        (json!({"properties": {"a": {}}, "required": ["b"]}), "`required` names \"b\", which is not in `properties`"),
        (json!({"items": {"pattern": "("}}), "at `/items/pattern`: \"(\" is not a \"regex\""),
    ] {
        assert_eq!(
            error_of(llm("root").output_json_schema(schema.clone()).build()),
            format!("agent `root`: `output_schema` is not a JSON Schema: {reason}")
        );
        assert_eq!(
            error_of(llm("root").input_json_schema(schema).build()),
            format!("agent `root`: `input_schema` is not a JSON Schema: {reason}")
        );
    }
    assert!(llm("root").output_schema::<Add>().output_json_schema(json!({"type": ["STRING", "null"]})).build().is_ok());
}

#[test]
fn a_setting_of_a_wrong_type_is_refused_with_its_name() {
    let error = error_of(llm("root").config("temperature", "hot").build());
    assert!(error.starts_with("agent `root`: `config`: "), "{error}");
    assert!(error.contains("invalid type: string \"hot\""), "{error}");
}
