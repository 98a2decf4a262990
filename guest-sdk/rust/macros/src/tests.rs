//! What the macros say about functions that they cannot use.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{agent, callback, tool};

fn tool_error(options: TokenStream, function: TokenStream) -> String {
    syn::parse2(options)
        .and_then(|options| tool::expand(options, syn::parse2(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn callback_error(options: TokenStream, function: TokenStream) -> String {
    syn::parse2(options)
        .and_then(|options| callback::expand(options, syn::parse2(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

fn agent_error(options: TokenStream, function: TokenStream) -> String {
    syn::parse2(options)
        .and_then(|options| agent::expand(options, syn::parse2(function)?))
        .map_or_else(|error| error.to_string(), |code| format!("no error: {code}"))
}

#[test]
fn a_tool_is_an_async_function_that_is_not_generic() {
    assert_eq!(
        tool_error(
            quote!(),
            quote!(
                fn f() {}
            )
        ),
        "a tool is an `async fn`"
    );
    assert_eq!(
        tool_error(
            quote!(),
            quote!(
                async fn f<T>(t: T) {}
            )
        ),
        "a tool cannot be generic"
    );
    assert_eq!(
        tool_error(
            quote!(),
            quote!(
                async fn f(&self) {}
            )
        ),
        "a free function is needed, without `self`"
    );
}

#[test]
fn a_tool_takes_one_struct_by_value() {
    assert_eq!(
        tool_error(
            quote!(),
            quote!(
                async fn f(a: A, b: B, cx: ToolContext) {}
            )
        ),
        "a tool takes its arguments as one struct; put them together in one with `Deserialize` and `JsonSchema`"
    );
    assert_eq!(
        tool_error(
            quote!(),
            quote!(
                async fn f(a: &A) {}
            )
        ),
        "the arguments of a tool are taken by value, not by reference"
    );
}

#[test]
fn unknown_options_are_told_with_the_known_ones() {
    assert_eq!(
        tool_error(
            quote!(long),
            quote!(
                async fn f() {}
            )
        ),
        "options of a tool are `name = \"…\"` and `long_running`"
    );
    assert!(
        callback_error(
            quote!(before),
            quote!(
                async fn f() {}
            )
        )
        .contains("`before_tool` and `after_tool`")
    );
    assert!(
        callback_error(
            quote!(),
            quote!(
                async fn f() {}
            )
        )
        .starts_with("a callback is for one of `before_agent`")
    );
    assert_eq!(
        callback_error(
            quote!(before_tool, title = "x"),
            quote!(
                async fn f() {}
            )
        ),
        "the option of a callback is `name = \"…\"`"
    );
    assert!(
        agent_error(
            quote!(tool = x),
            quote!(
                async fn f() {}
            )
        )
        .starts_with("options of a custom agent are `name")
    );
}

#[test]
fn a_callback_takes_what_its_point_gives() {
    let none = quote!(
        async fn f(cx: CallbackContext) -> Result<Option<Value>, Error> {}
    );
    let cases = [
        (quote!(before_model), "this callback takes an `LlmRequest`"),
        (quote!(after_model), "this callback takes an `LlmResponse`"),
        (quote!(before_tool), "this callback takes a `ToolCall`"),
        (quote!(after_tool), "this callback takes a `ToolCall` and the answer, a `Value`"),
    ];
    for (point, message) in cases {
        assert_eq!(callback_error(point, none.clone()), message);
    }
    let some = quote!(
        async fn f(x: X) -> Result<Option<Content>, Error> {}
    );
    assert_eq!(callback_error(quote!(before_agent), some), "this callback takes nothing but a `CallbackContext`");
    assert_eq!(
        callback_error(
            quote!(before_tool),
            quote!(
                fn f() {}
            )
        ),
        "a callback is an `async fn`"
    );
}

#[test]
fn a_custom_agent_takes_its_context_only() {
    assert_eq!(
        agent_error(
            quote!(),
            quote!(
                async fn f(x: X) {}
            )
        ),
        "a custom agent takes nothing but an `AgentContext`"
    );
}

#[test]
fn options_on_a_builder_function_are_refused() {
    assert_eq!(
        agent_error(
            quote!(name = "x"),
            quote!(
                fn f() -> LlmAgent {}
            )
        ),
        "options are for an `async fn`; here, say it with the builder"
    );
}
