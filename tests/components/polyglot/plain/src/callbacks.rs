//! The callbacks.

use serde_json::{Map, Value, json};

use crate::Plain;
use crate::bindings::exports::hatchery::agent::sync_guest_callbacks::{CallbackSpec, Guest};
use crate::bindings::hatchery::agent::session;
use crate::bindings::hatchery::agent::types::{
    Content, Error, LlmRequest, LlmResponse, ModelAction, ToolAction, ToolCall,
};

impl Guest for Plain {
    fn describe() -> Vec<CallbackSpec> {
        let spec = |name: &str, point: &str| CallbackSpec { name: name.into(), points: vec![point.into()] };
        vec![spec("veto", "before-tool"), spec("stamp", "after-tool")]
    }

    fn before_tool(_: String, call: ToolCall) -> Result<ToolAction, Error> {
        let mut args: Map<String, Value> = serde_json::from_str(&call.args).unwrap_or_default();
        match args.get("number").and_then(Value::as_u64) {
            Some(13) => {
                session::set_state("vetoed", &json!(call.tool).to_string())?;
                Ok(ToolAction::Respond(json!({ "vetoed": true }).to_string()))
            }
            Some(99) => {
                args.insert("number".into(), json!(1));
                Ok(ToolAction::Revise(Value::Object(args).to_string()))
            }
            _ => Ok(ToolAction::Proceed),
        }
    }

    fn after_tool(_: String, call: ToolCall, response: String) -> Result<Option<String>, Error> {
        let mut response: Map<String, Value> = serde_json::from_str(&response).unwrap_or_default();
        response.insert("stamped".into(), json!(true));
        Ok((call.tool == "note").then(|| Value::Object(response).to_string()))
    }

    fn before_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn on_agent_error(_: String, _: Error) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn before_model(_: String, _: LlmRequest) -> Result<ModelAction, Error> {
        Ok(ModelAction::Proceed)
    }

    fn after_model(_: String, _: LlmResponse) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    fn on_model_error(_: String, _: LlmRequest, _: Error) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    fn on_tool_error(_: String, _: ToolCall, _: Error) -> Result<Option<String>, Error> {
        Ok(None)
    }
}
