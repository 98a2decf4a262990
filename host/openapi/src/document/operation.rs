//! Operations of a document, and how their arguments become a request.

mod body;
mod parameter;

use std::collections::HashSet;

use hatchery_core::{JsonMap, excerpt, truncate_bytes};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::Document;
use super::name::{UniqueNames, valid_name};
use super::schema::{MAX_SCHEMA, SchemaConverter, too_large};
use super::server::ServerSettings;
use crate::error::ApiError;

pub(crate) use body::{Body, BodyArguments, BodyEncoding};
pub(crate) use parameter::{Location, Parameter, Style};

/// Maximum length of the description of a tool in bytes.
const MAX_TEXT: usize = 1_024;

/// Maximum number of operations that are read.
const MAX_OPERATIONS: usize = 20_000;

/// Maximum number of parameters of an operation.
const MAX_PARAMETERS: usize = 256;

/// TRACE is omitted: its response would repeat the credentials of the request.
const METHODS: [(&str, Method); 7] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
];

/// An operation, ready to be called.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) name: String,
    /// Its description for models.
    pub(crate) text: String,
    pub(crate) method: Method,
    /// The URL that its path is appended to.
    pub(crate) base_url: Url,
    /// Its path, with names of parameters in braces, and its fixed query.
    pub(crate) path: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    /// The JSON Schema of its arguments.
    pub(crate) schema: Value,
}

/// An operation of a document that is not converted yet.
pub(crate) struct Draft<'d> {
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
    document: &'d Document,
    method: Method,
    path: &'d str,
    path_item: &'d Value,
    operation: &'d Value,
}

/// Returns true for a parameter that the host adds to every request, so models have no argument for it.
pub(crate) type SuppliedPredicate<'a> = &'a dyn Fn(Location, &str) -> bool;

/// Returns the operations in the order of the document.
pub(super) fn drafts(document: &Document) -> Result<Vec<Draft<'_>>, ApiError> {
    let Some(paths) = document.root.get("paths").and_then(Value::as_object) else {
        return Err(ApiError::NoOperations("its document has no `paths`".into()));
    };
    let (mut names, mut drafts) = (UniqueNames::default(), Vec::new());
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with('/')) {
        let path_item = match document.resolve(item) {
            Ok(item) => item,
            Err(reason) => {
                tracing::warn!(path = excerpt(path, 120), "a path of an OpenAPI document is left out: {reason}");
                continue;
            }
        };
        for (key, method) in METHODS {
            let Some(operation) = path_item.get(key).filter(|operation| operation.is_object()) else { continue };
            let id = operation.get("operationId").and_then(Value::as_str).filter(|id| !id.is_empty());
            let name = names.add(id.unwrap_or(&format!("{key} {path}")));
            let tags = operation.get("tags").and_then(Value::as_array).into_iter().flatten();
            let tags = tags.filter_map(Value::as_str).map(Into::into).collect();
            drafts.push(Draft { name, tags, document, method, path, path_item, operation });
            if drafts.len() > MAX_OPERATIONS {
                return Err(ApiError::Invalid(format!("it has more than {MAX_OPERATIONS} operations")));
            }
        }
    }
    if drafts.is_empty() {
        return Err(ApiError::NoOperations("its document has no operations".into()));
    }
    Ok(drafts)
}

impl Draft<'_> {
    /// Converts the operation.
    ///
    /// # Errors
    /// The reason why no request can be made for it.
    pub(crate) fn build(
        &self,
        servers: ServerSettings<'_>,
        is_supplied: SuppliedPredicate<'_>,
    ) -> Result<Operation, String> {
        let mut arguments = Arguments::new(self.document);
        let mut parameters = Vec::new();
        for parameter in self.parameters()? {
            parameters.extend(parameter::build(parameter, &mut arguments, is_supplied)?);
        }
        check_placeholders(self.path, &parameters)?;
        let body = match self.operation.get("requestBody") {
            Some(body) => body::build(self.document.resolve(body)?, self.document, &mut arguments)?,
            None => None,
        };
        Ok(Operation {
            name: self.name.clone(),
            text: self.text(),
            method: self.method.clone(),
            base_url: self.document.base_url(servers, self.path_item, self.operation)?,
            path: self.path.to_owned(),
            parameters,
            body,
            schema: arguments.into_schema()?,
        })
    }

    /// Returns the parameters of the operation and of its path. The operation's parameters take precedence.
    fn parameters(&self) -> Result<Vec<&Value>, String> {
        let (mut parameters, mut known) = (Vec::new(), HashSet::new());
        for of in [self.operation, self.path_item] {
            for parameter in of.get("parameters").and_then(Value::as_array).into_iter().flatten() {
                let parameter = self.document.resolve(parameter)?;
                let text = |key: &str| parameter.get(key).and_then(Value::as_str);
                if known.insert((text("name"), text("in"))) {
                    parameters.push(parameter);
                }
                if parameters.len() > MAX_PARAMETERS {
                    return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
                }
            }
        }
        Ok(parameters)
    }

    /// Returns the description of the operation for models.
    fn text(&self) -> String {
        let text =
            |key: &str| self.operation.get(key).and_then(Value::as_str).map(str::trim).filter(|it| !it.is_empty());
        let texts: Vec<_> = [text("summary"), text("description")].into_iter().flatten().collect();
        if texts.is_empty() {
            truncate_bytes(&format!("{} {}", self.method, self.path), MAX_TEXT)
        } else {
            truncate_bytes(&texts.join("\n"), MAX_TEXT)
        }
    }
}

/// Checks that every name in braces in a path is one of the parameters: it would be sent unreplaced.
fn check_placeholders(path: &str, parameters: &[Parameter]) -> Result<(), String> {
    let is_declared =
        |name: &str| parameters.iter().any(|parameter| parameter.location == Location::Path && parameter.name == name);
    let sent = path.split('#').next().unwrap_or_default();
    let mut names = sent.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    match names.find(|name| !is_declared(name)) {
        Some(name) => {
            Err(format!("its path has `{{{}}}`, which is none of its parameters `in: path`", excerpt(name, 60)))
        }
        None => Ok(()),
    }
}

/// The arguments of a tool while its operation is converted.
struct Arguments<'d> {
    converter: SchemaConverter<'d>,
    names: UniqueNames,
    properties: JsonMap,
    required: Vec<String>,
}

impl<'d> Arguments<'d> {
    fn new(document: &'d Document) -> Self {
        Self {
            converter: SchemaConverter::new(document),
            names: UniqueNames::default(),
            properties: JsonMap::new(),
            required: Vec::new(),
        }
    }

    /// Returns true if another argument has this name.
    fn is_taken(&self, name: &str) -> bool {
        self.names.contains(&valid_name(name))
    }

    /// Adds an argument, and returns its name, which is like `name`.
    ///
    /// # Errors
    /// If all arguments together are too large.
    fn add(&mut self, name: &str, schema: Value, is_required: bool) -> Result<String, String> {
        let name = self.names.add(name);
        self.converter.grow(name.len())?;
        self.properties.insert(name.clone(), schema);
        if is_required {
            self.required.push(name.clone());
        }
        Ok(name)
    }

    fn into_schema(self) -> Result<Value, String> {
        let mut schema = json!({"type": "object", "properties": self.properties, "additionalProperties": false});
        let definitions = self.converter.finish()?;
        if let Some(schema) = schema.as_object_mut() {
            if !self.required.is_empty() {
                schema.insert("required".into(), self.required.into());
            }
            if !definitions.is_empty() {
                schema.insert("$defs".into(), definitions.into());
            }
        }
        if schema.to_string().len() > MAX_SCHEMA {
            return Err(too_large());
        }
        match hatchery_engine::validation::schema_error(&schema) {
            None => Ok(schema),
            Some(reason) => Err(format!("the schema of its parameters is invalid: {reason}")),
        }
    }
}
