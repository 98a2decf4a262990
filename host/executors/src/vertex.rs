//! Code in a code interpreter extension of Vertex AI, over its REST API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{
    AuthConfig, AuthCredential, AuthCredentialType, AuthScheme, CallContext, CodeExecutor, CodeFile, CodeInput,
    CodeOutput, ConfigValue, ServiceAccountAuth, ToolError, excerpt,
};
use hatchery_egress::{Egress, Timeouts, ToolAuthenticator, Url, client, describe, read_body, refusal};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::output_files::{EncodedFile, add_files};

/// Scope of access tokens.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Maximum size of an answer, with its files.
const MAX_ANSWER: usize = 64 << 20;

/// Maximum size in bytes of an answer in the log.
const MAX_EXCERPT: usize = 500;

/// Settings of a [`VertexExecutor`].
#[derive(Clone)]
pub struct VertexConfig {
    /// The extension: `projects/PROJECT/locations/LOCATION/extensions/ID`.
    pub extension: String,
    /// The operation of the extension.
    pub operation: ExtensionOperation,
    /// Base URL of the service. `None` means the service in the location of the extension.
    pub endpoint: Option<String>,
    /// The credentials file.
    pub credentials: CredentialsSource,
    /// Egress policy of requests.
    pub egress: Arc<dyn Egress>,
    /// Timeout of code.
    pub timeout: Duration,
}

/// A credentials file of Google Cloud, by path or by content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsSource {
    File(std::path::PathBuf),
    /// The content.
    Json(ConfigValue),
}

/// An operation of a code interpreter extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExtensionOperation {
    /// Runs the code unchanged.
    #[default]
    Execute,
    /// Lets the extension's model write code for a text, which is the code here, and runs that.
    GenerateAndExecute,
}

/// Runs code in a code interpreter extension.
pub struct VertexExecutor {
    name: String,
    config: VertexConfig,
    /// Created on first use, because its credentials may be missing.
    authenticator: OnceCell<Arc<ToolAuthenticator>>,
}

/// The response of an extension, whose content is JSON as a string.
#[derive(Deserialize)]
struct ExecuteResponse {
    content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Execution {
    execution_result: Option<String>,
    execution_error: Option<String>,
    output_files: Vec<EncodedFile>,
}

impl VertexExecutor {
    /// Creates an executor. Nothing is requested before code runs.
    pub fn new(name: impl Into<String>, config: VertexConfig) -> Self {
        Self { name: name.into(), config, authenticator: OnceCell::new() }
    }

    async fn authenticator(&self) -> Result<&Arc<ToolAuthenticator>, String> {
        self.authenticator.get_or_try_init(|| self.create_authenticator()).await
    }

    async fn create_authenticator(&self) -> Result<Arc<ToolAuthenticator>, String> {
        let unusable = |reason: String| format!("the credentials file is not usable: {reason}");
        let json = match &self.config.credentials {
            CredentialsSource::File(file) => {
                tokio::fs::read(file).await.map_err(|error| unusable(error.to_string()))?
            }
            CredentialsSource::Json(json) => json.read().map_err(|error| unusable(error.to_string()))?.into_bytes(),
        };
        // The error of the parser may show a part of the file.
        let json: Value = serde_json::from_slice(&json).map_err(|_| unusable("it is not JSON".into()))?;
        let account = ServiceAccountAuth {
            service_account_credential: Some(json),
            scopes: vec![SCOPE.into()],
            use_default_credential: false,
        };
        let credential = AuthCredential {
            auth_type: AuthCredentialType::ServiceAccount,
            service_account: Some(account),
            ..AuthCredential::default()
        };
        let config = AuthConfig::new(AuthScheme::Http { scheme: "bearer".into() }, Some(credential));
        Ok(Arc::new(ToolAuthenticator::new(config, self.config.egress.clone())))
    }

    fn url(&self) -> Result<Url, String> {
        let VertexConfig { extension, endpoint, .. } = &self.config;
        let segments: Vec<&str> = extension.split('/').collect();
        let ["projects", _, "locations", location, "extensions", _] = *segments else {
            return Err(format!(
                "`extension` is `{extension}`; it must be `projects/PROJECT/locations/LOCATION/extensions/ID`"
            ));
        };
        let service = || format!("https://{location}-aiplatform.googleapis.com");
        let endpoint = endpoint.clone().unwrap_or_else(service);
        let url = format!("{}/v1beta1/{extension}:execute", endpoint.trim_end_matches('/'));
        Url::parse(&url).map_err(|error| format!("`{url}`: {error}"))
    }

    /// Runs code. The error is for the operator.
    async fn run(&self, input: &CodeInput, cx: &CallContext) -> Result<CodeOutput, String> {
        let (url, timeout) = (self.url()?, self.config.timeout);
        let authenticator = self.authenticator().await?;
        let credential = authenticator.credential(cx).await.map_err(|error| error.to_string())?;
        let token = credential.as_ref().and_then(|credential| credential.http.as_ref()?.credentials.token.as_deref());
        let timeouts = Timeouts { connect: Duration::from_secs(10), read: timeout };
        let request = client(&self.config.egress, &url, timeouts)?.post(url);
        let request = request.bearer_auth(token.unwrap_or_default()).timeout(timeout).json(&self.request(input, cx));
        let response = request.send().await.map_err(|error| refusal(&error).unwrap_or_else(|| describe(error)))?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED
            && let Some(credential) = &credential
        {
            // The next call gets another token.
            authenticator.refuse(cx, credential).await.map_err(|error| error.to_string())?;
        }
        let body = read_body(response, MAX_ANSWER).await.map_err(|error| error.to_string())?;
        if !status.is_success() {
            let text = excerpt(String::from_utf8_lossy(&body).trim(), MAX_EXCERPT);
            return Err(format!("the extension answered with the status {status}: {text}"));
        }
        let unexpected = |error: serde_json::Error| format!("the extension gave an unexpected answer: {error}");
        let ExecuteResponse { content } = serde_json::from_slice(&body).map_err(unexpected)?;
        let execution: Execution = serde_json::from_str(&content).map_err(unexpected)?;
        let mut output = CodeOutput {
            stdout: execution.execution_result.unwrap_or_default(),
            stderr: execution.execution_error.unwrap_or_default(),
            output_files: Vec::new(),
        };
        add_files(&mut output, execution.output_files);
        Ok(output)
    }

    fn request(&self, input: &CodeInput, cx: &CallContext) -> Value {
        let (operation, code) = match self.config.operation {
            ExtensionOperation::Execute => ("execute", "code"),
            ExtensionOperation::GenerateAndExecute => ("generate_and_execute", "query"),
        };
        let mut parameters = json!({ code: input.code });
        if let Value::Object(parameters) = &mut parameters {
            let file = |file: &CodeFile| json!({"name": file.name, "contents": STANDARD.encode(&file.content)});
            if !input.input_files.is_empty() {
                parameters.insert("files".into(), input.input_files.iter().map(file).collect());
            }
            if let Some(id) = &input.execution_id {
                parameters.insert("session_id".into(), session_id(id, cx).into());
            }
        }
        json!({"operationId": operation, "operationParams": parameters})
    }
}

/// Returns the session of the extension for this session of the host. Clients can set the state that the id comes from,
/// so it does not identify one by itself, and only the host knows the result.
fn session_id(execution_id: &str, cx: &CallContext) -> String {
    let key = &cx.invocation.session_key;
    cx.invocation.signer.sign_strings("code session", &[&key.app, &key.user, &key.id, execution_id])
}

#[async_trait]
impl CodeExecutor for VertexExecutor {
    fn name(&self) -> &str {
        &self.name
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        self.run(&input, cx).await.map_err(|error| {
            tracing::warn!(executor = self.name, "code cannot run in an extension of Vertex AI: {error}");
            let next = "the operator finds the cause in the log of the host";
            ToolError::Recoverable(format!("code cannot run now, because the code interpreter is not usable; {next}"))
        })
    }
}
