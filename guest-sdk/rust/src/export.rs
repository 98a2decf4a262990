//! The [`export!`](crate::export) macro.

use crate::context::Context;
use crate::error::Error;
use crate::tool::LocalFuture;

/// Declares the exports of the component:
///
/// | list | items |
/// |---|---|
/// | `agents` | functions marked `#[agent]`, or that return an agent builder; sub-agents of a listed agent need not be listed |
/// | `tools` | functions marked `#[tool]` |
/// | `toolsets` | functions that return a [`ToolsetExport`](crate::ToolsetExport) |
/// | `callbacks` | functions marked `#[callback(…)]` |
/// | `plugins` | types whose functions are marked `#[plugin]` |
/// | `code_executors` | functions marked `#[code_executor]` |
/// | `summarizers` | functions marked `#[summarizer]` |
/// | `examples` | functions marked `#[examples]` |
/// | `models` | functions marked `#[model]` |
/// | `live_models` | functions marked `#[live_model]` |
///
/// ```
/// # use hatchery_guest::prelude::*;
/// # /// Returns the time.
/// # #[tool]
/// # async fn time() -> String { String::from("noon") }
/// # /// Greets.
/// # #[agent]
/// # async fn greeter(cx: AgentContext) -> Result<(), Error> { cx.say("Hello").await }
/// hatchery_guest::export! { agents: [greeter], tools: [time] }
/// ```
#[macro_export]
macro_rules! export {
    ($($kind:ident: [$($item:path),* $(,)?]),+ $(,)?) => { $( $crate::__export!($kind [$($item),*]); )+ };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    (agents [$($item:path),*]) => {
        $crate::__export_items!($crate::Agent, agents, export_agents, [$($crate::Agent::from($item())),*]);
    };
    (tools [$($item:path),*]) => {
        $crate::__export_items!($crate::Tool, tools, export_tools, [$($item()),*]);
    };
    (toolsets [$($item:path),*]) => {
        $crate::__export_items!($crate::ToolsetExport, toolsets, export_toolsets, [$($item()),*]);
    };
    (callbacks [$($item:path),*]) => {
        $crate::__export_items!(
            $crate::AnyCallback, callbacks, export_callbacks, [$($crate::AnyCallback::from($item())),*]
        );
    };
    (plugins [$($item:path),*]) => {
        $crate::__export_items!(
            $crate::__private::AnyPlugin, plugins, export_plugins, [$($crate::__private::AnyPlugin::for_plugin::<$item>()),*]
        );
    };
    (code_executors [$($item:path),*]) => {
        $crate::__export_items!($crate::CodeExecutor, code_executors, export_code_executors, [$($item()),*]);
    };
    (summarizers [$($item:path),*]) => {
        $crate::__export_items!($crate::Summarizer, summarizers, export_summarizers, [$($item()),*]);
    };
    (examples [$($item:path),*]) => {
        $crate::__export_items!($crate::ExampleProvider, examples, export_examples, [$($item()),*]);
    };
    (models [$($item:path),*]) => {
        $crate::__export_items!($crate::Model, models, export_models, [$($item()),*]);
    };
    (live_models [$($item:path),*]) => {
        $crate::__export_items!($crate::LiveModel, live_models, export_live_models, [$($item()),*]);
    };
    ($other:ident $items:tt) => {
        ::std::compile_error!(::std::concat!(
            "a component exports `agents`, `tools`, `toolsets`, `callbacks`, `plugins`, `code_executors`, `summarizers`, `examples`, \
             `models` and `live_models`, not `",
            ::std::stringify!($other),
            "`"
        ));
    };
}

/// Exports items of one type through the bindings in `$module`, with the export macro `$export`.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_items {
    ($type:ty, $module:ident, $export:ident, [$($item:expr),*]) => {
        const _: () = {
            struct Exported;
            impl $crate::__private::ExportList<$type> for Exported {
                fn items() -> ::std::vec::Vec<$type> {
                    ::std::vec![$($item),*]
                }
            }
            // On other targets nothing is exported; this marks the items as used.
            const _: fn() -> ::std::vec::Vec<$type> = <Exported as $crate::__private::ExportList<$type>>::items;
            #[cfg(target_family = "wasm")]
            $crate::__private::$export!(Exported with_types_in $crate::__private::$module);
        };
    };
}

/// The items that `export!` lists, by type.
pub trait ExportList<T> {
    /// Returns the items, in the order written.
    fn items() -> Vec<T>;
}

/// The code of an item that maps an input to an output.
pub type Handler<I, O, E = Error> = fn(I, Context) -> LocalFuture<Result<O, E>>;

/// Returns the item with this name.
pub(crate) fn find<T>(items: Vec<T>, kind: &str, name: &str, name_of: fn(&T) -> &str) -> Result<T, Error> {
    let found = items.into_iter().find(|item| name_of(item) == name);
    found.ok_or_else(|| Error::new("NOT_FOUND", format!("this component has no {kind} `{name}`")))
}

#[cfg(test)]
mod tests;
