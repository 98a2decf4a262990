//! Where callbacks and plugin hooks run: what each takes beside its context, and what its answer means.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, Result, Signature};

use crate::function::{Parameter, Passing, parameters};

/// A place where a component's code is called.
#[derive(Clone, Copy)]
pub struct Point {
    /// As authors write it, such as `before_tool`.
    pub name: &'static str,
    takes: Takes,
    answer: Answer,
}

/// What the code takes beside its context.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    One(&'static str),
    Two(&'static str, &'static str),
}

/// What the code's answer is to the host.
#[derive(Clone, Copy)]
enum Answer {
    /// What it is.
    AsItIs,
    /// `Some` replaces what was taken first.
    Replaces,
    /// `Some` is anything that is JSON.
    Json,
    /// `Some` is JSON and replaces what was taken second.
    ReplacesJson,
    /// `Some` comes instead of the call.
    Instead,
    /// `Some` is JSON and comes instead of the call.
    InsteadJson,
}

const fn point(name: &'static str, takes: Takes, answer: Answer) -> Point {
    Point { name, takes, answer }
}

const CALL: &str = "a `ToolCall`";
const FAILURE: &str = "the failure, an `Error`";

/// Those of callbacks; plugins have them too.
const CALLBACKS: [Point; 9] = [
    point("before_agent", Takes::Nothing, Answer::AsItIs),
    point("after_agent", Takes::Nothing, Answer::AsItIs),
    point("on_agent_error", Takes::One(FAILURE), Answer::AsItIs),
    point("before_model", Takes::One("an `LlmRequest`"), Answer::Instead),
    point("after_model", Takes::One("an `LlmResponse`"), Answer::Replaces),
    point("on_model_error", Takes::Two("an `LlmRequest`", FAILURE), Answer::AsItIs),
    point("before_tool", Takes::One(CALL), Answer::InsteadJson),
    point("after_tool", Takes::Two(CALL, "the answer, a `Value`"), Answer::ReplacesJson),
    point("on_tool_error", Takes::Two(CALL, FAILURE), Answer::Json),
];

/// Those of plugins alone.
const RUNS: [Point; 5] = [
    point("on_user_message", Takes::One("a `Content`"), Answer::Replaces),
    point("before_run", Takes::Nothing, Answer::AsItIs),
    point("on_event", Takes::One("an `Event`"), Answer::Replaces),
    point("after_run", Takes::Nothing, Answer::AsItIs),
    point("on_run_error", Takes::One(FAILURE), Answer::AsItIs),
];

impl Point {
    /// A callback's point.
    pub fn of_callback(ident: &Ident) -> Option<Self> {
        CALLBACKS.into_iter().find(|point| ident == point.name)
    }

    /// A plugin's hook.
    pub fn of_plugin(ident: &Ident) -> Option<Self> {
        RUNS.into_iter().chain(CALLBACKS).find(|point| ident == point.name)
    }

    /// The names of all callbacks' points, for messages.
    pub fn callback_names() -> String {
        list(CALLBACKS.iter())
    }

    /// The names of all plugins' hooks, for messages.
    pub fn plugin_names() -> String {
        list(RUNS.iter().chain(&CALLBACKS))
    }

    fn inputs(self) -> usize {
        match self.takes {
            Takes::Nothing => 0,
            Takes::One(_) => 1,
            Takes::Two(..) => 2,
        }
    }

    /// Which of its inputs the code can change: its place among them.
    fn changeable(self) -> Option<usize> {
        match self.answer {
            Answer::AsItIs | Answer::Json => None,
            Answer::Replaces | Answer::Instead | Answer::InsteadJson => Some(0),
            Answer::ReplacesJson => Some(1),
        }
    }

    fn takes(self) -> String {
        match self.takes {
            Takes::Nothing => "nothing but a `CallbackContext`".into(),
            Takes::One(what) => what.into(),
            Takes::Two(first, second) => format!("{first} and {second}"),
        }
    }

    /// A closure that takes the inputs and the context, calls the function by this path and says what its answer means.
    ///
    /// # Errors
    /// When the function takes something else. `kind` names it in messages.
    pub fn closure(self, kind: &str, signature: &Signature, path: &TokenStream) -> Result<TokenStream> {
        let names = [quote!(first), quote!(second)];
        let mut inputs: Vec<Parameter<'_>> = Vec::new();
        let mut passed = Vec::new();
        for parameter in parameters(signature)? {
            if parameter.is("CallbackContext") {
                passed.push(parameter.passing.pass(&quote!(cx)));
            } else {
                passed.push(names.get(inputs.len()).map(|name| parameter.passing.pass(name)).unwrap_or_default());
                inputs.push(parameter);
            }
        }
        if inputs.len() != self.inputs() {
            return Err(Error::new_spanned(&signature.inputs, format!("this {kind} takes {}", self.takes())));
        }
        let changed = inputs.iter().position(|input| matches!(input.passing, Passing::Mutable));
        if let Some(input) = changed.and_then(|place| inputs.get(place))
            && changed != self.changeable()
        {
            let message = format!("this {kind} cannot change it: take it by value or by `&`");
            return Err(Error::new_spanned(input.ty, message));
        }

        let pattern = match self.inputs() {
            0 => quote!(()),
            1 => quote!(mut first),
            _ => quote!((mut first, mut second)),
        };
        let call = quote!(#path(#(#passed),*).await.map_err(::hatchery_guest::Error::from));
        let body = self.body(changed.is_some(), &call);
        Ok(quote! {
            |input, cx| ::std::boxed::Box::pin(async move {
                let _ = &cx;
                #[allow(unused_mut)]
                let #pattern = input;
                #body
            })
        })
    }

    /// Calls the function and says what its answer means; `changed` when it can change what it takes.
    fn body(self, changed: bool, call: &TokenStream) -> TokenStream {
        let private = quote!(::hatchery_guest::__private);
        let some = quote!(::core::option::Option::Some);
        let ok = quote!(::core::result::Result::Ok);
        let before = |answer: TokenStream| {
            let go_on =
                if changed { quote!(#private::Before::Revise(first)) } else { quote!(#private::Before::Proceed) };
            quote! {
                #ok(match #call? {
                    #some(answer) => #private::Before::Respond(#answer),
                    ::core::option::Option::None => #go_on,
                })
            }
        };
        match (self.answer, changed) {
            (Answer::AsItIs, _) | (Answer::Replaces, false) => call.clone(),
            (Answer::Replaces, true) => quote!(#ok(#some(#call?.unwrap_or(first)))),
            (Answer::Json, _) | (Answer::ReplacesJson, false) => quote!(#call?.map(#private::value).transpose()),
            (Answer::ReplacesJson, true) => {
                quote!(#ok(#some(#call?.map(#private::value).transpose()?.unwrap_or(second))))
            }
            (Answer::Instead, _) => before(quote!(answer)),
            (Answer::InsteadJson, _) => before(quote!(#private::value(answer)?)),
        }
    }
}

/// `a`, `b` and `c`.
fn list<'a>(points: impl Iterator<Item = &'a Point>) -> String {
    let names: Vec<_> = points.map(|point| format!("`{}`", point.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
