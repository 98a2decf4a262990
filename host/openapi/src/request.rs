//! Requests from the arguments of a call.

mod body;
mod style;

use bytes::Bytes;
use hatchery_core::{CallContext, JsonMap};
use reqwest::header::{ACCEPT, COOKIE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;

use crate::document::{Location, Operation, Parameter};
pub(crate) use style::{encode_component, encode_form};
use style::{header_value, path_value, query_pairs};

/// A request without credentials.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) cookies: Vec<String>,
    /// The content type and the bytes.
    pub(crate) body: Option<(HeaderValue, Bytes)>,
}

impl Request {
    /// Creates a request without a body.
    pub(crate) fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: HeaderMap::new(), cookies: Vec::new(), body: None }
    }

    /// Creates the request of an operation with these arguments, and with a body of at most `max_body` bytes. Files are
    /// read from the artifacts of the session.
    ///
    /// # Errors
    /// The reason for the model.
    pub(crate) async fn for_call(
        operation: &Operation,
        mut args: JsonMap,
        max_body: usize,
        cx: &CallContext,
    ) -> Result<Self, String> {
        // Fragments are never sent.
        let mut path = operation.path.split('#').next().unwrap_or_default().to_owned();
        let mut query = Vec::new();
        let mut request = Self::new(operation.method.clone(), operation.base_url.clone());
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.8"));
        for parameter in &operation.parameters {
            let value = args.shift_remove(&parameter.argument).unwrap_or(Value::Null);
            if value.is_null() && parameter.location != Location::Path {
                continue;
            }
            match parameter.location {
                Location::Path => path = fill_path(&path, parameter, &value)?,
                Location::Query => query.extend(query_pairs(parameter, &value)),
                Location::Cookie => request.cookies.extend(query_pairs(parameter, &value)),
                Location::Header => request.set_header(parameter, &value)?,
            }
        }
        request.extend_url(&path, query)?;
        if let Some(body) = &operation.body {
            request.body = body::encode(body, args, max_body, cx).await?;
        }
        Ok(request)
    }

    fn set_header(&mut self, parameter: &Parameter, value: &Value) -> Result<(), String> {
        let name = HeaderName::from_bytes(parameter.name.as_bytes())
            .map_err(|_| format!("the API has a header `{}`, which is not a valid name", parameter.argument))?;
        let value = HeaderValue::from_str(&header_value(parameter, value)).map_err(|_| {
            format!("`{}` cannot be a header: it has a line break or another control character", parameter.argument)
        })?;
        self.headers.insert(name, value);
        Ok(())
    }

    /// Appends the path of an operation, which may end with a query, and further pairs of the query.
    fn extend_url(&mut self, path: &str, pairs: Vec<String>) -> Result<(), String> {
        // The values of parameters are encoded, so they have no `?`.
        let (path, fixed_query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (path, None),
        };
        check_path(path)?;
        let base = self.url.path().trim_end_matches('/').to_owned();
        self.url.set_path(&format!("{base}{path}"));
        let own_query = self.url.query().map(ToOwned::to_owned);
        let query: Vec<String> = own_query.into_iter().chain(fixed_query).chain(pairs).collect();
        self.url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());
        Ok(())
    }

    /// Sets the body.
    pub(crate) fn with_json(self, body: &Value) -> Self {
        Self { body: Some((HeaderValue::from_static("application/json"), body.to_string().into())), ..self }
    }

    /// Adds the cookies to the header that is set, if any.
    pub(crate) fn set_cookies(headers: &mut HeaderMap, cookies: &[String]) -> Result<(), String> {
        if !cookies.is_empty() {
            let invalid = || "a cookie is invalid".to_owned();
            let own = headers.get(COOKIE).map(HeaderValue::to_str).transpose().map_err(|_| invalid())?;
            let all: Vec<_> = own.into_iter().chain(cookies.iter().map(String::as_str)).collect();
            let mut value = HeaderValue::from_str(&all.join("; ")).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(COOKIE, value);
        }
        Ok(())
    }
}

/// Replaces a parameter in a path by its value.
fn fill_path(path: &str, parameter: &Parameter, value: &Value) -> Result<String, String> {
    let text = path_value(parameter, value);
    if text.is_empty() || value.is_null() || value == "" {
        return Err(format!("`{}` is empty, and it is a part of the path", parameter.argument));
    }
    Ok(path.replace(&format!("{{{}}}", parameter.name), &text))
}

/// Checks that a path leads to the operation: URLs drop `..` together with the segment before it.
fn check_path(path: &str) -> Result<(), String> {
    let is_dots = |segment: &str| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        segment == "." || segment == ".."
    };
    if path.split(['/', '\\']).any(is_dots) {
        Err("a part of the path is `.` or `..`, which is not allowed".into())
    } else {
        Ok(())
    }
}

/// Returns a value as text: strings unchanged, other values as JSON.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Encodes the name and the value of a field of a form.
fn pair(name: &str, value: &str) -> String {
    format!("{}={}", encode_component(name), encode_component(value))
}
