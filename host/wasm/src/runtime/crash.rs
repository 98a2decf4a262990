//! Crash reports: traps and panics of guests in plain words.

use std::fmt;

use hatchery_core::truncate_chars;
use wasmtime::Trap;

/// The reason for a guest's crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crash {
    /// The crash as a clause, such as "it panicked: no such key".
    reason: String,
    /// A remedy for the author or the operator; empty if none is known.
    advice: &'static str,
    /// The end of stderr, with the location of a panic.
    stderr: String,
}

/// Texts that runtimes write when an allocation fails.
const ALLOCATION_FAILURES: [&str; 3] = ["memory allocation of", "out of memory", "MemoryError"];

/// A longer message of a panic is cut to this many characters in [`Crash::reason`].
const MAX_PANIC_CHARS: usize = 200;

impl Crash {
    /// Describes the error of a guest. `stderr` is the end of its standard error, on one line.
    pub(crate) fn new(error: &wasmtime::Error, stderr: String) -> Self {
        let trap = error.downcast_ref::<Trap>().copied();
        let (reason, advice) = match trap {
            Some(Trap::UnreachableCodeReached) => describe_abort(&stderr),
            Some(trap) => {
                let (cause, advice) = describe(trap);
                (format!("it crashed: {}", cause.map_or_else(|| trap.to_string(), str::to_owned)), advice)
            }
            None => (format!("it crashed: {}", error.root_cause()), ""),
        };
        Self { reason, advice, stderr }
    }

    /// Returns the reason, without advice and without the source location.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        if !self.stderr.is_empty() {
            write!(f, "; it wrote to stderr: {}", self.stderr)?;
        }
        Ok(())
    }
}

/// Returns the reason and the advice for an abort, which most runtimes explain on stderr.
fn describe_abort(stderr: &str) -> (String, &'static str) {
    if ALLOCATION_FAILURES.iter().any(|words| stderr.contains(words)) {
        return ("it ran out of memory".into(), "use less, or raise `limits.memory` of the component in hatchery.yaml");
    }
    match panic_message(stderr) {
        Some(message) => (format!("it panicked: {message}"), ""),
        None => ("it crashed: abort, failed assertion or uncaught exception".into(), ""),
    }
}

/// Returns the message of the last Rust panic in `stderr`, which follows its location.
fn panic_message(stderr: &str) -> Option<String> {
    let (_, panic) = stderr.rsplit_once("panicked at ")?;
    let (_, message) = panic.split_once(": ")?;
    (!message.is_empty()).then(|| truncate_chars(message, MAX_PANIC_CHARS))
}

/// Returns a description of a trap (`None` if Wasmtime's is as good) and advice.
fn describe(trap: Trap) -> (Option<&'static str>, &'static str) {
    let (cause, advice) = match trap {
        Trap::MemoryOutOfBounds | Trap::ArrayOutOfBounds => {
            ("memory access out of bounds", "check indices and pointers in unsafe code and in C")
        }
        Trap::StackOverflow => ("stack overflow", "check for recursion without an end"),
        Trap::IntegerDivisionByZero => ("integer division by zero", "check the divisor first"),
        Trap::IntegerOverflow => ("integer overflow", "check the operands first"),
        Trap::BadConversionToInteger => (
            "conversion of a number that does not fit into an integer",
            "check for numbers that are too large, infinite or NaN",
        ),
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature | Trap::NullReference => {
            ("call of a function that does not exist", "check function pointers, or rebuild the component")
        }
        Trap::AllocationTooLarge => ("allocation too large", "check the size that it computes"),
        Trap::NoAsyncResult | Trap::AsyncDeadlock => (
            "it ended without a result",
            "it waits for something that never happens, such as a promise that is never resolved",
        ),
        _ => return (None, ""),
    };
    (Some(cause), advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(trap: Trap, stderr: &str) -> Crash {
        Crash::new(&wasmtime::Error::from(trap), stderr.into())
    }

    #[test]
    fn traps_are_described_with_the_next_step() {
        for (trap, text) in [
            (Trap::IntegerDivisionByZero, "integer division by zero; check the divisor first"),
            (Trap::StackOverflow, "stack overflow; check for recursion without an end"),
            (
                Trap::MemoryOutOfBounds,
                "memory access out of bounds; check indices and pointers in unsafe code and in C",
            ),
            (
                Trap::NoAsyncResult,
                "it ended without a result; it waits for something that never happens, such as a promise that is never \
                 resolved",
            ),
            (Trap::UnreachableCodeReached, "abort, failed assertion or uncaught exception"),
        ] {
            assert_eq!(crash(trap, "").to_string(), format!("it crashed: {text}"));
        }
    }

    #[test]
    fn the_reason_of_a_panic_has_its_message_without_its_place() {
        let stderr = "starting thread '<unnamed>' (1) panicked at src/lib.rs:45:5: the vase: broken";
        let panic = crash(Trap::UnreachableCodeReached, stderr);
        assert_eq!(panic.reason(), "it panicked: the vase: broken");
        assert_eq!(panic.to_string(), format!("it panicked: the vase: broken; it wrote to stderr: {stderr}"));
        let long = format!("panicked at src/lib.rs:1:1: {}", "ü".repeat(MAX_PANIC_CHARS + 1));
        let reason = format!("it panicked: {}…", "ü".repeat(MAX_PANIC_CHARS));
        assert_eq!(crash(Trap::UnreachableCodeReached, &long).reason(), reason);
        let silent = crash(Trap::UnreachableCodeReached, "panicked at src/lib.rs:1:1: ");
        assert_eq!(silent.reason(), "it crashed: abort, failed assertion or uncaught exception");
    }

    #[test]
    fn a_failed_allocation_is_told_apart_from_other_aborts() {
        let failed = crash(Trap::UnreachableCodeReached, "memory allocation of 9 bytes failed");
        assert_eq!(failed.reason(), "it ran out of memory");
        assert!(failed.to_string().contains("raise `limits.memory`"), "{failed}");
        assert!(failed.to_string().ends_with("; it wrote to stderr: memory allocation of 9 bytes failed"), "{failed}");
    }

    #[test]
    fn other_errors_are_shown_as_they_are() {
        let error = wasmtime::Error::msg("unknown handle index 7").context("in `call`");
        assert_eq!(Crash::new(&error, String::new()).to_string(), "it crashed: unknown handle index 7");
        assert_eq!(crash(Trap::Interrupt, "").to_string(), format!("it crashed: {}", Trap::Interrupt));
    }
}
