//! Rust types and calls made from the contract in `wit/`.

#![allow(missing_docs, unused_qualifications, dead_code, clippy::all)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "component",
    // Even the plain exports are called asynchronously, so that a guest which loops in `describe` yields to the epoch callback.
    exports: { default: async },
    require_store_data_send: true,
});
