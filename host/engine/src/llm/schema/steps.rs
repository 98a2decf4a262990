//! A limit for the work of one check.
//!
//! References make small schemas that take forever: each of forty definitions that refers twice to the next is a trillion steps. So each
//! reference counts when it is followed, and a check that follows too many is left by unwinding, since a validator cannot be told to stop.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

/// References that one check may follow. An array of so many items that are described by reference can still be checked.
pub(super) const MOST: u32 = 20_000;

/// The keyword that counts, wherever it stands in a schema.
pub(super) const KEYWORD: &str = "hatchery:step";

thread_local! {
    /// References that the check on this thread may still follow.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// The keyword's part in a check.
pub(super) struct Step;

impl<'i> Keyword<'i> for Step {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        count();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        count();
        true
    }
}

fn count() {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        // Unlike a panic this says nothing on the way.
        None => resume_unwind(Box::new(TooMany)),
    }
}

struct TooMany;

/// What `work` gives; nothing when it takes too many steps.
pub(super) fn within_limit<T>(work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(MOST);
    // Validators don't change, so there is nothing that could be left half changed.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(reason) if reason.is::<TooMany>() => None,
        Err(panic) => resume_unwind(panic),
    }
}
