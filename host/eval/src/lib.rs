//! Evaluation of agents: conversations with expected tool calls and responses ([`EvalSet`]), runs of an app on them,
//! metrics that score the runs, and stored results.
//!
//! Files and JSON have the format of ADK. [`Evaluations`] is the whole as a service; it keeps sets and results in an
//! [`EvalStore`]. Dropping the future of an evaluation cancels its runs.

mod criteria;
mod error;
mod eval_set;
mod evaluations;
mod evaluator;
mod json;
mod metrics;
mod record;
mod result;
mod store;
mod summary;

pub use criteria::{Criterion, JudgeOptions, MatchType, Metric, default_metrics, metric_infos, parse_test_config};
pub use error::EvalError;
pub use eval_set::{EvalCase, EvalSet, IntermediateData, InvocationEvent, InvocationRecord, SessionInput};
pub use evaluations::{EvalRequest, Evaluations};
pub use evaluator::{EVAL_SESSION_PREFIX, EvalOptions, MAX_RUNS, Progress};
pub use json::to_snake_case;
pub use result::{EvalCaseResult, EvalSetResult, EvalStatus, InvocationResult, MetricDetails, MetricResult};
pub use store::EvalStore;
pub use summary::{CaseSummary, MetricSummary, summarize};
