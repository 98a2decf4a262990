//! Callbacks: hooks before and after an agent, a model call or a tool call, and on their errors.

use serde::Serialize;
use serde_json::Value;

use crate::bindings::callbacks::exports::hatchery::agent::guest_callbacks as wit;
use crate::bindings::wit::types;
use crate::content::{Content, JsonMap};
use crate::context::CallbackContext;
use crate::error::Error;
use crate::export::ExportList;
use crate::hook::{FromWit, IntoWit, for_each_hook};
use crate::model::{LlmRequest, LlmResponse};
use crate::tool::LocalFuture;

/// A tool call, as callbacks and plugins see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    /// The tool's name.
    pub tool: String,
    /// Arguments by name.
    pub args: JsonMap,
}

/// A callback of the kind `P`, as [`#[callback]`](macro@crate::callback) creates it from an async function.
#[derive(Debug, Clone, Copy)]
pub struct Callback<P> {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub point: P,
}

/// The code of a callback or hook.
pub type Run<I, O> = fn(I, CallbackContext) -> LocalFuture<Result<O, Error>>;

/// The decision of a callback or hook before a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Before<I, O> {
    /// Continue.
    Proceed,
    /// Continue with this input.
    Revise(I),
    /// Skip the call and use this answer.
    Respond(O),
}

macro_rules! define_callbacks {
    (() runs $_runs:tt agents { $($agents:tt)* } calls { $($calls:tt)* }) => {
        define_callbacks! { $($agents)* $($calls)* }
    };
    ($(
        $(#[$doc:meta])* $hook:ident $point:ident $name:literal ($($input:ident: $type:ty),*) -> $output:ty, $_call:ident;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            #[allow(unused_parens, reason = "a single input is in parentheses, several are a tuple")]
            pub struct $point(#[doc(hidden)] pub Run<($($type),*), $output>);

            impl From<Callback<$point>> for AnyCallback {
                fn from(callback: Callback<$point>) -> Self {
                    Self::$point(callback)
                }
            }
        )*

        /// A callback of any kind.
        #[derive(Debug, Clone, Copy)]
        pub enum AnyCallback {
            $( $(#[$doc])* $point(Callback<$point>), )*
        }

        impl AnyCallback {
            fn name(&self) -> &'static str {
                match self {
                    $( Self::$point(callback) => callback.name, )*
                }
            }

            /// Returns the contract's name of the hook point.
            fn point(&self) -> &'static str {
                match self {
                    $( Self::$point(_) => $name, )*
                }
            }
        }

        impl<S: ExportList<AnyCallback>> wit::Guest for S {
            fn describe() -> Vec<wit::CallbackSpec> {
                describe(S::items())
            }

            $(
                async fn $hook(
                    name: String
                    $(, $input: <$type as FromWit>::Wit)*
                ) -> Result<<$output as IntoWit>::Wit, types::Error> {
                    let run = find(S::items(), &name, |callback| match callback {
                        AnyCallback::$point(callback) => Some(callback.point.0),
                        _ => None,
                    })?;
                    let input = ($(FromWit::from_wit($input)?),*);
                    Ok(run(input, CallbackContext::new()).await?.into_wit())
                }
            )*
        }
    };
}

for_each_hook!(define_callbacks);

/// Refers to a callback of the kind `P`: a function marked `#[callback(…)]`, or a name (`check`, `guards/check`).
pub trait CallbackRef<P> {
    /// Returns the name.
    fn callback_name(self) -> String;
}

impl<P, F: Fn() -> Callback<P>> CallbackRef<P> for F {
    fn callback_name(self) -> String {
        self().name.into()
    }
}

impl<P> CallbackRef<P> for &str {
    fn callback_name(self) -> String {
        self.into()
    }
}

#[doc(hidden)]
pub fn value(value: impl Serialize) -> Result<Value, Error> {
    Ok(serde_json::to_value(value)?)
}

/// Returns one spec per name: callbacks of several points share it.
fn describe(callbacks: Vec<AnyCallback>) -> Vec<wit::CallbackSpec> {
    let mut specs: Vec<wit::CallbackSpec> = Vec::new();
    for callback in callbacks {
        let point = callback.point().to_owned();
        match specs.iter_mut().find(|spec| spec.name == callback.name()) {
            Some(spec) => spec.points.push(point),
            None => specs.push(wit::CallbackSpec { name: callback.name().into(), points: vec![point] }),
        }
    }
    specs
}

/// Returns the code of the callback of this name at the point that `at_point` selects.
fn find<T>(callbacks: Vec<AnyCallback>, name: &str, at_point: fn(AnyCallback) -> Option<T>) -> Result<T, Error> {
    let mut points = Vec::new();
    for callback in callbacks.into_iter().filter(|callback| callback.name() == name) {
        points.push(callback.point());
        if let Some(code) = at_point(callback) {
            return Ok(code);
        }
    }
    Err(Error::new(
        "NOT_FOUND",
        match points.as_slice() {
            [] => format!("this component has no callback `{name}`"),
            points => format!("callback `{name}` is for {}", points.join(", ")),
        },
    ))
}
