//! Authorization: the challenge of a registry and its token service.
//!
//! A login is only sent to the registry itself, or to the token service that the registry names if it uses HTTPS. Plain
//! HTTP is allowed for a token service with the address of the registry, if the registry uses plain HTTP too, and if
//! both are on this machine. Nothing is sent to other token services, not even an anonymous request, because another
//! machine in the network could answer it with a forged token.

use oci_client::secrets::RegistryAuth;
use reqwest::{RequestBuilder, Response, StatusCode, Url, header};
use serde::Deserialize;

use super::failure;
use super::transport::Transport;
use crate::error::RegistryError;
use crate::reference::is_loopback;

/// The maximum size of a token service's response in bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// The authorization of requests to a registry.
#[derive(Clone)]
pub(super) enum Authorization {
    Anonymous,
    /// User name and password.
    Basic(String, String),
    /// A token from the token service.
    Bearer(String),
}

impl Authorization {
    /// Adds the header to a request.
    pub(super) fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Anonymous => request,
            Self::Basic(user, password) => request.basic_auth(user, Some(password)),
            Self::Bearer(token) => request.bearer_auth(token),
        }
    }
}

/// The `WWW-Authenticate` challenge of a registry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

/// Requests the challenge of a registry and returns the authorization that it requires. Some registries have no
/// challenge here, but one for restricted requests.
pub(super) async fn authorize(transport: &Transport<'_>, actions: &str) -> Result<Authorization, RegistryError> {
    let response = transport.send(transport.http.get(transport.url("v2/")?)).await?;
    let challenge = challenge_of(&response);
    answer(transport, challenge, actions).await
}

/// Returns the authorization that a challenge of the registry requires. `None` is no challenge.
pub(super) async fn answer(
    transport: &Transport<'_>,
    challenge: Option<Challenge>,
    actions: &str,
) -> Result<Authorization, RegistryError> {
    let registry = transport.url("v2/")?;
    match (challenge, &transport.auth) {
        (Some(Challenge::Bearer { realm, service }), _) => {
            let insecure = || RegistryError::InsecureTokenService {
                registry: transport.reference.registry().to_owned(),
                realm: realm.clone(),
            };
            let url = realm.parse().ok().filter(|url| is_allowed_token_service(url, &registry)).ok_or_else(insecure)?;
            fetch_token(transport, url, service, actions).await.map(Authorization::Bearer)
        }
        (Some(Challenge::Basic), RegistryAuth::Basic(user, password)) => {
            Ok(Authorization::Basic(user.clone(), password.clone()))
        }
        _ => Ok(Authorization::Anonymous),
    }
}

async fn fetch_token(
    transport: &Transport<'_>,
    realm: Url,
    service: Option<String>,
    actions: &str,
) -> Result<String, RegistryError> {
    let scope = format!("repository:{}:{actions}", transport.reference.oci().repository());
    let mut url = realm;
    url.query_pairs_mut().append_pair("scope", &scope).extend_pairs(service.map(|service| ("service", service)));
    let request = transport.http.get(url);
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
            let reason = format!("its token service returned status {}", status.as_u16());
            return Err(failure::unexpected_response(transport.reference, &reason));
        }
    }
    let body = transport.read(response, MAX_RESPONSE_BYTES).await?.unwrap_or_default();
    let response = serde_json::from_slice(&body).ok();
    response
        .and_then(|response: TokenResponse| response.token.or(response.access_token))
        .ok_or_else(|| failure::unexpected_response(transport.reference, "its token service returned no token"))
}

/// Returns true if the login of a registry may be sent to a token service.
fn is_allowed_token_service(service: &Url, registry: &Url) -> bool {
    let is_local = |url: &Url| is_loopback(url.host_str().unwrap_or_default());
    let is_same =
        service.host() == registry.host() && service.port_or_known_default() == registry.port_or_known_default();
    match service.scheme() {
        "https" => true,
        "http" => registry.scheme() == "http" && (is_same || is_local(service) && is_local(registry)),
        _ => false,
    }
}

/// Returns the challenge of a response. Tokens are preferred if there are several.
pub(super) fn challenge_of(response: &Response) -> Option<Challenge> {
    let headers = response.headers().get_all(header::WWW_AUTHENTICATE).into_iter();
    let mut challenges: Vec<_> = headers.filter_map(|value| parse_challenge(value.to_str().ok()?)).collect();
    let bearer = challenges.iter().position(|challenge| *challenge != Challenge::Basic).unwrap_or(0);
    (bearer < challenges.len()).then(|| challenges.swap_remove(bearer))
}

/// Parses `Bearer realm="…",service="…"`.
fn parse_challenge(header: &str) -> Option<Challenge> {
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
    fn a_login_is_only_sent_to_secure_token_services() {
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
            assert_eq!(is_allowed_token_service(&service_url, &registry_url), expected, "{service} for {registry}");
        }
    }

    #[test]
    fn challenges_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
        };
        assert_eq!(
            parse_challenge(r#"Bearer realm="https://auth.example/token",service="registry.example",scope="a,b""#),
            bearer("https://auth.example/token", Some("registry.example"))
        );
        assert_eq!(
            parse_challenge(r#"bearer service=x, Realm="https://a/b?c=d""#),
            bearer("https://a/b?c=d", Some("x"))
        );
        assert_eq!(parse_challenge(r#"Basic realm="tests""#), Some(Challenge::Basic));
        for invalid in [r#"Bearer service="x""#, "Negotiate", "", r#"Bearer realm="open"#] {
            assert_eq!(parse_challenge(invalid), None, "{invalid}");
        }
    }
}
