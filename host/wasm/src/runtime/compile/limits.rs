//! The `compile` section of `hatchery.yaml`, and the checks that need no compiler.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use wasmparser::{Parser, Payload};

use super::CompileError;
use crate::runtime::limits::units;

/// Limits on compiling one component: `compile` in `hatchery.yaml`. Read at the start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompileLimits {
    /// CPU time of all threads together.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub time: Duration,
    /// Wall time. Ends a process that waits instead of working.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub wall: Duration,
    /// Address space of the process, bytes. The compiled code may have a quarter of it.
    #[serde(deserialize_with = "units::deserialize_size")]
    pub memory: u64,
    /// Threads of one process.
    pub threads: NonZeroU32,
    /// Maximum number of processes at one time; further components wait.
    pub processes: NonZeroU32,
    /// Bytes of a component's file.
    #[serde(deserialize_with = "units::deserialize_size")]
    pub max_file_size: u64,
    /// Bytes of one function's body.
    #[serde(deserialize_with = "units::deserialize_size")]
    pub max_function_size: u64,
    /// Functions of all modules of a component.
    pub max_functions: u32,
}

impl Default for CompileLimits {
    /// The default number of threads is half of the cores, since two processes may run at one time.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        Self {
            time: Duration::from_secs(60),
            wall: Duration::from_secs(600),
            memory: 2 << 30,
            threads: NonZeroU32::new(cores / 2).unwrap_or(NonZeroU32::MIN),
            processes: NonZeroU32::MIN.saturating_add(1),
            max_file_size: 256 << 20,
            max_function_size: 1 << 20,
            max_functions: 200_000,
        }
    }
}

impl CompileLimits {
    /// Returns the maximum size of compiled code in bytes.
    pub(super) fn output(&self) -> u64 {
        self.memory / 4
    }
}

/// Fails if the number or size of functions exceeds the limits. Bytes that are not valid WebAssembly pass; the
/// compiler refuses them.
pub(super) fn check_functions(limits: &CompileLimits, bytes: &[u8]) -> Result<(), CompileError> {
    let mut functions = 0_u64;
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        if let Payload::CodeSectionEntry(body) = payload {
            let size = body.range().len() as u64;
            if size > limits.max_function_size {
                return Err(CompileError::FunctionSize { size, max: limits.max_function_size });
            }
            functions += 1;
            if functions > u64::from(limits.max_functions) {
                return Err(CompileError::Functions { max: limits.max_functions });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limits: &CompileLimits, wat: &str) -> Result<(), String> {
        check_functions(limits, &wat::parse_str(wat).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_read_and_the_others_have_their_defaults() {
        let read = |text: &str| serde_yaml::from_str::<CompileLimits>(text).map_err(|error| error.to_string());
        let limits = read("{time: 90s, memory: 1GiB, threads: 3, processes: 1, max_file_size: 9MiB}").unwrap();
        assert_eq!((limits.time, limits.memory), (Duration::from_secs(90), 1 << 30));
        assert_eq!((limits.threads.get(), limits.processes.get(), limits.max_file_size), (3, 1, 9 << 20));
        assert_eq!((limits.max_function_size, limits.max_functions), (1 << 20, 200_000));
        let default = CompileLimits::default();
        assert_eq!((default.time, default.wall), (Duration::from_secs(60), Duration::from_secs(600)));
        assert_eq!(default.memory, 2 << 30);
        assert!(read("{processes: 0}").unwrap_err().contains("nonzero"));
        assert!(read("{memory: }").unwrap_err().contains("a size is missing"));
        assert!(read("{cores: 1}").unwrap_err().contains("unknown field `cores`"));
    }

    #[test]
    fn functions_of_all_modules_are_counted() {
        let module = "(core module (func) (func))";
        let limits = CompileLimits { max_functions: 4, ..CompileLimits::default() };
        assert_eq!(check(&limits, &format!("(component {module} {module})")), Ok(()));
        assert_eq!(
            check(&limits, &format!("(component {module} (component {module} {module}))")).unwrap_err(),
            "it has more than 4 functions; split the component, or raise `compile.max_functions` in hatchery.yaml"
        );
    }

    #[test]
    fn a_function_that_is_too_large_is_refused() {
        let limits = CompileLimits { max_function_size: 100, ..CompileLimits::default() };
        let function = |nops: usize| format!("(component (core module (func {})))", "nop ".repeat(nops));
        // A function has one byte for its locals and one for its end.
        assert_eq!(check(&limits, &function(98)), Ok(()));
        assert_eq!(
            check(&limits, &function(99)).unwrap_err(),
            "one of its functions has 101 bytes of code, and 100 are allowed; split it, or raise \
             `compile.max_function_size` in hatchery.yaml"
        );
    }
}
