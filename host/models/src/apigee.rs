//! Provider for an Apigee gateway: `apigee/[PROVIDER/][VERSION/]MODEL` in the protocol of Gemini, Vertex AI or OpenAI.

use std::sync::Arc;

use hatchery_core::{Model, ModelCapabilities, ModelError, ModelErrorKind};

use crate::Secret;
use crate::capabilities::{gemini_capabilities, openai_capabilities};
use crate::gemini::{self, KEY_HEADER};
use crate::http::{Authentication, Endpoint, Http};
use crate::openai::{Dialect, chat_model};
use crate::provider::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::vertex::{GOOGLE_VERSION, VertexProvider};

/// Serves `apigee/*`.
pub(crate) struct ApigeeProvider {
    connection: Connection,
    gemini_key: Option<Secret>,
    openai_key: Option<Secret>,
    vertex: VertexProvider,
    http: Http,
}

/// The protocol behind the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Gemini,
    Vertex,
    ChatCompletions,
}

/// The parts of a name.
struct ApigeeName<'a> {
    protocol: Protocol,
    version: Option<&'a str>,
    model: &'a str,
}

impl<'a> ApigeeName<'a> {
    /// Parses a name. A name without a provider is of Vertex AI if that is preferred, else of Gemini.
    fn parse(name: &'a str, prefers_vertex: bool) -> Option<Self> {
        let segments: Vec<_> = name.strip_prefix("apigee/")?.split('/').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let default = if prefers_vertex { Protocol::Vertex } else { Protocol::Gemini };
        let is_version = |segment: &str| segment.starts_with('v');
        let (provider, version, model) = match segments[..] {
            [model] => (None, None, model),
            [version, model] if is_version(version) && version != "vertex_ai" => (None, Some(version), model),
            [provider, model] => (Some(provider), None, model),
            [provider, version, model] if is_version(version) => (Some(provider), Some(version), model),
            _ => return None,
        };
        let protocol = match provider {
            None => default,
            Some("gemini") => Protocol::Gemini,
            Some("vertex_ai") => Protocol::Vertex,
            Some("openai") if version.is_none() => Protocol::ChatCompletions,
            Some(_) => return None,
        };
        Some(Self { protocol, version, model })
    }
}

impl ApigeeProvider {
    pub(crate) fn new(settings: &Settings, http: Http, vertex: VertexProvider) -> Self {
        Self {
            connection: settings.connection(Service::Apigee),
            gemini_key: settings.connection(Service::Gemini).api_key,
            openai_key: settings.connection(Service::OpenAi).api_key,
            vertex,
            http,
        }
    }

    fn name<'a>(&self, name: &'a str) -> Result<ApigeeName<'a>, ModelError> {
        ApigeeName::parse(name, self.vertex.is_preferred()).ok_or_else(|| {
            let message = "the name is not of the form apigee/[PROVIDER/][VERSION/]MODEL; the providers are gemini, \
                           vertex_ai and openai, which has no version, and a version begins with `v`";
            ModelError::new(ModelErrorKind::UnknownModel, name, message)
        })
    }
}

impl ModelProvider for ApigeeProvider {
    fn label(&self) -> &'static str {
        Service::Apigee.info().name
    }

    fn patterns(&self) -> &[&'static str] {
        &["apigee/*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        match ApigeeName::parse(name, self.vertex.is_preferred()) {
            Some(ApigeeName { protocol: Protocol::ChatCompletions, model, .. }) => openai_capabilities(model),
            // A gateway passes requests on, and no connections.
            Some(ApigeeName { model, .. }) => {
                ModelCapabilities { live: false, ..gemini_capabilities(model).unwrap_or_default() }
            }
            None => ModelCapabilities::default(),
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let ApigeeName { protocol, version, model } = self.name(name)?;
        let connection = connection.or(&self.connection);
        let with_key = |key: &Option<Secret>| Connection {
            api_key: connection.api_key.clone().or_else(|| key.clone()),
            ..connection.clone()
        };
        let endpoint = |connection: &Connection, authentication| {
            Endpoint::new(name, Service::Apigee, connection, authentication, &self.http)
        };
        match protocol {
            Protocol::Gemini => {
                let endpoint = endpoint(&with_key(&self.gemini_key), Authentication::Header(KEY_HEADER))?;
                gemini::on_api(model, version.unwrap_or(gemini::VERSION), endpoint, self.capabilities(name))
            }
            Protocol::Vertex => {
                let path = self.vertex.path(model, Some(version.unwrap_or(GOOGLE_VERSION)))?;
                let endpoint = endpoint(&connection, self.vertex.authentication())?;
                Ok(gemini::on_vertex(path, endpoint, self.capabilities(name)))
            }
            Protocol::ChatCompletions => {
                let endpoint = endpoint(&with_key(&self.openai_key), Authentication::Bearer)?;
                chat_model(model, Dialect::OpenAi, self.capabilities(name), endpoint)
            }
        }
    }

    fn missing_variables(&self) -> Option<String> {
        Service::Apigee.info().missing_variables(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        Service::Apigee.info().base_url(&self.connection)
    }
}
