//! What `wit-bindgen` makes of the contract beside this crate.
#![allow(missing_docs, unused_qualifications, clippy::all, clippy::unwrap_used, clippy::panic, clippy::unimplemented)]
#![allow(clippy::indexing_slicing, clippy::expect_used, dead_code, unexpected_cfgs)]

wit_bindgen::generate!({
    inline: "
        package hatchery:contract-fixture;

        world fixture {
            include hatchery:agent/agent-component@0.2.0;
            include hatchery:agent/tool-component@0.2.0;
            include hatchery:agent/toolset-component@0.2.0;
            include hatchery:agent/callback-component@0.2.0;
            include hatchery:agent/plugin-component@0.2.0;
        }
    ",
    world: "hatchery:contract-fixture/fixture",
    path: "wit",
    generate_all,
    pub_export_macro: true,
});
