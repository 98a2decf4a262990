//! Helpers of the engine's tests: the helpers of all crates, and a callback with fixed answers.

mod agents;
mod interruption;
pub mod live;

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, FunctionResponse, JsonMap, LlmRequest, LlmResponse, PartData, RunError,
};
pub use hatchery_test_support::*;
use serde_json::{Value, json};

pub use self::agents::*;
pub use self::interruption::*;

/// Returns the message with which a client responds to a function call.
pub fn tool_response(id: &str, name: &str, response: Value) -> Content {
    let response = FunctionResponse {
        id: Some(id.into()),
        name: name.into(),
        response: map(response),
        ..FunctionResponse::default()
    };
    Content::new("user", vec![PartData::FunctionResponse(response).into()])
}

/// A callback that returns fixed values in all its hooks.
#[derive(Default, Clone)]
pub struct FixedCallback {
    pub name: &'static str,
    pub agent: Option<&'static str>,
    pub model: Option<&'static str>,
    pub tool: Option<Value>,
    /// Merged into tool arguments and added to system instructions.
    pub mark: Option<&'static str>,
    /// The state key that is set by each call.
    pub state: Option<&'static str>,
    pub fails: bool,
}

impl FixedCallback {
    pub fn arc(self) -> Arc<dyn Callback> {
        Arc::new(self)
    }

    fn apply(&self, cx: &CallContext) -> Result<(), RunError> {
        if let Some(key) = self.state {
            cx.set_state(key, json!(true));
        }
        if self.fails {
            let (callback, agent) = (self.name.into(), cx.agent.to_string());
            return Err(RunError::Callback {
                callback,
                agent,
                code: "CALLBACK_FAILED".into(),
                message: "it broke".into(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Callback for FixedCallback {
    fn name(&self) -> &str {
        self.name
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.apply(cx)?;
        Ok(self.agent.map(Content::model))
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.apply(cx)?;
        Ok(self.agent.map(Content::model))
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        self.apply(cx)?;
        request.system_instructions.extend(self.mark.map(Into::into));
        Ok(self.model.map(LlmResponse::text))
    }

    async fn after_model(&self, cx: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        self.apply(cx)?;
        Ok(self.model.map(LlmResponse::text))
    }

    async fn before_tool(&self, cx: &CallContext, _: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        self.apply(cx)?;
        if let Some(mark) = self.mark {
            args.insert("mark".into(), json!(mark));
        }
        Ok(self.tool.clone().map(map))
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        _: &str,
        _: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        self.apply(cx)?;
        Ok(self.tool.clone().map(|tool| {
            let mut merged = response.clone();
            merged.extend(map(tool));
            merged
        }))
    }
}
