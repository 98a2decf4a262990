//! Addresses of engines.

use std::fmt;

use hatchery_core::StoreError;
use reqwest::Url;

use super::base_url;

const VERSION: &str = "v1beta1";
const BASE_URL_VARIABLE: &str = "GOOGLE_VERTEX_BASE_URL";

/// The name of an engine, and the server that it is reached at. Displays as a URI.
#[derive(Debug, Clone)]
pub(super) struct Address {
    project: String,
    location: String,
    engine: String,
    base: Url,
}

impl Address {
    /// Parses `agentengine://PROJECT/LOCATION/ENGINE`, or one of the forms of ADK: `agentengine://ENGINE`, with project
    /// and location from the environment, and `agentengine://` with the full name of the resource.
    pub(super) fn parse(
        uri: &str,
        valid: &'static str,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        let invalid = || crate::uri::invalid(uri, valid);
        let name = uri.strip_prefix("agentengine://").ok_or_else(invalid)?;
        let segments: Vec<&str> = name.split('/').collect();
        let from_environment = |name: &str| {
            let value = variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                StoreError::InvalidRequest(format!("set {name}, or write agentengine://PROJECT/LOCATION/ENGINE"))
            })
        };
        let (project, location, engine) = match segments[..] {
            ["projects", project, "locations", location, "reasoningEngines", engine] | [project, location, engine] => {
                (project.to_owned(), location.to_owned(), engine)
            }
            [engine] => (from_environment("GOOGLE_CLOUD_PROJECT")?, from_environment("GOOGLE_CLOUD_LOCATION")?, engine),
            _ => return Err(invalid()),
        };
        // Projects may belong to a domain, as in `example.com:name`.
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
        };
        if ![&*project, &*location, engine].into_iter().all(|name| is_name(name) && name != "." && name != "..") {
            return Err(invalid());
        }
        let base = match variable(BASE_URL_VARIABLE).filter(|value| !value.trim().is_empty()) {
            Some(url) => base_url(BASE_URL_VARIABLE, url.trim())?,
            None => {
                let prefix = if location == "global" { String::new() } else { format!("{location}-") };
                Url::parse(&format!("https://{prefix}aiplatform.googleapis.com")).map_err(|_| invalid())?
            }
        };
        Ok(Self { project, location, engine: engine.to_owned(), base })
    }

    /// Returns the URL of the resource under these segments of the engine.
    pub(super) fn url(&self, path: &[&str]) -> Result<Url, StoreError> {
        let engine =
            ["projects", &self.project, "locations", &self.location, "reasoningEngines", &self.engine].into_iter();
        self.extend(engine.chain(path.iter().copied()))
    }

    /// Returns the URL of a resource by its full name.
    pub(super) fn url_of(&self, name: &str) -> Result<Url, StoreError> {
        self.extend(name.split('/'))
    }

    fn extend<'a>(&self, segments: impl Iterator<Item = &'a str>) -> Result<Url, StoreError> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut path) => {
                path.pop_if_empty().push(VERSION).extend(segments);
            }
            Err(()) => {
                return Err(StoreError::InvalidRequest(format!("{BASE_URL_VARIABLE} has no path; correct it")));
            }
        }
        Ok(url)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agentengine://{}/{}/{}", self.project, self.location, self.engine)
    }
}
