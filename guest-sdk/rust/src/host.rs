//! The border to the host: all that other modules ask of it goes through here. In a component these are the imports that `wit-bindgen`
//! makes of `wit/imports.wit`; elsewhere there is the host of a test, with functions of the same names and types.

#[cfg(target_family = "wasm")]
pub(crate) use crate::bindings::wit::{agents, artifacts, config, log, memory, model, session, tools};
#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::testing::imports::{
    StreamReader, StreamWriter, agents, artifacts, config, log, memory, model, session, tools,
};
#[cfg(target_family = "wasm")]
pub(crate) use wit_bindgen::{StreamReader, StreamWriter};
