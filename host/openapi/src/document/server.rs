//! URLs of servers.

use std::collections::BTreeMap;

use hatchery_core::excerpt;
use reqwest::Url;
use serde_json::Value;

use super::Document;

/// The settings that decide where requests go.
#[derive(Clone, Copy)]
pub(crate) struct ServerSettings<'a> {
    pub(crate) base_url: Option<&'a str>,
    pub(crate) variables: &'a BTreeMap<String, String>,
}

impl Document {
    /// Returns the base URL of an operation: the configured URL, or else the first server of the operation, the path or
    /// the document.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn base_url(
        &self,
        settings: ServerSettings<'_>,
        path_item: &Value,
        operation: &Value,
    ) -> Result<Url, String> {
        let url = match settings.base_url {
            Some(url) => url.to_owned(),
            None => {
                let server = |object: &Value| object.get("servers")?.get(0).cloned();
                let server = server(operation).or_else(|| server(path_item)).or_else(|| server(&self.root));
                match server {
                    Some(server) => substitute(&server, settings.variables)?,
                    None => "/".into(),
                }
            }
        };
        let parsed = match (Url::parse(&url), &self.url) {
            (Ok(url), _) => url,
            (Err(_), Some(own)) => {
                own.join(&url).map_err(|error| format!("the server `{}`: {error}", excerpt(&url, 120)))?
            }
            (Err(_), None) => {
                let url = excerpt(&url, 120);
                return Err(format!("its server `{url}` has no host; set `base_url` of the API"));
            }
        };
        if !matches!(parsed.scheme(), "http" | "https") || parsed.cannot_be_a_base() {
            return Err(format!("its server `{}` is neither http nor https", excerpt(&url, 120)));
        }
        Ok(parsed)
    }
}

/// Returns the URL of a server with its variables replaced.
fn substitute(server: &Value, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut url = server.get("url").and_then(Value::as_str).unwrap_or("/").to_owned();
    let Some(variables) = server.get("variables").and_then(Value::as_object) else { return Ok(url) };
    for (name, variable) in variables {
        let default = variable.get("default").and_then(Value::as_str);
        let Some(value) = values.get(name).map(String::as_str).or(default) else {
            return Err(format!(
                "the server variable `{}` has no value; set it by `server_variables`",
                excerpt(name, 60)
            ));
        };
        let allowed = variable.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.iter().any(|item| item.as_str() == Some(value))) {
            let allowed: Vec<_> = allowed.iter().take(20).filter_map(Value::as_str).collect();
            return Err(format!(
                "the server variable `{}` is `{value}`, which is not one of {}",
                excerpt(name, 60),
                excerpt(&allowed.join(", "), 200)
            ));
        }
        url = url.replace(&format!("{{{name}}}"), value);
    }
    Ok(url)
}
