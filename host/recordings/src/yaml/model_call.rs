//! `llm_recording`: a call of a model.

use hatchery_core::{LlmResponse, ModelError, ModelErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::RequestYaml;
use super::{from_yaml_value, to_yaml_value};
use crate::ModelCall;

#[derive(Serialize, Deserialize)]
pub(crate) struct ModelCallYaml {
    llm_request: RequestYaml,
    #[serde(default)]
    llm_responses: Vec<Value>,
    /// The key of the only response in files of older versions of ADK.
    #[serde(default, skip_serializing)]
    llm_response: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    llm_error: Option<ModelErrorYaml>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ModelErrorYaml {
    code: String,
    model: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

impl From<&ModelError> for ModelErrorYaml {
    fn from(error: &ModelError) -> Self {
        Self {
            code: error.kind.code().into(),
            model: error.model.clone(),
            message: error.message.clone(),
            status: error.status,
        }
    }
}

impl From<ModelErrorYaml> for ModelError {
    fn from(error: ModelErrorYaml) -> Self {
        // The code may come from a later version. The run fails in any case.
        let kind = ModelErrorKind::from_code(&error.code).unwrap_or(ModelErrorKind::Server);
        Self { status: error.status, ..Self::new(kind, error.model, error.message) }
    }
}

impl From<&ModelCall> for ModelCallYaml {
    fn from(call: &ModelCall) -> Self {
        Self {
            llm_request: (&call.request).into(),
            llm_responses: call.responses.iter().map(to_yaml_value).collect(),
            llm_response: None,
            llm_error: call.error.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<ModelCallYaml> for ModelCall {
    type Error = String;

    fn try_from(yaml: ModelCallYaml) -> Result<Self, String> {
        let single_response = yaml.llm_response.filter(|response| !response.is_null());
        let responses = yaml.llm_responses.into_iter().chain(single_response);
        Ok(Self {
            request: yaml.llm_request.try_into()?,
            responses: responses
                .map(|response| from_yaml_value::<LlmResponse>(response, "llm_responses"))
                .collect::<Result<_, String>>()?,
            error: yaml.llm_error.map(Into::into),
        })
    }
}
