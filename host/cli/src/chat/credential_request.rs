//! Requests of tools for credentials of the user, and the answers to them.

use std::collections::BTreeMap;
use std::fmt;

use hatchery_core::{
    AuthConfig, AuthCredential, AuthKeyLocation, AuthScheme, FunctionCall, FunctionResponse, HttpCredentials, JsonMap,
    OAuth2Auth, REQUEST_CREDENTIAL,
};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::terminal::escape_control;

/// The URL where a login ends if the API has no `redirect_uri`. Nothing listens there: the URL is copied from the
/// browser.
const REDIRECT_URI: &str = "http://localhost/callback";

/// A tool call that waits for a credential of the user.
#[derive(Debug, Clone, PartialEq)]
pub struct CredentialRequest {
    /// The id of the request, which the response must have.
    id: String,
    /// The tool, or the agent if only that is known.
    requester: String,
    config: AuthConfig,
}

/// A part of a credential that the user must enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    pub prompt: &'static str,
    /// True if the answer must not be shown.
    pub is_secret: bool,
}

/// The arguments of a call of `adk_request_credential`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestArgs {
    #[serde(default)]
    function_call_id: Option<String>,
    auth_config: AuthConfig,
}

impl CredentialRequest {
    /// Reads a function call of an agent. `tools` has the names of tools by the ids of their calls. `None` if it is no
    /// request, or if it could not be answered.
    pub fn from_call(id: &str, call: &FunctionCall, agent: &str, tools: &BTreeMap<String, String>) -> Option<Self> {
        if call.name != REQUEST_CREDENTIAL {
            return None;
        }
        let RequestArgs { function_call_id, auth_config } = serde_json::from_value(call.args.clone().into()).ok()?;
        let tool = function_call_id.and_then(|id| tools.get(&id).cloned());
        let requester = tool.unwrap_or_else(|| agent.into());
        let request = Self { id: id.into(), requester, config: auth_config };
        let is_answerable = match request.config.auth_scheme {
            AuthScheme::ApiKey { .. } | AuthScheme::Http { .. } => true,
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => request.login_url().is_some(),
        };
        is_answerable.then_some(request)
    }

    /// Returns the questions to the user. An empty first answer declines.
    pub fn questions(&self) -> &'static [Question] {
        match &self.config.auth_scheme {
            AuthScheme::ApiKey { .. } => &[Question { prompt: "API key", is_secret: true }],
            AuthScheme::Http { scheme } if is_basic(scheme) => {
                &[Question { prompt: "user name", is_secret: false }, Question { prompt: "password", is_secret: true }]
            }
            AuthScheme::Http { .. } => &[Question { prompt: "token", is_secret: true }],
            // A code can be exchanged once, and only with a verifier that the host keeps.
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => {
                &[Question { prompt: "URL after the login, or its code", is_secret: false }]
            }
        }
    }

    /// Returns the response with the answers to the questions, or one that declines if there are none.
    pub fn to_response(&self, answers: &[String]) -> FunctionResponse {
        let mut config = self.config.clone();
        if let Some(credential) = self.credential(answers) {
            config.exchanged_auth_credential = Some(credential);
        }
        let response = match json!(config) {
            Value::Object(config) => config,
            _ => JsonMap::new(),
        };
        FunctionResponse {
            id: Some(self.id.clone()),
            name: REQUEST_CREDENTIAL.into(),
            response,
            ..FunctionResponse::default()
        }
    }

    fn credential(&self, answers: &[String]) -> Option<AuthCredential> {
        let (first, second) = (answers.first()?.clone(), answers.get(1).cloned());
        Some(match &self.config.auth_scheme {
            AuthScheme::ApiKey { .. } => AuthCredential::api_key(first),
            AuthScheme::Http { scheme } if is_basic(scheme) => {
                let credentials =
                    HttpCredentials { username: Some(first), password: second, ..HttpCredentials::default() };
                AuthCredential::http(scheme.clone(), credentials)
            }
            AuthScheme::Http { scheme } => {
                let credentials = HttpCredentials { token: Some(first), ..HttpCredentials::default() };
                AuthCredential::http(scheme.clone(), credentials)
            }
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => self.login_answer(first)?,
        })
    }

    /// Returns the login of the request with the URL to which the browser was sent, or with its code.
    fn login_answer(&self, answer: String) -> Option<AuthCredential> {
        let asked = self.config.exchanged_auth_credential.clone()?;
        let mut login = asked.oauth2?;
        login.redirect_uri.get_or_insert_with(|| REDIRECT_URI.into());
        let is_url = Url::parse(&answer).is_ok_and(|url| url.has_host());
        let place = if is_url { &mut login.auth_response_uri } else { &mut login.auth_code };
        *place = Some(answer);
        Some(AuthCredential { oauth2: Some(login), ..asked })
    }

    /// Returns the URL where the user logs in. `None` if the request has none.
    fn login_url(&self) -> Option<Url> {
        let OAuth2Auth { auth_uri, redirect_uri, .. } =
            self.config.exchanged_auth_credential.as_ref()?.oauth2.as_ref()?;
        let mut url = Url::parse(auth_uri.as_deref()?).ok()?;
        if !url.query_pairs().any(|(name, _)| name == "redirect_uri") {
            url.query_pairs_mut().append_pair("redirect_uri", redirect_uri.as_deref().unwrap_or(REDIRECT_URI));
        }
        Some(url)
    }
}

/// Returns true for a user name with a password. The names of HTTP schemes have no case.
fn is_basic(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("basic")
}

impl fmt::Display for CredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs ", escape_control(&self.requester))?;
        match &self.config.auth_scheme {
            AuthScheme::ApiKey { location, name } => {
                let location = match location {
                    AuthKeyLocation::Header => "header",
                    AuthKeyLocation::Query => "query parameter",
                    AuthKeyLocation::Cookie => "cookie",
                };
                write!(f, "your API key for the {location} {}", escape_control(name))
            }
            AuthScheme::Http { scheme } if is_basic(scheme) => f.write_str("your user name and password"),
            AuthScheme::Http { .. } => f.write_str("your token"),
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => {
                let url = self.login_url().map(String::from).unwrap_or_default();
                let help = "Log in there, then copy the URL to which the browser is sent, even if no page appears.";
                write!(f, "you to log in. Open this URL in a browser:\n\n{}\n\n  {help}", escape_control(&url))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: &str = "https://login.example/auth?state=x";

    fn call(scheme: Value, exchanged: Value) -> FunctionCall {
        let config = json!({"authScheme": scheme, "credentialKey": "k", "exchangedAuthCredential": exchanged});
        let args = json!({"functionCallId": "c1", "authConfig": config});
        serde_json::from_value(json!({"id": "q1", "name": "adk_request_credential", "args": args})).unwrap()
    }

    fn parse(call: &FunctionCall, tools: &[(&str, &str)]) -> Option<CredentialRequest> {
        let tools = tools.iter().map(|(id, name)| ((*id).into(), (*name).into())).collect();
        CredentialRequest::from_call("q1", call, "clerk\u{1b}", &tools)
    }

    fn request(scheme: Value, exchanged: Value) -> CredentialRequest {
        parse(&call(scheme, exchanged), &[("c0", "pay"), ("c1", "list_orders")]).unwrap()
    }

    fn api_key() -> CredentialRequest {
        request(json!({"type": "apiKey", "in": "header", "name": "X-Api-Key"}), json!({"authType": "apiKey"}))
    }

    fn http(scheme: &str) -> CredentialRequest {
        request(json!({"type": "http", "scheme": scheme}), json!({"authType": "http", "http": {"scheme": scheme}}))
    }

    fn login(redirect_uri: Option<&str>) -> CredentialRequest {
        let flow = json!({"authorizationUrl": "https://login.example/auth", "tokenUrl": "https://login.example/token"});
        let mut oauth2 = json!({"clientId": "id", "authUri": LOGIN, "state": "x"});
        if let Some(uri) = redirect_uri {
            oauth2["redirectUri"] = uri.into();
        }
        let scheme = json!({"type": "oauth2", "flows": {"authorizationCode": flow}});
        request(scheme, json!({"authType": "oauth2", "oauth2": oauth2}))
    }

    /// Returns the credential of a response.
    fn answer(request: &CredentialRequest, answers: &[&str]) -> Value {
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).into()).collect();
        let response = request.to_response(&answers);
        assert_eq!((response.id.as_deref(), &*response.name), (Some("q1"), "adk_request_credential"));
        assert_eq!(response.response["credentialKey"], "k");
        response.response["exchangedAuthCredential"].clone()
    }

    #[test]
    fn a_request_names_the_tool_and_what_it_needs() {
        assert_eq!(api_key().to_string(), "list_orders needs your API key for the header X-Api-Key");
        assert_eq!(http("Basic").to_string(), "list_orders needs your user name and password");
        assert_eq!(http("bearer").to_string(), "list_orders needs your token");
        let text = login(None).to_string();
        let url = "https://login.example/auth?state=x&redirect_uri=http%3A%2F%2Flocalhost%2Fcallback";
        assert!(text.contains(&format!("list_orders needs you to log in. Open this URL in a browser:\n\n{url}\n")));
        let unknown = parse(&call(json!({"type": "http", "scheme": "bearer"}), json!({})), &[("c0", "pay")]);
        assert_eq!(unknown.unwrap().to_string(), "clerk\\u{1b} needs your token");
    }

    #[test]
    fn keys_tokens_and_passwords_are_secret() {
        let secrets =
            |request: CredentialRequest| request.questions().iter().map(|it| it.is_secret).collect::<Vec<_>>();
        assert_eq!(secrets(api_key()), [true]);
        assert_eq!(secrets(http("basic")), [false, true]);
        assert_eq!(secrets(http("bearer")), [true]);
        assert_eq!(secrets(login(None)), [false]);
    }

    #[test]
    fn an_answer_has_the_credential_in_the_request() {
        assert_eq!(answer(&api_key(), &["k3y"]), json!({"authType": "apiKey", "apiKey": "k3y"}));
        let basic = json!({"authType": "http", "http":
            {"scheme": "basic", "credentials": {"username": "ada", "password": "s3cret"}}});
        assert_eq!(answer(&http("basic"), &["ada", "s3cret"]), basic);
        let bearer = json!({"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": "t0ken"}}});
        assert_eq!(answer(&http("bearer"), &["t0ken"]), bearer);
    }

    #[test]
    fn a_login_is_answered_with_a_url_or_with_a_code() {
        let url = "https://app.example/callback?code=c&state=x";
        let with_url = answer(&login(Some("https://app.example/callback")), &[url]);
        assert_eq!(
            with_url["oauth2"],
            json!({"clientId": "id", "authUri": LOGIN, "state": "x", "authResponseUri": url,
                "redirectUri": "https://app.example/callback"})
        );
        let with_code = answer(&login(None), &["4/0A:c0de"]);
        assert_eq!(
            with_code["oauth2"],
            json!({"clientId": "id", "authUri": LOGIN, "state": "x", "authCode": "4/0A:c0de",
                "redirectUri": "http://localhost/callback"})
        );
    }

    #[test]
    fn a_request_is_declined_without_a_credential() {
        assert_eq!(answer(&api_key(), &[]), json!({"authType": "apiKey"}));
        assert_eq!(answer(&login(None), &[])["oauth2"], json!({"clientId": "id", "authUri": LOGIN, "state": "x"}));
    }

    #[test]
    fn a_login_without_a_url_cannot_be_answered() {
        let scheme = json!({"type": "openIdConnect", "openIdConnectUrl": "https://login.example", "scopes": []});
        for exchanged in [json!({}), json!({"authType": "oauth2", "oauth2": {"authUri": "login"}})] {
            assert_eq!(parse(&call(scheme.clone(), exchanged), &[]), None);
        }
        assert_eq!(parse(&FunctionCall::default(), &[]), None);
    }
}
