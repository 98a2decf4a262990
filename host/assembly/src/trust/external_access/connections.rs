//! Access of MCP servers, remote agents, APIs, integrations and code executors.

use std::collections::BTreeMap;
use std::path::Path;

use super::access_list::list;
use super::is_outside;
use crate::config::{
    A2aAgentConfig, ApiConfig, CodeExecutorConfig, IntegrationConfig, McpServerConfig, ServiceAccountConfig,
    ValueConfig, without_credentials,
};

/// Returns the process or the connection of an MCP server, and the variables and the model that it gets, as key and
/// value.
pub(super) fn external_server(server: &McpServerConfig) -> Vec<(String, String)> {
    let command = server.command.iter().map(|command| {
        let words = std::iter::once(command.display().to_string()).chain(server.args.iter().cloned());
        ("command".to_owned(), words.collect::<Vec<_>>().join(" "))
    });
    let url = server.url.iter().map(|url| ("url".to_owned(), without_credentials(url)));
    let variables = |key: &'static str, settings: &BTreeMap<String, ValueConfig>| {
        let from = settings.iter().filter_map(|(name, value)| Some((name, value.variable()?)));
        from.map(|(name, from)| (format!("{key}.{name}"), format!("from {from}"))).collect::<Vec<_>>()
    };
    let variables = variables("env", &server.env).into_iter().chain(variables("headers", &server.headers));
    let oauth = server.oauth.iter().flat_map(|oauth| {
        let hosts = [("network", list(&oauth.network)), ("private_network", list(&oauth.private_network))];
        let hosts = hosts.into_iter().filter(|(_, hosts)| !hosts.is_empty());
        let variables = oauth.variables().map(|(key, from)| (key, format!("from {from}")));
        hosts.chain(variables).map(|(key, value)| (format!("oauth.{key}"), value)).collect::<Vec<_>>()
    });
    let sampling = server.sampling.iter().map(|sampling| ("sampling".to_owned(), sampling.model.clone()));
    command.chain(url).chain(variables).chain(oauth).chain(sampling).collect()
}

/// Returns the hosts that a remote agent reaches and the variables that it gets, as key and value.
pub(super) fn external_agent(agent: &A2aAgentConfig, folder: &Path) -> Vec<(String, String)> {
    let is_outside = agent.file().is_none_or(|file| is_outside(&file, folder));
    let card = is_outside.then(|| ("card".to_owned(), without_credentials(&agent.card)));
    let hosts = [("network", list(&agent.network)), ("private_network", list(&agent.private_network))];
    let hosts = hosts.into_iter().filter(|(_, hosts)| !hosts.is_empty()).map(|(key, hosts)| (key.to_owned(), hosts));
    let from = agent.headers.iter().filter_map(|(name, value)| Some((name, value.variable()?)));
    let variables = from.map(|(name, from)| (format!("headers.{name}"), format!("from {from}")));
    card.into_iter().chain(hosts).chain(variables).collect()
}

/// Returns the hosts that an API reaches and the variables that it gets, as key and value.
pub(super) fn external_api(api: &ApiConfig, folder: &Path) -> Vec<(String, String)> {
    let is_outside = api.file().is_none_or(|file| is_outside(&file, folder));
    let document = is_outside.then(|| ("document".to_owned(), without_credentials(&api.document)));
    let base_url = api.base_url.iter().map(|url| ("base_url".to_owned(), without_credentials(url)));
    let hosts = [("network", list(&api.network)), ("private_network", list(&api.private_network))];
    let hosts = hosts.into_iter().filter(|(_, hosts)| !hosts.is_empty()).map(|(key, hosts)| (key.to_owned(), hosts));
    let token_url = api
        .auth
        .oauth2
        .iter()
        .map(|client| ("auth.oauth2.token_url".to_owned(), without_credentials(&client.token_url)));
    let login = api.auth.user.iter().filter_map(|user| user.oauth2.as_ref());
    // The login page, where users enter their passwords.
    let login = login.map(|oauth2| {
        ("auth.user.oauth2.authorization_url".to_owned(), without_credentials(&oauth2.authorization_url))
    });
    let user_urls = api.auth.user.iter().flat_map(|user| user.urls());
    let user_urls = user_urls.map(|(key, url)| (format!("auth.user.{key}"), without_credentials(url)));
    let account = api.auth.service_account.iter().map(|account| external_account("auth.", account));
    let credentials = api.auth.variables().into_iter().filter(|(key, _)| *key != "service_account.json");
    let credentials = credentials.map(|(key, from)| (format!("auth.{key}"), format!("from {from}")));
    let from = api.headers.iter().filter_map(|(name, value)| Some((name, value.variable()?)));
    let variables = from.map(|(name, from)| (format!("headers.{name}"), format!("from {from}")));
    document
        .into_iter()
        .chain(base_url)
        .chain(hosts)
        .chain(token_url)
        .chain(login)
        .chain(user_urls)
        .chain(account)
        .chain(credentials)
        .chain(variables)
        .collect()
}

/// Returns the account that the host would act as, as key and value, even if its key is inside of the folder.
fn external_account(prefix: &str, account: &ServiceAccountConfig) -> (String, String) {
    let (key, value) = match (&account.file, &account.json) {
        (Some(file), _) => (".file", file.display().to_string()),
        (None, Some(json)) => {
            (".json", json.variable().map_or_else(|| "a key in the file".into(), |name| format!("from {name}")))
        }
        (None, None) => ("", "no key".to_owned()),
    };
    (format!("{prefix}service_account{key}"), value)
}

/// Returns the resource of an integration, and the account that it needs, as key and value.
pub(super) fn external_integration(integration: &IntegrationConfig) -> Vec<(String, String)> {
    let IntegrationConfig { project, location, .. } = integration;
    let resources = [("integration", &integration.integration), ("connection", &integration.connection)];
    let resources = resources.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?)));
    let resources =
        resources.map(|(key, name)| (key.to_owned(), format!("projects/{project}/locations/{location}/{key}s/{name}")));
    let account = integration.service_account.iter().map(|account| external_account("", account));
    let endpoint = integration.endpoint.iter().map(|url| ("endpoint".to_owned(), without_credentials(url)));
    resources.chain(account).chain(endpoint).collect()
}

/// Returns the engine or the service that runs code, as key and value.
pub(super) fn external_executor(executor: &CodeExecutorConfig) -> Vec<(String, String)> {
    let container = executor.container.iter().flat_map(|container| {
        // Everybody who can use the socket has all rights on the machine.
        let socket = container.socket.display().to_string();
        [("container.socket".to_owned(), socket), ("container.image".to_owned(), container.image.clone())]
    });
    let vertex = executor.vertex.iter().flat_map(|vertex| {
        let extension = ("vertex.extension".to_owned(), vertex.extension.clone());
        let endpoint = vertex.endpoint.iter().map(|url| ("vertex.endpoint".to_owned(), without_credentials(url)));
        let account = external_account("vertex.", &vertex.service_account);
        [extension, account].into_iter().chain(endpoint)
    });
    container.chain(vertex).collect()
}
