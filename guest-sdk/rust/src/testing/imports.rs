//! The imports of `wit/imports.wit`, implemented by the mock host: one module per interface, with the functions that
//! `wit-bindgen` generates for components. An import that a test has not set up returns an error that names the line to
//! add.

pub(crate) mod agents;
pub(crate) mod artifacts;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod plugins;
pub(crate) mod runner;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod tools;
pub(crate) mod wit_stream;

pub(crate) use super::stream::{StreamReader, StreamWriter};
