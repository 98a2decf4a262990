//! Tool calls by code.

use serde_json::Value;

use super::super::list;
use super::super::mock_state::{CallableTool, merge};
use super::super::scope::{Caller, Scope};
use crate::bindings::wit::types;
use crate::callback::ToolCall;
use crate::context::ToolContext;
use crate::convert::read;
use crate::error::ToolError;
use crate::testing::scope::Call;
use crate::tool::Tool;

pub(crate) async fn call(name: String, args: String) -> Result<String, types::ToolError> {
    let scope = Scope::for_session().map_err(ToolError::fatal)?;
    let arguments = read(&args, "the arguments").map_err(ToolError::from)?;
    let tool = {
        let mut mock = scope.mock.borrow_mut();
        mock.tool_calls.push(ToolCall { tool: name.clone(), args: arguments });
        let known = match &scope.call.caller {
            Caller::Agent { tools, .. } => tools.clone(),
            Caller::Run | Caller::Instruction | Caller::Model => mock.tools.keys().cloned().collect(),
        };
        mock.tools
            .get(&name)
            .filter(|_| known.contains(&name))
            .cloned()
            .ok_or_else(|| unknown(&name, &known, &scope.call.caller))?
    };
    match tool {
        CallableTool::Mock(answer) => {
            let args: Value = read(&args, "the arguments").map_err(ToolError::from)?;
            Ok(answer(args)?.to_string())
        }
        CallableTool::Own(tool) => own(&scope, tool, args).await,
    }
}

/// Calls a tool of the component. It sees the changes of its caller, and its caller sees its changes.
async fn own(scope: &Scope, tool: Tool, args: String) -> Result<String, types::ToolError> {
    if tool.requires_confirmation {
        let reason = "it requires confirmation, which only a tool call of an LLM agent's model can wait for";
        let message = format!("tool `{}` cannot be called here: {reason}", tool.name);
        return Err(types::ToolError::Recoverable(message));
    }
    let call = Call::new(Caller::Run, scope.call.agent.clone());
    call.actions.borrow_mut().state_delta.clone_from(&scope.call.actions.borrow().state_delta);
    let key = Some(scope.mock.borrow_mut().new_idempotency_key());
    let call = Call { function_call_id: scope.call.function_call_id.clone(), idempotency_key: key, ..call };
    let inner = scope.with_call(call);
    let result = inner.run(async { (tool.run)(args, ToolContext::new()).await }).await;
    merge(&mut scope.call.actions.borrow_mut(), inner.call.actions.take());
    if let Some(confirmation) = inner.call.requested_confirmation.take() {
        *scope.call.requested_confirmation.borrow_mut() = Some(confirmation);
    }
    Ok(result?)
}

/// Returns an error that says what to add: to the agent, if a real host would not find the tool either, or to the
/// test.
fn unknown(name: &str, known: &[String], caller: &Caller) -> ToolError {
    let what = match caller {
        Caller::Agent { tools, .. } if !tools.iter().any(|tool| tool == name) => {
            format!("add it to the agent's, as in `#[agent(tools = [{name}])]`")
        }
        Caller::Agent { .. } | Caller::Run | Caller::Instruction | Caller::Model => {
            format!("add `.tool(\"{name}\", |args| Ok(json!({{}})))` to the test's host")
        }
    };
    ToolError::Recoverable(format!("there is no tool `{name}`; the tools are {}; {what}", list(known)))
}
