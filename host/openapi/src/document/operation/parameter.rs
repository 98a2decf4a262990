//! Parameters of an operation.

use hatchery_core::{excerpt, truncate_bytes};
use serde_json::Value;

use super::{Arguments, SuppliedPredicate};

/// A parameter that is an argument of the tool.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// The name of the argument.
    pub(crate) argument: String,
    /// The name in the request.
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) style: Style,
    /// True if the values of arrays and objects are separate parameters.
    pub(crate) is_exploded: bool,
    /// True if characters such as `/` are not encoded.
    pub(crate) allows_reserved: bool,
}

/// Place of a parameter in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Path,
    Query,
    Header,
    Cookie,
}

/// Serialization of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    /// With a dot before each value of a path.
    Label,
    /// With a semicolon and the name before each value of a path.
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// As JSON.
    Json,
}

/// Headers that are not parameters: headers that a document cannot set, and headers of the connection.
const IGNORED_HEADERS: [&str; 9] = [
    "accept",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "transfer-encoding",
    "upgrade",
];

impl Location {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "path" => Self::Path,
            "query" => Self::Query,
            "header" => Self::Header,
            "cookie" => Self::Cookie,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }

    /// Returns the style with this name, or else the default.
    fn style(self, name: Option<&str>) -> Option<Style> {
        Some(match (self, name) {
            (Self::Path | Self::Header, None | Some("simple")) => Style::Simple,
            (Self::Path, Some("label")) => Style::Label,
            (Self::Path, Some("matrix")) => Style::Matrix,
            (Self::Query | Self::Cookie, None | Some("form")) => Style::Form,
            (Self::Query, Some("spaceDelimited")) => Style::SpaceDelimited,
            (Self::Query, Some("pipeDelimited")) => Style::PipeDelimited,
            (Self::Query, Some("deepObject")) => Style::DeepObject,
            _ => return None,
        })
    }
}

/// Returns the style and the schema of a parameter.
///
/// # Errors
/// The beginning of a style that is not supported.
fn style_and_schema(parameter: &Value, location: Location) -> Result<(Style, Option<&Value>), String> {
    let content = parameter.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    if let Some((_, media)) = content {
        return Ok((Style::Json, media.get("schema")));
    }
    let style = parameter.get("style").and_then(Value::as_str);
    match location.style(style) {
        Some(style) => Ok((style, parameter.get("schema"))),
        None => Err(excerpt(style.unwrap_or_default(), 40)),
    }
}

/// Returns the field of a form whose encoding has a style, which is one of parameters in the query. `None` for an
/// encoding without a style, or with one that a query does not have.
pub(super) fn field(name: &str, encoding: &Value) -> Option<Parameter> {
    let style = encoding.get("style").and_then(Value::as_str);
    let flag = |key: &str| encoding.get(key).and_then(Value::as_bool);
    let (explode, reserved) = (flag("explode"), flag("allowReserved"));
    if style.is_none() && explode.is_none() && reserved.is_none() {
        return None;
    }
    let style = Location::Query.style(style)?;
    Some(Parameter {
        argument: name.to_owned(),
        name: name.to_owned(),
        location: Location::Query,
        style,
        is_exploded: explode.unwrap_or(style == Style::Form),
        allows_reserved: reserved == Some(true),
    })
}

/// Converts a parameter, and adds its argument. Returns `None` if the host supplies it.
pub(super) fn build<'d>(
    parameter: &'d Value,
    arguments: &mut Arguments<'d>,
    is_supplied: SuppliedPredicate<'_>,
) -> Result<Option<Parameter>, String> {
    let text = |key: &str| parameter.get(key).and_then(Value::as_str);
    let flag = |key: &str| parameter.get(key).and_then(Value::as_bool);
    let Some(name) = text("name") else { return Err("a parameter has no name".into()) };
    let shown = excerpt(name, 60);
    let Some(location) = text("in").and_then(Location::from_name) else {
        return Err(format!("the parameter `{shown}` is in no location that OpenAPI 3 defines"));
    };
    let is_ignored = location == Location::Header && IGNORED_HEADERS.contains(&name.to_ascii_lowercase().as_str());
    if is_ignored || is_supplied(location, name) {
        return Ok(None);
    }
    let (style, schema) = style_and_schema(parameter, location).map_err(|style| {
        format!("the parameter `{shown}` in {} has the style `{style}`, which is not supported", location.name())
    })?;
    let mut schema = match schema {
        Some(schema) => arguments.converter.convert(schema)?,
        None => serde_json::json!({}),
    };
    if let (Some(schema), Some(text)) = (schema.as_object_mut(), text("description")) {
        schema.entry("description").or_insert_with(|| truncate_bytes(text, super::MAX_TEXT).into());
    }
    let is_required = location == Location::Path || flag("required") == Some(true);
    let argument = if arguments.is_taken(name) {
        arguments.add(&format!("{}_{name}", location.name()), schema, is_required)?
    } else {
        arguments.add(name, schema, is_required)?
    };
    Ok(Some(Parameter {
        argument,
        name: name.to_owned(),
        location,
        style,
        is_exploded: flag("explode").unwrap_or(style == Style::Form),
        // It is a property of parameters in the query only.
        allows_reserved: location == Location::Query && flag("allowReserved") == Some(true),
    }))
}
