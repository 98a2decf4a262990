//! Comparison of the grants that a component requests with the grants that it has, as data for people and scripts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::denial::grants_block;
use super::permission::quote;
use super::{Access, GrantCounts, Grants, HostPattern, Pattern, RequestedGrants};

/// Entries by configuration key, for example `models` or `state.read`. An entry is a name, a pattern, `read` or
/// `write`; a folder is `read /data`.
pub type GrantEntries = BTreeMap<&'static str, Vec<String>>;

/// Requested and actual grants of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantReport {
    /// Grants that the component requests or that its agents need. `None` if there are neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<GrantEntries>,
    /// Reasons that the component states, by key.
    pub why: BTreeMap<String, String>,
    pub granted: GrantEntries,
    /// Requested entries that are not granted.
    pub missing: GrantEntries,
    /// Granted entries that are not requested, except `private_network`, `secrets` and `idempotency_keys`, which cannot
    /// be requested. Empty for a component that declares no requests, because its needs are unknown.
    pub unused: GrantEntries,
    /// How often granted entries have allowed an operation since they were read. Entries of `environment`, `files`,
    /// `private_network`, `secrets` and `idempotency_keys` are not counted.
    #[serde(skip_serializing_if = "GrantCounts::is_empty")]
    pub used: GrantCounts,
    /// How often an operation was refused because an entry is missing, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<&'static str, u64>,
}

impl GrantReport {
    /// Compares `requests` with `grants`. The needs of the component's agents (`described`) count as requested.
    pub(crate) fn new(requests: Option<&RequestedGrants>, described: &RequestedGrants, grants: &Grants) -> Self {
        let granted = granted_entries(grants);
        let described = requested_entries(described);
        let is_declared = requests.is_some();
        let requested = match requests.map(requested_entries) {
            None => Some(described).filter(|described| !described.is_empty()),
            Some(requested) => Some(union(requested, described)),
        };
        let (missing, unused) = match &requested {
            Some(requested) => (
                without(requested, |key, requested_entry| {
                    entries(&granted, key).any(|entry| covers(key, entry, requested_entry))
                }),
                without(&granted, |key, entry| {
                    if !is_declared {
                        return true;
                    }
                    let requested = requested.iter().filter(|(requested, _)| keys(requested).contains(&key));
                    let mut requested = requested.flat_map(|(_, requested_entry)| requested_entry);
                    let is_operator_only = matches!(key, "private_network" | "secrets" | "idempotency_keys");
                    // A grant that is narrower than the request is used as well.
                    is_operator_only
                        || requested.any(|requested_entry| {
                            covers(key, entry, requested_entry) || covers(key, requested_entry, entry)
                        })
                }),
            ),
            None => (GrantEntries::new(), GrantEntries::new()),
        };
        let why = requests.map(|requests| requests.why.clone()).unwrap_or_default();
        let (used, refused) = (grants.uses.used(), grants.uses.refused());
        Self { requested, why, granted, missing, unused, used, refused }
    }

    /// Returns this report with only the missing entries that are not missing in `before`.
    #[must_use]
    pub(crate) fn newly_missing(mut self, before: &Self) -> Self {
        self.missing = without(&self.missing, |key, entry| {
            before.missing.get(key).is_some_and(|entries| entries.iter().any(|other| other == entry))
        });
        self
    }

    /// Returns the lines of `hatchery.yaml` that grant the missing entries. `None` if none are missing.
    pub fn missing_lines(&self, component: &str) -> Option<String> {
        let all = self.missing_grants();
        (!all.is_empty()).then(|| grants_block([(component, all)]))
    }

    /// Returns the lines below `grants:` that grant the missing entries.
    pub fn missing_grants(&self) -> Vec<String> {
        let list = |key: &str| {
            let entries = self.missing.get(key).filter(|entries| !entries.is_empty())?;
            Some(format!("[{}]", entries.iter().map(|entry| quote(entry)).collect::<Vec<_>>().join(", ")))
        };
        let word = |key: &str| self.missing.get(key)?.first().cloned();
        let access = |read: &str, write: &str| {
            let lists = [("read", list(read)), ("write", list(write))];
            let lists: Vec<_> = lists.into_iter().filter_map(|(key, list)| Some(format!("{key}: {}", list?))).collect();
            (!lists.is_empty()).then(|| format!("{{{}}}", lists.join(", ")))
        };
        let each = |key: &str, line: fn(&str) -> String| {
            let entries = self.missing.get(key).filter(|entries| !entries.is_empty())?;
            Some(entries.iter().map(|entry| line(entry)).collect::<Vec<_>>().join(", "))
        };
        let all = [
            ("models", list("models")),
            ("memory", word("memory")),
            ("artifacts", word("artifacts")),
            ("state", access("state.read", "state.write")),
            ("runs", list("runs")),
            ("sessions", access("sessions.read", "sessions.write")),
            ("tools", list("tools")),
            ("environment", each("environment", variable).map(|variables| format!("{{{variables}}}"))),
            ("files", each("files", folder).map(|folders| format!("[{folders}]"))),
            ("network", list("network")),
            ("private_network", self.missing_private_network()),
        ];
        all.into_iter().filter_map(|(key, value)| Some(format!("{key}: {}", value?))).collect()
    }

    /// Returns the missing network entries that are addresses of this machine or of a private network, as a list.
    /// Without this second grant, such addresses are denied.
    fn missing_private_network(&self) -> Option<String> {
        let missing = self.missing.get("network")?;
        let granted = self.granted.get("private_network");
        let entries = missing.iter().filter(|entry| is_private(entry)).map(|entry| private_entry(entry));
        let is_missing = |entry: &String| granted.is_none_or(|granted| !granted.contains(entry));
        let private: Vec<_> = entries.filter(is_missing).map(|entry| quote(&entry)).collect();
        (!private.is_empty()).then(|| format!("[{}]", private.join(", ")))
    }
}

fn without_scheme(entry: &str) -> &str {
    entry.split_once("://").map_or(entry, |(_, host)| host)
}

/// Returns the entry of `private_network` for an entry of `network`: a name needs a port.
fn private_entry(entry: &str) -> String {
    let authority = without_scheme(entry);
    let has_port = authority.contains(':') || authority.parse::<IpAddr>().is_ok();
    if has_port { authority.to_owned() } else { format!("{authority}:*") }
}

/// Returns true for `localhost` and for an IP address that is not public.
fn is_private(entry: &str) -> bool {
    let authority = without_scheme(entry);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_private_address = || match host.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        Err(_) => false,
    };
    host == "localhost" || host.ends_with(".localhost") || is_private_address()
}

/// Returns the union of both.
fn union(mut one: GrantEntries, other: GrantEntries) -> GrantEntries {
    for (key, entries) in other {
        let all = one.entry(key).or_default();
        for entry in entries {
            if !all.contains(&entry) {
                all.push(entry);
            }
        }
    }
    one
}

fn variable(name: &str) -> String {
    let name = quote(name);
    format!("{name}: {{from: {name}}}")
}

/// Returns the lines of a folder grant. `FOLDER` is a placeholder for the host's folder, which the operator fills in.
fn folder(entry: &str) -> String {
    let (access, guest) = entry.split_once(' ').unwrap_or(("read", entry));
    format!("{{host: FOLDER, guest: {}, access: {access}}}", quote(guest))
}

/// Returns the grant keys that can satisfy a request below `requested`.
fn keys(requested: &str) -> [&str; 2] {
    let other = match requested {
        "state.read" => "state.write",
        "sessions.read" => "sessions.write",
        requested => requested,
    };
    [requested, other]
}

fn entries<'a>(granted: &'a GrantEntries, requested: &str) -> impl Iterator<Item = &'a String> {
    let [one, other] = keys(requested);
    let others = granted.get(other).filter(|_| other != one);
    granted.get(one).into_iter().chain(others).flatten()
}

/// Returns true if entry `one` includes entry `other`.
fn covers(key: &str, one: &str, other: &str) -> bool {
    let is_wide_enough = |one: &str, other: &str| one == other || (one, other) == ("write", "read");
    match key {
        "artifacts" | "memory" => is_wide_enough(one, other),
        "files" => match (one.split_once(' '), other.split_once(' ')) {
            (Some((one, here)), Some((other, there))) => here == there && is_wide_enough(one, other),
            _ => false,
        },
        "models" | "tools" | "runs" | "sessions.read" | "sessions.write" | "state.read" | "state.write" => {
            let pattern = |text: &str| Pattern::try_from(text.to_owned());
            match (pattern(one), pattern(other)) {
                (Ok(one), Ok(other)) => one.covers(&other),
                _ => one == other,
            }
        }
        "network" => match (one.parse::<HostPattern>(), other.parse::<HostPattern>()) {
            (Ok(one), Ok(other)) => one.covers(&other),
            _ => one == other,
        },
        _ => one == other,
    }
}

/// Returns the entries for which `is_met` returns false.
fn without(entries_by_key: &GrantEntries, is_met: impl Fn(&str, &str) -> bool) -> GrantEntries {
    let remaining = entries_by_key.iter().map(|(key, entries)| {
        let entries = entries.iter().filter(|entry| !is_met(key, entry)).cloned().collect::<Vec<_>>();
        (*key, entries)
    });
    remaining.filter(|(_, entries)| !entries.is_empty()).collect()
}

fn texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect()
}

fn non_empty(all: impl IntoIterator<Item = (&'static str, Vec<String>)>) -> GrantEntries {
    all.into_iter().filter(|(_, entries)| !entries.is_empty()).collect()
}

fn word(access: Option<Access>) -> Vec<String> {
    access.iter().map(ToString::to_string).collect()
}

fn requested_entries(requests: &RequestedGrants) -> GrantEntries {
    non_empty([
        ("models", texts(&requests.models)),
        ("memory", word(requests.memory)),
        ("artifacts", word(requests.artifacts)),
        ("state.read", texts(&requests.state.read)),
        ("state.write", texts(&requests.state.write)),
        ("runs", texts(&requests.runs)),
        ("sessions.read", texts(&requests.sessions.read)),
        ("sessions.write", texts(&requests.sessions.write)),
        ("tools", texts(&requests.tools)),
        ("environment", requests.environment.clone()),
        ("files", requests.files.iter().map(|folder| format!("{} {}", folder.access, folder.guest.as_str())).collect()),
        ("network", requests.network.iter().map(ToString::to_string).collect()),
    ])
}

fn granted_entries(grants: &Grants) -> GrantEntries {
    non_empty([
        ("models", texts(&grants.models)),
        ("memory", word(grants.memory)),
        ("artifacts", word(grants.artifacts)),
        ("state.read", texts(&grants.state.read)),
        ("state.write", texts(&grants.state.write)),
        ("runs", texts(&grants.runs)),
        ("sessions.read", texts(&grants.sessions.read)),
        ("sessions.write", texts(&grants.sessions.write)),
        ("tools", texts(&grants.tools)),
        ("environment", grants.environment.keys().cloned().collect()),
        ("files", grants.files.iter().map(|folder| format!("{} {}", folder.access, folder.guest.as_str())).collect()),
        ("network", grants.network.iter().map(ToString::to_string).collect()),
        ("private_network", grants.private_network.iter().map(ToString::to_string).collect()),
        ("secrets", grants.secrets.iter().map(|secret| secret.name().to_owned()).collect()),
        ("idempotency_keys", grants.idempotency_keys.iter().map(ToString::to_string).collect()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(requests: &str, grants: &str) -> GrantReport {
        let (requests, grants) = (serde_json::from_str(requests).unwrap(), serde_json::from_str(grants).unwrap());
        GrantReport::new(Some(&requests), &RequestedGrants::default(), &grants)
    }

    #[test]
    fn missing_grants_come_with_the_lines_that_grant_them() {
        let report = compare(
            r#"{"models": ["gemini-*", "gpt-*"], "memory": "read", "artifacts": "write", "tools": ["a/b"],
                "runs": ["clerk"], "sessions": {"read": ["clerk", "diary"]},
                "state": {"read": ["user:a", "app:b"], "write": ["user:c"]}, "environment": ["LANG"],
                "files": [{"guest": "/data", "access": "write"}], "network": ["api.example.com"]}"#,
            r#"{"models": ["gemini-*"], "artifacts": "read", "state": {"write": ["user:*"]}, "sessions": {"write": ["diary"]}}"#,
        );
        assert_eq!(
            report.missing_lines("web").unwrap(),
            "components:\n  web:\n    grants:\n      models: [\"gpt-*\"]\n      memory: read\n      artifacts: write\n      \
             state: {read: [\"app:b\"]}\n      runs: [\"clerk\"]\n      sessions: {read: [\"clerk\"]}\n      tools: [\"a/b\"]\n      environment: {\"LANG\": {from: \"LANG\"}}\n      \
             files: [{host: FOLDER, guest: \"/data\", access: write}]\n      network: [\"api.example.com\"]"
        );
        assert!(report.unused.is_empty(), "{:?}", report.unused);
    }

    #[test]
    fn addresses_of_private_networks_need_two_grants() {
        let report =
            compare(r#"{"network": ["a.com", "http://localhost:9202", "http://10.0.0.1:8080", "8.8.8.8"]}"#, "{}");
        let lines = report.missing_grants();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[1], r#"private_network: ["localhost:9202", "10.0.0.1:8080"]"#);
        assert_eq!(compare(r#"{"network": ["a.com"]}"#, "{}").missing_grants(), [r#"network: ["a.com"]"#]);
    }

    #[test]
    fn the_needs_of_agents_count_as_requested() {
        let described: RequestedGrants = serde_json::from_str(r#"{"models": ["gpt-5"], "memory": "read"}"#).unwrap();
        let grants = serde_json::from_str(r#"{"models": ["gpt-*"], "artifacts": "read"}"#).unwrap();
        let undeclared = GrantReport::new(None, &described, &grants);
        assert_eq!(undeclared.missing, GrantEntries::from([("memory", vec!["read".into()])]));
        assert!(undeclared.unused.is_empty(), "the needs of its code are unknown");
        let requests = serde_json::from_str(r#"{"memory": "read"}"#).unwrap();
        let declared = GrantReport::new(Some(&requests), &described, &grants);
        assert_eq!(declared.requested.unwrap()["memory"], ["read"]);
        assert_eq!(declared.unused, GrantEntries::from([("artifacts", vec!["read".into()])]));
    }

    #[test]
    fn grants_that_are_not_requested_are_unused() {
        let report = compare(
            r#"{"models": ["gemini-*"], "artifacts": "read", "files": [{"guest": "/data"}]}"#,
            r#"{"models": ["gemini-2.5-*", "gpt-*"], "memory": "read", "artifacts": "write",
                "files": [{"host": "x", "guest": "/data", "access": "read"}, {"host": "y", "guest": "/more"}]}"#,
        );
        assert_eq!(report.missing, GrantEntries::from([("models", vec!["gemini-*".into()])]), "only some are granted");
        let unused =
            [("files", vec!["read /more".into()]), ("memory", vec!["read".into()]), ("models", vec!["gpt-*".into()])];
        assert_eq!(report.unused, GrantEntries::from(unused));
        let memory = serde_json::from_str(r#"{"memory": "read"}"#).unwrap();
        let undeclared = GrantReport::new(None, &RequestedGrants::default(), &memory);
        assert!(
            undeclared.unused.is_empty() && undeclared.missing.is_empty() && undeclared.missing_lines("web").is_none()
        );
    }
}
