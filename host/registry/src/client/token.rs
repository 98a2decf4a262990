//! Logging in: what a registry wants to be shown, and the token service that it names.
//!
//! A login goes to the registry itself, or to the token service that the registry names, if that speaks HTTPS. Plain HTTP is for a service at
//! the registry's own address, when that one is spoken to so, and for both on this machine. Nothing at all is sent to any other service:
//! neither the login, nor a request that a machine in the same network could answer with a token of its own.

use std::net::IpAddr;

use oci_client::secrets::RegistryAuth;
use reqwest::{RequestBuilder, Response, StatusCode, Url, header};
use serde::Deserialize;

use super::failure;
use super::transport::Transport;
use crate::error::RegistryError;

/// Most bytes of a token service's answer.
const MAX_ANSWER: u64 = 1 << 20;

/// What is shown to a registry with each request.
#[derive(Clone)]
pub(super) enum Access {
    /// Nothing.
    Anonymous,
    /// A name and a password.
    Basic(String, String),
    /// What its token service has given.
    Bearer(String),
}

impl Access {
    pub(super) fn show(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Anonymous => request,
            Self::Basic(user, password) => request.basic_auth(user, Some(password)),
            Self::Bearer(token) => request.bearer_auth(token),
        }
    }
}

/// What a registry wants.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Asks a registry what it wants, and gets that.
pub(super) async fn authorize(transport: &Transport<'_>, actions: &str) -> Result<Access, RegistryError> {
    let registry = transport.url("v2/")?;
    let response = transport.send(transport.client.get(registry.clone())).await?;
    match (challenge(&response), &transport.auth) {
        (Some(Challenge::Bearer { realm, service }), _) => {
            let refused =
                || RegistryError::Realm { registry: transport.reference.registry().to_owned(), realm: realm.clone() };
            let url = realm.parse().ok().filter(|url| may_be_asked(url, &registry)).ok_or_else(refused)?;
            token(transport, url, service, actions).await.map(Access::Bearer)
        }
        (Some(Challenge::Basic), RegistryAuth::Basic(user, password)) => {
            Ok(Access::Basic(user.clone(), password.clone()))
        }
        _ => Ok(Access::Anonymous),
    }
}

async fn token(
    transport: &Transport<'_>,
    realm: Url,
    service: Option<String>,
    actions: &str,
) -> Result<String, RegistryError> {
    let scope = format!("repository:{}:{actions}", transport.reference.oci().repository());
    let mut url = realm;
    url.query_pairs_mut().append_pair("scope", &scope).extend_pairs(service.map(|service| ("service", service)));
    let request = transport.client.get(url);
    let request = match &transport.auth {
        RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
        RegistryAuth::Anonymous | RegistryAuth::Bearer(_) => request,
    };
    let response = transport.send(request).await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(failure::unauthorized(transport.reference, &transport.auth));
        }
        status => {
            let reason = format!("its token service answers with status {}", status.as_u16());
            return Err(failure::refused(transport.reference, &reason));
        }
    }
    let answer = transport.read(response, MAX_ANSWER).await?.unwrap_or_default();
    let answer = serde_json::from_slice(&answer).ok();
    answer
        .and_then(|answer: Answer| answer.token.or(answer.access_token))
        .ok_or_else(|| failure::refused(transport.reference, "its token service gives no token"))
}

/// True for a token service that may be sent a login for a registry.
fn may_be_asked(service: &Url, registry: &Url) -> bool {
    let is_same =
        service.host() == registry.host() && service.port_or_known_default() == registry.port_or_known_default();
    match service.scheme() {
        "https" => true,
        "http" => registry.scheme() == "http" && (is_same || is_loopback(service) && is_loopback(registry)),
        _ => false,
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

fn challenge(response: &Response) -> Option<Challenge> {
    let wanted = response.headers().get_all(header::WWW_AUTHENTICATE).into_iter();
    let mut challenges: Vec<_> = wanted.filter_map(|value| parse(value.to_str().ok()?)).collect();
    // A registry that offers both prefers tokens.
    let bearer = challenges.iter().position(|challenge| *challenge != Challenge::Basic).unwrap_or(0);
    (bearer < challenges.len()).then(|| challenges.swap_remove(bearer))
}

/// Reads `Bearer realm="…",service="…"`.
fn parse(header: &str) -> Option<Challenge> {
    let (scheme, mut rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        match name.trim_matches([' ', ',']).to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value.to_owned()),
            "service" => service = Some(value.to_owned()),
            _ => {}
        }
        rest = after;
    }
    Some(Challenge::Bearer { realm: realm?, service })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_goes_to_services_that_nobody_in_between_can_read() {
        for (service, registry, expected) in [
            ("https://auth.example/token", "https://registry.example/v2/", true),
            ("http://auth.example/token", "https://registry.example/v2/", false),
            ("http://registry.example/token", "https://registry.example/v2/", false),
            ("http://registry.example/token", "http://registry.example/v2/", true),
            ("http://registry.example:81/token", "http://registry.example/v2/", false),
            ("http://auth.example/token", "http://127.0.0.1:5000/v2/", false),
            ("http://localhost:5001/token", "http://127.0.0.1:5000/v2/", true),
            ("http://[::1]:5001/token", "http://127.0.0.1:5000/v2/", true),
            ("http://169.254.169.254/latest", "https://registry.example/v2/", false),
            ("http://127.0.0.1:9/token", "https://registry.example/v2/", false),
            ("file:///etc/passwd", "http://127.0.0.1:5000/v2/", false),
        ] {
            let (service_url, registry_url) = (service.parse().unwrap(), registry.parse().unwrap());
            assert_eq!(may_be_asked(&service_url, &registry_url), expected, "{service} for {registry}");
        }
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
        };
        assert_eq!(
            parse(r#"Bearer realm="https://auth.example/token",service="registry.example",scope="a,b""#),
            bearer("https://auth.example/token", Some("registry.example"))
        );
        assert_eq!(parse(r#"bearer service=x, Realm="https://a/b?c=d""#), bearer("https://a/b?c=d", Some("x")));
        assert_eq!(parse(r#"Basic realm="tests""#), Some(Challenge::Basic));
        for none in [r#"Bearer service="x""#, "Negotiate", "", r#"Bearer realm="open"#] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
