//! The document of a connection: an operation of the integration `ExecuteConnection` for each operation on an entity
//! and for each action. Parameters that identify the connection are constant and hidden from models.

use serde_json::{Map, Value, json};

use super::{EntityOperation, Integration};
use crate::document::Document;
use crate::error::ApiError;

/// The integration that Google Cloud has for all connections.
const INTEGRATION: &str = "ExecuteConnection";

/// The action that runs a query in the language of the connection's system.
const CUSTOM_QUERY: &str = "ExecuteCustomQuery";

/// The document while it is made.
pub(super) struct Connector<'a> {
    integration: &'a Integration,
    /// Properties of all requests, which are constant.
    constants: Map<String, Value>,
    paths: Map<String, Value>,
}

impl EntityOperation {
    const ALL: [Self; 5] = [Self::List, Self::Get, Self::Create, Self::Update, Self::Delete];

    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Returns the name in requests.
    fn wire_name(self) -> &'static str {
        match self {
            Self::List => "LIST_ENTITIES",
            Self::Get => "GET_ENTITY",
            Self::Create => "CREATE_ENTITY",
            Self::Update => "UPDATE_ENTITY",
            Self::Delete => "DELETE_ENTITY",
        }
    }

    fn text(self, entity: &str) -> String {
        match self {
            Self::List => format!(
                "Lists entities of the type {entity}. `filterClause` has the form field1='value1' AND field2='value2'. If the \
                 answer has a `nextPageToken`, there are more: pass it as `pageToken`."
            ),
            Self::Get => format!("Returns one entity of the type {entity}."),
            Self::Create => format!("Creates an entity of the type {entity}."),
            Self::Update => format!("Changes an entity of the type {entity}."),
            Self::Delete => format!("Deletes an entity of the type {entity}."),
        }
    }
}

impl<'a> Connector<'a> {
    /// Creates a document without operations of the connection with these details.
    pub(super) fn new(integration: &'a Integration, details: &Value) -> Self {
        let text = |key: &str| details.get(key).and_then(Value::as_str).unwrap_or_default();
        // A connection with a host has its own directory.
        let directory = if text("host").is_empty() { "serviceDirectory" } else { "tlsServiceDirectory" };
        let constants = [("connectionName", text("name")), ("serviceName", text(directory)), ("host", text("host"))];
        let constants = constants.map(|(key, value)| (key.to_owned(), value.into()));
        Self { integration, constants: constants.into_iter().collect(), paths: Map::new() }
    }

    /// Adds operations on an entity; all that the connector has if the list is empty.
    pub(super) fn add_entity(&mut self, entity: &str, operations: &[EntityOperation], metadata: &Value) {
        let supported = metadata.get("operations").and_then(Value::as_array);
        let is_supported = |operation: &EntityOperation| {
            let names = supported.into_iter().flatten().filter_map(Value::as_str);
            names.map(str::to_ascii_lowercase).any(|name| name == operation.name())
        };
        let operations = match operations {
            [] => EntityOperation::ALL.into_iter().filter(is_supported).collect(),
            chosen => chosen.to_vec(),
        };
        let schema = metadata.get("jsonSchema").cloned().unwrap_or_else(|| json!({"type": "object"}));
        for operation in operations {
            let id = json!({"type": "string", "description": "The id of the entity."});
            let filter = json!({"type": "string", "description": "The conditions of a WHERE clause in SQL."});
            let payload = || ("connectorInputPayload", schema.clone());
            let (properties, required): (Vec<(&str, Value)>, &[&str]) = match operation {
                EntityOperation::List => (
                    vec![
                        ("filterClause", filter),
                        ("pageSize", json!({"type": "integer", "description": "Most entities of the answer."})),
                        ("pageToken", json!({"type": "string"})),
                        ("sortByColumns", json!({"type": "array", "items": {"type": "string"}})),
                    ],
                    &[],
                ),
                EntityOperation::Get => (vec![("entityId", id)], &["entityId"]),
                EntityOperation::Create => (vec![payload()], &["connectorInputPayload"]),
                EntityOperation::Update => (
                    vec![payload(), ("entityId", id), ("filterClause", filter)],
                    &["connectorInputPayload", "entityId"],
                ),
                EntityOperation::Delete => (vec![("entityId", id), ("filterClause", filter)], &["entityId"]),
            };
            let constants = [("operation", operation.wire_name()), ("entity", entity)];
            let name = format!("{}_{}", operation.name(), entity.to_lowercase());
            self.add(&name, operation.text(entity), constants, properties, required);
        }
    }

    /// Adds an action.
    pub(super) fn add_action(&mut self, action: &str, metadata: &Value) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("displayName").unwrap_or(action).replace(' ', "");
        if action == CUSTOM_QUERY {
            let properties = vec![
                ("query", json!({"type": "string", "description": "The query, in SQL."})),
                ("timeout", json!({"type": "integer", "default": 120, "description": "The timeout in seconds."})),
                ("pageSize", json!({"type": "integer", "default": 50, "description": "Most rows of the answer."})),
            ];
            let text = text("description").unwrap_or("Runs a query.").to_owned();
            let constants = [("operation", "EXECUTE_QUERY"), ("action", action)];
            return self.add(&name, text, constants, properties, &["query", "timeout", "pageSize"]);
        }
        let text = text("description").map_or_else(|| format!("Executes {action}."), ToOwned::to_owned);
        let schema = metadata.get("inputJsonSchema").cloned().unwrap_or_else(|| json!({"type": "object"}));
        let constants = [("operation", "EXECUTE_ACTION"), ("action", action)];
        self.add(&name, text, constants, vec![("connectorInputPayload", schema)], &["connectorInputPayload"]);
    }

    fn add(
        &mut self,
        name: &str,
        text: String,
        constants: [(&str, &str); 2],
        arguments: Vec<(&str, Value)>,
        required: &[&str],
    ) {
        let Integration { project, location, instructions, .. } = self.integration;
        let constants = constants.map(|(key, value)| (key.to_owned(), Value::from(value)));
        let constants = self.constants.clone().into_iter().chain(constants);
        let mut properties: Map<_, _> = constants.map(|(key, value)| (key, json!({ "const": value }))).collect();
        properties.extend(arguments.into_iter().map(|(key, schema)| (key.to_owned(), schema)));
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let text = format!("{text} {instructions}");
        let operation = json!({
            "operationId": name,
            "description": text.trim(),
            "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
        });
        // The fragment after `#` makes the path unique, and is not sent.
        let path = format!(
            "/v2/projects/{project}/locations/{location}/integrations/{INTEGRATION}:execute?triggerId=api_trigger/\
             {INTEGRATION}#{name}"
        );
        self.paths.insert(path, json!({ "post": operation }));
    }

    pub(super) fn into_document(self) -> Result<Document, ApiError> {
        Document::new(json!({"openapi": "3.1.0", "paths": self.paths}), None)
    }
}
