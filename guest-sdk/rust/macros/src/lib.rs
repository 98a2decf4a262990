//! Attribute macros of `hatchery-guest`, which documents and re-exports them.
//!
//! Each except `#[plugin]` replaces a function by one of the same name without parameters. It returns a definition:
//! data for the host, and a pointer to the original function, which moves inside. Items are thus referenced by path,
//! and a wrong reference does not compile.

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

/// Creates a tool from an async function. Its parameters are the arguments, one struct with `Deserialize` and
/// `JsonSchema`, and a `ToolContext`. Both are optional. It returns a value that is `Serialize`, or a `Result` of one.
/// The doc comment is the description for the model.
///
/// `#[tool(name = "roll-die")]` sets another name than the function's. `#[tool(long_running)]` marks a tool whose
/// result comes later. `#[tool(confirm)]` requires a person to confirm each call before it runs.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as tool::Options);
    let function = parse_macro_input!(function as ItemFn);
    tool::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Creates a callback from an async function, for one point:
///
/// | point | parameters | returns |
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
/// The function may also take a `CallbackContext`, and any parameter by reference. `None` continues, with the changes
/// made through `&mut` to the request, the response, the call or its answer. `Some` replaces the result of the step.
#[proc_macro_attribute]
pub fn callback(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as callback::Options);
    let function = parse_macro_input!(function as ItemFn);
    callback::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Creates a plugin from a type's functions. Each is a hook that runs in every run. The hooks are the points of
/// [`macro@callback`], for all agents, and
///
/// | hook | parameters | returns |
/// |---|---|---|
/// | `on_user_message` | `Content` | `Result<Option<Content>, E>`, which replaces the message |
/// | `before_run` | | `Result<Option<Content>, E>`, which is the run's answer: no agent runs |
/// | `on_event` | `Event` | `Result<Option<Event>, E>`, which replaces the event |
/// | `after_run` | | `Result<(), E>`, after a run that succeeded |
/// | `on_run_error` | `Error` | `Result<(), E>`, after a run that failed |
/// | `close` | | `Result<(), E>`, when the host stops or the plugin is replaced |
///
/// Parameters work as in callbacks. The plugin's name is the type's in snake case. `#[plugin(name = "…")]` sets
/// another one.
#[proc_macro_attribute]
pub fn plugin(options: TokenStream, hooks: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as plugin::Options);
    let hooks = parse_macro_input!(hooks as ItemImpl);
    plugin::expand(options, hooks).unwrap_or_else(Error::into_compile_error).into()
}

/// Creates a code executor from an async function. It takes a `CodeInput` and optionally a `Context`, and returns a
/// `Result<CodeOutput, E>`. If the executed code fails, return its messages in `stderr`, not an error.
/// `#[code_executor(name = "…")]` sets another name than the function's.
#[proc_macro_attribute]
pub fn code_executor(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::CODE_EXECUTOR, options, function)
}

/// Creates a summarizer from an async function. It takes the events, a `Vec<Event>`, and optionally a `Context`, and
/// returns a `Result<Option<Content>, E>`, with `None` for no summary. `#[summarizer(name = "…")]` sets another name
/// than the function's.
#[proc_macro_attribute]
pub fn summarizer(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::SUMMARIZER, options, function)
}

/// Creates an example provider from an async function. It takes the user's message, a `String`, and optionally a
/// `Context`, and returns a `Result<Vec<Example>, E>`. `#[examples(name = "…")]` sets another name than the function's.
#[proc_macro_attribute]
pub fn examples(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::EXAMPLES, options, function)
}

/// Creates a model from an async function. It takes an `LlmRequest`, an `Answer` to write to, and optionally a
/// `Context`, and returns a `Result<(), E>`. `#[model(name = "…")]` sets another name than the function's.
#[proc_macro_attribute]
pub fn model(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::MODEL, options, function)
}

/// Creates a live model from an async function. It takes an `LlmRequest`, a `LiveConnection`, and optionally a
/// `Context`, and returns a `Result<(), E>`. `#[live_model(name = "…")]` sets another name than the function's.
#[proc_macro_attribute]
pub fn live_model(options: TokenStream, function: TokenStream) -> TokenStream {
    provider(&provider::LIVE_MODEL, options, function)
}

fn provider(kind: &provider::ProviderKind, options: TokenStream, function: TokenStream) -> TokenStream {
    let parse = |input: syn::parse::ParseStream<'_>| kind.options(input);
    let expanded = parse.parse(options).and_then(|name| kind.expand(name, syn::parse(function)?));
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

/// Declares the capabilities that the component needs, with the keys of the operator's `grants`. Each may have a
/// reason:
///
/// ```text
/// hatchery_guest::requests! {
///     models: ["gemini-*"] because "it sums up what it has found",
///     memory: read,
///     artifacts: write,
///     state: { read: ["app:theme"], write: ["user:*"] },
///     tools: ["search/*"],
///     environment: ["LANG"],
///     files: [{ guest: "/data", access: read }],
///     network: ["api.example.com"],
/// }
/// ```
///
/// Requests grant nothing. `hatchery inspect` shows the operator which grants are missing, and the host logs at load
/// the lines of `hatchery.yaml` that would grant them. A component without its grants is loaded too; a denied call
/// returns an error with the code `DENIED`.
#[proc_macro]
pub fn requests(requests: TokenStream) -> TokenStream {
    parse_macro_input!(requests as requests::Requests).expand().into()
}

/// Marks an agent. On a function that returns a builder, the doc comment becomes the description unless the builder has
/// one. On an async function that takes an `AgentContext`, it creates a custom agent with the function's name and
/// comment.
///
/// Options of a custom agent are `name = "…"`, `description = "…"`, `model = "…"`, and lists of items or names:
/// `sub_agents = [a, "x/b"]`, `tools`, `before_agent`, `after_agent`, `on_agent_error`.
#[proc_macro_attribute]
pub fn agent(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as agent::Options);
    let function = parse_macro_input!(function as ItemFn);
    agent::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}
