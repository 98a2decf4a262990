//! Resources: the artifacts of a client's sessions as `artifact:///APP/SESSION/NAME`, each part percent-encoded, and
//! files of the host at the URIs of the settings.

use std::sync::Arc;

use hatchery_core::{Blob, PartData, SessionKey, StoreError, encode_segment};
use percent_encoding::percent_decode_str;
use rmcp::RoleServer;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate,
};
use rmcp::service::RequestContext;

use super::call::{MAX_FILE_BYTES, user};
use super::content;
use super::session::{has_every_app, scope};
use super::subscriptions::{SubscriptionTarget, WatchedFile};
use super::{FileResource, McpService};

/// Prefix of the URIs of artifacts.
pub(super) const PREFIX: &str = "artifact:///";

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

impl McpService {
    /// Returns the templates of the URIs.
    pub(super) fn templates(&self, context: &RequestContext<RoleServer>) -> Vec<ResourceTemplate> {
        let description = "A file of a session, which an agent's answer names.";
        let artifacts = ResourceTemplate::new(TEMPLATE, "artifact").with_description(description);
        let files = self.files(context).into_iter().filter_map(|resource| resource.template());
        std::iter::once(artifacts).chain(files).collect()
    }

    /// Returns the files of the host, and the artifacts of the client's sessions with the apps that it may use.
    pub(super) async fn resources(&self, context: &RequestContext<RoleServer>) -> Result<Vec<Resource>, ErrorData> {
        let files = self.files(context).into_iter().filter_map(|resource| resource.resource());
        let mut resources: Vec<_> = files.collect();
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

    /// Returns a file, or the newest version of an artifact.
    ///
    /// # Errors
    /// If there is none, or the client may not use its app.
    pub(super) async fn resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let missing = || not_found(uri);
        let Some(artifact) = parse(uri) else {
            let blob = self.file(uri, context).await?.ok_or_else(missing)?;
            return Ok(ReadResourceResult::new(vec![content::contents(&blob, uri)]));
        };
        let (key, name) = self.artifact(artifact, context).await.ok_or_else(missing)?;
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

    /// Returns the session and the name of an artifact. `None` if the client may not use its app.
    async fn artifact(
        &self,
        [app, session, name]: [String; 3],
        context: &RequestContext<RoleServer>,
    ) -> Option<(SessionKey, String)> {
        let is_permitted = self.apps(context).await.contains(&app);
        is_permitted.then(|| (SessionKey::new(app, user(context), session), name))
    }

    /// Returns the files of the host. They belong to no app, so they are for clients that may use all of them.
    fn files(&self, context: &RequestContext<RoleServer>) -> Vec<FileResource> {
        if has_every_app(context) { self.0.settings.load().exposure.resources.clone() } else { Vec::new() }
    }

    /// Returns a file of the host. `None` if there is none at the URI.
    async fn file(&self, uri: &str, context: &RequestContext<RoleServer>) -> Result<Option<Blob>, ErrorData> {
        let Some((resource, path)) = self.files(context).into_iter().find_map(|it| it.path(uri).map(|path| (it, path)))
        else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || resource.read(&path)).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map_err(|error| {
            tracing::warn!("the resource {uri} cannot be read for an MCP client: {error}");
            ErrorData::internal_error("the file cannot be read; the server's log holds the cause", None)
        })
    }

    /// Returns the target of a subscription to a resource.
    ///
    /// # Errors
    /// If there is no such resource.
    pub(super) async fn subscription_target(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<SubscriptionTarget, ErrorData> {
        let Some(artifact) = parse(uri) else {
            let mut files = self.files(context).into_iter();
            let file = files.find_map(|it| Some(WatchedFile { path: it.path(uri)?, resource: Arc::new(it.clone()) }));
            return file.map(SubscriptionTarget::File).ok_or_else(|| not_found(uri));
        };
        // It need not be stored yet.
        let found = self.artifact(artifact, context).await.ok_or_else(|| not_found(uri))?;
        Ok(SubscriptionTarget::Artifact(found.0.user.to_string()))
    }

    /// Returns values for an argument of a prompt, or for a part of a template.
    ///
    /// # Errors
    /// If the request is about something else.
    pub(super) async fn completion(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let argument = &request.argument;
        let values = match &request.r#ref {
            Reference::Resource(reference) if reference.uri == TEMPLATE => {
                self.suggest_artifact(request, context).await?
            }
            Reference::Resource(reference) => {
                let mut files = self.files(context).into_iter();
                let Some(resource) = files.find(|it| it.uri == reference.uri && it.template().is_some()) else {
                    let message = format!("there is no template `{}`; templates are listed", reference.uri);
                    return Err(ErrorData::invalid_params(message, None));
                };
                let (name, begin) = (argument.name.clone(), argument.value.clone());
                // Fails only if the host stops.
                tokio::task::spawn_blocking(move || resource.values(&name, &begin)).await.unwrap_or_default()
            }
            Reference::Prompt(reference) => {
                self.suggest_argument(&reference.name, &argument.name, &argument.value, context)?
            }
            _ => {
                return Err(ErrorData::invalid_params(
                    "arguments of prompts and parts of templates are completed",
                    None,
                ));
            }
        };
        let total = values.len();
        let values: Vec<_> = values.into_iter().take(CompletionInfo::MAX_VALUES).collect();
        let has_more = total > values.len();
        let completion = CompletionInfo::with_pagination(values, u32::try_from(total).ok(), has_more);
        Ok(CompleteResult::new(completion.map_err(|reason| ErrorData::internal_error(reason, None))?))
    }

    /// Returns values for a part of the template of artifacts.
    async fn suggest_artifact(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<String>, ErrorData> {
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
        Ok(values)
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

fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("Resource not found", Some(serde_json::json!({ "uri": uri })))
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
