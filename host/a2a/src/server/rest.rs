//! The HTTP+JSON binding of version 1.0: paths instead of methods, the same JSON.

use std::sync::Arc;

use futures::StreamExt;
use hatchery_engine::App;
use http::{HeaderMap, Method, Response, StatusCode};
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::{A2aService, endpoint};
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind};
use crate::model::Operation;

impl A2aService {
    /// Answers a request to a path below an app's path.
    pub(super) async fn rest(
        &self,
        app: &Arc<App>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        query: Option<&str>,
        body: &[u8],
    ) -> Response<Body> {
        match self.try_rest(app, method, path, headers, query, body).await {
            Ok(response) => response,
            Err(error) => answer::error(error.kind, error.kind.status(), &error.to_status_json()),
        }
    }

    async fn try_rest(
        &self,
        app: &Arc<App>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        query: Option<&str>,
        body: &[u8],
    ) -> Result<Response<Body>, A2aError> {
        if endpoint::check_version(headers, query)? == Some(Version::V0_3) {
            let message = "over HTTP+JSON this host speaks version 1.0; use JSON-RPC for 0.3";
            return Err(A2aError::new(ErrorKind::VersionNotSupported, message));
        }
        self.check_offered(Version::V1_0)?;
        let route = find_route(method, path);
        let (name, ids) = route
            .ok_or_else(|| A2aError::new(ErrorKind::MethodNotFound, format!("there is no {method} for this path")))?;
        let mut params = match endpoint::parse_body(headers, body)? {
            Value::Object(params) => params,
            _ => return Err(A2aError::invalid_params("the body must be a JSON object")),
        };
        params.extend(query_params(query));
        params.extend(ids);
        // Every route has a method of version 1.0.
        let Some((_, operation)) = Version::decode_call(name, Value::Object(params)) else {
            return Err(A2aError::new(ErrorKind::MethodNotFound, "there is no such method"));
        };
        let updates = match operation? {
            Operation::Stream(request) => self.stream(app, *request).await?,
            Operation::Subscribe { id } => self.subscribe(app, &id, Version::V1_0).await?,
            operation @ Operation::DeletePush { .. } => {
                self.perform(app, operation).await?;
                return Ok(answer::empty(StatusCode::NO_CONTENT));
            }
            operation => {
                let outcome = self.perform(app, operation).await?;
                return Ok(answer::json(200, &Version::V1_0.encode_outcome(outcome)));
            }
        };
        let values = updates.map(|update| match update {
            Ok(update) => Version::V1_0.encode_update(update),
            Err(error) => error.to_status_json(),
        });
        Ok(answer::events(values.boxed(), self.settings().keep_alive))
    }
}

/// Returns the method of JSON-RPC for a path, and the parameters in the path.
fn find_route(method: &Method, path: &str) -> Option<(&'static str, Map<String, Value>)> {
    let is_get = method == Method::GET;
    let is_post = method == Method::POST;
    let ids = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, id)| ((*key).to_owned(), json!(id))).collect();
    let segments: Vec<&str> = path.split('/').collect();
    Some(match segments.as_slice() {
        ["message:send"] if is_post => ("SendMessage", ids(&[])),
        ["message:stream"] if is_post => ("SendStreamingMessage", ids(&[])),
        ["extendedAgentCard"] if is_get => ("GetExtendedAgentCard", ids(&[])),
        ["tasks"] if is_get => ("ListTasks", ids(&[])),
        ["tasks", task] => match (task.split_once(':'), is_get, is_post) {
            (None, true, _) => ("GetTask", ids(&[("id", *task)])),
            (Some((task, "cancel")), _, true) => ("CancelTask", ids(&[("id", task)])),
            (Some((task, "subscribe")), true, _) | (Some((task, "subscribe")), _, true) => {
                ("SubscribeToTask", ids(&[("id", task)]))
            }
            _ => return None,
        },
        ["tasks", task, "pushNotificationConfigs"] if is_post => {
            ("CreateTaskPushNotificationConfig", ids(&[("taskId", *task)]))
        }
        ["tasks", task, "pushNotificationConfigs"] if is_get => {
            ("ListTaskPushNotificationConfigs", ids(&[("taskId", *task)]))
        }
        ["tasks", task, "pushNotificationConfigs", id] if is_get => {
            ("GetTaskPushNotificationConfig", ids(&[("taskId", *task), ("id", *id)]))
        }
        ["tasks", task, "pushNotificationConfigs", id] if method == Method::DELETE => {
            ("DeleteTaskPushNotificationConfig", ids(&[("taskId", *task), ("id", *id)]))
        }
        _ => return None,
    })
}

/// Returns the parameters of a query, with numbers and booleans as such.
fn query_params(query: Option<&str>) -> Map<String, Value> {
    let url = query.and_then(|query| Url::parse(&format!("http://localhost/?{query}")).ok());
    let pairs: Vec<(String, String)> = url.iter().flat_map(|url| url.query_pairs().into_owned()).collect();
    let typed = |key: &str, text: &str| match key {
        "historyLength" | "pageSize" => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        "includeArtifacts" => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => Value::from(text),
    };
    pairs.into_iter().map(|(key, text)| (key.clone(), typed(&key, &text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_methods_of_json_rpc() {
        let find = |method: Method, path: &str| find_route(&method, path).map(|(name, ids)| (name, Value::Object(ids)));
        for (method, path, name, ids) in [
            (Method::POST, "message:send", "SendMessage", json!({})),
            (Method::GET, "tasks", "ListTasks", json!({})),
            (Method::GET, "tasks/t.1", "GetTask", json!({"id": "t.1"})),
            (Method::POST, "tasks/t:cancel", "CancelTask", json!({"id": "t"})),
            (Method::GET, "tasks/t:subscribe", "SubscribeToTask", json!({"id": "t"})),
            (
                Method::DELETE,
                "tasks/t/pushNotificationConfigs/c",
                "DeleteTaskPushNotificationConfig",
                json!({"taskId": "t", "id": "c"}),
            ),
        ] {
            assert_eq!(find(method, path), Some((name, ids)), "{path}");
        }
        for (method, path) in [(Method::GET, "message:send"), (Method::GET, "tasks/t:cancel"), (Method::POST, "x")] {
            assert_eq!(find(method, path), None, "{path}");
        }
    }

    #[test]
    fn queries_have_numbers_and_booleans() {
        let params = query_params(Some("pageSize=2&includeArtifacts=true&contextId=%C3%BC"));
        assert_eq!(Value::Object(params), json!({"pageSize": 2, "includeArtifacts": true, "contextId": "ü"}));
    }
}
