//! Conversion of model requests, model responses and tool declarations.

use std::sync::Arc;

use hatchery_core::{Content, FunctionDeclaration, GenerateContentConfig, LlmRequest, LlmResponse, UsageMetadata};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::parse;
use super::{BadValue, FromWit, ToWit, all_to_wit, parse_json, to_json, wit};

impl ToWit for FunctionDeclaration {
    type Wit = wit::FunctionDeclaration;

    fn to_wit(&self) -> wit::FunctionDeclaration {
        wit::FunctionDeclaration {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.as_ref().map(to_json),
            response: self.response.as_ref().map(to_json),
        }
    }
}

impl FromWit<wit::FunctionDeclaration> for FunctionDeclaration {
    fn from_wit(declaration: wit::FunctionDeclaration) -> Result<Self, BadValue> {
        let schema = |json: Option<String>, subject| json.map(|json| parse_json(&json, subject)).transpose();
        Ok(Self {
            name: declaration.name,
            description: declaration.description,
            parameters: schema(declaration.parameters, "`parameters` of a tool")?,
            response: schema(declaration.response, "`response` of a tool")?,
        })
    }
}

impl ToWit for LlmRequest {
    type Wit = wit::LlmRequest;

    fn to_wit(&self) -> wit::LlmRequest {
        wit::LlmRequest {
            model: self.model.clone(),
            contents: all_to_wit(self.contents.iter().map(AsRef::as_ref)),
            system_instructions: self.system_instructions.clone(),
            tools: all_to_wit(self.tools.iter().map(AsRef::as_ref)),
            model_tools: self.model_tools.iter().map(to_json).collect(),
            config: (self.config != GenerateContentConfig::default()).then(|| to_json(&self.config)),
        }
    }
}

impl FromWit<wit::LlmRequest> for LlmRequest {
    fn from_wit(request: wit::LlmRequest) -> Result<Self, BadValue> {
        let contents = request.contents.into_iter().map(|content| Content::from_wit(content).map(Arc::new));
        let tools = request.tools.into_iter().map(|tool| FunctionDeclaration::from_wit(tool).map(Arc::new));
        Ok(Self {
            model: request.model,
            contents: contents.collect::<Result<_, _>>()?,
            system_instructions: request.system_instructions,
            tools: tools.collect::<Result<_, _>>()?,
            model_tools: request
                .model_tools
                .iter()
                .map(|tool| parse_json(tool, "a model tool"))
                .collect::<Result<_, _>>()?,
            config: config(request.config)?,
            ..Self::default()
        })
    }
}

/// Parses the settings of a model request.
pub(crate) fn config(json: Option<String>) -> Result<GenerateContentConfig, BadValue> {
    json.map_or_else(
        || Ok(GenerateContentConfig::default()),
        |json| parse(&json, "`config`", "an object of `GenerateContentConfig` keys"),
    )
}

/// Parses and checks the settings of an agent's model calls.
pub(crate) fn agent_config(json: Option<String>) -> Result<GenerateContentConfig, BadValue> {
    let config = config(json)?;
    config.check().map_err(|reason| BadValue::new("`config`", "settings of model calls", reason))?;
    Ok(config)
}

/// Keys of a response that the contract carries in `extra`.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResponseExtra {
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_metadata: Option<UsageMetadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grounding_metadata: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    avg_logprobs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<Value>,
}

impl ToWit for LlmResponse {
    type Wit = wit::LlmResponse;

    fn to_wit(&self) -> wit::LlmResponse {
        let extra = ResponseExtra {
            usage_metadata: self.usage_metadata.clone(),
            model_version: self.model_version.clone(),
            grounding_metadata: self.grounding_metadata.clone(),
            avg_logprobs: self.avg_logprobs,
            custom_metadata: self.custom_metadata.clone(),
        };
        wit::LlmResponse {
            content: self.content.as_ref().map(ToWit::to_wit),
            partial: self.partial,
            turn_complete: self.turn_complete,
            interrupted: self.interrupted,
            finish_reason: self.finish_reason.clone(),
            error_code: self.error_code.clone(),
            error_message: self.error_message.clone(),
            extra: (extra != ResponseExtra::default()).then(|| to_json(&extra)),
        }
    }
}

impl FromWit<wit::LlmResponse> for LlmResponse {
    fn from_wit(response: wit::LlmResponse) -> Result<Self, BadValue> {
        let extra = match response.extra {
            Some(extra) => parse(&extra, "`extra` of a response", "an object of response keys")?,
            None => ResponseExtra::default(),
        };
        Ok(Self {
            content: response.content.map(Content::from_wit).transpose()?,
            partial: response.partial,
            turn_complete: response.turn_complete,
            interrupted: response.interrupted,
            finish_reason: response.finish_reason,
            error_code: response.error_code,
            error_message: response.error_message,
            usage_metadata: extra.usage_metadata,
            model_version: extra.model_version,
            grounding_metadata: extra.grounding_metadata,
            avg_logprobs: extra.avg_logprobs,
            custom_metadata: extra.custom_metadata,
        })
    }
}
