//! What one check may cost, counted in steps: each look of a validator at a value is one, each comparison and each reference that is
//! followed too. Reading a string costs steps by its length, and many more where patterns are matched, since a match cannot be stopped
//! halfway.
//!
//! A check that takes too many is left by unwinding, since a validator cannot be told to stop.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hatchery_core::RunUsage;
use jsonschema::{Keyword, ValidationError};
use tokio_util::sync::CancellationToken;

use super::counted::{Counted, CountedNode};

/// The keyword that counts a followed reference. References may lead in circles without looking at anything.
pub(super) const KEYWORD: &str = "hatchery:step";

/// Steps between two looks at the clock and at whether the run is cancelled.
const LOOK: u64 = 1024;
/// [`Limits::per_byte`] counts in parts of a step.
const PARTS: u64 = 64;

thread_local! {
    /// Steps that the check on this thread may still take.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// What `LEFT` is at the next look around.
    static NEXT_LOOK: Cell<u64> = const { Cell::new(0) };
    /// What `LEFT` was when its steps were last charged to the run.
    static CHARGED: Cell<u64> = const { Cell::new(0) };
    static PER_BYTE: Cell<u64> = const { Cell::new(1) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Why a check has ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It has taken all its steps.
    Steps,
    /// It has taken too long.
    Deadline,
    /// All checks of the run together have taken too many steps.
    Run,
    /// The run is cancelled.
    Cancelled,
}

/// What a check may cost.
pub(super) struct Limits {
    pub(super) steps: u64,
    /// What reading a byte of a string costs, in 64ths of a step.
    pub(super) per_byte: u64,
    /// Who ends the check early.
    pub(super) watch: Option<Watch>,
}

/// The run that a check is for.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) cancel: CancellationToken,
    pub(super) spent: Arc<RunUsage>,
    /// Most steps of all checks of the run.
    pub(super) run_steps: u64,
    pub(super) deadline: Instant,
}

impl Watch {
    fn look(&self) -> Option<Stopped> {
        if self.cancel.is_cancelled() {
            Some(Stopped::Cancelled)
        } else if self.spent.check_steps.load(Ordering::Relaxed) >= self.run_steps {
            Some(Stopped::Run)
        } else {
            (Instant::now() >= self.deadline).then_some(Stopped::Deadline)
        }
    }
}

/// Counts the reference that it stands beside.
pub(super) struct Step;

impl<'i> Keyword<'i, Counted> for Step {
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
    let Some(left) = LEFT.get().checked_sub(steps) else { stop(Stopped::Steps) };
    LEFT.set(left);
    if left < NEXT_LOOK.get() {
        look();
    }
}

/// Counts a string that is read as a whole.
pub(super) fn count_string(text: &str) {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    count(1 + bytes.saturating_mul(PER_BYTE.get()) / PARTS);
}

/// Counts a string that is compared, copied or measured, whatever patterns there are.
pub(super) fn count_bytes(text: &str) {
    count(1 + u64::try_from(text.len()).unwrap_or(u64::MAX) / PARTS);
}

#[cold]
fn look() {
    NEXT_LOOK.set(LEFT.get().saturating_sub(LOOK));
    let stopped = WATCH.with_borrow(|watch| {
        let watch = watch.as_ref()?;
        charge(watch);
        watch.look()
    });
    if let Some(stopped) = stopped {
        stop(stopped);
    }
}

/// Charges the steps taken since the last time to the run.
fn charge(watch: &Watch) {
    let left = LEFT.get();
    let steps = CHARGED.replace(left).saturating_sub(left);
    watch.spent.check_steps.fetch_add(steps, Ordering::Relaxed);
}

fn stop(stopped: Stopped) -> ! {
    // Unlike a panic this says nothing on the way.
    resume_unwind(Box::new(stopped))
}

/// What `work` gives within the limits.
///
/// # Errors
/// Why it has ended before its end.
pub(super) fn metered<T>(limits: Limits, work: impl FnOnce() -> T) -> Result<T, Stopped> {
    let Limits { steps, per_byte, watch } = limits;
    if let Some(stopped) = watch.as_ref().and_then(Watch::look) {
        return Err(stopped);
    }
    LEFT.set(steps);
    CHARGED.set(steps);
    NEXT_LOOK.set(steps.saturating_sub(LOOK));
    PER_BYTE.set(per_byte);
    WATCH.set(watch);
    // Validators don't change, so there is nothing that could be left half changed.
    let result = catch_unwind(AssertUnwindSafe(work));
    if let Some(watch) = WATCH.take() {
        charge(&watch);
    }
    match result {
        Ok(done) => Ok(done),
        Err(reason) => match reason.downcast::<Stopped>() {
            Ok(stopped) => Err(*stopped),
            Err(panic) => resume_unwind(panic),
        },
    }
}
