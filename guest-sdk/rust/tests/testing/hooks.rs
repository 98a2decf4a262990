//! Running callbacks and plugins' hooks.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::{Before, Host};

fn failure() -> Error {
    Error::new("BROKEN", "it broke")
}

fn call(tool: &str) -> ToolCall {
    ToolCall { tool: tool.into(), ..ToolCall::default() }
}

#[callback(before_agent)]
async fn greet(cx: CallbackContext) -> Result<Option<Content>, Error> {
    cx.set_state("greeted", true)?;
    Ok(cx.state::<String>("name")?.map(|name| Content::model(format!("Hello {name}"))))
}

#[callback(after_agent)]
async fn sign() -> Result<Option<Content>, Error> {
    Ok(Some(Content::model("Yours")))
}

#[callback(on_agent_error)]
async fn console(error: Error) -> Result<Option<Content>, Error> {
    Ok(Some(Content::model(error.message)))
}

#[test]
fn callbacks_run_around_agents() {
    let host = Host::new();
    assert_eq!(host.before_agent(greet), Ok(None));
    assert_eq!(host.state("name", "Ada").before_agent(greet), Ok(Some(Content::model("Hello Ada"))));
    assert_eq!(Host::new().after_agent(sign), Ok(Some(Content::model("Yours"))));
    assert_eq!(Host::new().on_agent_error(console, failure()), Ok(Some(Content::model("it broke"))));
}

#[callback(before_model)]
async fn polite(request: &mut LlmRequest) -> Result<Option<LlmResponse>, Error> {
    request.system_instructions.push("Be polite.".into());
    Ok((request.model == "off").then(|| LlmResponse::text("closed")))
}

#[callback(after_model)]
async fn shout(response: LlmResponse) -> Result<Option<LlmResponse>, Error> {
    Ok(Some(LlmResponse::text(response.text_content().to_uppercase())))
}

#[callback(on_model_error)]
async fn apologise(request: &LlmRequest, error: &Error) -> Result<Option<LlmResponse>, Error> {
    Ok(Some(LlmResponse::text(format!("{}: {}", request.model, error.code))))
}

#[test]
fn callbacks_around_model_calls() {
    let host = Host::new();
    let question = LlmRequest::new("m", "Hi");
    let revised = question.clone().with_instruction("Be polite.");
    assert_eq!(host.before_model(polite, question.clone()), Ok(Before::Revise(revised)));
    let closed = Before::Respond(LlmResponse::text("closed"));
    assert_eq!(host.before_model(polite, LlmRequest::new("off", "Hi")), Ok(closed));
    assert_eq!(host.after_model(shout, LlmResponse::text("hi")), Ok(Some(LlmResponse::text("HI"))));
    assert_eq!(host.on_model_error(apologise, question, failure()), Ok(Some(LlmResponse::text("m: BROKEN"))));
}

#[callback(before_tool)]
async fn guard(call: &ToolCall, cx: CallbackContext) -> Result<Option<u32>, Error> {
    assert!(cx.info()?.function_call_id.is_some());
    Ok((call.tool == "rm").then_some(0))
}

#[callback(after_tool)]
async fn round(_call: &ToolCall, answer: &mut Value) -> Result<Option<Value>, Error> {
    // Hooks get an object also if the tool's result is none.
    answer["rounded"] = true.into();
    Ok(None)
}

#[callback(on_tool_error)]
async fn mend(call: ToolCall, _error: Error) -> Result<Option<String>, Error> {
    Ok(Some(call.tool))
}

#[test]
fn callbacks_around_tool_calls_give_objects() {
    let host = Host::new();
    assert_eq!(host.before_tool(guard, call("ls")), Ok(Before::Proceed));
    assert_eq!(host.before_tool(guard, call("rm")), Ok(Before::Respond(json!({ "result": 0 }))));
    assert_eq!(host.after_tool(round, call("ls"), json!({ "n": 1 })), Ok(Some(json!({ "n": 1, "rounded": true }))));
    assert_eq!(host.after_tool(round, call("ls"), json!(1)), Ok(Some(json!({ "result": 1, "rounded": true }))));
    assert_eq!(host.on_tool_error(mend, call("ls"), failure()), Ok(Some(json!({ "result": "ls" }))));
}

#[callback(before_agent)]
async fn refuse(cx: CallbackContext) -> Result<Option<Content>, Error> {
    cx.set_state("tried", true)?;
    Err(failure())
}

#[test]
fn a_callback_that_fails_ends_the_run_and_changes_nothing() {
    let host = Host::new();
    assert_eq!(host.before_agent(refuse), Err(failure()));
    assert_eq!(host.state_value::<bool>("tried"), None);
}

struct Courtesy;

#[plugin]
impl Courtesy {
    async fn on_user_message(message: &mut Content) -> Result<Option<Content>, Error> {
        message.parts.push(Part::text("!"));
        Ok(None)
    }

    async fn before_run(cx: CallbackContext) -> Result<Option<Content>, Error> {
        Ok(cx.config::<bool>("closed")?.map(|_| Content::model("closed")))
    }

    async fn on_event(event: Event) -> Result<Option<Event>, Error> {
        Ok((event.text_content() == "damn").then(|| Event::text("…")))
    }

    async fn after_run(cx: CallbackContext) -> Result<(), Error> {
        cx.set_state("app:runs", cx.state::<u32>("app:runs")?.unwrap_or(0) + 1)
    }

    async fn on_run_error(error: Error) -> Result<(), Error> {
        log::warn("a run failed", &[("code", &error.code)]);
        Ok(())
    }

    async fn before_tool(call: &mut ToolCall) -> Result<Option<Value>, Error> {
        call.args.insert("polite".into(), true.into());
        Ok(None)
    }
}

#[test]
fn a_plugins_hooks_are_called_by_their_names() {
    let host = Host::new();
    let plugin = host.plugin::<Courtesy>();
    assert_eq!(plugin.on_user_message(Content::user("Hi")).unwrap().unwrap().text(), "Hi!");
    assert_eq!(plugin.before_run(), Ok(None));
    assert_eq!(
        host.clone().config("closed", true).plugin::<Courtesy>().before_run(),
        Ok(Some(Content::model("closed")))
    );
    assert_eq!(plugin.on_event(Event::text("damn")).unwrap().unwrap().text_content(), "…");
    plugin.after_run().unwrap();
    plugin.after_run().unwrap();
    assert_eq!(host.state_value("app:runs"), Some(2));
    plugin.on_run_error(failure()).unwrap();
    assert_eq!(host.log_lines()[0].to_string(), "warn a run failed code=BROKEN");
    let Before::Revise(revised) = plugin.before_tool(call("ls")).unwrap() else { panic!("not revised") };
    assert_eq!(Value::Object(revised.args), json!({ "polite": true }));
}

#[test]
fn a_hook_that_a_plugin_does_not_have_changes_nothing() {
    let host = Host::new();
    let plugin = host.plugin::<Courtesy>();
    assert_eq!(plugin.before_agent(), Ok(None));
    assert_eq!(plugin.before_model(LlmRequest::default()), Ok(Before::Proceed));
    assert_eq!(plugin.after_model(LlmResponse::text("x")), Ok(None));
    assert_eq!(plugin.on_model_error(LlmRequest::default(), failure()), Ok(None));
    assert_eq!(plugin.after_tool(call("ls"), json!({})), Ok(None));
    assert_eq!(plugin.on_tool_error(call("ls"), failure()), Ok(None));
    assert_eq!((plugin.after_agent(), plugin.on_agent_error(failure())), (Ok(None), Ok(None)));
}
