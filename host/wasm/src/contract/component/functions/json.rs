//! Conversion of plain data between JSON and component-model values, by the rules of `schema`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{JsonMap, quoted_list};
use serde_json::{Map, Value};
use thiserror::Error;
use wasmtime::component::Val;

use super::shape::{Case, Field, Integer, Shape};
use crate::contract::convert::BadValue;
use crate::runtime::store::meter::{JSON_NODE, list_size, object_size};

/// Up to this number a float represents every integer.
const LARGEST_WHOLE_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A value of the wrong type, and its path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) struct Mismatch {
    /// Steps from the inside out.
    path: Vec<String>,
    problem: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        match path.strip_prefix('.').unwrap_or(&path) {
            "" => f.write_str(&self.problem),
            path => write!(f, "`{path}` {}", self.problem),
        }
    }
}

impl Mismatch {
    fn new(problem: impl Into<String>) -> Self {
        Self { path: Vec::new(), problem: problem.into() }
    }

    fn below(mut self, step: String) -> Self {
        self.path.push(step);
        self
    }
}

/// Converts the arguments of a function, in their order.
///
/// # Errors
/// If one is missing, unknown or of the wrong type.
pub(super) fn arguments(params: &[Field], args: JsonMap) -> Result<Vec<Val>, Mismatch> {
    Ok(fields(params, args)?.into_iter().map(|(_, value)| value).collect())
}

fn to_val(shape: &Shape, value: Value) -> Result<Val, Mismatch> {
    match (shape, value) {
        (Shape::Bool, Value::Bool(value)) => Ok(Val::Bool(value)),
        (Shape::Integer(integer), value) => integer_val(*integer, &value),
        (Shape::Float32, Value::Number(number)) => Ok(Val::Float32(number.as_f64().unwrap_or(f64::NAN) as f32)),
        (Shape::Float64, Value::Number(number)) => Ok(Val::Float64(number.as_f64().unwrap_or(f64::NAN))),
        (Shape::Float32, Value::String(text)) => Ok(Val::Float32(special_float(&text)? as f32)),
        (Shape::Float64, Value::String(text)) => special_float(&text).map(Val::Float64),
        (Shape::Char, Value::String(text)) => character(&text).map(Val::Char),
        (Shape::String, Value::String(text)) => Ok(Val::String(text)),
        (Shape::Bytes, Value::String(text)) => match STANDARD.decode(&text) {
            Ok(bytes) => Ok(Val::List(bytes.into_iter().map(Val::U8).collect())),
            Err(error) => Err(Mismatch::new(format!("must be base64: {error}"))),
        },
        (Shape::List(item), Value::Array(items)) => {
            all(items.into_iter().map(|value| to_val(item, value))).map(Val::List)
        }
        (Shape::Tuple(shapes), Value::Array(items)) if items.len() == shapes.len() => {
            all(shapes.iter().zip(items).map(|(shape, value)| to_val(shape, value))).map(Val::Tuple)
        }
        (Shape::Record(known), Value::Object(map)) => fields(known, map).map(Val::Record),
        (Shape::Variant(cases), value) => variant(cases, value),
        (Shape::Enum(names), Value::String(name)) if names.contains(&name) => Ok(Val::Enum(name)),
        (Shape::Option(_), Value::Null) => Ok(Val::Option(None)),
        (Shape::Option(inner), value) if inner.is_nullable() => {
            let (_, value) = only_key(value, |key| key == "some", "`null` or an object with the key `some`")?;
            let value = to_val(inner, value).map_err(|error| error.below(".some".into()))?;
            Ok(Val::Option(Some(Box::new(value))))
        }
        (Shape::Option(inner), value) => Ok(Val::Option(Some(Box::new(to_val(inner, value)?)))),
        (Shape::Result { ok, error }, value) => {
            let is_side = |key: &str| matches!(key, "ok" | "error");
            let (side, value) = only_key(value, is_side, "an object with the key `ok` or `error`")?;
            let shape = if side == "ok" { ok } else { error };
            let value = payload(shape.as_deref(), value).map_err(|error| error.below(format!(".{side}")))?;
            Ok(Val::Result(if side == "ok" { Ok(value) } else { Err(value) }))
        }
        (Shape::Flags(known), Value::Array(items)) => {
            let names = items.into_iter().map(|item| match item {
                Value::String(name) if known.contains(&name) => Ok(name),
                other => Err(Mismatch::new(format!("must be one of {}, not {other}", quoted_list(known)))),
            });
            all(names).map(Val::Flags)
        }
        (shape, value) => Err(Mismatch::new(format!("must be {}, not {}", describe_shape(shape), describe(&value)))),
    }
}

/// Converts an optional payload.
fn payload(shape: Option<&Shape>, value: Value) -> Result<Option<Box<Val>>, Mismatch> {
    match (shape, value) {
        (None, Value::Null) => Ok(None),
        (None, other) => Err(Mismatch::new(format!("must be null, not {}", describe(&other)))),
        (Some(shape), value) => Ok(Some(Box::new(to_val(shape, value)?))),
    }
}

/// Converts the fields of a record, in their order. An optional field that is missing is `none`.
fn fields(known: &[Field], mut map: JsonMap) -> Result<Vec<(String, Val)>, Mismatch> {
    let values = known.iter().map(|Field { name, shape }| {
        let value = match map.shift_remove(name) {
            Some(value) => to_val(shape, value).map_err(|error| error.below(format!(".{name}")))?,
            None if shape.is_nullable() => Val::Option(None),
            None => return Err(Mismatch::new("is missing").below(format!(".{name}"))),
        };
        Ok((name.clone(), value))
    });
    let values = values.collect::<Result<_, Mismatch>>()?;
    match map.keys().next() {
        Some(unknown) => {
            let known = quoted_list(known.iter().map(|field| &field.name));
            Err(Mismatch::new(format!("is unknown; available: {known}")).below(format!(".{unknown}")))
        }
        None => Ok(values),
    }
}

fn variant(cases: &[Case], value: Value) -> Result<Val, Mismatch> {
    let find = |name: &str| cases.iter().find(|case| case.name == name);
    match value {
        Value::String(name) if find(&name).is_some_and(|case| case.payload.is_none()) => Ok(Val::Variant(name, None)),
        Value::Object(_) => {
            let names = quoted_list(cases.iter().map(|case| &case.name));
            let expected = format!("an object with one of the keys {names}");
            let (name, value) = only_key(value, |key| find(key).is_some(), &expected)?;
            let shape = find(&name).and_then(|case| case.payload.as_ref());
            let value = payload(shape, value).map_err(|error| error.below(format!(".{name}")))?;
            Ok(Val::Variant(name, value))
        }
        other => {
            let shape = Shape::Variant(cases.to_vec());
            Err(Mismatch::new(format!("must be {}, not {}", describe_shape(&shape), describe(&other))))
        }
    }
}

/// Returns the only entry of an object.
fn only_key(value: Value, is_known: impl Fn(&str) -> bool, expected: &str) -> Result<(String, Value), Mismatch> {
    let wrong = |value: &Value| Mismatch::new(format!("must be {expected}, not {}", describe(value)));
    match value {
        Value::Object(map) if map.len() == 1 && map.keys().all(|key| is_known(key)) => {
            map.into_iter().next().ok_or_else(|| wrong(&Value::Null))
        }
        other => Err(wrong(&other)),
    }
}

fn all<T>(items: impl Iterator<Item = Result<T, Mismatch>>) -> Result<Vec<T>, Mismatch> {
    let indexed = items.enumerate().map(|(index, item)| item.map_err(|error| error.below(format!("[{index}]"))));
    indexed.collect()
}

fn integer_val(integer: Integer, value: &Value) -> Result<Val, Mismatch> {
    let (min, max) = integer.range();
    let wrong = || Mismatch::new(format!("must be a whole number from {min} to {max}, not {}", describe(value)));
    let number = match value {
        Value::Number(number) => number,
        _ => return Err(wrong()),
    };
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let float = || number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() <= LARGEST_WHOLE_FLOAT);
    let number = exact.or_else(|| float().map(|it| it as i128)).ok_or_else(wrong)?;
    let val = match integer {
        Integer::S8 => i8::try_from(number).map(Val::S8),
        Integer::U8 => u8::try_from(number).map(Val::U8),
        Integer::S16 => i16::try_from(number).map(Val::S16),
        Integer::U16 => u16::try_from(number).map(Val::U16),
        Integer::S32 => i32::try_from(number).map(Val::S32),
        Integer::U32 => u32::try_from(number).map(Val::U32),
        Integer::S64 => i64::try_from(number).map(Val::S64),
        Integer::U64 => u64::try_from(number).map(Val::U64),
    };
    val.map_err(|_| wrong())
}

/// Parses a float that is not a JSON number.
fn special_float(text: &str) -> Result<f64, Mismatch> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        other => Err(Mismatch::new(format!("must be a number, not {}", describe(&other.into())))),
    }
}

fn character(text: &str) -> Result<char, Mismatch> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(Mismatch::new(format!("must be one character, not {}", describe(&text.into())))),
    }
}

fn describe_shape(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "true or false".into(),
        Shape::Integer(_) | Shape::Float32 | Shape::Float64 => "a number".into(),
        Shape::Char => "one character".into(),
        Shape::String => "a string".into(),
        Shape::Bytes => "a base64 string".into(),
        Shape::List(_) => "an array".into(),
        Shape::Tuple(items) => format!("an array of {}", items.len()),
        Shape::Record(_) | Shape::Result { .. } => "an object".into(),
        Shape::Option(inner) => format!("null or {}", describe_shape(inner)),
        Shape::Enum(names) => format!("one of {}", quoted_list(names)),
        Shape::Variant(cases) => {
            let written = cases.iter().map(|Case { name, payload }| match payload {
                None => format!("\"{name}\""),
                Some(_) => format!("{{\"{name}\": …}}"),
            });
            format!("one of {}", written.collect::<Vec<_>>().join(", "))
        }
        Shape::Flags(names) => format!("an array of some of {}", quoted_list(names)),
    }
}

/// Describes a value; a long one by its kind.
fn describe(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().nth(40).is_some() => "a longer text".into(),
        other => other.to_string(),
    }
}

/// Returns the maximum number of bytes that a value takes as JSON.
pub(super) fn size(value: &Val) -> u64 {
    JSON_NODE + contents_size(value)
}

/// Returns the maximum number of bytes that a value takes as JSON, in addition to [`JSON_NODE`].
fn contents_size(value: &Val) -> u64 {
    let text = |text: &str| text.len() as u64;
    let optional = |value: &Option<Box<Val>>| value.as_deref().map_or(0, contents_size);
    let tagged = |name: &str, value: &Option<Box<Val>>| object_size(1) + text(name) + optional(value);
    match value {
        Val::String(value) => text(value),
        // Base64.
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => 4 * (items.len() as u64).div_ceil(3),
        Val::List(items) | Val::Tuple(items) => list_size(items.len()) + items.iter().map(contents_size).sum::<u64>(),
        Val::Record(fields) => {
            let contents = fields.iter().map(|(name, value)| text(name) + contents_size(value));
            object_size(fields.len()) + contents.sum::<u64>()
        }
        Val::Variant(name, None) | Val::Enum(name) => text(name),
        Val::Variant(name, payload) => tagged(name, payload),
        Val::Option(inner) if matches!(inner.as_deref(), Some(Val::Option(_))) => tagged("some", inner),
        Val::Option(inner) => optional(inner),
        Val::Result(Ok(inner)) => tagged("ok", inner),
        Val::Result(Err(inner)) => tagged("error", inner),
        Val::Flags(names) => list_size(names.len()) + names.iter().map(|name| text(name)).sum::<u64>(),
        Val::Char(value) => value.len_utf8() as u64,
        // Written as text.
        Val::Float32(value) if !value.is_finite() => text("-Infinity"),
        Val::Float64(value) if !value.is_finite() => text("-Infinity"),
        _ => 0,
    }
}

/// Converts a value that a function has returned.
///
/// # Errors
/// If it is not of the shape, which Wasmtime rules out.
pub(super) fn from_val(shape: &Shape, value: Val) -> Result<Value, BadValue> {
    let optional = |shape: Option<&Shape>, value: Option<Box<Val>>| match (shape, value) {
        (Some(shape), Some(value)) => from_val(shape, *value),
        (None | Some(_), _) => Ok(Value::Null),
    };
    Ok(match (shape, value) {
        (Shape::Bool, Val::Bool(value)) => value.into(),
        (Shape::Integer(_), value) => return number(&value),
        (Shape::Float32, Val::Float32(value)) => float(value.into()),
        (Shape::Float64, Val::Float64(value)) => float(value),
        (Shape::Char, Val::Char(value)) => value.to_string().into(),
        (Shape::String, Val::String(value)) => value.into(),
        (Shape::Bytes, Val::List(items)) => {
            let bytes = items.into_iter().map(|item| if let Val::U8(byte) = item { byte } else { 0 });
            STANDARD.encode(bytes.collect::<Vec<_>>()).into()
        }
        (Shape::List(item), Val::List(items)) => {
            items.into_iter().map(|value| from_val(item, value)).collect::<Result<Vec<_>, _>>()?.into()
        }
        (Shape::Tuple(shapes), Val::Tuple(items)) => {
            let items = shapes.iter().zip(items).map(|(shape, value)| from_val(shape, value));
            items.collect::<Result<Vec<_>, _>>()?.into()
        }
        (Shape::Record(known), Val::Record(fields)) => {
            let mut map = Map::new();
            for (Field { name, shape }, (_, value)) in known.iter().zip(fields) {
                map.insert(name.clone(), from_val(shape, value)?);
            }
            map.into()
        }
        (Shape::Variant(cases), Val::Variant(name, payload_val)) => {
            let shape = cases.iter().find(|case| case.name == name).and_then(|case| case.payload.as_ref());
            match shape {
                None => name.into(),
                Some(shape) => with_tag(&name, optional(Some(shape), payload_val)?),
            }
        }
        (Shape::Enum(_), Val::Enum(name)) => name.into(),
        (Shape::Option(_), Val::Option(None)) => Value::Null,
        (Shape::Option(inner), Val::Option(Some(value))) => match from_val(inner, *value)? {
            value if inner.is_nullable() => with_tag("some", value),
            value => value,
        },
        (Shape::Result { ok, .. }, Val::Result(Ok(value))) => with_tag("ok", optional(ok.as_deref(), value)?),
        (Shape::Result { error, .. }, Val::Result(Err(value))) => with_tag("error", optional(error.as_deref(), value)?),
        (Shape::Flags(_), Val::Flags(names)) => names.into(),
        (shape, other) => {
            return Err(BadValue::new(
                "the result",
                "of its type",
                format!("{other:?} is not {}", describe_shape(shape)),
            ));
        }
    })
}

fn number(value: &Val) -> Result<Value, BadValue> {
    Ok(match value {
        Val::S8(value) => (*value).into(),
        Val::U8(value) => (*value).into(),
        Val::S16(value) => (*value).into(),
        Val::U16(value) => (*value).into(),
        Val::S32(value) => (*value).into(),
        Val::U32(value) => (*value).into(),
        Val::S64(value) => (*value).into(),
        Val::U64(value) => (*value).into(),
        other => return Err(BadValue::new("the result", "of its type", format!("{other:?} is not a whole number"))),
    })
}

fn float(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => number.into(),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

fn with_tag(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

#[cfg(test)]
mod tests;
