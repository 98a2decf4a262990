//! What an [`LlmAgent`](crate::LlmAgent) can be given beside tools and instructions: sets of tools, examples, a planner, and somebody who
//! runs code.

use serde_json::Value;

use crate::code::CodeExecutorRef;
use crate::content::JsonMap;
use crate::examples::Example;

/// A set of tools that is looked up when its agent runs: all of it, unless [`only`](Toolset::only) says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset {
    pub(super) name: String,
    pub(super) only: Vec<String>,
    pub(super) prefix: Option<String>,
}

impl Toolset {
    /// All tools of the set of this name; a component's name stands for all its tools.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), only: Vec::new(), prefix: None }
    }

    /// Only these tools of it, by their own names.
    #[must_use]
    pub fn only<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.only = tools.into_iter().map(Into::into).collect();
        self
    }

    /// Puts this before the tools' names as the model sees them.
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

/// Where examples come from.
#[derive(Default)]
pub(super) enum Examples {
    #[default]
    None,
    Fixed(Vec<Example>),
    Chosen(String),
}

/// How a model is made to think before it acts.
#[derive(Debug, Clone, PartialEq)]
pub enum Planner {
    /// The model's own thinking.
    Thinking(Thinking),
    /// It is told to write a plan, to follow it, and to mark its final answer.
    PlanReAct,
}

impl From<Thinking> for Planner {
    fn from(thinking: Thinking) -> Self {
        Self::Thinking(thinking)
    }
}

/// Settings of a model's own thinking, as in Gemini's `thinkingConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thinking(pub(super) JsonMap);

impl Thinking {
    /// The model's own settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Most tokens that it may think; 0 for no thinking, -1 when the model is to decide.
    #[must_use]
    pub fn budget(self, tokens: i32) -> Self {
        self.with("thinkingBudget", tokens)
    }

    /// Its thoughts are told too, marked as such.
    #[must_use]
    pub fn include_thoughts(self) -> Self {
        self.with("includeThoughts", true)
    }

    /// Another setting, by its name in `thinkingConfig`.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }
}

/// Who runs the code that a model writes.
#[derive(Default)]
pub(super) enum CodeExecution {
    #[default]
    Nobody,
    BuiltIn,
    Host(CodeRunner),
}

/// How the host runs a model's code: an executor and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRunner {
    pub(super) executor: String,
    pub(super) error_retries: Option<u32>,
    pub(super) stateful: bool,
    pub(super) optimize_data_file: bool,
}

impl CodeRunner {
    /// This executor: a function marked `#[code_executor]`, or a name.
    pub fn new(executor: impl CodeExecutorRef) -> Self {
        Self { executor: executor.executor_name(), error_retries: None, stateful: false, optimize_data_file: false }
    }

    /// How often in one run the model may try again after code that failed; 2 by default.
    #[must_use]
    pub fn error_retries(mut self, times: u32) -> Self {
        self.error_retries = Some(times);
        self
    }

    /// Code of one session finds what earlier code of it has left, if the executor keeps it.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.stateful = true;
        self
    }

    /// Data files (CSV) in messages are kept out of the prompt and handed to the code instead.
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
