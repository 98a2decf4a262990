//! Application Integration and Integration Connectors of Google Cloud, as OpenAPI documents. Google Cloud generates the
//! document of an integration; the host generates the document of a connection from its connector's entities and
//! actions.

mod connector;

use std::collections::BTreeMap;
use std::time::Duration;

use hatchery_core::excerpt;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::document::Document;
use crate::error::ApiError;
use crate::http::{ApiResponse, Http};
use crate::request::Request;

/// Interval of polls for the result of an operation.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum size in bytes of an answer in an error.
const MAX_EXCERPT: usize = 300;

/// An integration or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integration {
    pub project: String,
    /// The location, such as `us-central1`.
    pub location: String,
    /// The integration or the connection.
    pub resource: IntegrationResource,
    /// Text that is added to the descriptions of a connection's tools.
    pub instructions: String,
    /// Base URL of all services. `None` means Google Cloud's URLs.
    pub endpoint: Option<String>,
}

/// The target of an integration toolset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntegrationResource {
    /// An integration, by its API triggers.
    Integration {
        name: String,
        /// The triggers, such as `api_trigger/orders`; all if empty.
        triggers: Vec<String>,
    },
    /// A connection, by its connector.
    Connection {
        name: String,
        /// Operations by entity; all that the connector has if empty.
        entity_operations: BTreeMap<String, Vec<EntityOperation>>,
        actions: Vec<String>,
    },
}

/// An operation on an entity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityOperation {
    /// Lists entities.
    List,
    /// Returns one.
    Get,
    /// Creates one.
    Create,
    /// Changes one.
    Update,
    /// Deletes one.
    Delete,
}

impl Integration {
    /// Returns the URLs that requests go to.
    pub fn hosts(&self) -> Vec<String> {
        [Service::Connectors, Service::Regional, Service::Integrations].map(|service| self.endpoint(service)).into()
    }

    fn endpoint(&self, service: Service) -> String {
        match (&self.endpoint, service) {
            (Some(endpoint), _) => endpoint.trim_end_matches('/').to_owned(),
            (None, Service::Connectors) => "https://connectors.googleapis.com".into(),
            (None, Service::Regional) => format!("https://{}-integrations.googleapis.com", self.location),
            (None, Service::Integrations) => "https://integrations.googleapis.com".into(),
        }
    }

    /// Returns the URL that the paths of the document are appended to.
    pub(crate) fn base_url(&self) -> String {
        self.endpoint(Service::Integrations)
    }

    /// Returns the URL of a path below the location, or of another resource.
    fn url(&self, service: Service, path: &str) -> Result<Url, ApiError> {
        let url = format!("{}/v1/{path}", self.endpoint(service));
        Url::parse(&url).map_err(|error| ApiError::Unreadable(format!("`{}`: {error}", excerpt(&url, 200))))
    }

    fn parent(&self) -> String {
        format!("projects/{}/locations/{}", self.project, self.location)
    }

    /// Requests the document of an integration, or generates the document of a connection.
    ///
    /// # Errors
    /// If a service refuses a request, or answers otherwise than it should.
    pub(crate) async fn document(&self, http: &Http) -> Result<Document, ApiError> {
        self.check().map_err(|reason| ApiError::Setting { key: "integration".into(), reason })?;
        match &self.resource {
            IntegrationResource::Integration { name, triggers } => {
                let url = self.url(Service::Regional, &format!("{}:generateOpenApiSpec", self.parent()))?;
                let resource = json!({"integrationResource": name, "triggerId": triggers});
                let body = json!({"apiTriggerResources": [resource], "fileFormat": "JSON"});
                let request = Request::new(Method::POST, url).with_json(&body);
                let answer = self.decode(http.send_for_document(&request).await?)?;
                let text = answer.get("openApiSpec").and_then(Value::as_str).map(ToOwned::to_owned);
                let text = text.ok_or_else(|| ApiError::Unreadable("the answer has no `openApiSpec`".into()))?;
                // A large text takes seconds.
                let parse = tokio::task::spawn_blocking(move || Document::parse(text.as_bytes(), None));
                parse.await.map_err(|error| ApiError::Invalid(error.to_string()))?
            }
            IntegrationResource::Connection { name, entity_operations, actions } => {
                let connection = format!("{}/connections/{name}", self.parent());
                let details = self.get(http, &format!("{connection}?view=BASIC")).await?;
                let mut connector = connector::Connector::new(self, &details);
                for (entity, operations) in entity_operations {
                    let found =
                        self.metadata(http, &connection, "getEntityType", ("entityId", entity.as_str())).await?;
                    connector.add_entity(entity, operations, &found);
                }
                for action in actions {
                    let found = self.metadata(http, &connection, "getAction", ("actionId", action.as_str())).await?;
                    connector.add_action(action, &found);
                }
                connector.into_document()
            }
        }
    }

    /// Asks a connector about an entity or an action, and waits for the answer.
    async fn metadata(
        &self,
        http: &Http,
        connection: &str,
        method: &str,
        (key, name): (&str, &str),
    ) -> Result<Value, ApiError> {
        let mut url = self.url(Service::Connectors, &format!("{connection}/connectionSchemaMetadata:{method}"))?;
        url.query_pairs_mut().append_pair(key, name);
        let mut operation = self.send(http, Request::new(Method::GET, url)).await?;
        while operation.get("done") != Some(&Value::Bool(true)) {
            let id = operation.get("name").and_then(Value::as_str).filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| ApiError::Unreadable(format!("`{method}` of `{name}` has no operation")))?;
            let id = id.to_owned();
            operation = self.get(http, &id).await?;
            if operation.get("done") != Some(&Value::Bool(true)) {
                tokio::time::sleep(POLL_INTERVAL).await;
                if let Some(operation) = operation.as_object_mut() {
                    operation.insert("name".into(), id.into());
                }
            }
        }
        if let Some(message) = operation.pointer("/error/message").and_then(Value::as_str) {
            let message = excerpt(message, MAX_EXCERPT);
            return Err(ApiError::Unreadable(format!("`{method}` of `{name}` failed: {message}")));
        }
        Ok(operation.get_mut("response").map(Value::take).unwrap_or_default())
    }

    async fn get(&self, http: &Http, path: &str) -> Result<Value, ApiError> {
        self.send(http, Request::new(Method::GET, self.url(Service::Connectors, path)?)).await
    }

    async fn send(&self, http: &Http, request: Request) -> Result<Value, ApiError> {
        self.decode(http.send(&request).await?)
    }

    /// Checks the values that become parts of host names and paths.
    ///
    /// # Errors
    /// The reason, with the key.
    pub fn check(&self) -> Result<(), String> {
        let is_id = |value: &str, others: &str| {
            value.starts_with(|char: char| char.is_ascii_alphanumeric())
                && value.chars().all(|char| char.is_ascii_alphanumeric() || others.contains(char))
        };
        for (key, value, others) in [("project", &self.project, "-.:"), ("location", &self.location, "-")] {
            if !is_id(value, others) {
                return Err(format!("`{}` is not the id of a {key} of Google Cloud", excerpt(value, 60)));
            }
        }
        Ok(())
    }

    /// Returns the JSON of an answer.
    fn decode(&self, answer: ApiResponse) -> Result<Value, ApiError> {
        let text = excerpt(String::from_utf8_lossy(&answer.body).trim(), MAX_EXCERPT);
        match answer.status.as_u16() {
            200..300 => serde_json::from_slice(&answer.body)
                .map_err(|error| ApiError::Unreadable(format!("the answer is not JSON ({error}): {text}"))),
            status @ (400 | 404) => Err(ApiError::Unreadable(format!(
                "invalid request (status {status}): check the values of project ({}), location ({}) and {}: {text}",
                self.project, self.location, self.resource
            ))),
            status @ (401 | 403) => Err(ApiError::Unreadable(format!("permission error (status {status}): {text}"))),
            status => Err(ApiError::Unreadable(format!("the answer has the status {status}: {text}"))),
        }
    }
}

/// A service of Google Cloud.
#[derive(Clone, Copy)]
enum Service {
    Connectors,
    /// Integrations in one location.
    Regional,
    Integrations,
}

impl std::fmt::Display for IntegrationResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integration { name, .. } => write!(f, "integration ({name})"),
            Self::Connection { name, .. } => write!(f, "connection ({name})"),
        }
    }
}
