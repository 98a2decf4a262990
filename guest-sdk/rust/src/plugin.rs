//! Plugins: hooks into every run of every app.

use serde_json::Value;

use crate::bindings::plugins::exports::hatchery::agent::guest_plugins as wit;
use crate::bindings::wit::types;
use crate::callback::{Before, Run, ToolCall};
use crate::content::Content;
use crate::context::CallbackContext;
use crate::error::Error;
use crate::event::Event;
use crate::export::{ExportList, find};
use crate::hook::{FromWit, IntoWit, for_each_hook};
use crate::model::{LlmRequest, LlmResponse};

/// A plugin, as [`#[plugin]`](macro@crate::plugin) creates it from a type's functions.
pub trait Plugin {
    /// The name that `hatchery.yaml` uses.
    const NAME: &'static str;

    #[doc(hidden)]
    const HOOKS: Hooks;
}

/// A plugin as data.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct AnyPlugin {
    name: &'static str,
    hooks: Hooks,
}

impl AnyPlugin {
    /// Returns the plugin `P`.
    #[must_use]
    pub fn for_plugin<P: Plugin>() -> Self {
        Self { name: P::NAME, hooks: P::HOOKS }
    }
}

macro_rules! define_plugins {
    (() runs { $($runs:tt)* } agents { $($agents:tt)* } calls { $($calls:tt)* }) => {
        define_plugins! { $($runs)* $($agents)* $($calls)* }
    };
    ($(
        $(#[$doc:meta])* $hook:ident $_point:ident $name:literal ($($input:ident: $type:ty),*) -> $output:ty, $_call:ident;
    )*) => {
        /// The code of a plugin. A hook that is `None` is never called.
        #[doc(hidden)]
        #[derive(Debug, Clone, Copy)]
        #[allow(unused_parens, reason = "a single input is in parentheses, several are a tuple")]
        pub struct Hooks {
            $( pub $hook: Option<Run<($($type),*), $output>>, )*
        }

        impl Hooks {
            /// No hooks.
            pub const NONE: Self = Self { $( $hook: None, )* };

            fn names(&self) -> Vec<String> {
                let names = [$( self.$hook.map(|_| $name) ),*];
                names.into_iter().flatten().map(Into::into).collect()
            }
        }

        impl<S: ExportList<AnyPlugin>> wit::Guest for S {
            fn describe() -> Vec<wit::PluginSpec> {
                let spec =
                    |plugin: AnyPlugin| wit::PluginSpec { name: plugin.name.into(), hooks: plugin.hooks.names() };
                S::items().into_iter().map(spec).collect()
            }

            $(
                async fn $hook(
                    name: String
                    $(, $input: <$type as FromWit>::Wit)*
                ) -> Result<<$output as IntoWit>::Wit, types::Error> {
                    let hooks = find(S::items(), "plugin", &name, |plugin| plugin.name)?.hooks;
                    let run = hooks.$hook.ok_or_else(|| hooks.unknown(&name, stringify!($hook)))?;
                    let input = ($(FromWit::from_wit($input)?),*);
                    Ok(run(input, CallbackContext::new()).await?.into_wit())
                }
            )*
        }
    };
}

for_each_hook!(define_plugins);

impl Hooks {
    fn unknown(&self, plugin: &str, hook: &str) -> Error {
        let names = self.names().join(", ");
        Error::new("NOT_FOUND", format!("plugin `{plugin}` has no hook `{hook}`; it has {names}"))
    }
}
