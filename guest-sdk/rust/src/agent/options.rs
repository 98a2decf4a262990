//! Options of an [`LlmAgent`](crate::LlmAgent): toolsets, examples, planners and code execution.

use serde_json::Value;

use crate::code::CodeExecutorRef;
use crate::content::JsonMap;
use crate::examples::Example;

/// A toolset, which is resolved when its agent runs. It has all its tools, unless [`only`](Toolset::only) selects some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset {
    pub(super) name: String,
    pub(super) only: Vec<String>,
    pub(super) prefix: Option<String>,
}

impl Toolset {
    /// Refers to the toolset with this name. A component's name is the set of all its tools.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), only: Vec::new(), prefix: None }
    }

    /// Selects these tools, by their own names.
    #[must_use]
    pub fn only<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.only = tools.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a prefix to the names of the tools, as the model sees them.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }
}

impl From<&str> for Toolset {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The part of the history that a model sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeContents {
    /// The history of the session.
    #[default]
    Default,
    /// The current turn only.
    None,
}

/// The source of the examples.
#[derive(Default)]
pub(super) enum Examples {
    #[default]
    None,
    Fixed(Vec<Example>),
    Chosen(String),
}

/// Planning of the model before it acts.
#[derive(Debug, Clone, PartialEq)]
pub enum Planner {
    /// The model's built-in thinking.
    Thinking(Thinking),
    /// An instruction to write a plan, to follow it, and to mark the final answer.
    PlanReAct,
}

impl From<Thinking> for Planner {
    fn from(thinking: Thinking) -> Self {
        Self::Thinking(thinking)
    }
}

/// Settings of the model's built-in thinking, as in Gemini's `thinkingConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thinking(pub(super) JsonMap);

impl Thinking {
    /// Creates settings without changes to the model's defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of thinking tokens. 0 disables thinking; -1 lets the model decide.
    #[must_use]
    pub fn budget(self, tokens: i32) -> Self {
        self.with("thinkingBudget", tokens)
    }

    /// Includes the model's thoughts in its answers, marked as thoughts.
    #[must_use]
    pub fn include_thoughts(self) -> Self {
        self.with("includeThoughts", true)
    }

    /// Sets another field of `thinkingConfig`.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }
}

/// The place where code of the model runs.
#[derive(Default)]
pub(super) enum CodeExecution {
    #[default]
    Disabled,
    BuiltIn,
    Host(CodeRunner),
}

/// Code execution by the host: an executor and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRunner {
    pub(super) executor: String,
    pub(super) error_retries: Option<u32>,
    pub(super) stateful: bool,
    pub(super) optimize_data_file: bool,
    pub(super) code_delimiters: Vec<(String, String)>,
    pub(super) result_delimiters: Option<(String, String)>,
}

impl CodeRunner {
    /// Uses this executor: a function marked `#[code_executor]`, or a name.
    pub fn new(executor: impl CodeExecutorRef) -> Self {
        Self {
            executor: executor.executor_name(),
            error_retries: None,
            stateful: false,
            optimize_data_file: false,
            code_delimiters: Vec::new(),
            result_delimiters: None,
        }
    }

    /// Sets how often in one run the model may try again after failed code. The default is 2.
    #[must_use]
    pub fn error_retries(mut self, times: u32) -> Self {
        self.error_retries = Some(times);
        self
    }

    /// Keeps the state of earlier code of the session, if the executor supports that.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.stateful = true;
        self
    }

    /// Adds delimiters of code in the model's responses. The first call replaces the defaults; the pairs are tried in
    /// order.
    #[must_use]
    pub fn code_delimiters(mut self, open: impl Into<String>, close: impl Into<String>) -> Self {
        self.code_delimiters.push((open.into(), close.into()));
        self
    }

    /// Sets the delimiters of results in the prompt.
    #[must_use]
    pub fn result_delimiters(mut self, open: impl Into<String>, close: impl Into<String>) -> Self {
        self.result_delimiters = Some((open.into(), close.into()));
        self
    }

    /// Keeps data files (CSV) in messages out of the prompt, and passes them to the code instead.
    #[must_use]
    pub fn optimize_data_file(mut self) -> Self {
        self.optimize_data_file = true;
        self
    }
}

impl<E: CodeExecutorRef> From<E> for CodeRunner {
    fn from(executor: E) -> Self {
        Self::new(executor)
    }
}
