//! The table of hook points: the inputs of each point, and the effect of its answer.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, Result, Signature};

use crate::function::{Parameter, PassingMode, check_result, parameters};

/// A hook point of callbacks or plugins.
#[derive(Clone, Copy)]
pub struct HookPoint {
    /// The name that authors write, such as `before_tool`.
    pub name: &'static str,
    inputs: Inputs,
    answer: Answer,
    /// The return type, for error messages.
    returns: &'static str,
}

/// The parameters of the function except its context, for error messages.
#[derive(Clone, Copy)]
enum Inputs {
    None,
    One(&'static str),
    Two(&'static str, &'static str),
}

/// The meaning of the function's answer.
#[derive(Clone, Copy)]
enum Answer {
    /// The answer is passed to the host unchanged.
    Direct,
    /// `Some` replaces the first input.
    ReplacesFirst,
    /// `Some` is any value that serializes to JSON.
    Json,
    /// `Some` serializes to JSON and replaces the second input.
    ReplacesSecondJson,
    /// `Some` replaces the call.
    ReplacesCall,
    /// `Some` serializes to JSON and replaces the call.
    ReplacesCallJson,
}

const fn point(name: &'static str, inputs: Inputs, answer: Answer, returns: &'static str) -> HookPoint {
    HookPoint { name, inputs, answer, returns }
}

const CALL: &str = "a `ToolCall`";
const ERROR: &str = "the error, an `Error`";

const CONTENT: &str = "Result<Option<Content>, E>";
const RESPONSE: &str = "Result<Option<LlmResponse>, E>";
const JSON: &str = "Result<Option<impl Serialize>, E>";
const NOTHING: &str = "Result<(), E>";

/// The points of callbacks. Plugins have them too.
const CALLBACKS: [HookPoint; 9] = [
    point("before_agent", Inputs::None, Answer::Direct, CONTENT),
    point("after_agent", Inputs::None, Answer::Direct, CONTENT),
    point("on_agent_error", Inputs::One(ERROR), Answer::Direct, CONTENT),
    point("before_model", Inputs::One("an `LlmRequest`"), Answer::ReplacesCall, RESPONSE),
    point("after_model", Inputs::One("an `LlmResponse`"), Answer::ReplacesFirst, RESPONSE),
    point("on_model_error", Inputs::Two("an `LlmRequest`", ERROR), Answer::Direct, RESPONSE),
    point("before_tool", Inputs::One(CALL), Answer::ReplacesCallJson, JSON),
    point("after_tool", Inputs::Two(CALL, "the answer, a `Value`"), Answer::ReplacesSecondJson, JSON),
    point("on_tool_error", Inputs::Two(CALL, ERROR), Answer::Json, JSON),
];

/// The points of runs, for plugins only.
const RUNS: [HookPoint; 6] = [
    point("on_user_message", Inputs::One("a `Content`"), Answer::ReplacesFirst, CONTENT),
    point("before_run", Inputs::None, Answer::Direct, CONTENT),
    point("on_event", Inputs::One("an `Event`"), Answer::ReplacesFirst, "Result<Option<Event>, E>"),
    point("after_run", Inputs::None, Answer::Direct, NOTHING),
    point("on_run_error", Inputs::One(ERROR), Answer::Direct, NOTHING),
    point("close", Inputs::None, Answer::Direct, NOTHING),
];

impl HookPoint {
    /// Returns the point of a callback.
    pub fn find_callback(ident: &Ident) -> Option<Self> {
        CALLBACKS.into_iter().find(|point| ident == point.name)
    }

    /// Returns the point of a plugin's hook.
    pub fn find_plugin_hook(ident: &Ident) -> Option<Self> {
        RUNS.into_iter().chain(CALLBACKS).find(|point| ident == point.name)
    }

    /// Returns the names of all callback points, for messages.
    pub fn callback_names() -> String {
        list(CALLBACKS.iter())
    }

    /// Returns the names of all plugin hooks, for messages.
    pub fn plugin_names() -> String {
        list(RUNS.iter().chain(&CALLBACKS))
    }

    fn input_count(self) -> usize {
        match self.inputs {
            Inputs::None => 0,
            Inputs::One(_) => 1,
            Inputs::Two(..) => 2,
        }
    }

    /// Returns the index of the input that the function can change.
    fn mutable_input(self) -> Option<usize> {
        match self.answer {
            Answer::Direct | Answer::Json => None,
            Answer::ReplacesFirst | Answer::ReplacesCall | Answer::ReplacesCallJson => Some(0),
            Answer::ReplacesSecondJson => Some(1),
        }
    }

    fn describe_inputs(self) -> String {
        match self.inputs {
            Inputs::None => "no parameters except a `CallbackContext`".into(),
            Inputs::One(what) => what.into(),
            Inputs::Two(first, second) => format!("{first} and {second}"),
        }
    }

    /// Returns a closure that takes the inputs and the context, calls the function at `path` and converts its answer.
    ///
    /// # Errors
    /// If the function has other parameters or returns no `Result`. `kind` is for messages.
    pub fn closure(self, kind: &str, signature: &Signature, path: &TokenStream) -> Result<TokenStream> {
        let names = [quote!(first), quote!(second)];
        let mut inputs: Vec<Parameter<'_>> = Vec::new();
        let mut passed = Vec::new();
        for parameter in parameters(signature)? {
            if parameter.has_type("CallbackContext") {
                passed.push(parameter.passing.pass(&quote!(cx)));
            } else {
                passed.push(names.get(inputs.len()).map(|name| parameter.passing.pass(name)).unwrap_or_default());
                inputs.push(parameter);
            }
        }
        if inputs.len() != self.input_count() {
            return Err(Error::new_spanned(&signature.inputs, format!("this {kind} takes {}", self.describe_inputs())));
        }
        check_result(signature, kind, self.returns)?;
        let changed = inputs.iter().position(|input| matches!(input.passing, PassingMode::Mutable));
        if let Some(input) = changed.and_then(|index| inputs.get(index))
            && changed != self.mutable_input()
        {
            let message = format!("this {kind} cannot change this parameter: take it by value or by `&`");
            return Err(Error::new_spanned(input.ty, message));
        }

        let pattern = match self.input_count() {
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

    /// Returns the code that calls the function and converts its answer. `changed` is true if it takes an input
    /// mutably.
    fn body(self, changed: bool, call: &TokenStream) -> TokenStream {
        let private = quote!(::hatchery_guest::__private);
        let some = quote!(::core::option::Option::Some);
        let ok = quote!(::core::result::Result::Ok);
        let before = |answer: TokenStream| {
            let proceed =
                if changed { quote!(#private::Before::Revise(first)) } else { quote!(#private::Before::Proceed) };
            quote! {
                #ok(match #call? {
                    #some(answer) => #private::Before::Respond(#answer),
                    ::core::option::Option::None => #proceed,
                })
            }
        };
        match (self.answer, changed) {
            (Answer::Direct, _) | (Answer::ReplacesFirst, false) => call.clone(),
            (Answer::ReplacesFirst, true) => quote!(#ok(#some(#call?.unwrap_or(first)))),
            (Answer::Json, _) | (Answer::ReplacesSecondJson, false) => quote!(#call?.map(#private::value).transpose()),
            (Answer::ReplacesSecondJson, true) => {
                quote!(#ok(#some(#call?.map(#private::value).transpose()?.unwrap_or(second))))
            }
            (Answer::ReplacesCall, _) => before(quote!(answer)),
            (Answer::ReplacesCallJson, _) => before(quote!(#private::value(answer)?)),
        }
    }
}

/// Returns the names as text: `a`, `b` and `c`.
fn list<'a>(points: impl Iterator<Item = &'a HookPoint>) -> String {
    let names: Vec<_> = points.map(|point| format!("`{}`", point.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
