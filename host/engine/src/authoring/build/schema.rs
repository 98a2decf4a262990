//! JSON Schemas of types, and validation of JSON Schemas.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The values of `type`.
const TYPES: &[&str] = &["null", "boolean", "object", "array", "number", "integer", "string"];

/// Returns the JSON Schema of a type, without references.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The model sees the tool's name and description instead.
    schema.remove("title");
    schema.remove("description");
    schema.into()
}

/// Returns the reason why a schema of arguments or answers is invalid. `None` if it is valid.
pub fn validation_error(schema: &Value) -> Option<String> {
    let Some(keywords) = schema.as_object() else { return Some(format!("it is {schema}, not an object")) };
    let names = match keywords.get("type") {
        Some(Value::Array(names)) => names.iter().collect(),
        name => name.into_iter().collect::<Vec<_>>(),
    };
    let is_type = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name.to_lowercase().as_str()));
    if let Some(name) = names.into_iter().find(|name| !is_type(name)) {
        return Some(format!("`type` can be {}, not {name}", TYPES.join(", ")));
    }
    let properties = match keywords.get("properties") {
        Some(Value::Object(properties)) => properties,
        Some(other) => return Some(format!("`properties` is {other}, not an object")),
        None => return crate::tools::schema::schema_error(schema),
    };
    let required = keywords.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut missing = required.filter(|name| name.as_str().is_none_or(|name| !properties.contains_key(name)));
    match missing.next() {
        Some(name) => Some(format!("`required` names {name}, which is not in `properties`")),
        None => crate::tools::schema::schema_error(schema),
    }
}
