//! The settings in force, each with its origin.
//!
//! Values come from the types that the host uses, so that a value of the file that is not trusted is not reported as
//! one in force. Keys that may hold secrets or describe other systems have a location, but no value.

mod lines;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::config::{Config, PricesConfig, without_credentials};
use crate::host_key::SECRET_FILE;
use lines::Lines;

/// Settings of components are reported with the component.
const COMPONENTS: &str = "components.";

/// A setting in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The key of `hatchery.yaml`, with dots, or the name of a flag.
    pub key: String,
    /// `None` if the value is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    pub origin: Origin,
}

/// Origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Origin {
    Default,
    /// A line of the configuration file.
    File {
        line: usize,
    },
    Environment {
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        flag: String,
    },
}

/// The settings of a host, as `GET /config` returns them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SettingsReport {
    /// The configuration file, which need not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// By key.
    pub settings: Vec<Setting>,
    pub prices: PricesConfig,
    /// The keys that have changed in the file since the start, and apply at the next one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

impl SettingsReport {
    /// Reports the settings in force. `flags` take precedence over `config`, which is the trusted part of `file`.
    pub fn new(
        config: &Config,
        file: &Path,
        flags: Vec<Setting>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines = Lines::parse(&text);
        let written = Config::parse(&text, file).map(|config| values::by_key(&config)).unwrap_or_default();
        let mut settings: BTreeMap<String, Setting> = BTreeMap::new();
        let mut add = |setting: Setting| settings.insert(setting.key.clone(), setting);
        for (key, line) in lines.iter().filter(|(key, _)| !key.starts_with(COMPONENTS)) {
            add(Setting { key: key.to_owned(), value: None, origin: Origin::File { line } });
        }
        for (key, value) in values::by_key(config) {
            let line = lines.find(&key).filter(|_| written.get(&key) == Some(&value));
            let origin = line.map_or(Origin::Default, |line| Origin::File { line });
            add(Setting { key, value: Some(value), origin });
        }
        for (key, variable) in variables(config) {
            let value = environment(variable).filter(|value| !value.is_empty());
            if let Some(value) = value.as_deref().and_then(|value| value.to_str()) {
                let origin = Origin::Environment { variable: variable.to_owned() };
                add(Setting { key, value: Some(without_credentials(value).into()), origin });
            }
        }
        for setting in flags {
            add(setting);
        }
        let (settings, pending) = (settings.into_values().collect(), Vec::new());
        Self { file: Some(file.to_owned()), settings, prices: config.prices.clone(), pending }
    }

    /// Reports that these keys apply at the next start. They have the values in `before`.
    #[must_use]
    pub fn with_pending(self, keys: &[&str], before: &Self) -> Self {
        let is_pending = |setting: &&Setting| {
            keys.iter()
                .any(|key| setting.key.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
        };
        let kept = before.settings.iter().filter(is_pending);
        let mut settings: Vec<_> = self.settings.iter().filter(|it| !is_pending(it)).chain(kept).cloned().collect();
        settings.sort_by(|one, other| one.key.cmp(&other.key));
        Self { settings, pending: keys.iter().map(|&key| key.to_owned()).collect(), ..self }
    }
}

impl Setting {
    /// Returns a setting of the command line. Credentials in a URI are omitted.
    pub fn from_flag(key: &str, flag: &str, value: &str) -> Self {
        let origin = Origin::Flag { flag: flag.to_owned() };
        Self { key: key.to_owned(), value: Some(without_credentials(value).into()), origin }
    }

    /// Returns a setting with its default.
    pub fn from_default(key: &str, value: impl Into<Value>) -> Self {
        Self { key: key.to_owned(), value: Some(value.into()), origin: Origin::Default }
    }
}

/// Returns the settings that variables of the environment override, with these variables.
fn variables(config: &Config) -> Vec<(String, &'static str)> {
    let urls = config.models.base_url_keys().map(|(service, key, _)| (format!("models.{key}"), service.url_variable()));
    urls.chain([("server.secret_file".to_owned(), SECRET_FILE)]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(yaml: &str, trusted: impl Fn(&mut Config), variables: &[(&str, &str)]) -> BTreeMap<String, Setting> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hatchery.yaml");
        std::fs::write(&file, yaml).unwrap();
        let mut config = Config::parse(yaml, &file).unwrap();
        trusted(&mut config);
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let flags = vec![Setting::from_flag("session_service", "--session-service", "postgres://ada:pw@db/h")];
        let report = SettingsReport::new(&config, &file, flags, find);
        assert_eq!(report.file, Some(file));
        report.settings.into_iter().map(|setting| (setting.key.clone(), setting)).collect()
    }

    #[test]
    fn a_setting_has_its_value_and_its_origin() {
        let yaml = "# of the team\nserver:\n  max_connections: 7\n  body_timeout: 5s\nlimits: {memory: 32MiB, tool_calls: 8}\n\
                    models: {openai_base_url: 'https://ada:pw@llm.example/v1'}\nquotas:\n  user_sessions: 9\n";
        let variables =
            [("OLLAMA_BASE_URL", "http://ada:pw@gpu:1"), ("HATCHERY_SECRET_FILE", "/k"), ("VLLM_BASE_URL", "")];
        let settings = report(yaml, |_| {}, &variables);
        let find = |key: &str| serde_json::to_value(&settings[key]).unwrap();
        let setting = |key: &str, value: Value, origin: Value| json!({"key": key, "value": value, "origin": origin});
        let line = |line: usize| json!({"kind": "file", "line": line});
        for expected in [
            setting("server.max_connections", json!(7), line(3)),
            setting("server.body_timeout", json!("5s"), line(4)),
            setting("server.max_concurrent_runs", json!(512), json!({"kind": "default"})),
            setting("limits.memory", json!("32 MiB"), line(5)),
            setting("limits.tool_calls", json!(8), line(5)),
            setting("limits.depth", json!(8), json!({"kind": "default"})),
            setting("limits.wall", json!("30s"), json!({"kind": "default"})),
            setting("models.openai_base_url", json!("https://…@llm.example/v1"), line(6)),
            setting("quotas.user_sessions", json!(9), line(8)),
            setting("quotas.user_bytes", json!("4 GiB"), json!({"kind": "default"})),
            setting(
                "models.ollama_base_url",
                json!("http://…@gpu:1"),
                json!({"kind": "environment", "variable": "OLLAMA_BASE_URL"}),
            ),
            setting(
                "server.secret_file",
                json!("/k"),
                json!({"kind": "environment", "variable": "HATCHERY_SECRET_FILE"}),
            ),
            setting(
                "session_service",
                json!("postgres://…@db/h"),
                json!({"kind": "flag", "flag": "--session-service"}),
            ),
        ] {
            assert_eq!(find(expected["key"].as_str().unwrap()), expected);
        }
        assert!(!settings.contains_key("models.vllm_base_url"), "an empty variable sets nothing");
    }

    #[test]
    fn values_that_may_be_secret_are_not_reported() {
        let yaml = "openapi:\n  apis:\n    a: {document: a.json, auth: {bearer: s3cret}}\nmcp:\n  servers:\n    files:\n      \
                    command: mcp\n      args: [--token, s3cret]\ncomponents:\n  dice:\n    limits: {memory: 1MiB}\n";
        let settings = report(yaml, |_| {}, &[]);
        assert!(!format!("{settings:?}").contains("s3cret"), "{settings:?}");
        let bearer = &settings["openapi.apis.a.auth.bearer"];
        assert_eq!((&bearer.value, &bearer.origin), (&None, &Origin::File { line: 3 }));
        assert_eq!(settings["mcp.servers.files.args"].origin, Origin::File { line: 8 });
        assert!(!settings.keys().any(|key| key.starts_with("components")), "{settings:?}");
    }

    #[test]
    fn a_value_that_is_not_trusted_is_not_the_one_in_force() {
        let yaml = "server:\n  allow_import: true\n";
        let settings = report(yaml, |config| config.server.allow_import = false, &[]);
        let setting = &settings["server.allow_import"];
        assert_eq!((&setting.value, &setting.origin), (&Some(json!(false)), &Origin::Default));
    }
}
