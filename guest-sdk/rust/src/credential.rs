//! Credentials of users for services that tools call.

use std::fmt;

use serde_json::{Map, Value, json};

/// A service for which users have credentials: how they authenticate, and how they are asked.
///
/// ```
/// # use hatchery_guest::prelude::*;
/// /// Lists the user's orders.
/// #[tool]
/// async fn list_orders(cx: ToolContext) -> Result<Value, ToolError> {
///     let shop = AuthConfig::oauth2("https://login.shop.example/authorize", "https://login.shop.example/token", "hatchery")
///         .scope("orders.read");
///     let Some(credential) = cx.credential(&shop).await? else {
///         return Ok(json!({ "pending": true, "message": "The user is asked to log in." }));
///     };
///     let token = credential.token().unwrap_or_default();
///     let request = http::Request::get("https://api.shop.example/orders").header("authorization", format!("Bearer {token}"));
///     let response = request.send().await?;
///     if response.status == 401 {
///         cx.refuse_credential(&shop, &credential).await?;
///     }
///     Ok(response.error_for_status()?.json().await?)
/// }
/// # hatchery_guest::export! { tools: [list_orders] }
/// ```
#[derive(Clone, PartialEq)]
pub struct AuthConfig {
    scheme: Scheme,
    scopes: Vec<String>,
    /// The client of an OAuth server, with the keys of ADK.
    client: Map<String, Value>,
    name: Option<String>,
}

#[derive(Clone, PartialEq)]
enum Scheme {
    ApiKey { header: String },
    Http { scheme: &'static str },
    OAuth2 { authorization_url: String, token_url: String },
    OpenIdConnect { configuration_url: String },
}

impl AuthConfig {
    fn new(scheme: Scheme) -> Self {
        Self { scheme, scopes: Vec::new(), client: Map::new(), name: None }
    }

    /// Returns the configuration of a service that expects a key in this header.
    pub fn api_key(header: impl Into<String>) -> Self {
        Self::new(Scheme::ApiKey { header: header.into() })
    }

    /// Returns the configuration of a service that expects a bearer token.
    pub fn bearer() -> Self {
        Self::new(Scheme::Http { scheme: "bearer" })
    }

    /// Returns the configuration of a service that expects a user name and a password.
    pub fn basic() -> Self {
        Self::new(Scheme::Http { scheme: "basic" })
    }

    /// Returns the configuration of a login at an OAuth 2.0 server, by an authorization code with PKCE. The component
    /// needs the grant `network` for the host of `token_url`.
    pub fn oauth2(
        authorization_url: impl Into<String>,
        token_url: impl Into<String>,
        client_id: impl Into<String>,
    ) -> Self {
        let (authorization_url, token_url) = (authorization_url.into(), token_url.into());
        Self::new(Scheme::OAuth2 { authorization_url, token_url }).client("clientId", client_id)
    }

    /// Returns the configuration of a login at an OpenID provider, by its configuration URL. The component needs the
    /// grant `network` for the host of this URL and the host of the token endpoint.
    pub fn openid_connect(configuration_url: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self::new(Scheme::OpenIdConnect { configuration_url: configuration_url.into() }).client("clientId", client_id)
    }

    /// Adds a scope to request at a login.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Sets the secret of the client, which PKCE makes unnecessary for most servers.
    pub fn client_secret(self, secret: impl Into<String>) -> Self {
        self.client("clientSecret", secret)
    }

    /// Sets the URL to which the server sends the user back. Default: the client of the run chooses.
    pub fn redirect_uri(self, uri: impl Into<String>) -> Self {
        self.client("redirectUri", uri)
    }

    /// Sets the name under which the host keeps the credential for this component. Default: one per scheme and client.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    fn client(mut self, key: &str, value: impl Into<String>) -> Self {
        self.client.insert(key.to_owned(), Value::String(value.into()));
        self
    }

    /// Returns the JSON of ADK.
    pub(crate) fn to_json(&self) -> Value {
        let scheme = match &self.scheme {
            Scheme::ApiKey { header } => json!({ "type": "apiKey", "in": "header", "name": header }),
            Scheme::Http { scheme } => json!({ "type": "http", "scheme": scheme }),
            Scheme::OAuth2 { authorization_url, token_url } => {
                let scopes: Map<_, _> = self.scopes.iter().map(|scope| (scope.clone(), json!(""))).collect();
                json!({ "type": "oauth2", "flows": { "authorizationCode": {
                    "authorizationUrl": authorization_url, "tokenUrl": token_url, "scopes": scopes,
                } } })
            }
            Scheme::OpenIdConnect { configuration_url } => {
                json!({ "type": "openIdConnect", "openIdConnectUrl": configuration_url, "scopes": self.scopes })
            }
        };
        let mut config = Map::from_iter([("authScheme".to_owned(), scheme)]);
        if !self.client.is_empty() {
            let credential = json!({ "authType": scheme_type(&self.scheme), "oauth2": self.client });
            config.insert("rawAuthCredential".into(), credential);
        }
        if let Some(name) = &self.name {
            config.insert("credentialKey".into(), json!(name));
        }
        Value::Object(config)
    }
}

fn scheme_type(scheme: &Scheme) -> &'static str {
    match scheme {
        Scheme::ApiKey { .. } => "apiKey",
        Scheme::Http { .. } => "http",
        Scheme::OAuth2 { .. } => "oauth2",
        Scheme::OpenIdConnect { .. } => "openIdConnect",
    }
}

/// Omits the secret of the client.
impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig").field("scheme", &scheme_type(&self.scheme)).finish_non_exhaustive()
    }
}

/// A credential of a user. Its `Debug` output shows no value.
#[derive(Clone, PartialEq)]
pub struct Credential(pub(crate) Value);

impl Credential {
    /// Returns a key, for tests.
    pub fn from_api_key(key: impl Into<String>) -> Self {
        Self(json!({ "authType": "apiKey", "apiKey": key.into() }))
    }

    /// Returns an access token, for tests.
    pub fn from_token(token: impl Into<String>) -> Self {
        Self(json!({ "authType": "oauth2", "oauth2": { "accessToken": token.into() } }))
    }

    /// Returns a user name and a password, for tests.
    pub fn from_password(username: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = json!({ "username": username.into(), "password": password.into() });
        Self(json!({ "authType": "http", "http": { "scheme": "basic", "credentials": credentials } }))
    }

    /// Returns the key of [`AuthConfig::api_key`].
    pub fn api_key(&self) -> Option<&str> {
        self.text("/apiKey")
    }

    /// Returns the access token of a login, or the token of [`AuthConfig::bearer`].
    pub fn token(&self) -> Option<&str> {
        self.text("/oauth2/accessToken").or_else(|| self.text("/http/credentials/token"))
    }

    /// Returns the user name of [`AuthConfig::basic`].
    pub fn username(&self) -> Option<&str> {
        self.text("/http/credentials/username")
    }

    /// Returns the password of [`AuthConfig::basic`].
    pub fn password(&self) -> Option<&str> {
        self.text("/http/credentials/password")
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer).and_then(Value::as_str)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_have_the_json_of_adk() {
        let oauth2 = AuthConfig::oauth2("https://a.example/authorize", "https://a.example/token", "id")
            .scope("read")
            .client_secret("s3cret")
            .redirect_uri("https://app.example/callback")
            .name("shop");
        assert!(!format!("{oauth2:?}").contains("s3cret"));
        assert_eq!(
            oauth2.to_json(),
            json!({
                "authScheme": { "type": "oauth2", "flows": { "authorizationCode": {
                    "authorizationUrl": "https://a.example/authorize", "tokenUrl": "https://a.example/token", "scopes": { "read": "" },
                } } },
                "rawAuthCredential": { "authType": "oauth2", "oauth2": {
                    "clientId": "id", "clientSecret": "s3cret", "redirectUri": "https://app.example/callback",
                } },
                "credentialKey": "shop",
            })
        );
        let openid =
            AuthConfig::openid_connect("https://id.example/.well-known/openid-configuration", "id").scope("email");
        assert_eq!(openid.to_json()["authScheme"]["scopes"], json!(["email"]));
        assert_eq!(openid.to_json()["rawAuthCredential"]["authType"], "openIdConnect");
        let key = AuthConfig::api_key("X-Key").to_json();
        assert_eq!(key, json!({ "authScheme": { "type": "apiKey", "in": "header", "name": "X-Key" } }));
        assert_eq!(AuthConfig::basic().to_json(), json!({ "authScheme": { "type": "http", "scheme": "basic" } }));
        assert_eq!(AuthConfig::bearer().to_json()["authScheme"]["scheme"], "bearer");
    }

    #[test]
    fn a_credential_has_the_values_of_its_kind_and_does_not_show_them() {
        let key = Credential::from_api_key("v4lue");
        assert_eq!((key.api_key(), key.token()), (Some("v4lue"), None));
        assert_eq!(Credential::from_token("v4lue").token(), Some("v4lue"));
        let password = Credential::from_password("ada", "v4lue");
        assert_eq!((password.username(), password.password()), (Some("ada"), Some("v4lue")));
        let bearer = json!({ "authType": "http", "http": { "scheme": "bearer", "credentials": { "token": "v4lue" } } });
        assert_eq!(Credential(bearer).token(), Some("v4lue"));
        assert!(!format!("{key:?}{password:?}").contains("v4lue"));
    }
}
