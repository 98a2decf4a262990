//! The credentials in a request.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};

use super::logins::COOKIE;
use crate::peer::Peer;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The credentials of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Credential<'a> {
    /// An API key or a token.
    Secret(&'a str),
    /// The id of a login.
    Login(&'a str),
}

impl<'a> Credential<'a> {
    /// Returns the first of `Authorization`, `x-api-key` and, if `accepts_login`, the cookie of a login. A header that
    /// cannot be read counts, so that a request has one meaning.
    pub(super) fn from_headers(headers: &'a HeaderMap, accepts_login: bool) -> Option<Self> {
        let secret = match (headers.get(header::AUTHORIZATION), headers.get(API_KEY)) {
            (Some(value), _) => bearer(value.to_str().unwrap_or_default()),
            (None, Some(value)) => value.to_str().unwrap_or_default().trim(),
            (None, None) if accepts_login => return login(headers).map(Self::Login),
            (None, None) => return None,
        };
        Some(Self::Secret(secret))
    }
}

/// The credentials of a request that opens a connection for messages, to check them again with each message.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// Those headers that have credentials.
    headers: HeaderMap,
    accepts_login: bool,
    path: String,
    peer: Option<Peer>,
}

impl Credentials {
    /// Returns the credentials of a request, whose cookie counts if `accepts_login`.
    pub(crate) fn from_request(request: &Request, accepts_login: bool) -> Self {
        let is_kept = |name: &&HeaderName| [header::AUTHORIZATION, API_KEY, header::COOKIE].contains(name);
        let kept = request.headers().iter().filter(|(name, _)| is_kept(name));
        let headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        let path = request.uri().path().to_owned();
        Self { headers, accepts_login, path, peer: Peer::from_extensions(request.extensions()) }
    }

    pub(super) fn credential(&self) -> Option<Credential<'_>> {
        Credential::from_headers(&self.headers, self.accepts_login)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }
}

/// Returns the text after `Bearer`. Empty for another scheme.
fn bearer(value: &str) -> &str {
    match value.trim().split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret.trim(),
        _ => "",
    }
}

/// Returns the id of the login of a browser.
pub(super) fn login(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_header_or_a_cookie() {
        let headers = |pairs: &[(HeaderName, &'static str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
        };
        let cookie = (header::COOKIE, "theme=dark; hatchery_login=l1; hatchery_login2=x");
        for (pairs, expected) in [
            (vec![], None),
            (vec![(header::AUTHORIZATION, "Bearer  k1 ")], Some(Credential::Secret("k1"))),
            (vec![(header::AUTHORIZATION, "bearer k1"), (API_KEY, "k2")], Some(Credential::Secret("k1"))),
            (vec![(header::AUTHORIZATION, "Basic azE=")], Some(Credential::Secret(""))),
            (vec![(header::AUTHORIZATION, "Basic azE="), (API_KEY, "k2")], Some(Credential::Secret(""))),
            (vec![(API_KEY, "k2"), cookie.clone()], Some(Credential::Secret("k2"))),
            (vec![cookie.clone()], Some(Credential::Login("l1"))),
            (vec![(header::COOKIE, "theme=dark")], None),
        ] {
            assert_eq!(Credential::from_headers(&headers(&pairs), true), expected, "{pairs:?}");
        }
        assert_eq!(Credential::from_headers(&headers(&[cookie]), false), None);
    }
}
