//! The body of an operation.

use std::collections::{BTreeSet, HashSet};

use hatchery_core::{JsonMap, excerpt, truncate_bytes};
use serde_json::{Value, json};

use super::{Arguments, MAX_TEXT, Parameter, parameter};
use crate::document::Document;
use crate::document::name::valid_name;

/// The argument with a whole body.
const WHOLE: &str = "body";

/// Mapping of arguments to the body of a request.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) media_type: String,
    pub(crate) encoding: BodyEncoding,
    pub(crate) arguments: BodyArguments,
}

/// Encoding of a body.
#[derive(Debug)]
pub(crate) enum BodyEncoding {
    Json,
    /// `application/x-www-form-urlencoded`. The fields are those with a style of their own.
    Form(Vec<Parameter>),
    /// `multipart/form-data`. The fields are those whose values are names of artifacts.
    Multipart(BTreeSet<String>),
    Text,
    /// The content of an artifact.
    Artifact,
}

/// The arguments that hold the body.
#[derive(Debug)]
pub(crate) enum BodyArguments {
    /// One argument, of this name.
    Whole(String),
    /// The properties of the body.
    Properties {
        /// The names of the arguments and of the properties.
        names: Vec<String>,
        /// Properties with one possible value, which are no arguments.
        constants: JsonMap,
        /// True if the body is sent also without any property.
        is_required: bool,
    },
}

/// Converts a request body, and adds its arguments. Returns `None` if it has no content.
pub(super) fn build<'d>(
    body: &'d Value,
    document: &'d Document,
    arguments: &mut Arguments<'d>,
) -> Result<Option<Body>, String> {
    let Some(content) = body.get("content").and_then(Value::as_object) else { return Ok(None) };
    let Some((media_type, media, kind)) = choose(content) else {
        if content.is_empty() {
            return Ok(None);
        }
        let types: Vec<_> = content.keys().take(5).map(|name| excerpt(name, 60)).collect();
        return Err(format!("its body is {}, which is not supported", types.join(" or ")));
    };
    let is_required = body.get("required").and_then(Value::as_bool).unwrap_or(false);
    let text = body.get("description").and_then(Value::as_str).map(|text| truncate_bytes(text, MAX_TEXT));
    let whole = WholeBody { is_required, text };
    let (encoding, arguments) = match kind {
        Kind::Text => (BodyEncoding::Text, whole.add(arguments, json!({"type": "string"}))?),
        Kind::Binary => (BodyEncoding::Artifact, whole.add(arguments, artifact(None))?),
        Kind::Json => (BodyEncoding::Json, value(media, json!({}), &BTreeSet::new(), &whole, document, arguments)?),
        Kind::Form => {
            let arguments = value(media, json!({"type": "object"}), &BTreeSet::new(), &whole, document, arguments)?;
            let encodings = media.get("encoding").and_then(Value::as_object).into_iter().flatten();
            let fields = encodings.filter_map(|(name, encoding)| parameter::field(name, encoding));
            (BodyEncoding::Form(fields.collect()), arguments)
        }
        Kind::Multipart => {
            let files = match object_schema(media, document)? {
                Some(object) => file_fields(object, media, document)?,
                None => BTreeSet::new(),
            };
            let arguments = value(media, json!({"type": "object"}), &files, &whole, document, arguments)?;
            (BodyEncoding::Multipart(files), arguments)
        }
    };
    let media_type =
        if kind == Kind::Json && media_type.contains('*') { "application/json".into() } else { media_type.to_owned() };
    Ok(Some(Body { media_type, encoding, arguments }))
}

/// The description of an argument that holds a whole body.
struct WholeBody {
    is_required: bool,
    text: Option<String>,
}

impl WholeBody {
    /// Adds the argument.
    fn add(&self, arguments: &mut Arguments<'_>, mut schema: Value) -> Result<BodyArguments, String> {
        if let (Some(schema), Some(text)) = (schema.as_object_mut(), self.text.clone()) {
            schema.entry("description").or_insert_with(|| text.into());
        }
        arguments.add(WHOLE, schema, self.is_required).map(BodyArguments::Whole)
    }
}

/// Adds the arguments of a JSON value or a form: one per property if possible, otherwise one for the whole. `any` is
/// the schema of a body without one.
fn value<'d>(
    media: &'d Value,
    any: Value,
    files: &BTreeSet<String>,
    whole: &WholeBody,
    document: &'d Document,
    arguments: &mut Arguments<'d>,
) -> Result<BodyArguments, String> {
    if let Some(object) = object_schema(media, document)?
        && let Some(properties) = properties(object, files, whole.is_required, arguments)?
    {
        return Ok(properties);
    }
    match media.get("schema") {
        Some(schema) if files.is_empty() => {
            let schema = arguments.converter.convert(schema)?;
            whole.add(arguments, schema)
        }
        Some(_) => Err("a field of its form has the name of a parameter, or one that models do not accept".into()),
        None => whole.add(arguments, any),
    }
}

/// Returns the schema of a body that is a plain object. `None` for any other body.
fn object_schema<'d>(media: &'d Value, document: &'d Document) -> Result<Option<&'d JsonMap>, String> {
    let schema = media.get("schema").map(|schema| document.resolve(schema)).transpose()?;
    Ok(schema.and_then(plain_object))
}

/// The kinds of media types, the preferred ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Json,
    Multipart,
    Form,
    Text,
    Binary,
}

impl Kind {
    fn from_media_type(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Some(match name.as_str() {
            "application/json" | "*/*" => Self::Json,
            "multipart/form-data" => Self::Multipart,
            "application/x-www-form-urlencoded" => Self::Form,
            "application/xml" => Self::Text,
            name if name.ends_with("+json") => Self::Json,
            name if name.ends_with("+xml") || name.starts_with("text/") => Self::Text,
            name if name.starts_with("multipart/") => return None,
            _ => Self::Binary,
        })
    }
}

/// Returns the media type that is used, with its object.
fn choose(content: &JsonMap) -> Option<(&str, &Value, Kind)> {
    let known = content.iter().filter_map(|(name, media)| Some((name.as_str(), media, Kind::from_media_type(name)?)));
    known.min_by_key(|(_, _, kind)| *kind)
}

/// Returns the properties of an object without other conditions.
fn plain_object(schema: &Value) -> Option<&JsonMap> {
    let conditions = ["allOf", "anyOf", "oneOf", "not", "if", "patternProperties"];
    let is_closed = matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    let is_plain = is_closed && !conditions.iter().any(|key| schema.get(key).is_some());
    let has_properties = schema.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    schema.as_object().filter(|_| is_plain && has_properties)
}

fn properties_of(object: &JsonMap) -> impl Iterator<Item = (&String, &Value)> {
    let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.filter(|(_, schema)| schema.get("readOnly") != Some(&Value::Bool(true)))
}

/// Adds an argument for each property of a body. Returns `None` if some cannot have the name of the property.
fn properties<'d>(
    object: &'d JsonMap,
    files: &BTreeSet<String>,
    is_required: bool,
    arguments: &mut Arguments<'d>,
) -> Result<Option<BodyArguments>, String> {
    if properties_of(object).any(|(name, _)| arguments.is_taken(name) || valid_name(name) != *name) {
        return Ok(None);
    }
    let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: HashSet<_> = required.filter_map(Value::as_str).collect();
    let (mut names, mut constants) = (Vec::new(), JsonMap::new());
    for (name, schema) in properties_of(object) {
        if let Some(value) = schema.get("const") {
            constants.insert(name.clone(), value.clone());
            continue;
        }
        let converted = if files.contains(name) {
            artifact(schema.get("description").and_then(Value::as_str))
        } else {
            arguments.converter.convert(schema)?
        };
        let is_list = files.contains(name) && schema.get("items").is_some();
        let converted = if is_list { json!({"type": "array", "items": converted}) } else { converted };
        names.push(arguments.add(name, converted, is_required && required.contains(name.as_str()))?);
    }
    Ok(Some(BodyArguments::Properties { names, constants, is_required }))
}

/// Returns the schema of the name of an artifact.
fn artifact(text: Option<&str>) -> Value {
    let text = text.map(|text| format!("{} ", truncate_bytes(text, MAX_TEXT))).unwrap_or_default();
    json!({"type": "string", "description": format!("{text}The name of an artifact, whose content is sent.")})
}

/// Returns the fields of a form that are files.
fn file_fields(object: &JsonMap, media: &Value, document: &Document) -> Result<BTreeSet<String>, String> {
    let mut files = BTreeSet::new();
    for (name, schema) in properties_of(object) {
        let schema = document.resolve(schema)?;
        let item = match schema.get("items") {
            Some(items) => document.resolve(items)?,
            None => schema,
        };
        let has = |key: &str, value: &str| item.get(key).and_then(Value::as_str) == Some(value);
        let is_binary = has("type", "string") && has("format", "binary");
        // In 3.1 a file has no type, or a media type and no encoding.
        let content_type = media.get("encoding").and_then(|encoding| encoding.get(name)?.get("contentType")?.as_str());
        let content_type = content_type.or_else(|| item.get("contentMediaType").and_then(Value::as_str));
        let is_text = |name: &str| matches!(Kind::from_media_type(name), Some(Kind::Json | Kind::Text | Kind::Form));
        let is_raw = item.get("contentEncoding").is_none() && content_type.is_some_and(|name| !is_text(name));
        if is_binary || is_raw {
            files.insert(name.clone());
        }
    }
    Ok(files)
}
