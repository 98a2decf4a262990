//! The metrics: each scores a turn against the expected one.

pub(crate) mod judge;
pub mod rouge;
mod stem;
pub(crate) mod trajectory;

use hatchery_core::ModelResolver;

use crate::criteria::{Criterion, Metric};
use crate::eval_set::InvocationRecord;
use crate::result::{EvalStatus, MetricResult};

/// Scores one turn by one metric.
pub(crate) async fn score(
    metric: &Metric,
    actual: &InvocationRecord,
    expected: &InvocationRecord,
    models: &dyn ModelResolver,
) -> MetricResult {
    let unknown_response = || {
        let explanation = "the case has no expected final response".to_owned();
        MetricResult::new(metric, None, Some(explanation))
    };
    match &metric.criterion {
        Criterion::ToolTrajectory(match_type) => {
            let is_match = trajectory::matches(*match_type, &actual.tool_calls(), &expected.tool_calls());
            MetricResult::new(metric, Some(if is_match { 1.0 } else { 0.0 }), None)
        }
        Criterion::ResponseMatch => {
            let Some(reference) = expected.response_text() else { return unknown_response() };
            let response = actual.response_text().unwrap_or_default();
            MetricResult::new(metric, Some(rouge::rouge1_f_measure(&response, &reference)), None)
        }
        Criterion::FinalResponseMatch(options) => {
            let Some(reference) = expected.response_text() else { return unknown_response() };
            let response = actual.response_text().unwrap_or_default();
            let question = expected.user_content.text();
            let verdict = judge::judge(options, models, &question, &response, &reference).await;
            MetricResult::new(metric, verdict.score, Some(verdict.explanation))
        }
    }
}

/// Returns the mean of the scores of a metric. Turns without a score do not count.
pub(crate) fn mean(metric: &Metric, results: &[&MetricResult]) -> MetricResult {
    let scores: Vec<f64> = results.iter().filter_map(|result| result.score).collect();
    let score = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
    // The first result that did not pass explains the mean.
    let decisive = results.iter().find(|result| result.eval_status != EvalStatus::Passed);
    let explanation = decisive.and_then(|result| result.details.as_ref()).map(|details| details.explanation.clone());
    MetricResult::new(metric, score, explanation)
}
