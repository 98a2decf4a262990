//! Fuel for checks: counts steps of the check on the current thread and interrupts it at a limit.
//!
//! Each access of the validator to a value, each comparison and each resolved reference is a step. Reading a string
//! costs steps in proportion to its length, and many more if patterns are matched, because a match cannot be
//! interrupted. A check over its limit is interrupted by unwinding, because the validator has no way to stop early.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hatchery_core::RunUsage;
use jsonschema::{Keyword, ValidationError};
use tokio_util::sync::CancellationToken;

use super::counted::{CountedJson, CountedNode};

/// The keyword that counts a resolved reference. References can be circular without accessing a value.
pub(super) const KEYWORD: &str = "hatchery:step";

/// Steps between two checks of the run's budget.
const POLL_INTERVAL: u64 = 1024;
/// The unit of [`CheckLimits::per_byte`] is one step divided by this.
const STEP_FRACTION: u64 = 64;

thread_local! {
    /// The remaining steps of the check on this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// The value of `LEFT` below which the budget is checked next.
    static NEXT_POLL: Cell<u64> = const { Cell::new(0) };
    /// The value of `LEFT` when its steps were last charged to the run.
    static CHARGED: Cell<u64> = const { Cell::new(0) };
    static PER_BYTE: Cell<u64> = const { Cell::new(1) };
    static BUDGET: RefCell<Option<RunBudget>> = const { RefCell::new(None) };
}

/// The reason why a check was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// The check exceeds its steps.
    Steps,
    /// The check exceeds its duration.
    Deadline,
    /// The checks of the run exceed their steps.
    RunSteps,
    /// The run is cancelled.
    Cancelled,
}

/// The limits of one check.
pub(super) struct CheckLimits {
    pub(super) steps: u64,
    /// The cost of reading a byte of a string, in 64ths of a step.
    pub(super) per_byte: u64,
    /// `None` for a check without a run.
    pub(super) budget: Option<RunBudget>,
}

/// The limits of the run that a check belongs to.
#[derive(Clone)]
pub(super) struct RunBudget {
    pub(super) cancel: CancellationToken,
    pub(super) spent: Arc<RunUsage>,
    /// Maximum number of steps of all checks of the run.
    pub(super) run_steps: u64,
    pub(super) deadline: Instant,
}

impl RunBudget {
    /// Returns the reason to interrupt the check, if any.
    fn poll(&self) -> Option<Interrupt> {
        if self.cancel.is_cancelled() {
            Some(Interrupt::Cancelled)
        } else if self.spent.check_steps.load(Ordering::Relaxed) >= self.run_steps {
            Some(Interrupt::RunSteps)
        } else {
            (Instant::now() >= self.deadline).then_some(Interrupt::Deadline)
        }
    }
}

/// The keyword that counts the reference next to it.
pub(super) struct Step;

impl<'i> Keyword<'i, CountedJson> for Step {
    fn validate(&self, _: CountedNode<'i>) -> Result<(), ValidationError<'i>> {
        count(1);
        Ok(())
    }

    fn is_valid(&self, _: CountedNode<'i>) -> bool {
        count(1);
        true
    }
}

/// Counts steps of the check on this thread.
pub(super) fn count(steps: u64) {
    let Some(remaining) = LEFT.get().checked_sub(steps) else { unwind(Interrupt::Steps) };
    LEFT.set(remaining);
    if remaining < NEXT_POLL.get() {
        poll_budget();
    }
}

/// Counts a string that a pattern may be matched against.
pub(super) fn count_string(text: &str) {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    count(1 + bytes.saturating_mul(PER_BYTE.get()) / STEP_FRACTION);
}

/// Counts a string that is compared, copied or measured, independent of patterns.
pub(super) fn count_bytes(text: &str) {
    count(1 + u64::try_from(text.len()).unwrap_or(u64::MAX) / STEP_FRACTION);
}

#[cold]
fn poll_budget() {
    NEXT_POLL.set(LEFT.get().saturating_sub(POLL_INTERVAL));
    let interrupt = BUDGET.with_borrow(|budget| {
        let budget = budget.as_ref()?;
        charge(budget);
        budget.poll()
    });
    if let Some(interrupt) = interrupt {
        unwind(interrupt);
    }
}

/// Charges the steps since the last charge to the run.
fn charge(budget: &RunBudget) {
    let remaining = LEFT.get();
    let steps = CHARGED.replace(remaining).saturating_sub(remaining);
    budget.spent.check_steps.fetch_add(steps, Ordering::Relaxed);
}

fn unwind(interrupt: Interrupt) -> ! {
    // Does not call the panic hook.
    resume_unwind(Box::new(interrupt))
}

/// Runs `work` within the limits.
///
/// # Errors
/// If it was interrupted.
pub(super) fn run_metered<T>(limits: CheckLimits, work: impl FnOnce() -> T) -> Result<T, Interrupt> {
    let CheckLimits { steps, per_byte, budget } = limits;
    if let Some(interrupt) = budget.as_ref().and_then(RunBudget::poll) {
        return Err(interrupt);
    }
    LEFT.set(steps);
    CHARGED.set(steps);
    NEXT_POLL.set(steps.saturating_sub(POLL_INTERVAL));
    PER_BYTE.set(per_byte);
    BUDGET.set(budget);
    // Validators are immutable, so unwinding cannot leave one in an inconsistent state.
    let result = catch_unwind(AssertUnwindSafe(work));
    if let Some(budget) = BUDGET.take() {
        charge(&budget);
    }
    match result {
        Ok(value) => Ok(value),
        Err(reason) => match reason.downcast::<Interrupt>() {
            Ok(interrupt) => Err(*interrupt),
            Err(panic) => resume_unwind(panic),
        },
    }
}
