//! The outcome of a command and its exit code.

use std::process::ExitCode;

use crate::interrupts;

/// The outcome of a command. Errors in its arguments or its environment are `Err` instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Success,
    /// Exit code 1. The command has printed the failure.
    Failure,
    /// Exit code 3: a tool call needs approval or a credential, and there is no terminal to ask for it. The command has
    /// printed what to do.
    AnswerRequired,
    /// Exit code 130: a signal stopped the command.
    Interrupted,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::SUCCESS,
            Outcome::Failure => Self::FAILURE,
            Outcome::AnswerRequired => Self::from(3),
            Outcome::Interrupted => Self::from(interrupts::EXIT_CODE),
        }
    }
}
