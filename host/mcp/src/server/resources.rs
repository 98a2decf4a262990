//! Artifacts of a client's sessions as resources: `artifact:///APP/SESSION/NAME`, each part percent-encoded.

use hatchery_core::{PartData, SessionKey, StoreError, encode_segment};
use percent_encoding::percent_decode_str;
use rmcp::RoleServer;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate,
};
use rmcp::service::RequestContext;

use super::McpService;
use super::call::{MAX_FILE_BYTES, user};
use super::content;
use super::session::scope;

/// Prefix of the URIs of artifacts.
const PREFIX: &str = "artifact:///";

/// The URI of any artifact.
const TEMPLATE: &str = "artifact:///{app}/{session}/{name}";

/// The sessions of an app whose artifacts are listed: those that were updated last.
const LISTED_SESSIONS: usize = 50;

/// Maximum number of artifacts of a list. Others can be read by their URIs.
const MAX_LISTED: usize = 1000;

/// Returns the URI of an artifact.
pub(super) fn uri(key: &SessionKey, name: &str) -> String {
    format!("{PREFIX}{}/{}/{}", encode_segment(&key.app), encode_segment(&key.id), encode_segment(name))
}

/// Returns the app, the session and the name of an artifact.
fn parse(uri: &str) -> Option<[String; 3]> {
    let decode = |segment: &str| percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned());
    let segments: Vec<String> = uri.strip_prefix(PREFIX)?.split('/').map(decode).collect::<Option<_>>()?;
    segments.try_into().ok()
}

/// Returns the template of the URIs.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let description = "A file of a session. The session is that of an agent's answer.";
    vec![ResourceTemplate::new(TEMPLATE, "artifact").with_description(description)]
}

impl McpService {
    /// Returns the artifacts of the client's sessions with the apps that it may use.
    pub(super) async fn resources(&self, context: &RequestContext<RoleServer>) -> Result<Vec<Resource>, ErrorData> {
        let mut resources = Vec::new();
        for app in self.apps(context).await {
            for session in self.sessions(&app, context).await? {
                let key = SessionKey::new(app.as_str(), user(context), session);
                for name in self.artifacts(&key).await? {
                    if resources.len() == MAX_LISTED {
                        return Ok(resources);
                    }
                    let description = format!("A file of session {} of the app {app}.", key.id);
                    resources.push(Resource::new(uri(&key, &name), name).with_description(description));
                }
            }
        }
        Ok(resources)
    }

    /// Returns the newest version of an artifact.
    ///
    /// # Errors
    /// If there is none, or the client may not use its app.
    pub(super) async fn resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let missing = || ErrorData::resource_not_found("Resource not found", Some(serde_json::json!({ "uri": uri })));
        let [app, session, name] = parse(uri).ok_or_else(missing)?;
        if !self.apps(context).await.contains(&app) {
            return Err(missing());
        }
        let key = SessionKey::new(app, user(context), session);
        let part = self.0.runner.services().artifacts.load_within(&key, &name, None, MAX_FILE_BYTES).await;
        let part = part.map_err(|error| match error {
            StoreError::InvalidRequest(message) => ErrorData::invalid_request(message, None),
            error => internal_error(&error),
        });
        let contents = match part?.ok_or_else(missing)?.data {
            PartData::InlineData(blob) => content::contents(&blob, uri),
            PartData::Text(text) => ResourceContents::text(text, uri),
            _ => return Err(missing()),
        };
        Ok(ReadResourceResult::new(vec![contents]))
    }

    /// Returns values for a part of the template.
    ///
    /// # Errors
    /// If the request is about something else.
    pub(super) async fn completion(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match &request.r#ref {
            Reference::Resource(reference) if reference.uri == TEMPLATE => {}
            _ => return Err(ErrorData::invalid_params(format!("only `{TEMPLATE}` can be completed"), None)),
        }
        let known = |name: &str| request.context.as_ref().and_then(|known| known.get_argument(name)).cloned();
        let app = match known("app") {
            Some(app) => self.apps(context).await.contains(&app).then_some(app),
            None => None,
        };
        let mut values = match (request.argument.name.as_str(), app, known("session")) {
            ("app", _, _) => self.apps(context).await,
            ("session", Some(app), _) => self.sessions(&app, context).await?,
            ("name", Some(app), Some(session)) => self.artifacts(&SessionKey::new(app, user(context), session)).await?,
            _ => Vec::new(),
        };
        values.retain(|value| value.starts_with(&request.argument.value));
        let total = values.len();
        values.truncate(CompletionInfo::MAX_VALUES);
        let has_more = total > values.len();
        let completion = CompletionInfo::with_pagination(values, u32::try_from(total).ok(), has_more);
        Ok(CompleteResult::new(completion.map_err(|reason| ErrorData::internal_error(reason, None))?))
    }

    /// Returns the names of the apps that the client may use.
    async fn apps(&self, context: &RequestContext<RoleServer>) -> Vec<String> {
        self.tools().await.apps(scope(context))
    }

    /// Returns the ids of the client's sessions with an app that were updated last.
    async fn sessions(&self, app: &str, context: &RequestContext<RoleServer>) -> Result<Vec<String>, ErrorData> {
        let sessions = &self.0.runner.services().sessions;
        let page = sessions.list_page(app, user(context), None, LISTED_SESSIONS).await;
        let page = page.map_err(|error| internal_error(&error))?;
        Ok(page.sessions.iter().map(|session| session.key.id.to_string()).collect())
    }

    async fn artifacts(&self, key: &SessionKey) -> Result<Vec<String>, ErrorData> {
        self.0.runner.services().artifacts.list(key).await.map_err(|error| internal_error(&error))
    }
}

fn internal_error(error: &StoreError) -> ErrorData {
    tracing::warn!("artifacts cannot be read for an MCP client: {error}");
    ErrorData::internal_error("the artifacts cannot be read; the server's log holds the cause", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_names_with_any_characters() {
        let key = SessionKey::new("trip planner", "ada", "s/1");
        assert_eq!(uri(&key, "mcp/x ü.png"), "artifact:///trip%20planner/s%2F1/mcp%2Fx%20%C3%BC.png");
        let parsed = parse(&uri(&key, "mcp/x ü.png"));
        assert_eq!(parsed, Some(["trip planner", "s/1", "mcp/x ü.png"].map(Into::into)));
        for other in ["artifact:///a/b", "artifact:///a/b/c/d", "artifact://a/b/c", "file:///a/b/c"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
