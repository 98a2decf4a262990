//! The providers of the libraries as services: their names, variables and defaults.

use super::{URL_SUFFIX, prefix};
use crate::service::{KeyRule, Service, ServiceInfo, ServiceUrl};
use crate::settings::{Connection, Settings};

/// Ends of variables with keys.
const KEY_SUFFIXES: [&str; 3] = ["_API_KEY", "_KEY", "_TOKEN"];

/// A provider of a library.
pub(super) struct LibraryService {
    pub(super) info: ServiceInfo,
    /// The service of this crate with the same settings.
    pub(super) builtin: Option<Service>,
}

impl LibraryService {
    /// Describes a provider by the variable of its key, from which the variable of its URL is derived. Its strings live
    /// as long as the process: there is one description of each provider.
    pub(super) fn new(
        library: &str,
        provider: &str,
        builtin: Option<Service>,
        key_variable: Option<&'static str>,
        default_url: String,
    ) -> Self {
        let name = leak(format!("{provider} (by {library})"));
        let id = leak(provider.to_lowercase());
        let url = ServiceUrl::Default(leak(default_url));
        let info = match builtin.map(Service::info) {
            Some(ServiceInfo { provider, key_variables, url_variable, key_rule, .. }) => {
                ServiceInfo { name, provider, key_variables, url_variable, url, key_rule: *key_rule }
            }
            None => ServiceInfo {
                name,
                provider: id,
                key_variables: key_variable.map_or(&[], |variable| Box::leak(Box::new([variable]))),
                url_variable: leak(format!(
                    "{}{URL_SUFFIX}",
                    key_variable.map_or(provider.to_uppercase(), variable_prefix)
                )),
                url,
                key_rule: key_variable.map_or(KeyRule::Optional, |_| KeyRule::RequiredAtDefaultUrl),
            },
        };
        Self { info, builtin }
    }

    /// Returns the connection in the settings.
    pub(super) fn connection(&self, settings: &Settings) -> Connection {
        match self.builtin {
            Some(service) => settings.connection(service),
            None => settings.libraries.get(prefix(&self.info)).cloned().unwrap_or_default(),
        }
    }
}

/// Returns the prefix of the variable of a key, such as `GROQ`.
fn variable_prefix(key_variable: &str) -> String {
    let name = KEY_SUFFIXES.iter().find_map(|suffix| key_variable.strip_suffix(suffix));
    name.unwrap_or(key_variable).to_owned()
}

fn leak(text: String) -> &'static str {
    text.leak()
}
