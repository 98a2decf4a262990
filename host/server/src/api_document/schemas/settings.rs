//! Schemas of the settings in force.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The settings in force.
#[derive(ToSchema)]
pub(crate) struct Settings {
    /// The configuration file, which need not exist.
    file: Option<String>,
    /// By key.
    settings: Vec<Setting>,
    prices: Prices,
    /// The keys that have changed in the file since the start, and apply at the next one. Left out if there are none.
    #[serde(default)]
    pending: Vec<String>,
}

/// A setting in force.
#[derive(ToSchema)]
pub(crate) struct Setting {
    /// The key of `hatchery.yaml`, with dots, or the name of a flag.
    key: String,
    /// Left out if the value is not shown.
    value: Option<Value>,
    origin: Origin,
}

/// Where a setting comes from.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Origin {
    Default,
    /// A line of the configuration file.
    File {
        line: u64,
    },
    Environment {
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        flag: String,
    },
}

/// What the operator pays for tokens.
#[derive(ToSchema)]
pub(crate) struct Prices {
    /// A code of ISO 4217.
    currency: String,
    /// By the name of the model.
    models: BTreeMap<String, ModelPrice>,
}

/// The prices of a model, for a million tokens.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelPrice {
    input: f64,
    /// Of the part of a prompt that the provider had cached. Default: as `input`.
    cached_input: Option<f64>,
    output: f64,
}
