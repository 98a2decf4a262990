//! Metrics with their thresholds: from a request, from `test_config.json`, or by default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::EvalError;
use crate::json::from_object;

pub(crate) const TOOL_TRAJECTORY: &str = "tool_trajectory_avg_score";
pub(crate) const RESPONSE_MATCH: &str = "response_match_score";
pub(crate) const FINAL_RESPONSE_MATCH: &str = "final_response_match_v2";

const METRICS: [&str; 3] = [TOOL_TRAJECTORY, RESPONSE_MATCH, FINAL_RESPONSE_MATCH];

/// Maximum number of answers of the judge per turn.
const MAX_SAMPLES: u32 = 25;

/// A metric with the lowest score that passes. Its JSON is a criterion of ADK, which has the threshold too.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    /// The comparison of the metric.
    #[serde(flatten)]
    pub criterion: Criterion,
    /// 0 to 1.
    pub threshold: f64,
}

/// Comparison of a turn with the expected one.
#[derive(Debug, Clone, PartialEq)]
pub enum Criterion {
    /// `tool_trajectory_avg_score`: the names and arguments of the tool calls.
    ToolTrajectory(MatchType),
    /// `response_match_score`: the words of the final response, by ROUGE-1.
    ResponseMatch,
    /// `final_response_match_v2`: the meaning of the final response, by a model.
    FinalResponseMatch(JudgeOptions),
}

/// Rule for the calls that match, and their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MatchType {
    /// The expected calls, in order, and no others.
    #[default]
    Exact,
    /// The expected calls, in order, with any others in between.
    InOrder,
    /// The expected calls, in any order, and any others.
    AnyOrder,
}

/// The model that judges.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgeOptions {
    /// Its name, as in an agent.
    pub judge_model: String,
    /// Number of answers of the judge; the majority decides.
    pub num_samples: u32,
}

impl Default for JudgeOptions {
    fn default() -> Self {
        Self { judge_model: "gemini-2.5-flash".into(), num_samples: 5 }
    }
}

impl MatchType {
    fn label(self) -> &'static str {
        match self {
            Self::Exact => "EXACT",
            Self::InOrder => "IN_ORDER",
            Self::AnyOrder => "ANY_ORDER",
        }
    }

    /// Reads a name, or the number that ADK writes for it.
    fn parse(value: &Value) -> Result<Self, String> {
        let all = [Self::Exact, Self::InOrder, Self::AnyOrder];
        let by_number = value.as_u64().and_then(|number| all.get(usize::try_from(number).ok()?));
        let by_name = || {
            let name = value.as_str()?;
            all.iter().find(|it| it.label().eq_ignore_ascii_case(name))
        };
        by_number
            .or_else(by_name)
            .copied()
            .ok_or_else(|| format!("{value} is not a match type; they are EXACT, IN_ORDER and ANY_ORDER"))
    }
}

impl Serialize for Criterion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = match self {
            Self::ToolTrajectory(match_type) => json!({"matchType": match_type.label()}),
            Self::ResponseMatch => json!({}),
            Self::FinalResponseMatch(judge) => json!({"judgeModelOptions": judge}),
        };
        json.serialize(serializer)
    }
}

impl Metric {
    /// Returns the name that files and clients use.
    pub fn name(&self) -> &'static str {
        match self.criterion {
            Criterion::ToolTrajectory(_) => TOOL_TRAJECTORY,
            Criterion::ResponseMatch => RESPONSE_MATCH,
            Criterion::FinalResponseMatch(_) => FINAL_RESPONSE_MATCH,
        }
    }

    /// Converts an entry of `evalMetrics` of a request: `{"metricName", "threshold", "criterion"}`.
    ///
    /// # Errors
    /// [`EvalError::InvalidCriteria`] if there is no such metric, or a setting is invalid.
    pub fn from_value(value: Value) -> Result<Self, EvalError> {
        let invalid = |reason: String| EvalError::invalid_criteria("evalMetrics", reason);
        let json: MetricJson = from_object(value).map_err(invalid)?;
        let mut criterion = json.criterion.unwrap_or_default();
        criterion.threshold = json.threshold.or(criterion.threshold);
        criterion.judge_model_options = criterion.judge_model_options.or(json.judge_model_options);
        Self::new(&json.metric_name, criterion).map_err(invalid)
    }

    fn new(name: &str, json: CriterionJson) -> Result<Self, String> {
        let (criterion, default_threshold) = match name {
            TOOL_TRAJECTORY => {
                let match_type = json.match_type.as_ref().map(MatchType::parse).transpose()?.unwrap_or_default();
                (Criterion::ToolTrajectory(match_type), 1.0)
            }
            RESPONSE_MATCH => (Criterion::ResponseMatch, 0.8),
            FINAL_RESPONSE_MATCH => {
                let judge = json.judge_model_options.unwrap_or_default().options()?;
                (Criterion::FinalResponseMatch(judge), 0.8)
            }
            _ => {
                let name = name.escape_debug();
                return Err(format!("there is no metric `{name}`; the metrics are {}", METRICS.join(", ")));
            }
        };
        let threshold = json.threshold.unwrap_or(default_threshold);
        if !(0.0..=1.0).contains(&threshold) {
            return Err(format!("the threshold of `{name}` is {threshold}; it must be a number from 0 to 1"));
        }
        Ok(Self { criterion, threshold })
    }
}

/// An entry of `evalMetrics`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricJson {
    #[serde(alias = "metric_name")]
    metric_name: String,
    threshold: Option<f64>,
    criterion: Option<CriterionJson>,
    #[serde(alias = "judge_model_options")]
    judge_model_options: Option<JudgeJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CriterionJson {
    threshold: Option<f64>,
    #[serde(alias = "match_type")]
    match_type: Option<Value>,
    #[serde(alias = "judge_model_options")]
    judge_model_options: Option<JudgeJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JudgeJson {
    #[serde(alias = "judge_model")]
    judge_model: Option<String>,
    #[serde(alias = "num_samples")]
    num_samples: Option<u32>,
}

impl JudgeJson {
    fn options(self) -> Result<JudgeOptions, String> {
        let default = JudgeOptions::default();
        let num_samples = self.num_samples.unwrap_or(default.num_samples);
        if !(1..=MAX_SAMPLES).contains(&num_samples) {
            return Err(format!("`numSamples` is {num_samples}; it must be a number from 1 to {MAX_SAMPLES}"));
        }
        Ok(JudgeOptions { judge_model: self.judge_model.unwrap_or(default.judge_model), num_samples })
    }
}

/// Parses `test_config.json`: `{"criteria": {METRIC: THRESHOLD or {"threshold", …}}}`. `source` is named in errors.
///
/// # Errors
/// [`EvalError::InvalidCriteria`] if there is no such metric, or a setting is invalid.
pub fn parse_test_config(json: &[u8], source: &str) -> Result<Vec<Metric>, EvalError> {
    #[derive(Deserialize)]
    struct TestConfig {
        criteria: BTreeMap<String, Entry>,
    }

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a threshold, such as 0.8, or an object such as {\"threshold\": 0.8}")]
    enum Entry {
        Threshold(f64),
        Criterion(CriterionJson),
    }

    let invalid = |reason: String| EvalError::invalid_criteria(source, reason);
    let value: Value = serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
    let config: TestConfig = from_object(value).map_err(invalid)?;
    let metric = |(name, entry): (String, Entry)| {
        let criterion = match entry {
            Entry::Threshold(threshold) => CriterionJson { threshold: Some(threshold), ..CriterionJson::default() },
            Entry::Criterion(criterion) => criterion,
        };
        Metric::new(&name, criterion).map_err(invalid)
    };
    let mut metrics: Vec<_> = config.criteria.into_iter().map(metric).collect::<Result<_, _>>()?;
    metrics.sort_by_key(|metric| METRICS.iter().position(|name| *name == metric.name()));
    Ok(metrics)
}

/// Returns the metrics of an evaluation that names none: the exact tool calls, and 80 % of the words.
pub fn default_metrics() -> Vec<Metric> {
    vec![
        Metric { criterion: Criterion::ToolTrajectory(MatchType::default()), threshold: 1.0 },
        Metric { criterion: Criterion::ResponseMatch, threshold: 0.8 },
    ]
}

/// Returns the descriptions of all metrics, as `metrics-info` lists them.
pub fn metric_infos() -> Value {
    let descriptions = [
        (TOOL_TRAJECTORY, "The share of turns whose tool calls have the expected names and arguments."),
        (RESPONSE_MATCH, "The words that the final response and the expected one share (ROUGE-1)."),
        (
            FINAL_RESPONSE_MATCH,
            "The share of turns whose final response means the same as the expected one, as a model judges.",
        ),
    ];
    let infos = descriptions.map(|(name, description)| {
        json!({
            "metricName": name,
            "description": description,
            "metricValueInfo": {"interval": {"minValue": 0.0, "openAtMin": false, "maxValue": 1.0, "openAtMax": false}},
            "requiresThreshold": true,
        })
    });
    Value::from(infos.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: Value) -> Result<Vec<Metric>, String> {
        parse_test_config(json.to_string().as_bytes(), "test_config.json").map_err(|error| error.to_string())
    }

    #[test]
    fn a_test_config_has_thresholds_or_criteria() {
        let metrics = config(json!({"criteria": {
            "response_match_score": 0.5,
            "tool_trajectory_avg_score": {"threshold": 0.9, "match_type": "in_order"},
            "final_response_match_v2": {
                "threshold": null, "judge_model_options": {"judge_model": "gpt-5", "num_samples": 3},
            },
        }}));
        let judge = JudgeOptions { judge_model: "gpt-5".into(), num_samples: 3 };
        assert_eq!(
            metrics.unwrap(),
            [
                Metric { criterion: Criterion::ToolTrajectory(MatchType::InOrder), threshold: 0.9 },
                Metric { criterion: Criterion::ResponseMatch, threshold: 0.5 },
                Metric { criterion: Criterion::FinalResponseMatch(judge), threshold: 0.8 },
            ]
        );
    }

    #[test]
    fn a_request_spells_metrics_in_either_way() {
        for value in [
            json!({"metricName": TOOL_TRAJECTORY, "threshold": 0.5, "criterion": {"matchType": 2}}),
            json!({"metric_name": TOOL_TRAJECTORY, "threshold": 0.5, "criterion": {"threshold": 1, "match_type": "ANY_ORDER"}}),
        ] {
            let metric = Metric::from_value(value).unwrap();
            assert_eq!(metric, Metric { criterion: Criterion::ToolTrajectory(MatchType::AnyOrder), threshold: 0.5 });
        }
        let judge =
            Metric::from_value(json!({"metricName": FINAL_RESPONSE_MATCH, "judgeModelOptions": {"numSamples": 1}}));
        let expected = JudgeOptions { judge_model: "gemini-2.5-flash".into(), num_samples: 1 };
        assert_eq!(judge.unwrap().criterion, Criterion::FinalResponseMatch(expected));
    }

    #[test]
    fn settings_that_cannot_be_used_are_errors() {
        let expected = [
            (
                json!({"safety_v1": 1}),
                "there is no metric `safety_v1`; the metrics are tool_trajectory_avg_score, response_match_score, final_response_match_v2",
            ),
            (
                json!({"response_match_score": 80}),
                "the threshold of `response_match_score` is 80; it must be a number from 0 to 1",
            ),
            (
                json!({"tool_trajectory_avg_score": {"matchType": "SOME"}}),
                "\"SOME\" is not a match type; they are EXACT, IN_ORDER and ANY_ORDER",
            ),
            (
                json!({"final_response_match_v2": {"judgeModelOptions": {"numSamples": 26}}}),
                "`numSamples` is 26; it must be a number from 1 to 25",
            ),
        ];
        for (criteria, reason) in expected {
            assert_eq!(config(json!({"criteria": criteria})).unwrap_err(), format!("test_config.json: {reason}"));
        }
        assert!(config(json!({})).unwrap_err().starts_with("test_config.json: missing field `criteria`"));
        assert_eq!(config(json!([])).unwrap_err(), "test_config.json: it must be a JSON object");
        assert_eq!(
            config(json!({"criteria": {"response_match_score": "high"}})).unwrap_err(),
            "test_config.json: criteria.response_match_score: expected a threshold, such as 0.8, or an object such as \
             {\"threshold\": 0.8}"
        );
    }

    #[test]
    fn every_metric_is_described() {
        let infos = metric_infos();
        let names: Vec<_> = infos.as_array().unwrap().iter().map(|info| info["metricName"].as_str().unwrap()).collect();
        assert_eq!(names, METRICS);
    }
}
