//! The key `prices` of `hatchery.yaml`: the operator's prices of tokens. The host has no prices of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Prices of models, for the usage page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PricesConfig {
    /// The currency of all prices, as a code of ISO 4217.
    pub currency: String,
    /// By the name of the model as its provider reports it.
    pub models: BTreeMap<String, ModelPrice>,
}

/// The prices of a model, for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all(serialize = "camelCase"))]
pub struct ModelPrice {
    /// Of a prompt.
    pub input: f64,
    /// Of the part of a prompt that the provider had cached. Default: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    /// Of an answer, thoughts included.
    pub output: f64,
}

impl Default for PricesConfig {
    fn default() -> Self {
        Self { currency: "USD".into(), models: BTreeMap::new() }
    }
}

impl PricesConfig {
    /// Checks the currency and that prices are amounts.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        let currency = &self.currency;
        if currency.len() != 3 || !currency.bytes().all(|letter| letter.is_ascii_uppercase()) {
            return Err(format!("prices.currency: `{currency}` is not a code of three letters such as `EUR`"));
        }
        for (model, price) in &self.models {
            let amounts =
                [("input", Some(price.input)), ("cached_input", price.cached_input), ("output", Some(price.output))];
            let is_wrong = |amount: Option<f64>| amount.is_some_and(|amount| !amount.is_finite() || amount < 0.0);
            if let Some((key, _)) = amounts.into_iter().find(|(_, amount)| is_wrong(*amount)) {
                return Err(format!(
                    "prices.models.{model}.{key}: a price is a number of at least 0, for a million tokens"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(yaml: &str) -> Result<PricesConfig, String> {
        let config = Config::parse(yaml, Path::new("hatchery.yaml"));
        config.map(|config| config.prices).map_err(|error| error.to_string())
    }

    #[test]
    fn only_models_in_the_file_have_prices() {
        assert!(parse("").unwrap().models.is_empty());
        let prices =
            parse("prices: {currency: EUR, models: {m: {input: 1, cached_input: 0.25, output: 4.5}}}").unwrap();
        assert_eq!(prices.currency, "EUR");
        assert_eq!(prices.models["m"], ModelPrice { input: 1.0, cached_input: Some(0.25), output: 4.5 });
    }

    #[test]
    fn a_price_that_is_no_amount_is_an_error_with_its_key() {
        for (yaml, problem) in [
            ("{currency: euro}", "prices.currency: `euro` is not a code of three letters such as `EUR`"),
            ("{models: {m: {input: -1, output: 1}}}", "prices.models.m.input: a price is a number of at least 0"),
            ("{models: {m: {input: 1, output: .nan}}}", "prices.models.m.output: a price is a number of at least 0"),
        ] {
            let error = parse(&format!("prices: {yaml}")).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        assert!(parse("prices: {models: {m: {input: 1}}}").unwrap_err().contains("missing field `output`"));
    }
}
