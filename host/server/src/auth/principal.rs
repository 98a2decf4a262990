//! The sender of a request, and their permissions.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hatchery_core::{ClientScope, JsonMap, StateScope};

use super::requirement::Requirement;
use crate::error::ApiError;
use crate::state::AppState;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) enum Principal {
    /// Anybody: the server has no authentication.
    Anybody,
    /// An operator, by the name in logs.
    Operator(Arc<str>),
    /// A client with the role `use`.
    Client(Arc<Client>),
}

/// A client with the role `use`.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its name in logs.
    pub(super) name: String,
    pub(super) scope: ClientScope,
    pub(super) limits: ClientLimits,
}

/// Limits of a client's requests; 0 means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClientLimits {
    pub(super) per_minute: u32,
    pub(super) concurrent: u32,
}

impl Principal {
    /// Returns the name in logs.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Anybody => "",
            Self::Operator(name) => name,
            Self::Client(client) => &client.name,
        }
    }

    /// Returns the maximum number of requests that it may send.
    pub(super) fn limits(&self) -> ClientLimits {
        match self {
            Self::Anybody | Self::Operator(_) => ClientLimits::default(),
            Self::Client(client) => client.limits,
        }
    }

    /// Returns the apps and the user that a client is limited to. `None` without a limit.
    pub(crate) fn scope(&self) -> Option<&ClientScope> {
        match self {
            Self::Client(client) => Some(&client.scope),
            Self::Anybody | Self::Operator(_) => None,
        }
    }

    /// Returns the scope of an MCP client. One without a user gets its own user, so that clients share neither
    /// sessions nor the credentials that are granted in them.
    pub(crate) fn mcp_scope(&self) -> Option<ClientScope> {
        let own = || Some(hatchery_mcp::client_user(self.name()).into());
        match self {
            Self::Anybody => None,
            Self::Operator(_) => Some(ClientScope { user: own(), apps: ["*".to_owned()].into() }),
            Self::Client(client) => {
                let ClientScope { user, apps } = client.scope.clone();
                Some(ClientScope { user: user.or_else(own), apps })
            }
        }
    }

    /// Returns true if the sender may use an app.
    pub(crate) fn has_app(&self, name: &str) -> bool {
        self.scope().is_none_or(|scope| scope.has_app(name))
    }

    /// Checks that the sender may use an app.
    ///
    /// # Errors
    /// 404, as for an app that does not exist.
    pub(crate) fn check_app(&self, name: &str) -> Result<(), ApiError> {
        if self.has_app(name) { Ok(()) } else { Err(ApiError::unknown_app(name)) }
    }

    /// Checks that the sender may act for a user.
    ///
    /// # Errors
    /// 403 with the user that the credentials are for.
    pub(crate) fn check_user(&self, id: &str) -> Result<(), ApiError> {
        match self.scope().and_then(|scope| scope.user.as_ref().filter(|_| !scope.has_user(id))) {
            None => Ok(()),
            Some(own) => {
                let detail = format!("these credentials are for the user `{own}` only; name this user, or send others");
                Err(ApiError::new(StatusCode::FORBIDDEN, "USER_NOT_ALLOWED", detail))
            }
        }
    }

    /// Checks that the sender may set these keys of a state.
    ///
    /// # Errors
    /// 403 if one belongs to all users of the app.
    pub(crate) fn check_state(&self, state: &JsonMap) -> Result<(), ApiError> {
        let is_shared = |key: &&String| StateScope::split_key(key).0 == StateScope::App;
        match state.keys().find(is_shared).filter(|_| self.scope().is_some()) {
            None => Ok(()),
            Some(key) => {
                let key: String = key.chars().take(64).collect();
                let detail =
                    format!("`{}` belongs to all users of the app; only operators may set it", key.escape_debug());
                Err(ApiError::new(StatusCode::FORBIDDEN, "STATE_NOT_ALLOWED", detail))
            }
        }
    }

    /// Checks that the sender meets the requirement of a path.
    pub(super) fn check(&self, requirement: &Requirement) -> Result<(), ApiError> {
        match (self.scope(), requirement) {
            (None, _) | (Some(_), Requirement::None | Requirement::Client) => Ok(()),
            (Some(_), Requirement::Operator) => {
                let detail = "this needs credentials with the role `operate`";
                Err(ApiError::new(StatusCode::FORBIDDEN, "ROLE_REQUIRED", detail))
            }
            (Some(scope), Requirement::EveryApp(name)) => {
                if scope.has_every_app() {
                    Ok(())
                } else {
                    Err(ApiError::unknown_app(name))
                }
            }
            (Some(_), Requirement::App(app)) => self.check_app(app),
            (Some(_), Requirement::User { app, user }) => self.check_app(app).and_then(|()| self.check_user(user)),
        }
    }
}

impl FromRequestParts<AppState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(ApiError::internal)
    }
}
