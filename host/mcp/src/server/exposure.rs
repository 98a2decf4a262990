//! The apps and tools that clients may use, and their names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hatchery_core::{ClientScope, JsonMap, matches_wildcard, to_json_schema};
use rmcp::model::Tool;
use serde_json::{Value, json};

use super::{ExposedPrompt, FileResource, McpCatalog};

/// Maximum length of a tool name in characters. Clients reject longer ones.
const MAX_NAME: usize = 64;

/// The apps, tools and prompts for clients. In a pattern, `*` is a wildcard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Patterns of the names of apps.
    pub apps: Vec<String>,
    /// Patterns of the qualified names of tools.
    pub tools: Vec<String>,
    /// Components whose tools no client may call.
    pub private: BTreeSet<String>,
    /// Prompts by name.
    pub prompts: BTreeMap<String, ExposedPrompt>,
    /// Files as resources.
    pub resources: Vec<FileResource>,
}

/// The target of a tool name of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A run of this app.
    App(String),
    /// The tool with this qualified name.
    Tool(String),
}

/// The tools of one generation of the catalog, by name.
#[derive(Default)]
pub(super) struct ExposedTools {
    tools: BTreeMap<String, (Tool, Target)>,
}

impl ExposedTools {
    pub(super) fn resolve(catalog: &dyn McpCatalog, exposure: &Exposure) -> Self {
        let mut exposed = Self::default();
        for app in catalog.app_names().into_iter().filter(|app| matches_any(&exposure.apps, app)) {
            let description = catalog.app(&app).map(|app| app.root().description.clone()).unwrap_or_default();
            exposed.add(run_tool(&app, &description), Target::App(app));
        }
        let is_private =
            |name: &str| name.split_once('/').is_some_and(|(component, _)| exposure.private.contains(component));
        let public = catalog.tool_names().into_iter().filter(|name| !is_private(name));
        for name in public.filter(|name| matches_any(&exposure.tools, name)) {
            let Some(tool) = catalog.tool(&name).filter(|tool| tool.is_callable()) else { continue };
            let declaration = tool.declaration();
            let schema = declaration.parameters.as_ref().map(|schema| to_json_schema(schema).into_owned());
            let mut described = define_tool(&name, &declaration.description, schema.unwrap_or_else(|| json!({})));
            described.output_schema = declaration.response.as_ref().and_then(output_schema);
            exposed.add(described, Target::Tool(name));
        }
        exposed
    }

    fn add(&mut self, tool: Tool, target: Target) {
        let name = tool.name.to_string();
        if let Some((_, other)) = self.tools.get(&name) {
            tracing::warn!("MCP clients cannot use {target}: {other} has the name `{name}` too");
            return;
        }
        self.tools.insert(name, (tool, target));
    }

    /// Returns the tools that a client may use.
    pub(super) fn list(&self, scope: Option<&ClientScope>) -> Vec<Tool> {
        let permitted = self.tools.values().filter(|(_, target)| target.is_permitted(scope));
        permitted.map(|(tool, _)| tool.clone()).collect()
    }

    /// Returns the names of the apps that a client may use.
    pub(super) fn apps(&self, scope: Option<&ClientScope>) -> Vec<String> {
        let permitted = self.tools.values().filter(|(_, target)| target.is_permitted(scope));
        let apps = permitted.filter_map(|(_, target)| match target {
            Target::App(app) => Some(app.clone()),
            Target::Tool(_) => None,
        });
        apps.collect()
    }

    /// Returns the tool of this name.
    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name).map(|(tool, _)| tool)
    }

    /// Returns the target of a name that a client may use.
    pub(super) fn target(&self, name: &str, scope: Option<&ClientScope>) -> Option<&Target> {
        self.tools.get(name).map(|(_, target)| target).filter(|target| target.is_permitted(scope))
    }
}

impl Target {
    /// Returns true if a client may use it. A tool belongs to no app, so it is for clients that may use all of them.
    fn is_permitted(&self, scope: Option<&ClientScope>) -> bool {
        scope.is_none_or(|scope| match self {
            Self::App(name) => scope.has_app(name),
            Self::Tool(_) => scope.has_every_app(),
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::App(name) => write!(f, "the app `{name}`"),
            Self::Tool(name) => write!(f, "the tool `{name}`"),
        }
    }
}

fn run_tool(app: &str, description: &str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "The message to the agent."},
            "session": {
                "type": "string",
                "description": "The session of an earlier answer, to continue that conversation. Leave it out to begin a new one."
            }
        },
        "required": ["message"]
    });
    let description =
        if description.is_empty() { format!("Sends a message to the agent {app}.") } else { description.into() };
    let mut tool = define_tool(&format!("run_{app}"), &description, schema);
    let answer = json!({
        "type": "object",
        "properties": {
            "session": {"type": "string", "description": "The session, to continue the conversation."},
            "response": {"type": "string", "description": "The texts of the answer."},
            "waiting_for": {"type": "array", "description": "The calls that a person has to answer."}
        },
        "required": ["session", "response"]
    });
    tool.output_schema = output_schema(&answer);
    tool
}

/// Returns the schema of structured content. `None` for a schema of other values than objects.
fn output_schema(schema: &Value) -> Option<Arc<JsonMap>> {
    match to_json_schema(schema).into_owned() {
        Value::Object(schema) if schema.get("type").and_then(Value::as_str) == Some("object") => Some(Arc::new(schema)),
        _ => None,
    }
}

fn define_tool(name: &str, description: &str, schema: Value) -> Tool {
    let mut schema: JsonMap = match schema {
        Value::Object(schema) => schema,
        _ => JsonMap::new(),
    };
    schema.insert("type".into(), "object".into());
    Tool::new(client_name(name), description.to_owned(), Arc::new(schema))
}

/// Returns a name with the characters that clients accept: letters, digits, `_` and `-`.
fn client_name(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '-';
    name.chars().take(MAX_NAME).map(|char| if is_plain(char) { char } else { '_' }).collect()
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches_wildcard(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_characters_that_clients_accept() {
        assert_eq!(client_name("dice/roll_die"), "dice_roll_die");
        assert_eq!(client_name("run_trip-planner.v2"), "run_trip-planner_v2");
        assert_eq!(client_name(&"x".repeat(99)).len(), 64);
    }
}
