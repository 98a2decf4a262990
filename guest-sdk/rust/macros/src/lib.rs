//! Attribute macros of `hatchery-guest`; see there.
//!
//! Each but `#[plugin]` turns a function into one of the same name without parameters that gives a definition: data for the host, and a
//! pointer to the original function, which lives inside. Items can so be referred to by path, and a wrong reference does not compile.

mod agent;
mod callback;
mod function;
mod plugin;
mod point;
mod provider;
mod requests;
mod tool;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::parse::Parser;
use syn::{Error, ItemFn, ItemImpl, parse_macro_input};

/// Makes a tool of an async function. Its parameters are the arguments, one struct with `Deserialize` and `JsonSchema`, and a
/// `ToolContext`; both may be left out. It gives anything that is `Serialize`, or a `Result` of it. The comment is what the model reads.
///
/// `#[tool(name = "roll-die")]` names it otherwise than the function; `#[tool(long_running)]` says that its result comes later;
/// `#[tool(confirm)]` makes a person agree to each call before it runs.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as tool::Options);
    let function = parse_macro_input!(function as ItemFn);
    tool::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a callback of an async function, for one point:
///
/// | point | parameters | gives |
/// |---|---|---|
/// | `before_agent`, `after_agent` | | `Result<Option<Content>, E>` |
/// | `on_agent_error` | `Error` | `Result<Option<Content>, E>` |
/// | `before_model` | `LlmRequest` | `Result<Option<LlmResponse>, E>` |
/// | `after_model` | `LlmResponse` | `Result<Option<LlmResponse>, E>` |
/// | `on_model_error` | `LlmRequest`, `Error` | `Result<Option<LlmResponse>, E>` |
/// | `before_tool` | `ToolCall` | `Result<Option<impl Serialize>, E>` |
/// | `after_tool` | `ToolCall`, `Value` | `Result<Option<impl Serialize>, E>` |
/// | `on_tool_error` | `ToolCall`, `Error` | `Result<Option<impl Serialize>, E>` |
///
/// A `CallbackContext` may be added to the parameters, and any of them may be taken by reference. `None` goes on, with the changes made
/// through `&mut` to the request, the response, the call or its answer; `Some` takes the place of what would come.
#[proc_macro_attribute]
pub fn callback(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as callback::Options);
    let function = parse_macro_input!(function as ItemFn);
    callback::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a plugin of a type's functions: each is a hook, called in every run. The hooks are those of [`macro@callback`], for all agents, and
///
/// | hook | parameters | gives |
/// |---|---|---|
/// | `on_user_message` | `Content` | `Result<Option<Content>, E>`, which takes the place of the message |
/// | `before_run` | | `Result<Option<Content>, E>`, which is the run's answer: no agent runs |
/// | `on_event` | `Event` | `Result<Option<Event>, E>`, which is stored and yielded in its place |
/// | `after_run` | | `Result<(), E>`, after a run that did not fail |
/// | `on_run_error` | `Error` | `Result<(), E>`, after a run that failed |
///
/// Their parameters are as those of callbacks. The plugin's name is the type's, in snake case; `#[plugin(name = "…")]` names it otherwise.
#[proc_macro_attribute]
pub fn plugin(options: TokenStream, hooks: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as plugin::Options);
    let hooks = parse_macro_input!(hooks as ItemImpl);
    plugin::expand(options, hooks).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a code executor of an async function: it takes a `CodeInput`, and a `Context` if it wants one, and gives a
/// `Result<CodeOutput, E>`. Code that fails is no error: what it says goes to `stderr`. `#[code_executor(name = "…")]` names it otherwise.
#[proc_macro_attribute]
pub fn code_executor(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::CODE_EXECUTOR, options, function)
}

/// Makes a summarizer of an async function: it takes the events, a `Vec<Event>`, and a `Context` if it wants one, and gives a
/// `Result<Option<Content>, E>`; `None` when there is nothing to say about them. `#[summarizer(name = "…")]` names it otherwise.
#[proc_macro_attribute]
pub fn summarizer(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::SUMMARIZER, options, function)
}

/// Makes a provider of examples of an async function: it takes what the user says, a `String`, and a `Context` if it wants one, and gives
/// a `Result<Vec<Example>, E>`. `#[examples(name = "…")]` names it otherwise.
#[proc_macro_attribute]
pub fn examples(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::EXAMPLES, options, function)
}

/// Makes a model of an async function: it takes an `LlmRequest`, an `Answer`, where it says what it has to say, and a `Context` if it wants
/// one; it gives a `Result<(), E>`. `#[model(name = "…")]` names it otherwise.
#[proc_macro_attribute]
pub fn model(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::MODEL, options, function)
}

fn provider(kind: &provider::Kind, options: TokenStream, function: TokenStream) -> TokenStream {
    let parse = |input: syn::parse::ParseStream<'_>| kind.options(input);
    let expanded = parse.parse(options).and_then(|name| kind.expand(name, syn::parse(function)?));
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

/// Says what the component needs beyond computing, in the words of the operator's `grants`, each with a reason if there is one to give:
///
/// ```text
/// hatchery_guest::requests! {
///     models: ["gemini-*"] because "it sums up what it has found",
///     memory: true,
///     artifacts: write,
///     state: { read: ["app:theme"], write: ["user:*"] },
///     tools: ["search/*"],
///     environment: ["LANG"],
///     files: [{ guest: "/data", access: read }],
///     network: ["api.example.com"],
/// }
/// ```
///
/// It grants nothing: `hatchery inspect` shows the operator what is missing, and the host says at load which lines of `hatchery.yaml` would
/// grant it. A component without its grants is loaded all the same; what it may not do gives it an error with the code `DENIED`.
#[proc_macro]
pub fn requests(requests: TokenStream) -> TokenStream {
    parse_macro_input!(requests as requests::Requests).expand().into()
}

/// Marks an agent. On a function that gives a builder, its comment becomes the description unless the builder has one. On an async
/// function that takes an `AgentContext`, it makes a custom agent of the function, with its name and comment.
///
/// A custom agent takes options: `name = "…"`, `description = "…"`, `model = "…"`, and lists of items or names: `sub_agents = [a, "x/b"]`,
/// `tools`, `before_agent`, `after_agent`, `on_agent_error`.
#[proc_macro_attribute]
pub fn agent(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as agent::Options);
    let function = parse_macro_input!(function as ItemFn);
    agent::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}
