//! JSON Schemas of plain data.
//!
//! | WIT                  | JSON                                                                            |
//! |----------------------|---------------------------------------------------------------------------------|
//! | integers             | a whole number in the type's range                                              |
//! | floats               | a number                                                                        |
//! | `char`, `string`     | a string; of one character                                                      |
//! | `list<u8>`           | a base64 string                                                                 |
//! | lists, tuples        | an array                                                                        |
//! | records              | an object; optional fields may be omitted                                      |
//! | enums                | one of the names                                                                |
//! | variants             | the case's name, or an object of the name and what the case holds               |
//! | options              | the value or `null`; `{"some": …}` where the value could be `null` itself       |
//! | results              | `{"ok": …}` or `{"error": …}`; of a function, its result or its failure         |
//! | flags                | an array of the names that are set                                              |

use serde_json::{Map, Value, json};

use super::shape::{Case, Field, Shape};

/// Returns the schema of the values of a type.
pub(super) fn json_schema(shape: &Shape) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(integer) => {
            let (min, max) = integer.range();
            json!({"type": "integer", "minimum": number(min), "maximum": number(max)})
        }
        Shape::Float32 | Shape::Float64 => json!({"type": "number"}),
        Shape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Shape::String => json!({"type": "string"}),
        Shape::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        Shape::List(item) => json!({"type": "array", "items": json_schema(item)}),
        Shape::Record(fields) => record_schema(fields),
        Shape::Tuple(items) => {
            let (count, items) = (items.len(), items.iter().map(json_schema).collect::<Vec<_>>());
            json!({"type": "array", "prefixItems": items, "minItems": count, "maxItems": count})
        }
        Shape::Variant(cases) => variant_schema(cases),
        Shape::Enum(names) => json!({"type": "string", "enum": names}),
        Shape::Option(value) if value.is_nullable() => {
            any_of(vec![with_tag("some", json_schema(value)), json!({"type": "null"})])
        }
        Shape::Option(value) => any_of(vec![json_schema(value), json!({"type": "null"})]),
        Shape::Result { ok, error } => {
            let side = |shape: &Option<Box<Shape>>| shape.as_deref().map_or(json!({"type": "null"}), json_schema);
            any_of(vec![with_tag("ok", side(ok)), with_tag("error", side(error))])
        }
        Shape::Flags(names) => {
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
    }
}

/// Returns the schema of an object with exactly these keys.
pub(super) fn record_schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.clone(), json_schema(&field.shape))).collect();
    let required: Vec<_> = fields.iter().filter(|field| !field.shape.is_nullable()).map(|field| &field.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn variant_schema(cases: &[Case]) -> Value {
    let names: Vec<_> = cases.iter().filter(|case| case.payload.is_none()).map(|case| &case.name).collect();
    let mut schemas = Vec::new();
    if !names.is_empty() {
        schemas.push(json!({"type": "string", "enum": names}));
    }
    schemas.extend(cases.iter().filter_map(|case| Some(with_tag(&case.name, json_schema(case.payload.as_ref()?)))));
    any_of(schemas)
}

/// Returns the schema of an object with one key.
fn with_tag(name: &str, schema: Value) -> Value {
    json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false})
}

fn any_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        1 => schemas.remove(0),
        _ => json!({"anyOf": schemas}),
    }
}

/// Converts a bound of an integer type, which JSON can always represent.
fn number(bound: i128) -> Value {
    i64::try_from(bound).map_or_else(|_| u64::try_from(bound).map_or(Value::Null, Value::from), Value::from)
}
