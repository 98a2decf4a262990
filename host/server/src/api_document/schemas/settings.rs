//! Schemas of the settings in force.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The settings in force.
#[derive(ToSchema)]
pub(crate) struct Settings {
    /// The path of the configuration file. The file may not exist.
    file: Option<String>,
    /// Sorted by key.
    settings: Vec<Setting>,
    prices: Prices,
    /// The keys that were changed in the file and take effect after a restart. Left out if there are none.
    #[serde(default)]
    pending: Vec<String>,
}

/// A setting in force.
#[derive(ToSchema)]
pub(crate) struct Setting {
    /// The key in `hatchery.yaml`, such as `server.max_connections`, or the name of a flag.
    key: String,
    /// Left out if the value may be secret.
    value: Option<Value>,
    origin: Origin,
}

/// The origin of a setting.
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

/// The prices of tokens.
#[derive(ToSchema)]
pub(crate) struct Prices {
    /// ISO 4217 currency code.
    currency: String,
    /// Prices by the name of the model.
    models: BTreeMap<String, ModelPrice>,
}

/// The prices of a model per million tokens.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelPrice {
    input: f64,
    /// The price of cached prompt tokens. Default: the price of `input`.
    cached_input: Option<f64>,
    output: f64,
}
