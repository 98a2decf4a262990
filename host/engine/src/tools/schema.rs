//! JSON Schema validation of the arguments and answers of models.
//!
//! Both schemas and values are untrusted. References outside of the schema are not resolved, patterns are matched in
//! linear time, and the number of steps of a check is limited. A long check runs on one of a few blocking threads that
//! all runs share, with a deadline, and is cancelled with its run. An invalid schema rejects every value.

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

use compile::CompiledSchema;
use counted::CountedNode;
use steps::{CheckLimits, Interrupt, RunBudget, run_metered};

/// Maximum number of steps of one check.
const MAX_STEPS: u64 = 4_000_000;
/// Maximum number of steps of all checks of one run.
const MAX_RUN_STEPS: u64 = 100_000_000;
/// Maximum number of steps on a worker thread of the runtime.
const INLINE_STEPS: u64 = 20_000;
/// Maximum number of steps to describe the faults of a value.
const FAULT_STEPS: u64 = 200_000;
/// Maximum product of the weight of a schema and the size of a value.
const MAX_PRODUCT: u64 = 1_000_000_000;
/// Maximum product for a check that starts on a worker thread of the runtime.
const INLINE_PRODUCT: u64 = 200_000;
/// Maximum weight of a schema that is compiled on a worker thread of the runtime.
const INLINE_WEIGHT: usize = 1_000;
/// Maximum duration of one check.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Maximum number of concurrent long checks in the process.
const MAX_LONG_CHECKS: usize = 2;

static LONG_CHECKS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_LONG_CHECKS)));

/// The reason why a value is rejected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The value does not match. Each fault has a JSON pointer, the value and the expectation.
    Mismatch(String),
    /// The schema is invalid or too large.
    InvalidSchema(String),
    /// The check exceeds a limit.
    LimitExceeded(String),
    /// The run is cancelled.
    Cancelled,
}

/// Returns the value if it matches the schema.
///
/// # Errors
/// If the value is rejected.
pub(crate) async fn check(schema: &Value, value: Value, run: &Invocation) -> Result<Value, Failure> {
    let compiled = compile_for(schema, run).await?;
    let size = size(&value);
    let weight = u64::try_from(compiled.weight).unwrap_or(u64::MAX);
    let product = weight.saturating_mul(size);
    if product > MAX_PRODUCT {
        return Err(Failure::LimitExceeded(format!(
            "their check could take {weight} × {size} steps, of at most {MAX_PRODUCT}: {weight} is the weight of the schema, {size} the number \
             of values; send fewer values at once"
        )));
    }
    let budget = RunBudget {
        cancel: run.cancel.clone(),
        spent: run.usage.clone(),
        run_steps: MAX_RUN_STEPS,
        deadline: Instant::now() + MAX_TIME,
    };
    if product <= INLINE_PRODUCT {
        match check_inline(&compiled, &value, INLINE_STEPS, Some(budget.clone())) {
            Err(Interrupt::Steps) => {}
            result => return into_result(result, value, weight, size),
        }
    }
    run_blocking(run, move || {
        let budget = RunBudget { deadline: Instant::now() + MAX_TIME, ..budget };
        let result = check_inline(&compiled, &value, MAX_STEPS, Some(budget));
        into_result(result, value, weight, size)
    })
    .await?
}

/// Compiles a schema.
///
/// # Errors
/// If the schema is invalid or too large, or the run is cancelled.
pub(crate) async fn check_schema(schema: &Value, run: &Invocation) -> Result<(), Failure> {
    compile_for(schema, run).await.map(|_| ())
}

/// Returns the reason why a schema is invalid. `None` if it is valid.
pub(crate) fn schema_error(schema: &Value) -> Option<String> {
    compile::get_or_compile(schema).err().map(|reason| reason.to_string())
}

async fn compile_for(schema: &Value, run: &Invocation) -> Result<Arc<CompiledSchema>, Failure> {
    let compiled = match compile::get_cached(schema) {
        Some(cached) => cached,
        None if compile::weight(schema) <= INLINE_WEIGHT => compile::get_or_compile(schema),
        None => {
            let schema = schema.clone();
            run_blocking(run, move || compile::get_or_compile(&schema)).await?
        }
    };
    compiled.map_err(|reason| Failure::InvalidSchema(reason.to_string()))
}

/// Runs long work on a blocking thread, after a permit of the semaphore is free.
async fn run_blocking<T: Send + 'static>(
    run: &Invocation,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let permit = run.cancel.run_until_cancelled(LONG_CHECKS.clone().acquire_owned()).await.ok_or(Failure::Cancelled)?;
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    match run.cancel.run_until_cancelled(work).await.ok_or(Failure::Cancelled)? {
        Ok(result) => Ok(result),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Failure::Cancelled),
        },
    }
}

/// Checks a value on this thread. Returns a description of its faults, or `None` if it matches.
fn check_inline(
    compiled: &CompiledSchema,
    value: &Value,
    steps: u64,
    budget: Option<RunBudget>,
) -> Result<Option<String>, Interrupt> {
    let CompiledSchema { validator, per_byte, .. } = compiled;
    let limits = |steps| CheckLimits { steps, per_byte: *per_byte, budget: budget.clone() };
    if run_metered(limits(steps), || validator.is_valid(CountedNode(value)))? {
        return Ok(None);
    }
    let steps = steps.min(FAULT_STEPS);
    let description = match run_metered(limits(steps), || faults::all(validator, value)) {
        Err(Interrupt::Steps) => match run_metered(limits(steps), || faults::first(validator, value)) {
            Ok(first) => first.map(|first| format!("{first}; and more")),
            Err(Interrupt::Steps) => None,
            Err(interrupt) => return Err(interrupt),
        },
        description => Some(description?),
    };
    let default = || "the value does not match its schema; there are too many errors to list".into();
    Ok(Some(description.unwrap_or_else(default)))
}

fn into_result(
    result: Result<Option<String>, Interrupt>,
    value: Value,
    weight: u64,
    size: u64,
) -> Result<Value, Failure> {
    let advice = "send fewer values at once, or have the schema made simpler";
    let schema = format!("against a schema of weight {weight}, with {size} values");
    Err(match result {
        Ok(None) => return Ok(value),
        Ok(Some(faults)) => Failure::Mismatch(faults),
        Err(Interrupt::Steps) => {
            Failure::LimitExceeded(format!("their check takes more than {MAX_STEPS} steps {schema}; {advice}"))
        }
        Err(Interrupt::Deadline) => {
            let seconds = MAX_TIME.as_secs();
            Failure::LimitExceeded(format!("their check takes longer than {seconds} s {schema}; {advice}"))
        }
        Err(Interrupt::RunSteps) => Failure::LimitExceeded(format!(
            "the checks of this run have taken {MAX_RUN_STEPS} steps, which is the limit; go on in a new run"
        )),
        Err(Interrupt::Cancelled) => Failure::Cancelled,
    })
}

/// Returns the number of values in a value. Long strings count as several.
fn size(value: &Value) -> u64 {
    let text_size = |text: &str| 1 + u64::try_from(text.len()).unwrap_or(u64::MAX) / 64;
    match value {
        Value::String(text) => text_size(text),
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| text_size(key) + size(value)).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Returns the faults of a value, or an empty string.
#[cfg(test)]
pub(crate) fn fault_of(schema: &Value, value: Value) -> String {
    match compile::get_or_compile(schema).map(|compiled| check_inline(&compiled, &value, MAX_STEPS, None)) {
        Ok(Ok(fault)) => fault.unwrap_or_default(),
        Ok(Err(interrupt)) => format!("{interrupt:?}"),
        Err(reason) => reason.to_string(),
    }
}
