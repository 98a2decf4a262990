//! A plugin that asks models to reflect and retry after a failed tool call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, Callback, JsonMap, Plugin, RunError, ToolError};
use serde_json::json;

/// Marks the responses of this plugin.
const RESPONSE_TYPE: &str = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN";

/// Answers a failed tool call with the error and guidance for the model. It does so at most `max_retries` times in a
/// row per tool and run. After that the error is handled as without the plugin: fatal errors end the run, others go to
/// the model unchanged.
pub struct ReflectAndRetry {
    max_retries: u32,
    /// Consecutive failures by invocation and tool.
    failures: Mutex<HashMap<String, HashMap<String, u32>>>,
}

impl ReflectAndRetry {
    /// Creates a plugin that allows this many retries per tool.
    pub fn new(max_retries: u32) -> Self {
        Self { max_retries, failures: Mutex::default() }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, u32>>> {
        self.failures.lock_unpoisoned()
    }

    fn forget(&self, cx: &CallContext) {
        self.failures().remove(&cx.invocation.id);
    }
}

#[async_trait]
impl Callback for ReflectAndRetry {
    fn name(&self) -> &str {
        "reflect_and_retry_plugin"
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        tool: &str,
        _: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        // The model gets the error of a tool as a response, too.
        let has_failed = response.get("error").is_some_and(|error| !error.is_null());
        let is_own = response.get("response_type").is_some_and(|kind| kind == RESPONSE_TYPE);
        if !has_failed
            && !is_own
            && let Some(failures) = self.failures().get_mut(&cx.invocation.id)
        {
            failures.remove(tool);
        }
        Ok(None)
    }

    async fn on_tool_error(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        error: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        let retry = {
            let mut failures = self.failures();
            let failed = failures.entry(cx.invocation.id.clone()).or_default().entry(tool.into()).or_default();
            *failed += 1;
            *failed
        };
        if retry > self.max_retries {
            return Ok(None);
        }
        let guidance = format!(
            "The call of `{tool}` failed. Think about why before you go on: were the arguments wrong or missing, was something \
             assumed that is not so, is another tool better suited? Then call it with other arguments, or do without it. This was failure {retry} \
             of {} that are allowed.",
            self.max_retries
        );
        let answer = json!({
            "response_type": RESPONSE_TYPE,
            "error_details": error.to_string(),
            "args": args,
            "retry_count": retry,
            "reflection_guidance": guidance,
        });
        Ok(answer.as_object().cloned())
    }
}

#[async_trait]
impl Plugin for ReflectAndRetry {
    /// Returns false: failures are counted per run until `after_run` or `on_run_error`, and agent tools have neither.
    fn follows_into_tools(&self) -> bool {
        false
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        self.forget(cx);
        Ok(())
    }

    async fn on_run_error(&self, cx: &CallContext, _: &RunError) {
        self.forget(cx);
    }
}
