//! Results of evaluations, in the JSON of ADK.

use hatchery_core::Timestamp;
use serde::{Serialize, Serializer};

use crate::criteria::Metric;
use crate::eval_set::InvocationRecord;

/// Maximum number of characters of an app's name in the id of a result. With a set and a time it can be the name of a
/// file.
const MAX_APP_NAME: usize = 80;

/// The outcome of a metric or a case. A number in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalStatus {
    /// 1: the score reaches the threshold.
    Passed,
    /// 2: it does not, or the run failed.
    Failed,
    /// 3: there is no score.
    NotEvaluated,
}

impl EvalStatus {
    /// Returns the status of a score.
    pub fn from_score(score: Option<f64>, threshold: f64) -> Self {
        match score {
            // A mean of thirds and sevenths may miss a threshold by its last digit.
            Some(score) if score + 1e-9 >= threshold => Self::Passed,
            Some(_) => Self::Failed,
            None => Self::NotEvaluated,
        }
    }

    /// Returns the status of a whole: failed if a part has failed, passed if a part has passed and none has failed.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::NotEvaluated, |whole, part| match (whole, part) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Passed, _) | (_, Self::Passed) => Self::Passed,
            (Self::NotEvaluated, Self::NotEvaluated) => Self::NotEvaluated,
        })
    }

    /// Returns the number of the status in ADK's JSON.
    pub fn number(self) -> u8 {
        match self {
            Self::Passed => 1,
            Self::Failed => 2,
            Self::NotEvaluated => 3,
        }
    }
}

impl Serialize for EvalStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

/// The score of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricResult {
    pub metric_name: &'static str,
    /// The lowest score that passes.
    pub threshold: f64,
    /// The metric with its settings.
    pub criterion: Metric,
    /// 0 to 1; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The outcome of the metric.
    pub eval_status: EvalStatus,
    /// The reason for the score, if the metric has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<MetricDetails>,
}

/// Details of a score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricDetails {
    /// The reason of the score, or why there is none.
    pub explanation: String,
}

impl MetricResult {
    pub(crate) fn new(metric: &Metric, score: Option<f64>, explanation: Option<String>) -> Self {
        Self {
            metric_name: metric.name(),
            threshold: metric.threshold,
            criterion: metric.clone(),
            score,
            eval_status: EvalStatus::from_score(score, metric.threshold),
            details: explanation.map(|explanation| MetricDetails { explanation }),
        }
    }
}

/// The scores of one turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationResult {
    /// The recorded turn.
    pub actual_invocation: InvocationRecord,
    /// The turn that the case expects.
    pub expected_invocation: InvocationRecord,
    /// The scores, in the order of the metrics.
    pub eval_metric_results: Vec<MetricResult>,
}

/// The result of one run of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvalCaseResult {
    pub eval_set_id: String,
    /// The id of the case.
    pub eval_id: String,
    /// The outcome of all metrics.
    pub final_eval_status: EvalStatus,
    /// The means of all turns, in the order of the metrics.
    pub overall_eval_metric_results: Vec<MetricResult>,
    /// The scores of each turn that was run.
    pub eval_metric_result_per_invocation: Vec<InvocationResult>,
    /// The session of the run.
    pub session_id: String,
    /// The user of the run.
    pub user_id: String,
    /// The reason why the run did not end as it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// The results of an evaluation of a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvalSetResult {
    /// `{app}_{set}_{time}`, with the first 80 characters of the app's name.
    pub eval_set_result_id: String,
    /// The human-readable form, with the whole name.
    pub eval_set_result_name: String,
    pub eval_set_id: String,
    /// The results of each run of each case, in the order of the cases.
    pub eval_case_results: Vec<EvalCaseResult>,
    /// When the evaluation ended.
    pub creation_timestamp: Timestamp,
}

impl EvalSetResult {
    /// Names the results of a set by the current time.
    pub(crate) fn new(app: &str, set: &str, eval_case_results: Vec<EvalCaseResult>) -> Self {
        let now = Timestamp::now();
        let rest = format!("_{set}_{}", now.as_seconds());
        // An app may have any name; an id is part of a path and of a file's name.
        let id = app.chars().take(MAX_APP_NAME).chain(rest.chars());
        let id = id.map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' }).collect();
        Self {
            eval_set_result_id: id,
            eval_set_result_name: format!("{app}{rest}"),
            eval_set_id: set.into(),
            eval_case_results,
            creation_timestamp: now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_metric_fails_a_case_and_metrics_without_a_score_do_not_count() {
        use EvalStatus::{Failed, NotEvaluated, Passed};
        assert_eq!(EvalStatus::all([Passed, NotEvaluated]), Passed);
        assert_eq!(EvalStatus::all([Passed, Failed, NotEvaluated]), Failed);
        assert_eq!(EvalStatus::all([NotEvaluated]), NotEvaluated);
        assert_eq!([Passed, Failed, NotEvaluated].map(EvalStatus::number), [1, 2, 3]);
    }

    #[test]
    fn a_score_that_misses_by_rounding_passes() {
        assert_eq!(EvalStatus::from_score(Some((0.7 + 0.7 + 0.7) / 3.0), 0.7), EvalStatus::Passed);
        assert_eq!(EvalStatus::from_score(Some(0.699), 0.7), EvalStatus::Failed);
        assert_eq!(EvalStatus::from_score(None, 0.0), EvalStatus::NotEvaluated);
    }

    #[test]
    fn the_id_of_a_result_can_be_part_of_a_path() {
        let result = EvalSetResult::new("my app/é", "set", Vec::new());
        assert!(result.eval_set_result_id.starts_with("my_app___set_"), "{}", result.eval_set_result_id);
    }
}
