//! HTTP requests through the contract, in sequence.

use serde_json::{Map, Value, json};

use crate::bindings::hatchery::agent::sync_http;
use crate::bindings::hatchery::agent::types::{Error, HttpRequest};

/// Sends a request. Returns what has arrived, or the error.
pub(crate) fn visit(args: &Map<String, Value>) -> Value {
    arrived(args).unwrap_or_else(|error| json!({ "code": error.code, "error": error.message }))
}

fn arrived(args: &Map<String, Value>) -> Result<Value, Error> {
    let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (url, header) = (text("url"), text("header"));
    let headers = if header.is_empty() { Vec::new() } else { vec![("x-one".to_owned(), header)] };
    let method = if args.contains_key("method") { text("method") } else { "GET".into() };
    let body = text("body").into_bytes();
    let response = sync_http::send(&HttpRequest { method, url: url.clone(), headers, body, timeout: None })?;
    let kind = response.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value);
    let text = String::from_utf8_lossy(&response.body);
    Ok(json!({ "status": response.status, "url": url, "type": kind, "text": text }))
}
