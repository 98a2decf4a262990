//! JSON Schemas that a model's arguments and answers have to fit.
//!
//! Schemas may come from a stranger's component, and values from a model that a stranger has talked to. References lead nowhere outside the
//! schema, patterns are matched in linear time, and a check is bounded in steps. One that may take long leaves the workers of the runtime,
//! for a few threads that all runs share; there it is ended by a deadline and by the cancellation of its run. A schema that cannot be used
//! lets nothing pass.

mod compile;
mod counted;
mod faults;
mod index;
mod normal;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use hatchery_core::Invocation;
use serde_json::Value;
use tokio::sync::Semaphore;

use compile::Compiled;
use counted::CountedNode;
use steps::{Limits, Stopped, Watch, metered};

/// Most steps of one check.
const MAX_STEPS: u64 = 4_000_000;
/// Most steps of all checks of one run.
const MAX_RUN_STEPS: u64 = 100_000_000;
/// Steps that a check may take on a worker of the runtime.
const INLINE_STEPS: u64 = 20_000;
/// Steps that are taken to tell what is wrong with a value.
const FAULT_STEPS: u64 = 200_000;
/// What the weight of a schema times the size of a value may come to.
const MAX_PRODUCT: u64 = 1_000_000_000;
/// Up to this product a check begins on a worker of the runtime.
const INLINE_PRODUCT: u64 = 200_000;
/// A schema that weighs more is compiled elsewhere.
const INLINE_WEIGHT: usize = 1_000;
/// How long one check may take.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Checks that take long, at the same time, of all runs together.
const HEAVY_CHECKS: usize = 2;

static HEAVY: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(HEAVY_CHECKS)));

/// Why a value is not accepted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// It does not fit: each fault with the place (a JSON pointer), the value and what was expected.
    Unfit(String),
    /// The schema cannot be used, for this reason.
    Unusable(String),
    /// The check would take too much, as this says.
    TooMuch(String),
    /// The run is cancelled.
    Cancelled,
}

/// The value, if it fits the schema.
///
/// # Errors
/// Why it is not accepted.
pub(crate) async fn check(schema: &Value, value: Value, run: &Invocation) -> Result<Value, Failure> {
    let compiled = usable(schema, run).await?;
    let size = size(&value);
    let weight = u64::try_from(compiled.weight).unwrap_or(u64::MAX);
    let product = weight.saturating_mul(size);
    if product > MAX_PRODUCT {
        return Err(Failure::TooMuch(format!(
            "their check could take {weight} × {size} steps, of at most {MAX_PRODUCT}: {weight} is the weight of the schema, {size} the number \
             of values; send fewer values at once"
        )));
    }
    let watch = Watch {
        cancel: run.cancel.clone(),
        spent: run.usage.clone(),
        run_steps: MAX_RUN_STEPS,
        deadline: Instant::now() + MAX_TIME,
    };
    if product <= INLINE_PRODUCT {
        match check_here(&compiled, &value, INLINE_STEPS, Some(watch.clone())) {
            Err(Stopped::Steps) => {}
            ended => return outcome(ended, value, weight, size),
        }
    }
    elsewhere(run, move || {
        let watch = Watch { deadline: Instant::now() + MAX_TIME, ..watch };
        let ended = check_here(&compiled, &value, MAX_STEPS, Some(watch));
        outcome(ended, value, weight, size)
    })
    .await?
}

/// Whether values can be checked against a schema.
///
/// # Errors
/// When they cannot.
pub(crate) async fn check_schema(schema: &Value, run: &Invocation) -> Result<(), Failure> {
    usable(schema, run).await.map(|_| ())
}

/// Why a schema cannot be used, if it cannot.
pub(crate) fn wrong_with(schema: &Value) -> Option<String> {
    compile::compiled(schema).err().map(|reason| reason.to_string())
}

async fn usable(schema: &Value, run: &Invocation) -> Result<Arc<Compiled>, Failure> {
    let compiled = match compile::known(schema) {
        Some(known) => known,
        None if compile::weight(schema) <= INLINE_WEIGHT => compile::compiled(schema),
        None => {
            let schema = schema.clone();
            elsewhere(run, move || compile::compiled(&schema)).await?
        }
    };
    compiled.map_err(|reason| Failure::Unusable(reason.to_string()))
}

/// Does work that takes long on a thread of its own, when there is a place.
async fn elsewhere<T: Send + 'static>(
    run: &Invocation,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let place = run.cancel.run_until_cancelled(HEAVY.clone().acquire_owned()).await.ok_or(Failure::Cancelled)?;
    let work = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    match run.cancel.run_until_cancelled(work).await.ok_or(Failure::Cancelled)? {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Failure::Cancelled),
        },
    }
}

/// Checks a value on this thread, and gives what is wrong with it, if anything.
fn check_here(compiled: &Compiled, value: &Value, steps: u64, watch: Option<Watch>) -> Result<Option<String>, Stopped> {
    let Compiled { validator, per_byte, .. } = compiled;
    let limits = |steps| Limits { steps, per_byte: *per_byte, watch: watch.clone() };
    if metered(limits(steps), || validator.is_valid(CountedNode(value)))? {
        return Ok(None);
    }
    let steps = steps.min(FAULT_STEPS);
    let told = match metered(limits(steps), || faults::all(validator, value)) {
        Err(Stopped::Steps) => match metered(limits(steps), || faults::first(validator, value)) {
            Ok(first) => first.map(|first| format!("{first}; and more")),
            Err(Stopped::Steps) => None,
            Err(stopped) => return Err(stopped),
        },
        told => Some(told?),
    };
    Ok(Some(told.unwrap_or_else(|| "the value does not fit its schema, in too many ways to tell them".into())))
}

fn outcome(ended: Result<Option<String>, Stopped>, value: Value, weight: u64, size: u64) -> Result<Value, Failure> {
    let advice = "send fewer values at once, or have the schema made simpler";
    let schema = format!("against a schema of weight {weight}, with {size} values");
    Err(match ended {
        Ok(None) => return Ok(value),
        Ok(Some(faults)) => Failure::Unfit(faults),
        Err(Stopped::Steps) => {
            Failure::TooMuch(format!("their check takes more than {MAX_STEPS} steps {schema}; {advice}"))
        }
        Err(Stopped::Deadline) => {
            let seconds = MAX_TIME.as_secs();
            Failure::TooMuch(format!("their check takes longer than {seconds} s {schema}; {advice}"))
        }
        Err(Stopped::Run) => Failure::TooMuch(format!(
            "the checks of this run have taken {MAX_RUN_STEPS} steps, which is the limit; go on in a new run"
        )),
        Err(Stopped::Cancelled) => Failure::Cancelled,
    })
}

/// How many values there are in a value; long strings count for several.
fn size(value: &Value) -> u64 {
    let of_text = |text: &str| 1 + u64::try_from(text.len()).unwrap_or(u64::MAX) / 64;
    match value {
        Value::String(text) => of_text(text),
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| of_text(key) + size(value)).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// What is wrong with a value, or nothing.
#[cfg(test)]
pub(crate) fn fault_of(schema: &Value, value: Value) -> String {
    match compile::compiled(schema).map(|compiled| check_here(&compiled, &value, MAX_STEPS, None)) {
        Ok(Ok(fault)) => fault.unwrap_or_default(),
        Ok(Err(stopped)) => format!("{stopped:?}"),
        Err(reason) => reason.to_string(),
    }
}
