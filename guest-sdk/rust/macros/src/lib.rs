//! Attribute macros of `hatchery-guest`; see there.
//!
//! Each turns a function into one of the same name without parameters that gives a definition: data for the host, and a pointer to the
//! original function, which lives inside. Items can so be referred to by path, and a wrong reference does not compile.

mod agent;
mod callback;
mod function;
mod tool;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{Error, ItemFn, parse_macro_input};

/// Makes a tool of an async function. Its parameters are the arguments, one struct with `Deserialize` and `JsonSchema`, and a
/// `ToolContext`; both may be left out. It gives anything that is `Serialize`, or a `Result` of it. The comment is what the model reads.
///
/// `#[tool(name = "roll-die")]` names it otherwise than the function; `#[tool(long_running)]` says that its result comes later.
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
/// | `before_model` | `&LlmRequest` or `&mut LlmRequest` | `Result<Option<LlmResponse>, E>` |
/// | `after_model` | `LlmResponse` | `Result<Option<LlmResponse>, E>` |
/// | `before_tool` | `&ToolCall` or `&mut ToolCall` | `Result<Option<impl Serialize>, E>` |
/// | `after_tool` | `ToolCall`, `Value` | `Result<Option<impl Serialize>, E>` |
///
/// A `CallbackContext` may be added to the parameters, and any of them may be taken by reference. `None` goes on, with the changes made
/// through `&mut`; `Some` takes the place of what would come.
#[proc_macro_attribute]
pub fn callback(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as callback::Options);
    let function = parse_macro_input!(function as ItemFn);
    callback::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Marks an agent. On a function that gives a builder, its comment becomes the description unless the builder has one. On an async
/// function that takes an `AgentContext`, it makes a custom agent of the function, with its name and comment.
///
/// A custom agent takes options: `name = "…"`, `description = "…"`, `model = "…"`, and lists of items or names: `sub_agents = [a, "x/b"]`,
/// `tools`, `before_agent`, `after_agent`.
#[proc_macro_attribute]
pub fn agent(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as agent::Options);
    let function = parse_macro_input!(function as ItemFn);
    agent::expand(options, function).unwrap_or_else(Error::into_compile_error).into()
}
