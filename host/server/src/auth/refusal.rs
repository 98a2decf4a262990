//! Reasons why the credentials of a request are not valid. The log has more details than the response.

use std::fmt;
use std::time::Duration;

use axum::http::StatusCode;

use crate::error::ApiError;

/// The reason why the credentials of a request are not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has none.
    Missing,
    /// The API key is unknown.
    UnknownKey,
    /// The login has ended.
    LoggedOut,
    /// It has a token that is not valid, for this reason.
    InvalidToken(&'static str),
    /// Its token has expired.
    ExpiredToken,
    /// Its token is valid and has no role.
    NoRole,
    /// The issuer's keys could not be read, so no token can be verified.
    IssuerUnavailable,
}

impl Refusal {
    /// Returns true if the client can succeed with other credentials.
    pub(super) fn is_client_error(&self) -> bool {
        *self != Self::IssuerUnavailable
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no credentials"),
            Self::UnknownKey => f.write_str("an unknown API key"),
            Self::LoggedOut => f.write_str("a login that has ended"),
            Self::InvalidToken(reason) => write!(f, "an invalid token: {reason}"),
            Self::ExpiredToken => f.write_str("an expired token"),
            Self::NoRole => f.write_str("a token without a role"),
            Self::IssuerUnavailable => f.write_str("the keys of the issuer cannot be read"),
        }
    }
}

const CHALLENGE: &str = "Bearer realm=\"hatchery\"";
const INVALID: &str = "Bearer realm=\"hatchery\", error=\"invalid_token\"";

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let unauthorized = |code: &str, challenge, detail: &str| {
            Self::new(StatusCode::UNAUTHORIZED, code, detail).with_challenge(challenge)
        };
        match refusal {
            Refusal::Missing => unauthorized(
                "UNAUTHENTICATED",
                CHALLENGE,
                "credentials are missing; send an API key or a token in the header `Authorization: Bearer …`",
            ),
            Refusal::UnknownKey | Refusal::InvalidToken(_) => {
                unauthorized("INVALID_CREDENTIALS", INVALID, "the API key or token is not valid")
            }
            Refusal::LoggedOut => unauthorized("LOGGED_OUT", INVALID, "the login has ended; log in again at /dev-ui"),
            Refusal::ExpiredToken => unauthorized("TOKEN_EXPIRED", INVALID, "the token has expired; get a new one"),
            Refusal::NoRole => {
                let detail = "the token has no role that this server knows; its issuer must add `use` or `operate`";
                Self::new(StatusCode::FORBIDDEN, "ROLE_REQUIRED", detail)
            }
            Refusal::IssuerUnavailable => {
                let detail = "tokens cannot be checked now, since the keys of their issuer cannot be read; try again";
                let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ISSUER_UNAVAILABLE", detail);
                Self { retry_after: Some(Duration::from_secs(30)), ..error }
            }
        }
    }
}
