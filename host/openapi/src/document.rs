//! OpenAPI documents: their values, references, and operations.

mod bounded;
mod name;
mod operation;
mod schema;
mod server;

use hatchery_core::excerpt;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde_json::Value;

use crate::error::ApiError;

pub(crate) use name::UniqueNames;
pub(crate) use operation::{Body, BodyArguments, BodyEncoding, Draft, Location, Operation, Parameter, Style};
pub(crate) use server::ServerSettings;

/// Maximum number of references that lead to one value.
const MAX_REFERENCES: usize = 16;

/// An OpenAPI document, version 3.0 or 3.1.
pub(crate) struct Document {
    root: Value,
    /// True for 3.0, whose schemas are not quite JSON Schema.
    is_3_0: bool,
    /// The URL it was read from, which is the base of relative URLs of servers.
    url: Option<Url>,
    /// The names of its operations.
    names: Vec<String>,
}

impl Document {
    /// Parses a document in JSON or YAML.
    ///
    /// # Errors
    /// If the text is neither, describes more values than its size allows, or is of another version.
    pub(crate) fn parse(text: &[u8], url: Option<Url>) -> Result<Self, ApiError> {
        Self::new(bounded::parse(text).map_err(ApiError::Invalid)?, url)
    }

    /// Creates a document from its JSON.
    ///
    /// # Errors
    /// If it is of another version.
    pub(crate) fn new(root: Value, url: Option<Url>) -> Result<Self, ApiError> {
        let version = match (root.get("openapi"), root.get("swagger")) {
            (Some(Value::String(version)), _) => version.clone(),
            // YAML reads an unquoted `3.0` as a number.
            (Some(Value::Number(version)), _) => version.to_string(),
            (_, Some(_)) => {
                return Err(ApiError::Invalid("it is Swagger 2.0; convert it to OpenAPI 3.0 or 3.1".into()));
            }
            _ => return Err(ApiError::Invalid("it has no `openapi` key with the version, 3.0 or 3.1".into())),
        };
        if !(version.starts_with("3.0") || version.starts_with("3.1")) {
            return Err(ApiError::Invalid(format!("it is OpenAPI {}, not 3.0 or 3.1", excerpt(&version, 20))));
        }
        let is_3_0 = version.starts_with("3.0");
        let mut document = Self { is_3_0, root, url, names: Vec::new() };
        // A document without operations is an error when an agent uses it.
        document.names = document.drafts().unwrap_or_default().into_iter().map(|draft| draft.name).collect();
        Ok(document)
    }

    /// Returns the names of its operations, in order.
    pub(crate) fn operation_names(&self) -> &[String] {
        &self.names
    }

    /// Returns all operations, named but not yet converted.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) fn drafts(&self) -> Result<Vec<Draft<'_>>, ApiError> {
        operation::drafts(self)
    }

    /// Returns the value that a reference object refers to, or the value itself.
    ///
    /// # Errors
    /// If the reference points outside of the document or to nothing, or references form a cycle.
    fn resolve<'a>(&'a self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..MAX_REFERENCES {
            match value.get("$ref").and_then(Value::as_str) {
                Some(reference) => value = self.lookup(reference)?,
                None => return Ok(value),
            }
        }
        Err(format!("more than {MAX_REFERENCES} references lead to one value, which may be a cycle"))
    }

    /// Returns the value at a reference, such as `#/components/schemas/Pet`.
    fn lookup(&self, reference: &str) -> Result<&Value, String> {
        let shown = || excerpt(reference, 120);
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`{}` refers to another document; bundle both into one", shown()));
        };
        let pointer = percent_decode_str(pointer).decode_utf8_lossy();
        self.root.pointer(&pointer).ok_or_else(|| format!("`{}` refers to nothing", shown()))
    }
}
