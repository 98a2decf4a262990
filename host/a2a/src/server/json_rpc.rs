//! The JSON-RPC binding. The method name determines the protocol version.

use std::sync::Arc;

use futures::StreamExt;
use hatchery_engine::App;
use http::{HeaderMap, Response};
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::stream::Updates;
use super::{A2aService, endpoint};
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind, excerpt};
use crate::model::Operation;

/// A parsed request.
struct Call {
    id: Value,
    version: Version,
    operation: Operation,
}

/// An error with the id of its request.
struct CallError {
    id: Value,
    version: Option<Version>,
    error: A2aError,
}

impl A2aService {
    /// Answers a request. Errors have the status 200, unless the host is busy, which proxies and load balancers must
    /// see.
    pub(super) async fn json_rpc(
        &self,
        app: &Arc<App>,
        headers: &HeaderMap,
        query: Option<&str>,
        body: &[u8],
    ) -> Response<Body> {
        let call = endpoint::check_content_type(headers)
            .map_err(|error| CallError { id: Value::Null, version: None, error })
            .and_then(|()| parse(body))
            .and_then(|call| {
                let checked = endpoint::check_version(headers, query).and_then(|_| self.check_offered(call.version));
                match checked {
                    Ok(()) => Ok(call),
                    Err(error) => Err(CallError { id: call.id, version: Some(call.version), error }),
                }
            });
        let Call { id, version, operation } = match call {
            Ok(call) => call,
            Err(CallError { id, version, error }) => return failure(&id, version, &error),
        };
        let stream = match operation {
            Operation::Stream(request) => self.stream(app, *request).await,
            Operation::Subscribe { id } => self.subscribe(app, &id, version).await,
            operation => {
                return match self.perform(app, operation).await {
                    Ok(outcome) => answer::json(200, &success(&id, version.encode_outcome(outcome))),
                    Err(error) => failure(&id, Some(version), &error),
                };
            }
        };
        match stream {
            Ok(updates) => self.event_stream(id, version, updates),
            Err(error) => failure(&id, Some(version), &error),
        }
    }

    fn event_stream(&self, id: Value, version: Version, updates: Updates) -> Response<Body> {
        let values = updates.map(move |update| match update {
            Ok(update) => success(&id, version.encode_update(update)),
            Err(error) => error_json(&id, Some(version), &error),
        });
        answer::events(values.boxed(), self.settings().keep_alive)
    }
}

/// Returns a success response. Takes `result` by value, because `json!` would clone it.
fn success(id: &Value, result: Value) -> Value {
    let (jsonrpc, id) = (("jsonrpc".into(), "2.0".into()), ("id".into(), id.clone()));
    Value::Object(Map::from_iter([jsonrpc, id, ("result".into(), result)]))
}

fn error_json(id: &Value, version: Option<Version>, error: &A2aError) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": error.to_json_rpc(version == Some(Version::V0_3))})
}

fn failure(id: &Value, version: Option<Version>, error: &A2aError) -> Response<Body> {
    let status = if error.kind == ErrorKind::Busy { error.kind.status() } else { 200 };
    answer::error(error.kind, status, &error_json(id, version, error))
}

fn parse(body: &[u8]) -> Result<Call, CallError> {
    let invalid = |id: Value, message: &str| {
        let error = A2aError::new(ErrorKind::InvalidRequest, message);
        CallError { id, version: None, error }
    };
    let request: Value = serde_json::from_slice(body).map_err(|error| {
        let error = A2aError::new(ErrorKind::Parse, format!("the body is not valid JSON: {error}"));
        CallError { id: Value::Null, version: None, error }
    })?;
    let Value::Object(mut request) = request else {
        return Err(invalid(Value::Null, "a request is one JSON object; batches are not supported"));
    };
    let id = request.remove("id").unwrap_or_default();
    if !(id.is_null() || id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(invalid(Value::Null, "`id` must be a string or an integer"));
    }
    if request.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(invalid(id, "`jsonrpc` must be \"2.0\""));
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return Err(invalid(id, "`method` must be a string"));
    };
    let params = request.remove("params").unwrap_or_else(|| json!({}));
    let is_object = params.is_object();
    let Some((version, operation)) = Version::decode_call(&method, params) else {
        let error = A2aError::new(ErrorKind::MethodNotFound, format!("there is no method `{}`", excerpt(&method)));
        return Err(CallError { id, version: None, error });
    };
    if !is_object {
        let error = A2aError::invalid_params("`params` must be an object");
        return Err(CallError { id, version: Some(version), error });
    }
    match operation {
        Ok(operation) => Ok(Call { id, version, operation }),
        Err(error) => Err(CallError { id, version: Some(version), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: &str) -> (Value, i64, String) {
        let CallError { id, error, .. } = parse(body.as_bytes()).err().unwrap();
        (id, error.kind.code(), error.message)
    }

    #[test]
    fn malformed_requests_have_the_codes_of_json_rpc() {
        let request = |text: &str| format!("{{\"jsonrpc\": \"2.0\", \"id\": 7, {text}}}");
        assert_eq!(error("{\"jsonrpc\"").1, -32700);
        assert_eq!(error("[]").1, -32600);
        assert_eq!(error("{\"id\": 7, \"method\": \"x\"}"), (json!(7), -32600, "`jsonrpc` must be \"2.0\"".into()));
        assert_eq!(error("{\"jsonrpc\": \"2.0\", \"id\": {}, \"method\": \"x\"}").1, -32600);
        assert_eq!(error(&request("\"method\": 1")), (json!(7), -32600, "`method` must be a string".into()));
        assert_eq!(error(&request("\"method\": \"x\"")), (json!(7), -32601, "there is no method `x`".into()));
        let (_, code, message) = error(&request("\"method\": \"GetTask\", \"params\": [1]"));
        assert_eq!((code, message.as_str()), (-32602, "`params` must be an object"));
        assert_eq!(error(&request("\"method\": \"tasks/get\"")).1, -32602);
    }
}
