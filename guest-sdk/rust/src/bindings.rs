//! The code that `wit-bindgen` generates from `wit/`: the imports once, and each exportable interface in its own
//! module, so that a component only has the exports that [`export!`](crate::export) lists.
//!
//! On other targets than wasm every import is a stub that panics. The rest of this crate therefore calls them through
//! [`host`](crate::host).
#![allow(missing_docs, unused_qualifications, clippy::all, clippy::unwrap_used, clippy::panic, clippy::unimplemented)]
#![allow(clippy::indexing_slicing, clippy::expect_used, dead_code, unexpected_cfgs)]

pub mod imports {
    wit_bindgen::generate!({
        world: "imports",
        path: "wit",
        generate_all,
        generate_unused_types: true,
        // This feature does not exist. Without `std::error::Error` on the contract's errors, they can be converted to
        // this crate's errors.
        std_feature,
        type_section_suffix: "-imports",
    });
}

/// Generates a module for each exportable interface. All of them share the imports above.
macro_rules! exports {
    ($($module:ident: $world:tt, $interface:tt, $export_macro:tt, $section:tt;)*) => { $(
        pub mod $module {
            wit_bindgen::generate!({
                world: $world,
                path: "wit",
                pub_export_macro: true,
                export_macro_name: $export_macro,
                type_section_suffix: $section,
                with: {
                    "hatchery:agent/types@0.2.1": crate::bindings::imports::hatchery::agent::types,
                    "hatchery:agent/specs@0.2.1": crate::bindings::imports::hatchery::agent::specs,
                    "hatchery:agent/models@0.2.1": crate::bindings::imports::hatchery::agent::models,
                    "hatchery:agent/session@0.2.1": crate::bindings::imports::hatchery::agent::session,
                    "hatchery:agent/credentials@0.2.1": crate::bindings::imports::hatchery::agent::credentials,
                    "hatchery:agent/artifacts@0.2.1": crate::bindings::imports::hatchery::agent::artifacts,
                    "hatchery:agent/memory@0.2.1": crate::bindings::imports::hatchery::agent::memory,
                    "hatchery:agent/tools@0.2.1": crate::bindings::imports::hatchery::agent::tools,
                    "hatchery:agent/agents@0.2.1": crate::bindings::imports::hatchery::agent::agents,
                    "hatchery:agent/runner@0.2.1": crate::bindings::imports::hatchery::agent::runner,
                    "hatchery:agent/sessions@0.2.1": crate::bindings::imports::hatchery::agent::sessions,
                    "hatchery:agent/plugins@0.2.1": crate::bindings::imports::hatchery::agent::plugins,
                    "hatchery:agent/log@0.2.1": crate::bindings::imports::hatchery::agent::log,
                    "hatchery:agent/config@0.2.1": crate::bindings::imports::hatchery::agent::config,
                    "hatchery:agent/http@0.2.1": crate::bindings::imports::hatchery::agent::http,
                    "hatchery:agent/clock@0.2.1": crate::bindings::imports::hatchery::agent::clock,
                    $interface: generate,
                },
            });
        }
    )* };
}

exports! {
    agents: "agent-component", "hatchery:agent/guest-agents@0.2.1", "export_agents", "-agents";
    tools: "tool-component", "hatchery:agent/guest-tools@0.2.1", "export_tools", "-tools";
    toolsets: "toolset-component", "hatchery:agent/guest-toolsets@0.2.1", "export_toolsets", "-toolsets";
    callbacks: "callback-component", "hatchery:agent/guest-callbacks@0.2.1", "export_callbacks", "-callbacks";
    plugins: "plugin-component", "hatchery:agent/guest-plugins@0.2.1", "export_plugins", "-plugins";
    code_executors: "code-executor-component", "hatchery:agent/guest-code-executors@0.2.1", "export_code_executors", "-code";
    summarizers: "summarizer-component", "hatchery:agent/guest-summarizers@0.2.1", "export_summarizers", "-summarizers";
    examples: "examples-component", "hatchery:agent/guest-examples@0.2.1", "export_examples", "-examples";
    models: "model-component", "hatchery:agent/guest-models@0.2.1", "export_models", "-models";
    live_models: "live-model-component", "hatchery:agent/guest-live-models@0.2.1", "export_live_models", "-live-models";
}

pub use imports::hatchery::agent as wit;
