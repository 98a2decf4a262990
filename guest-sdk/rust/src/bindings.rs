//! What `wit-bindgen` makes of `wit/`: the imports once, and each of the three things that a component may export in a module of its
//! own, so that a component carries only the exports that [`export!`](crate::export) is asked for.
//!
//! Off wasm every import is a stub that panics when it is called.
#![allow(missing_docs, unused_qualifications, clippy::all, clippy::unwrap_used, clippy::panic, clippy::unimplemented)]
#![allow(clippy::indexing_slicing, clippy::expect_used, dead_code, unexpected_cfgs)]

pub mod imports {
    wit_bindgen::generate!({
        world: "imports",
        path: "wit",
        generate_all,
        generate_unused_types: true,
        // There is no such feature: without `std::error::Error` on the contract's errors, they convert to this crate's by their code.
        std_feature,
        type_section_suffix: "-imports",
    });
}

pub mod agents {
    wit_bindgen::generate!({
        world: "agent-component",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_agents",
        type_section_suffix: "-agents",
        with: {
            "hatchery:agent/types@0.1.0": crate::bindings::imports::hatchery::agent::types,
            "hatchery:agent/model@0.1.0": crate::bindings::imports::hatchery::agent::model,
            "hatchery:agent/session@0.1.0": crate::bindings::imports::hatchery::agent::session,
            "hatchery:agent/artifacts@0.1.0": crate::bindings::imports::hatchery::agent::artifacts,
            "hatchery:agent/memory@0.1.0": crate::bindings::imports::hatchery::agent::memory,
            "hatchery:agent/tools@0.1.0": crate::bindings::imports::hatchery::agent::tools,
            "hatchery:agent/agents@0.1.0": crate::bindings::imports::hatchery::agent::agents,
            "hatchery:agent/log@0.1.0": crate::bindings::imports::hatchery::agent::log,
            "hatchery:agent/config@0.1.0": crate::bindings::imports::hatchery::agent::config,
            "hatchery:agent/guest-agents@0.1.0": generate,
        },
    });
}

pub mod tools {
    wit_bindgen::generate!({
        world: "tool-component",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_tools",
        type_section_suffix: "-tools",
        with: {
            "hatchery:agent/types@0.1.0": crate::bindings::imports::hatchery::agent::types,
            "hatchery:agent/model@0.1.0": crate::bindings::imports::hatchery::agent::model,
            "hatchery:agent/session@0.1.0": crate::bindings::imports::hatchery::agent::session,
            "hatchery:agent/artifacts@0.1.0": crate::bindings::imports::hatchery::agent::artifacts,
            "hatchery:agent/memory@0.1.0": crate::bindings::imports::hatchery::agent::memory,
            "hatchery:agent/tools@0.1.0": crate::bindings::imports::hatchery::agent::tools,
            "hatchery:agent/agents@0.1.0": crate::bindings::imports::hatchery::agent::agents,
            "hatchery:agent/log@0.1.0": crate::bindings::imports::hatchery::agent::log,
            "hatchery:agent/config@0.1.0": crate::bindings::imports::hatchery::agent::config,
            "hatchery:agent/guest-tools@0.1.0": generate,
        },
    });
}

pub mod callbacks {
    wit_bindgen::generate!({
        world: "callback-component",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_callbacks",
        type_section_suffix: "-callbacks",
        with: {
            "hatchery:agent/types@0.1.0": crate::bindings::imports::hatchery::agent::types,
            "hatchery:agent/model@0.1.0": crate::bindings::imports::hatchery::agent::model,
            "hatchery:agent/session@0.1.0": crate::bindings::imports::hatchery::agent::session,
            "hatchery:agent/artifacts@0.1.0": crate::bindings::imports::hatchery::agent::artifacts,
            "hatchery:agent/memory@0.1.0": crate::bindings::imports::hatchery::agent::memory,
            "hatchery:agent/tools@0.1.0": crate::bindings::imports::hatchery::agent::tools,
            "hatchery:agent/agents@0.1.0": crate::bindings::imports::hatchery::agent::agents,
            "hatchery:agent/log@0.1.0": crate::bindings::imports::hatchery::agent::log,
            "hatchery:agent/config@0.1.0": crate::bindings::imports::hatchery::agent::config,
            "hatchery:agent/guest-callbacks@0.1.0": generate,
        },
    });
}

pub use imports::hatchery::agent as wit;
