//! Errors of eval sets, metrics and results. Each has a stable code and a next step.

use std::io;

use hatchery_core::StoreError;
use thiserror::Error;

/// An error of the evaluation service.
#[derive(Debug, Error)]
pub enum EvalError {
    /// The app has no such set.
    #[error("eval set not found: {id}; the sets of `{app}`: {known}")]
    SetNotFound { app: String, id: String, known: String },
    /// The app has a set with this id already.
    #[error("eval set `{0}` already exists; choose another id, or delete the set first")]
    SetExists(String),
    /// The set has no such case.
    #[error("eval case not found: {case}; GET …/eval_sets/{set}/evals lists the cases")]
    CaseNotFound { set: String, case: String },
    /// The set has a case with this id already.
    #[error("eval set `{set}` already has a case `{case}`; choose another id, or delete the case first")]
    CaseExists { set: String, case: String },
    /// The set is a file next to its agent.
    #[error(
        "eval set `{0}` is a file of the app, which the host does not change; edit the file, or create another set"
    )]
    SetOfApp(String),
    /// The app has no such result.
    #[error("eval result not found: {0}")]
    ResultNotFound(String),
    /// An id cannot be used.
    #[error("invalid {what} id `{}`: it has 1 to {max} letters, digits, `_`, `-` and `.`, and does not begin with `.`", id.escape_debug())]
    InvalidId { what: &'static str, id: String, max: usize },
    /// The JSON has another shape.
    #[error("{source_name} is not an eval set: {reason}")]
    InvalidFile { source_name: String, reason: String },
    /// The criteria have another shape.
    #[error("{source_name}: {reason}")]
    InvalidCriteria { source_name: String, reason: String },
    /// The request cannot be carried out.
    #[error("{0}")]
    InvalidRequest(String),
    /// A limit is reached.
    #[error("{0}")]
    TooLarge(String),
    /// As many evaluations as allowed are in progress.
    #[error("{0} evaluations are in progress, which is the maximum; try again when one has ended")]
    Busy(usize),
    /// A session cannot be read or created.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read or written.
    #[error("the files of evaluations cannot be used: {0}")]
    File(#[from] io::Error),
}

impl EvalError {
    pub(crate) fn invalid_file(source: &str, reason: impl ToString) -> Self {
        Self::InvalidFile { source_name: source.into(), reason: reason.to_string() }
    }

    pub(crate) fn invalid_criteria(source: &str, reason: impl ToString) -> Self {
        Self::InvalidCriteria { source_name: source.into(), reason: reason.to_string() }
    }

    /// Returns the stable code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SetNotFound { .. } => "EVAL_SET_NOT_FOUND",
            Self::SetExists(_) => "EVAL_SET_EXISTS",
            Self::CaseNotFound { .. } => "EVAL_CASE_NOT_FOUND",
            Self::CaseExists { .. } => "EVAL_CASE_EXISTS",
            Self::SetOfApp(_) => "EVAL_SET_READ_ONLY",
            Self::ResultNotFound(_) => "EVAL_RESULT_NOT_FOUND",
            Self::InvalidId { .. } => "INVALID_NAME",
            Self::InvalidFile { .. } => "INVALID_EVAL_SET",
            Self::InvalidCriteria { .. } => "INVALID_CRITERIA",
            Self::InvalidRequest(_) => "BAD_INPUT",
            Self::TooLarge(_) => "EVAL_TOO_LARGE",
            Self::Busy(_) => "BUSY",
            Self::Store(error) => error.code(),
            Self::File(_) => "EVAL_FILES_FAILED",
        }
    }
}
