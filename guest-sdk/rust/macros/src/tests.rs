//! Compile errors of the macros.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{agent, callback, plugin, provider, requests, tool};

fn tool_error(options: &str, function: &str) -> String {
    syn::parse_str(options)
        .and_then(|options| tool::expand(options, syn::parse_str(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn callback_error(options: &str, function: &str) -> String {
    syn::parse_str(options)
        .and_then(|options| callback::expand(options, syn::parse_str(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn agent_error(options: &str, function: &str) -> String {
    syn::parse_str(options)
        .and_then(|options| agent::expand(options, syn::parse_str(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn plugin_error(options: &str, hooks: &str) -> String {
    syn::parse_str(options)
        .and_then(|options| plugin::expand(options, syn::parse_str(hooks)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn provider_error(kind: &provider::ProviderKind, options: &str, function: &str) -> String {
    let parse = |input: syn::parse::ParseStream<'_>| kind.options(input);
    syn::parse::Parser::parse_str(parse, options)
        .and_then(|name| kind.expand(name, syn::parse_str(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

#[test]
fn a_tool_is_an_async_function_that_is_not_generic() {
    assert_eq!(tool_error("", "fn f() {}"), "a tool is an `async fn`");
    assert_eq!(tool_error("", "async fn f<T>(t: T) {}"), "a tool cannot be generic");
    assert_eq!(tool_error("", "async fn f(&self) {}"), "this must be a free function, without `self`");
}

#[test]
fn a_tool_takes_one_struct_by_value() {
    assert_eq!(
        tool_error("", "async fn f(a: A, b: B, cx: ToolContext) {}"),
        "a tool takes its arguments as one struct; combine them in a struct with `Deserialize` and `JsonSchema`"
    );
    for plain in ["u32", "&str", "String", "Vec<u8>", "(u8, u8)", "&[f64]"] {
        assert_eq!(
            tool_error("", &format!("async fn f(a: {plain}, cx: ToolContext) {{}}")),
            "a tool takes its arguments as one struct with `Deserialize` and `JsonSchema`, which has a field for each"
        );
    }
    assert_eq!(tool_error("", "async fn f(a: &A) {}"), "the arguments of a tool are taken by value, not by reference");
}

#[test]
fn errors_of_unknown_options_list_the_known_ones() {
    assert_eq!(
        tool_error("long", "async fn f() {}"),
        "options of a tool are `name = \"…\"`, `long_running` and `confirm`"
    );
    assert!(callback_error("before", "async fn f() {}").contains("`after_tool` and `on_tool_error`, as in"));
    assert!(callback_error("", "async fn f() {}").starts_with("a callback is for one of `before_agent`"));
    assert_eq!(
        callback_error(r#"before_tool, title = "x""#, "async fn f() {}"),
        "the option of a callback is `name = \"…\"`"
    );
    assert!(agent_error("tool = x", "async fn f() {}").starts_with("options of a custom agent are `name"));
}

#[test]
fn an_option_is_set_once() {
    let name = r#"name = "a", name = "b""#;
    let twice = |key: &str| format!("`{key}` is set twice; remove one of them");
    assert_eq!(agent_error(name, "async fn f() {}"), twice("name"));
    assert_eq!(agent_error("tools = [a], tools = [b]", "async fn f() {}"), twice("tools"));
    assert_eq!(tool_error(name, "async fn f() {}"), twice("name"));
    assert_eq!(tool_error("confirm, long_running, confirm", "async fn f() {}"), twice("confirm"));
    assert_eq!(callback_error(&format!("before_agent, {name}"), "async fn f() {}"), twice("name"));
    assert_eq!(plugin_error(name, "impl X {}"), twice("name"));
    assert_eq!(provider_error(&provider::MODEL, name, "async fn f() {}"), twice("name"));
}

#[test]
fn a_callback_takes_the_inputs_of_its_point() {
    let none = "async fn f(cx: CallbackContext) -> Result<Option<Value>, Error> {}";
    let cases = [
        ("before_model", "this callback takes an `LlmRequest`"),
        ("after_model", "this callback takes an `LlmResponse`"),
        ("before_tool", "this callback takes a `ToolCall`"),
        ("after_tool", "this callback takes a `ToolCall` and the answer, a `Value`"),
        ("on_model_error", "this callback takes an `LlmRequest` and the error, an `Error`"),
        ("on_tool_error", "this callback takes a `ToolCall` and the error, an `Error`"),
    ];
    for (point, message) in cases {
        assert_eq!(callback_error(point, none), message);
    }
    let some = "async fn f(x: X) -> Result<Option<Content>, Error> {}";
    assert_eq!(callback_error("before_agent", some), "this callback takes no parameters except a `CallbackContext`");
    assert_eq!(callback_error("before_tool", "fn f() {}"), "a callback is an `async fn`");
}

#[test]
fn a_callback_returns_a_result() {
    let cases = [
        ("before_agent", "async fn f()", "this callback returns `Result<Option<Content>, E>`"),
        (
            "after_model",
            "async fn f(r: LlmResponse) -> Option<LlmResponse>",
            "this callback returns `Result<Option<LlmResponse>, E>`",
        ),
        (
            "before_tool",
            "async fn f(call: &ToolCall) -> Value",
            "this callback returns `Result<Option<impl Serialize>, E>`",
        ),
    ];
    for (point, function, message) in cases {
        assert_eq!(callback_error(point, &format!("{function} {{}}")), message);
    }
    assert_eq!(plugin_error("", "impl X { async fn close() {} }"), "this hook returns `Result<(), E>`");
    let alias = callback_error("before_agent", "async fn f() -> Outcome {}");
    assert!(alias.starts_with("no error"), "{alias}");
}

#[test]
fn a_custom_agent_takes_its_context_only() {
    assert_eq!(agent_error("", "async fn f(x: X) {}"), "a custom agent takes no parameters except an `AgentContext`");
}

#[test]
fn a_custom_agent_returns_a_result_or_nothing() {
    let message = "a custom agent returns `Result<(), E>` or nothing; send its answer with `cx.say(…)`";
    for output in ["String", "Option<String>", "&'static str", "(u8, u8)", "impl Display"] {
        assert_eq!(agent_error("", &format!("async fn f(cx: AgentContext) -> {output} {{}}")), message);
    }
    for nothing in ["", "-> ()", "-> !"] {
        let code = agent_error("", &format!("async fn f(cx: AgentContext) {nothing} {{}}"));
        assert!(code.starts_with("no error") && !code.contains("map_err"), "{code}");
    }
}

#[test]
fn options_on_a_builder_function_are_refused() {
    assert_eq!(
        agent_error(r#"name = "x""#, "fn f() -> LlmAgent {}"),
        "options are for an `async fn`; use the methods of the builder instead"
    );
}

#[test]
fn a_parameter_that_cannot_be_changed_is_not_taken_mutably() {
    let tool = "async fn f(call: &mut ToolCall, answer: Value) -> Result<Option<Value>, Error> {}";
    assert_eq!(
        callback_error("after_tool", tool),
        "this callback cannot change this parameter: take it by value or by `&`"
    );
    let failure = "async fn f(request: LlmRequest, failure: &mut Error) -> Result<Option<LlmResponse>, Error> {}";
    assert_eq!(
        callback_error("on_model_error", failure),
        "this callback cannot change this parameter: take it by value or by `&`"
    );
}

#[test]
fn a_plugin_has_only_hooks() {
    let cases = [
        ("impl Plugin for X {}", "the hooks of a plugin are in an `impl` of its type, without a trait"),
        ("impl<T> X<T> {}", "a plugin cannot be generic"),
        ("impl (A, B) {}", "a plugin is a type of this crate, such as `struct Censor;`"),
        ("impl X { const A: u8 = 1; }", "this `impl` may contain only hooks; move other items to another `impl`"),
        (
            "impl X { async fn before_run(&self) {} }",
            "a hook takes no `self`, since a plugin keeps nothing between calls; use the session's state",
        ),
        ("impl X { fn before_run() {} }", "a hook is an `async fn`"),
        ("impl X { async fn on_event() {} }", "this hook takes an `Event`"),
    ];
    for (hooks, message) in cases {
        assert_eq!(plugin_error("", hooks), message);
    }
    let unknown = plugin_error("", "impl X { async fn on_message() {} }");
    assert!(unknown.starts_with("`on_message` is not a hook; hooks are `on_user_message`, `before_run`"), "{unknown}");
    assert!(unknown.ends_with("and `on_tool_error`; move other functions to another `impl`"), "{unknown}");
    assert_eq!(plugin_error(r#"title = "x""#, "impl X {}"), "the option of a plugin is `name = \"…\"`");
}

#[test]
fn providers_take_one_input_and_a_context() {
    let none = "async fn f(cx: Context) {}";
    let cases = [
        (&provider::CODE_EXECUTOR, "this code executor takes a `CodeInput`, and optionally a `Context`"),
        (&provider::SUMMARIZER, "this summarizer takes a `Vec<Event>`, and optionally a `Context`"),
        (&provider::EXAMPLES, "this example provider takes the query, a `String`, and optionally a `Context`"),
        (&provider::MODEL, "this model takes an `LlmRequest` and an `Answer`, and optionally a `Context`"),
        (
            &provider::LIVE_MODEL,
            "this live model takes an `LlmRequest` and a `LiveConnection`, and optionally a `Context`",
        ),
    ];
    for (kind, message) in cases {
        assert_eq!(provider_error(kind, "", none), message);
    }
    let without_answer = "async fn f(request: LlmRequest) {}";
    assert!(provider_error(&provider::MODEL, "", without_answer).starts_with("this model takes an `LlmRequest` and"));
    assert_eq!(provider_error(&provider::MODEL, r#"kind = "x""#, none), "the option of a model is `name = \"…\"`");
}

#[test]
fn providers_return_a_result() {
    let cases = [
        (
            &provider::CODE_EXECUTOR,
            "async fn f(input: CodeInput) -> CodeOutput {}",
            "this code executor returns `Result<CodeOutput, E>`",
        ),
        (
            &provider::SUMMARIZER,
            "async fn f(events: Vec<Event>) {}",
            "this summarizer returns `Result<Option<Content>, E>`",
        ),
        (
            &provider::EXAMPLES,
            "async fn f(query: String) -> Vec<Example> {}",
            "this example provider returns `Result<Vec<Example>, E>`",
        ),
        (&provider::MODEL, "async fn f(request: LlmRequest, answer: Answer) {}", "this model returns `Result<(), E>`"),
        (
            &provider::LIVE_MODEL,
            "async fn f(request: LlmRequest, live: LiveConnection) {}",
            "this live model returns `Result<(), E>`",
        ),
    ];
    for (kind, function, message) in cases {
        assert_eq!(provider_error(kind, "", function), message);
    }
}

#[test]
fn requests_become_json() {
    let requests: requests::Requests = syn::parse2(quote! {
        models: ["gemini-*", "a\"b\n"] because "to think",
        memory: read,
        artifacts: write because "to keep \\ charts",
        state: { read: ["app:theme"], write: ["user:*"] },
        runs: ["clerk"],
        sessions: { read: ["diary"] },
        environment: [],
        files: [{ guest: "/data", access: read }],
    })
    .unwrap();
    assert_eq!(
        requests.json(),
        r#"{"models":["gemini-*","a\"b\u000a"],"memory":"read","artifacts":"write","state":{"read":["app:theme"],"write":["user:*"]},"runs":["clerk"],"sessions":{"read":["diary"]},"environment":[],"files":[{"guest":"/data","access":"read"}],"why":{"models":"to think","artifacts":"to keep \\ charts"}}"#
    );
}

#[test]
fn errors_in_requests_are_explained() {
    let error = |requests: TokenStream| match syn::parse2::<requests::Requests>(requests) {
        Ok(requests) => format!("no error: {}", requests.json()),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        error(quote!(gpu: true)),
        "a component can request `models`, `memory`, `artifacts`, `state`, `runs`, `sessions`, `tools`, `environment`, `files` and `network`, not `gpu`"
    );
    assert_eq!(error(quote!(artifacts: all)), "it may be `read` or `write`, not `all`");
    assert_eq!(error(quote!(memory: all)), "it may be `read` or `write`, not `all`");
    assert_eq!(
        error(quote!(sessions: { all: [] })),
        "sessions are requested as in `sessions: { read: [\"diary\"], write: [] }`"
    );
    assert_eq!(error(quote!(memory: read since "x")), "a reason is written as in `memory: read because \"…\"`");
    assert_eq!(error(quote!(tools: [], tools: [])), "`tools` is requested twice; combine the lists");
    assert_eq!(error(quote!(state: { read: [], read: [] })), "`read` is set twice; remove one of them");
    assert_eq!(
        error(quote!(files: [{ host: "x" }])),
        "a folder is requested as in `{ guest: \"/data\", access: read }`; the operator chooses the folder of the host"
    );
}
