//! Credentials that each user of an agent grants: `openapi.apis.NAME.auth.user`.

use hatchery_core::{AuthKeyLocation, AuthScheme, OAuthFlow, OAuthFlows};
use hatchery_openapi::{Credentials, UserClient, UserCredentials};
use serde::Deserialize;

use super::{ApiKeyLocation, OAuth2ClientPlacement};
use crate::config::value::ValueConfig;

/// The scope that makes a login one of OpenID.
const OPENID_SCOPE: &str = "openid";

/// The credential of each user: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserAuthConfig {
    /// Access tokens of an OAuth 2.0 server where users log in.
    pub oauth2: Option<UserOAuth2Config>,
    /// Access tokens of an OpenID provider where users log in.
    pub openid_connect: Option<OpenIdConnectConfig>,
    /// A key of each user.
    pub api_key: Option<UserApiKeyConfig>,
    /// A password or a token of each user in the header `Authorization`.
    pub http: Option<UserHttpScheme>,
}

/// An OAuth 2.0 server where users log in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserOAuth2Config {
    /// Authorization endpoint, where users log in.
    pub authorization_url: String,
    /// Token endpoint.
    pub token_url: String,
    pub client_id: ValueConfig,
    /// Default: none, for a client that is public.
    #[serde(default)]
    pub client_secret: Option<ValueConfig>,
    /// The scopes to request.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// URL that users are sent to after the login. Default: the client of the run chooses.
    #[serde(default)]
    pub redirect_uri: Option<String>,
    /// Place of the client id and secret in token requests. Default: `header`.
    #[serde(default)]
    pub client_in: OAuth2ClientPlacement,
}

/// An OpenID provider where users log in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenIdConnectConfig {
    /// The URL of its configuration, which ends in `/.well-known/openid-configuration`.
    pub url: String,
    pub client_id: ValueConfig,
    /// Default: none, for a client that is public.
    #[serde(default)]
    pub client_secret: Option<ValueConfig>,
    /// The scopes to request in addition to `openid`.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// URL that users are sent to after the login. Default: the client of the run chooses.
    #[serde(default)]
    pub redirect_uri: Option<String>,
    /// Place of the client id and secret in token requests. Default: `header`.
    #[serde(default)]
    pub client_in: OAuth2ClientPlacement,
}

/// A key of each user.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserApiKeyConfig {
    /// The location of the key in requests.
    #[serde(rename = "in")]
    pub location: ApiKeyLocation,
    /// The name of the header, of the parameter or of the cookie.
    pub name: String,
}

/// The scheme of the header `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserHttpScheme {
    /// A user name and a password.
    Basic,
    /// A token.
    Bearer,
}

impl UserAuthConfig {
    /// Returns the credentials.
    ///
    /// # Errors
    /// If there is not exactly one kind.
    pub(super) fn credentials(&self) -> Result<Credentials, String> {
        let oauth2 = self.oauth2.as_ref().map(UserOAuth2Config::credentials);
        let openid = self.openid_connect.as_ref().map(OpenIdConnectConfig::credentials);
        let api_key = self.api_key.as_ref().map(|key| {
            let location = match key.location {
                ApiKeyLocation::Header => AuthKeyLocation::Header,
                ApiKeyLocation::Query => AuthKeyLocation::Query,
                ApiKeyLocation::Cookie => AuthKeyLocation::Cookie,
            };
            UserCredentials { scheme: AuthScheme::ApiKey { location, name: key.name.clone() }, client: None }
        });
        let http = self.http.map(|scheme| {
            let scheme = match scheme {
                UserHttpScheme::Basic => "basic",
                UserHttpScheme::Bearer => "bearer",
            };
            UserCredentials { scheme: AuthScheme::Http { scheme: scheme.into() }, client: None }
        });
        let mut all = [oauth2, openid, api_key, http].into_iter().flatten();
        match (all.next(), all.next()) {
            (Some(user), None) => Ok(Credentials::User(Box::new(user))),
            (_, _) => Err("`user` has exactly one of `oauth2`, `openid_connect`, `api_key` and `http`".into()),
        }
    }

    /// Returns the URLs that requests for tokens go to, by key.
    pub(crate) fn urls(&self) -> Vec<(&'static str, &str)> {
        let token_url = self.oauth2.as_ref().map(|oauth2| ("oauth2.token_url", oauth2.token_url.as_str()));
        let url = self.openid_connect.as_ref().map(|openid| ("openid_connect.url", openid.url.as_str()));
        token_url.into_iter().chain(url).collect()
    }

    /// Returns the variables of the environment that the credentials need, by key.
    pub(super) fn variables(&self) -> Vec<(&'static str, &str)> {
        let (oauth2, openid) = (self.oauth2.as_ref(), self.openid_connect.as_ref());
        let values = [
            ("user.oauth2.client_id", oauth2.map(|oauth2| &oauth2.client_id)),
            ("user.oauth2.client_secret", oauth2.and_then(|oauth2| oauth2.client_secret.as_ref())),
            ("user.openid_connect.client_id", openid.map(|openid| &openid.client_id)),
            ("user.openid_connect.client_secret", openid.and_then(|openid| openid.client_secret.as_ref())),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?.variable()?))).collect()
    }
}

impl UserOAuth2Config {
    fn credentials(&self) -> UserCredentials {
        let flow = OAuthFlow {
            authorization_url: Some(self.authorization_url.clone()),
            token_url: self.token_url.clone(),
            scopes: self.scopes.iter().map(|scope| (scope.clone(), String::new())).collect(),
        };
        UserCredentials {
            scheme: AuthScheme::OAuth2 {
                flows: OAuthFlows { authorization_code: Some(flow), ..OAuthFlows::default() },
            },
            client: Some(client(&self.client_id, self.client_secret.as_ref(), &self.redirect_uri, self.client_in)),
        }
    }
}

impl OpenIdConnectConfig {
    fn credentials(&self) -> UserCredentials {
        let mut scopes = vec![OPENID_SCOPE.to_owned()];
        scopes.extend(self.scopes.iter().filter(|scope| *scope != OPENID_SCOPE).cloned());
        UserCredentials {
            scheme: AuthScheme::OpenIdConnect {
                configuration_url: Some(self.url.clone()),
                authorization_endpoint: None,
                token_endpoint: None,
                scopes,
            },
            client: Some(client(&self.client_id, self.client_secret.as_ref(), &self.redirect_uri, self.client_in)),
        }
    }
}

/// Returns the client as which users log in. Its keys are fields of both kinds of servers, since `#[serde(flatten)]`
/// would neither reject unknown keys nor report positions.
fn client(
    id: &ValueConfig,
    secret: Option<&ValueConfig>,
    redirect_uri: &Option<String>,
    placement: OAuth2ClientPlacement,
) -> UserClient {
    UserClient {
        id: id.into(),
        secret: secret.map(Into::into),
        redirect_uri: redirect_uri.clone(),
        placement: placement.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hatchery_core::ConfigValue;

    use super::*;
    use crate::config::Config;

    fn parse(user: &str) -> Result<Config, String> {
        let text = format!("openapi: {{apis: {{a: {{document: a.yaml, auth: {{user: {user}}}}}}}}}");
        Config::parse(&text, Path::new("/srv/hatchery.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn an_openid_provider_is_asked_for_openid_and_may_be_reached() {
        let user = "{openid_connect: {url: 'https://id.example/.well-known/openid-configuration', client_id: me, \
                    client_secret: {from: SECRET}, scopes: [email, openid], redirect_uri: 'https://app.example/cb', client_in: body}}";
        let config = parse(user).unwrap();
        let api = &config.openapi.apis["a"];
        let Credentials::User(user) = api.auth.credentials().unwrap() else { panic!("{api:?}") };
        let AuthScheme::OpenIdConnect { scopes, .. } = &user.scheme else { panic!("{user:?}") };
        assert_eq!(*scopes, ["openid", "email"]);
        let client = user.client.unwrap();
        assert_eq!(client.secret, Some(ConfigValue::Variable { name: "SECRET".into(), prefix: String::new() }));
        assert_eq!(client.redirect_uri.as_deref(), Some("https://app.example/cb"));
        let hosts: Vec<_> = api.policy().unwrap().network.iter().map(ToString::to_string).collect();
        assert!(hosts.iter().any(|host| host.contains("id.example")), "{hosts:?}");
    }

    #[test]
    fn a_user_grants_one_kind_of_credentials() {
        let expected = "/srv/hatchery.yaml: openapi.apis.a.auth: `user` has exactly one of `oauth2`, `openid_connect`, \
                        `api_key` and `http`";
        for user in ["{}", "{http: basic, api_key: {in: header, name: X-Key}}"] {
            assert_eq!(parse(user).unwrap_err(), expected);
        }
        assert!(parse("{http: bearer}").is_ok());
    }
}
