//! Schemas of evaluations. Eval sets have keys in snake_case, everything else in camelCase.

use hatchery_core::JsonMap;
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{Content, FunctionCall, FunctionResponse};

/// The eval sets of an app.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalSetIds {
    eval_set_ids: Vec<String>,
}

/// The results of evaluations of an app.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalResultIds {
    /// The oldest first.
    eval_result_ids: Vec<String>,
}

/// A set of cases for the evaluation of an app. Keys are in snake_case.
#[derive(ToSchema)]
pub(crate) struct EvalSet {
    eval_set_id: String,
    name: Option<String>,
    description: Option<String>,
    eval_cases: Vec<EvalSetCase>,
    creation_timestamp: f64,
}

/// A case of an eval set. Keys are in snake_case.
#[derive(ToSchema)]
pub(crate) struct EvalSetCase {
    eval_id: String,
    conversation: Vec<EvalSetTurn>,
    #[schema(value_type = Option<Object>)]
    session_input: Option<JsonMap>,
    creation_timestamp: f64,
}

/// A turn of a case of an eval set. Keys are in snake_case.
#[derive(ToSchema)]
pub(crate) struct EvalSetTurn {
    invocation_id: String,
    user_content: Content,
    final_response: Option<Content>,
    #[schema(value_type = Option<Object>)]
    intermediate_data: Option<Value>,
    creation_timestamp: f64,
}

/// A conversation with the expected behaviour of the app.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalCase {
    eval_id: Option<String>,
    conversation: Vec<EvalInvocation>,
    session_input: Option<EvalSessionInput>,
    creation_timestamp: Option<f64>,
}

/// The initial session of a conversation.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalSessionInput {
    app_name: Option<String>,
    user_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    state: Option<JsonMap>,
}

/// A turn of a conversation, expected or observed.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalInvocation {
    invocation_id: Option<String>,
    user_content: Option<Content>,
    final_response: Option<Content>,
    intermediate_data: Option<IntermediateData>,
    creation_timestamp: Option<f64>,
}

/// The tool calls and their responses between a message and the final response.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IntermediateData {
    tool_uses: Option<Vec<FunctionCall>>,
    tool_responses: Option<Vec<FunctionResponse>>,
}

/// The results of an evaluation of a set.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalSetResult {
    eval_set_result_id: String,
    eval_set_result_name: Option<String>,
    eval_set_id: String,
    /// One result for each run of each case.
    eval_case_results: Vec<EvalCaseResult>,
    creation_timestamp: f64,
}

/// The result of one run of a case.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvalCaseResult {
    eval_set_id: Option<String>,
    eval_id: String,
    final_eval_status: EvalStatus,
    /// The means over all turns.
    overall_eval_metric_results: Vec<MetricResult>,
    eval_metric_result_per_invocation: Vec<InvocationResult>,
    session_id: String,
    user_id: String,
    /// The error that ended the run; left out if it ended normally.
    error_message: Option<String>,
}

/// The scores of one turn.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InvocationResult {
    actual_invocation: Option<EvalInvocation>,
    expected_invocation: Option<EvalInvocation>,
    eval_metric_results: Vec<MetricResult>,
}

/// The score of a turn, or the mean score of several turns.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetricResult {
    metric_name: String,
    /// The lowest score that passes.
    threshold: f64,
    /// From 0 to 1.
    score: Option<f64>,
    eval_status: EvalStatus,
    #[schema(value_type = Option<Object>)]
    criterion: Option<Value>,
    #[schema(value_type = Option<Object>)]
    details: Option<Value>,
}

/// The results of an evaluation, for each run of each case.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunEvalResponse {
    run_eval_results: Vec<EvalCaseResult>,
}

/// The outcome of a metric or of a case.
pub(crate) struct EvalStatus;

impl PartialSchema for EvalStatus {
    fn schema() -> RefOr<Schema> {
        let values = ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([1, 2, 3]));
        values.description(Some("1: passed, 2: failed, 3: not evaluated.")).into()
    }
}

impl ToSchema for EvalStatus {}
