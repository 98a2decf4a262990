//! The imports from the host, which all other modules use. In a component these are the imports that `wit-bindgen`
//! generates from `wit/imports.wit`; in unit tests they are functions of the mock host with the same names and types.

#[cfg(target_family = "wasm")]
pub(crate) use crate::bindings::imports::wit_stream;
#[cfg(target_family = "wasm")]
pub(crate) use crate::bindings::wit::{
    agents, artifacts, clock, config, credentials, log, memory, models, plugins, runner, session, sessions, tools,
};
#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::testing::imports::{
    StreamReader, StreamWriter, agents, artifacts, clock, config, credentials, log, memory, models, plugins, runner,
    session, sessions, tools, wit_stream,
};
#[cfg(target_family = "wasm")]
pub(crate) use wit_bindgen::{StreamReader, StreamWriter};
