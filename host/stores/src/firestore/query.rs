//! Conditions and orders of structured queries.

use serde_json::{Value as Json, json};

use super::document::Value;

/// Returns the condition that compares a field.
pub(super) fn filter(field: &str, operator: &str, value: Value) -> Json {
    json!({"fieldFilter": {"field": {"fieldPath": field}, "op": operator, "value": value}})
}

/// Returns the condition that all of these hold.
pub(super) fn and(filters: &[Json]) -> Json {
    json!({"compositeFilter": {"op": "AND", "filters": filters}})
}

pub(super) fn order(field: &str, direction: &str) -> Json {
    json!({"field": {"fieldPath": field}, "direction": direction})
}

/// Returns the fields that a query returns.
pub(super) fn select(fields: &[&str]) -> Json {
    let fields: Vec<_> = fields.iter().map(|field| json!({"fieldPath": field})).collect();
    json!({"fields": fields})
}
