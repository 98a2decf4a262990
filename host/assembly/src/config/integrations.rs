//! Settings of integrations and connections of Google Cloud, whose operations are tools: `integrations`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hatchery_openapi::{
    ApiConfig as ApiSettings, Credentials, DocumentSource, EntityOperation, Integration, IntegrationResource, Limits,
};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{OutboundPolicy, entries_for};
use serde::Deserialize;

use super::a2a::is_url;
use super::openapi::{ApiConfirmation, GOOGLE_TOKEN_URL, ServiceAccountConfig};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

/// An integration of Application Integration, or a connection of Integration Connectors.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IntegrationConfig {
    /// The project of Google Cloud.
    pub project: String,
    /// The location, such as `us-central1`.
    pub location: String,
    /// An integration. Either this or a connection is set.
    pub integration: Option<String>,
    /// The triggers of the integration, such as `api_trigger/orders`. Default: all.
    pub triggers: Vec<String>,
    pub connection: Option<String>,
    /// Operations by entity of the connection. An empty list means all operations of the connector.
    pub entity_operations: BTreeMap<String, Vec<IntegrationOperation>>,
    /// Actions of the connection.
    pub actions: Vec<String>,
    /// Text that is added to the descriptions of a connection's tools.
    pub instructions: String,
    /// The account that the host acts as.
    pub service_account: Option<ServiceAccountConfig>,
    /// Base URL of all services. Default: the URLs of Google Cloud.
    pub endpoint: Option<String>,
    /// The operations whose calls a person must confirm: `true`, `writes`, or their names.
    pub require_confirmation: ApiConfirmation,
    /// Timeout of a call. Default: 60 s.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub call_timeout: Option<Duration>,
    /// Maximum size of the document of an integration. Default: 8 MiB.
    pub max_document: Option<ByteSize>,
    /// Maximum size of an answer. Default: 1 MiB.
    pub max_answer: Option<ByteSize>,
    /// Maximum number of tools of one toolset. Default: 128.
    pub max_tools: Option<usize>,
    /// The reason why the integration is not used. It cannot be set in the file.
    #[serde(skip)]
    pub refusal: Option<String>,
}

/// An operation on an entity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntegrationOperation {
    List,
    Get,
    Create,
    Update,
    Delete,
}

impl From<IntegrationOperation> for EntityOperation {
    fn from(operation: IntegrationOperation) -> Self {
        match operation {
            IntegrationOperation::List => Self::List,
            IntegrationOperation::Get => Self::Get,
            IntegrationOperation::Create => Self::Create,
            IntegrationOperation::Update => Self::Update,
            IntegrationOperation::Delete => Self::Delete,
        }
    }
}

/// Checks the names and settings of integrations.
///
/// # Errors
/// The problem, with the key.
pub(super) fn check(integrations: &BTreeMap<String, IntegrationConfig>) -> Result<(), String> {
    integrations.iter().try_for_each(|(name, integration)| {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(format!(
                "integrations: `{}` is not a valid name; use up to 64 letters, digits, `-` and `_`",
                name.escape_debug()
            ));
        }
        integration.check().map_err(|reason| format!("integrations.{name}: {reason}"))
    })
}

/// Resolves the paths of credentials files against `folder`.
pub(super) fn resolve_paths(integrations: &mut BTreeMap<String, IntegrationConfig>, folder: &Path) {
    let accounts = integrations.values_mut().filter_map(|integration| integration.service_account.as_mut());
    for file in accounts.filter_map(|account| account.file.as_mut()) {
        *file = folder.join(&*file);
    }
}

impl IntegrationConfig {
    fn check(&self) -> Result<(), String> {
        if self.endpoint.as_deref().is_some_and(|url| !is_url(url)) {
            return Err("endpoint must begin with http:// or https://".into());
        }
        self.credentials()?;
        self.resource()?.check()?;
        self.policy().map(drop)
    }

    fn credentials(&self) -> Result<Credentials, String> {
        match (&self.service_account, &self.endpoint) {
            (Some(account), _) => account.credentials(),
            (None, Some(_)) => Ok(Credentials::None),
            (None, None) => {
                Err("`service_account` is missing: the `file` of a key, or its `json` from a variable".into())
            }
        }
    }

    /// Returns the integration or the connection.
    ///
    /// # Errors
    /// If there is not exactly one of integration and connection.
    fn resource(&self) -> Result<Integration, String> {
        let resource = match (&self.integration, &self.connection) {
            (Some(name), None) => {
                IntegrationResource::Integration { name: name.clone(), triggers: self.triggers.clone() }
            }
            (None, Some(name)) => IntegrationResource::Connection {
                name: name.clone(),
                entity_operations: self
                    .entity_operations
                    .iter()
                    .map(|(entity, operations)| (entity.clone(), operations.iter().map(|it| (*it).into()).collect()))
                    .collect(),
                actions: self.actions.clone(),
            },
            (None, None) | (Some(_), Some(_)) => {
                return Err("it has either an `integration` or a `connection`".into());
            }
        };
        Ok(Integration {
            project: self.project.clone(),
            location: self.location.clone(),
            resource,
            instructions: self.instructions.clone(),
            endpoint: self.endpoint.clone(),
        })
    }

    /// Returns the egress policy: the services of Google Cloud, or the endpoint.
    ///
    /// # Errors
    /// If a setting is missing, or the endpoint has no host.
    pub(crate) fn policy(&self) -> Result<OutboundPolicy, String> {
        let (mut network, mut private_network) = (Vec::new(), Vec::new());
        let token_url = self.service_account.as_ref().map(|_| GOOGLE_TOKEN_URL.to_owned());
        for url in self.resource()?.hosts().into_iter().chain(token_url) {
            let (own, private) = entries_for(&url)?;
            network.push(own);
            private_network.extend(private);
        }
        Ok(OutboundPolicy { network, private_network })
    }

    /// Returns the settings of the toolset. `None` if they are invalid: reading the file reports that error.
    pub(crate) fn settings(&self, egress: Arc<HostEgress>) -> Option<ApiSettings> {
        let document = DocumentSource::Integration(Box::new(self.resource().ok()?));
        let default = Limits::default();
        Some(ApiSettings {
            credentials: self.credentials().ok()?,
            confirmation: (&self.require_confirmation).into(),
            limits: Limits {
                call_timeout: self.call_timeout.unwrap_or(default.call_timeout),
                max_document: self.max_document.map_or(default.max_document, ByteSize::bytes),
                max_answer: self.max_answer.map_or(default.max_answer, ByteSize::bytes),
                max_tools: self.max_tools.unwrap_or(default.max_tools),
                ..default
            },
            ..ApiSettings::new(document, egress)
        })
    }
}

#[cfg(test)]
mod tests {
    use hatchery_openapi::KeySource;

    use super::*;
    use crate::config::{Config, ConfigError};

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(&format!("integrations: {text}"), Path::new("/srv/hatchery.yaml"))
    }

    #[test]
    fn a_connection_has_operations_an_account_and_the_hosts_of_google() {
        let text = "{jira: {project: p, location: us-central1, connection: jira, entity_operations: {Issues: [list, get]}, \
                    actions: [Assign], service_account: {file: key.json}, require_confirmation: writes}}";
        let config = parse(text).unwrap();
        let jira = &config.integrations["jira"];
        let egress = HostEgress::new(jira.policy().unwrap(), "integrations.jira");
        let settings = jira.settings(egress).unwrap();
        let DocumentSource::Integration(integration) = settings.document else { panic!("another document") };
        let entity_operations = [("Issues".to_owned(), vec![EntityOperation::List, EntityOperation::Get])].into();
        let (name, actions) = ("jira".into(), vec!["Assign".into()]);
        assert_eq!(integration.resource, IntegrationResource::Connection { name, entity_operations, actions });
        let Credentials::Google(account) = settings.credentials else { panic!("other credentials") };
        assert_eq!(account.key, KeySource::File("/srv/key.json".into()));
        let hosts: Vec<_> = jira.policy().unwrap().network.iter().map(ToString::to_string).collect();
        let expected = ["connectors", "us-central1-integrations", "integrations", "oauth2"];
        assert_eq!(hosts.len(), 4);
        assert!(
            hosts.iter().zip(expected).all(|(host, name)| host.contains(&format!("{name}.googleapis.com"))),
            "{hosts:?}"
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_key() {
        let account = "service_account: {file: key.json}";
        for (text, expected) in [
            (
                "{'a b': {}}",
                "integrations: `a b` is not a valid name; use up to 64 letters, digits, `-` and `_`".to_owned(),
            ),
            ("{a: {endpoint: x}}", "integrations.a: endpoint must begin with http:// or https://".into()),
            (
                "{a: {project: p, location: l, connection: c}}",
                "integrations.a: `service_account` is missing: the `file` of a key, or its `json` from a variable"
                    .into(),
            ),
            (
                &*format!("{{a: {{project: p, location: l, {account}}}}}"),
                "integrations.a: it has either an `integration` or a `connection`".into(),
            ),
            (
                &*format!("{{a: {{project: p, location: evil.example/x, connection: c, {account}}}}}"),
                "integrations.a: `evil.example/x` is not the id of a location of Google Cloud".into(),
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.ends_with(&expected), "{error}");
        }
    }
}
