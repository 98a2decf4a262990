//! URIs of PostgreSQL services: `postgres://USER@HOST:PORT/DATABASE?…`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hatchery_core::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

const VALID: &str = "a PostgreSQL service is `postgres://user@host:5432/database`, with the password in the variable \
     `PGPASSWORD`; parameters after `?` are `schema`, `max_connections` (1 to 1000), `text_search`, `sslmode` (`disable` or \
     `verify-full`), `sslrootcert`, `host`, `port`, `connect_timeout`, `application_name`, `options` and \
     `target_session_attrs`";

/// The name in `pg_stat_activity` unless the URI has one.
const APPLICATION: &str = "hatchery";

/// The schema of the tables unless the URI has one. It keeps them apart from ADK's tables, which have the same
/// names.
const DEFAULT_SCHEMA: &str = "hatchery";

/// Default maximum number of connections of a service.
const DEFAULT_MAX_CONNECTIONS: usize = 10;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle time after which the operating system probes the connection (TCP keep-alive).
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Authentication of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// No encryption: the default for servers on this machine.
    Off,
    /// By a certificate that the system trusts: the default for other servers.
    SystemRoots,
    /// By a certificate of an authority in this PEM file.
    RootFile(PathBuf),
}

/// A database, and how it is used.
pub(crate) struct PostgresAddress {
    pub(super) config: Config,
    pub(super) schema: String,
    pub(super) max_connections: usize,
    pub(super) tls: TlsMode,
    /// The configuration of text search.
    pub(crate) text_search: Option<String>,
}

impl PostgresAddress {
    /// Parses a URI. The password is the value of the variable `PGPASSWORD` unless the URI has one.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`], which lists the valid forms and does not repeat the URI.
    pub(crate) fn parse(uri: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let scheme = uri.split_once(':').map_or(uri, |(scheme, _)| scheme);
        let invalid = || StoreError::InvalidName { name: format!("{scheme}:…"), reason: VALID };
        let mut address = Self::try_parse(uri).ok_or_else(invalid)?;
        if address.config.get_password().is_none()
            && let Some(password) = variable("PGPASSWORD")
        {
            address.config.password(password);
        }
        Ok(address)
    }

    fn try_parse(uri: &str) -> Option<Self> {
        let (location, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut schema = DEFAULT_SCHEMA.to_owned();
        let (mut max_connections, mut text_search) = (DEFAULT_MAX_CONNECTIONS, None);
        let (mut is_encrypted, mut root_file) = (None, None);
        let mut passed_on = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=')? {
                ("schema", name) if is_identifier(name) => schema = name.to_owned(),
                ("max_connections", count) => {
                    max_connections = count.parse().ok().filter(|count| (1..=1000).contains(count))?;
                }
                ("text_search", name) if is_identifier(name) => text_search = Some(name.to_owned()),
                ("sslmode", "disable") => is_encrypted = Some(false),
                // libpq does not authenticate the server with `require`: it is authenticated here always.
                ("sslmode", "require" | "verify-full") => is_encrypted = Some(true),
                ("sslrootcert", file) if !file.is_empty() => root_file = Some(PathBuf::from(file)),
                ("host" | "port" | "connect_timeout" | "application_name" | "options" | "target_session_attrs", _) => {
                    passed_on.push(parameter)
                }
                _ => return None,
            }
        }
        let mut config: Config = format!("{location}?{}", passed_on.join("&")).parse().ok()?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(KEEPALIVE);
        let is_local = config.get_hosts().iter().all(is_local);
        let tls = match (is_encrypted.unwrap_or(!is_local || root_file.is_some()), root_file) {
            (false, _) => TlsMode::Off,
            (true, None) => TlsMode::SystemRoots,
            (true, Some(file)) => TlsMode::RootFile(file),
        };
        config.ssl_mode(if tls == TlsMode::Off { SslMode::Disable } else { SslMode::Require });
        Some(Self { config, schema, max_connections, tls, text_search })
    }

    /// Returns the server, database and schema as text, without credentials.
    pub(super) fn name(&self) -> String {
        let hosts = self.config.get_hosts().iter().enumerate().map(|(index, host)| {
            let ports = self.config.get_ports();
            let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        });
        let hosts: Vec<_> = hosts.collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database} ({})", hosts.join(","), self.schema)
    }
}

/// Returns true for a name that needs no quotes.
fn is_identifier(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name
            .chars()
            .all(|character| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_')
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            name.parse::<IpAddr>().map_or(name == "localhost", |address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(uri: &str) -> PostgresAddress {
        PostgresAddress::parse(uri, |_| None).unwrap()
    }

    #[test]
    fn a_uri_names_server_database_and_settings() {
        let address =
            parse("postgresql://ann:pass%40word@db.example:6543/agents?schema=a1&max_connections=3&text_search=german");
        assert_eq!(address.name(), "db.example:6543/agents (a1)");
        assert_eq!((address.max_connections, address.text_search.as_deref()), (3, Some("german")));
        assert_eq!(address.config.get_password(), Some(&b"pass@word"[..]));
        assert_eq!(parse("postgres://ann@/agents?host=/run/pg&port=7").name(), "/run/pg:7/agents (hatchery)");
        assert_eq!(parse("postgres://ann@a:1,b:2").name(), "a:1,b:2/ann (hatchery)");
    }

    #[test]
    fn the_password_of_the_environment_is_used_unless_the_uri_has_one() {
        let variable = |name: &str| (name == "PGPASSWORD").then(|| "of-env".to_owned());
        for (uri, password) in [("postgres://ann@h/d", "of-env"), ("postgres://ann:own@h/d", "own")] {
            let address = PostgresAddress::parse(uri, variable).unwrap();
            assert_eq!(address.config.get_password(), Some(password.as_bytes()));
        }
    }

    #[test]
    fn servers_elsewhere_are_authenticated() {
        for (uri, tls) in [
            ("postgres://h/d", TlsMode::SystemRoots),
            ("postgres://h/d?sslmode=require", TlsMode::SystemRoots),
            ("postgres://h/d?sslrootcert=/ca.pem", TlsMode::RootFile("/ca.pem".into())),
            ("postgres://h/d?sslmode=disable", TlsMode::Off),
            ("postgres://localhost/d", TlsMode::Off),
            ("postgres://[::1]/d", TlsMode::Off),
            ("postgres://127.0.0.1,h/d", TlsMode::SystemRoots),
            ("postgres://localhost/d?sslmode=verify-full", TlsMode::SystemRoots),
        ] {
            assert_eq!(parse(uri).tls, tls, "{uri}");
        }
    }

    #[test]
    fn an_invalid_uri_lists_the_valid_forms_and_hides_the_password() {
        for uri in [
            "postgres:secret",
            "postgres://ann:secret@h:port/d",
            "postgres://ann:secret@h/d?max_connections=0",
            "postgres://h/d?password=secret",
            "postgres://ann:secret@h/d?schema=A;drop",
            "postgres://ann:secret@h/d?sslmode=prefer",
        ] {
            let error = PostgresAddress::parse(uri, |_| None).err().unwrap().to_string();
            assert_eq!(error, format!("invalid name `postgres:…`: {VALID}"), "{uri}");
        }
    }
}
