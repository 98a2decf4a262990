//! Results of several runs of a case as one.

use serde::Serialize;

use crate::result::{EvalCaseResult, EvalSetResult, EvalStatus};

/// A case with the means of its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaseSummary {
    /// The id of the case.
    pub eval_id: String,
    /// Failed if a run has ended with an error or the mean of a metric is below its threshold.
    pub eval_status: EvalStatus,
    /// Number of runs.
    pub runs: usize,
    /// Number of runs that have passed on their own.
    pub passed_runs: usize,
    /// The means, in the order of the metrics.
    pub metrics: Vec<MetricSummary>,
    /// The errors of runs, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// The mean score of the runs of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricSummary {
    pub metric_name: &'static str,
    /// The lowest score that passes.
    pub threshold: f64,
    /// The mean; `None` if no run has a score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The outcome of the mean.
    pub eval_status: EvalStatus,
    /// The reason of the first run that has not passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// Combines the runs of each case, in the order of the cases.
pub fn summarize(result: &EvalSetResult) -> Vec<CaseSummary> {
    let mut ids: Vec<&str> = Vec::new();
    for run in &result.eval_case_results {
        if !ids.contains(&run.eval_id.as_str()) {
            ids.push(&run.eval_id);
        }
    }
    let of_case = |id: &str| {
        let runs: Vec<_> = result.eval_case_results.iter().filter(|run| run.eval_id == id).collect();
        summarize_case(id, &runs)
    };
    ids.into_iter().map(of_case).collect()
}

fn summarize_case(id: &str, runs: &[&EvalCaseResult]) -> CaseSummary {
    let count = runs.first().map_or(0, |run| run.overall_eval_metric_results.len());
    let metrics: Vec<_> = (0..count).filter_map(|index| summarize_metric(index, runs)).collect();
    let mut errors: Vec<String> = Vec::new();
    for error in runs.iter().filter_map(|run| run.error_message.as_ref()) {
        if !errors.contains(error) {
            errors.push(error.clone());
        }
    }
    let eval_status = if errors.is_empty() {
        EvalStatus::all(metrics.iter().map(|metric| metric.eval_status))
    } else {
        EvalStatus::Failed
    };
    CaseSummary {
        eval_id: id.into(),
        eval_status,
        runs: runs.len(),
        passed_runs: runs.iter().filter(|run| run.final_eval_status == EvalStatus::Passed).count(),
        metrics,
        errors,
    }
}

fn summarize_metric(index: usize, runs: &[&EvalCaseResult]) -> Option<MetricSummary> {
    let results: Vec<_> = runs.iter().filter_map(|run| run.overall_eval_metric_results.get(index)).collect();
    let first = results.first()?;
    let scores: Vec<f64> = results.iter().filter_map(|result| result.score).collect();
    let score = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
    let decisive = results.iter().find(|result| result.eval_status != EvalStatus::Passed);
    Some(MetricSummary {
        metric_name: first.metric_name,
        threshold: first.threshold,
        score,
        eval_status: EvalStatus::from_score(score, first.threshold),
        explanation: decisive.and_then(|result| result.details.as_ref()).map(|details| details.explanation.clone()),
    })
}
