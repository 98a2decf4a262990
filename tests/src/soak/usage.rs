//! Resource usage of a process, from `/proc`.

use std::fmt;
use std::fs;

use anyhow::Context;
use serde::Serialize;

/// Allowed growth of memory in bytes, for allocators.
const SLACK: u64 = 48 << 20;

/// Allowed growth of file handles, for connections and files that are being read.
const SLACK_HANDLES: u64 = 24;

/// Memory and file handles of a process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Resident memory in bytes.
    pub memory: u64,
    /// The part of it that is not mapped from files, in bytes.
    pub anonymous: u64,
    /// Open file handles, including sockets.
    pub handles: u64,
}

impl Usage {
    /// Returns the usage of the process with this id.
    ///
    /// # Errors
    /// If there is none, or `/proc` cannot be read.
    pub fn read(process: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status")).context("the host's use of memory")?;
        let bytes = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
            anyhow::Ok(kib.with_context(|| format!("no {key} in the process's status"))? * 1024)
        };
        let (memory, anonymous) = (bytes("VmRSS")?, bytes("RssAnon")?);
        let handles = fs::read_dir(format!("{folder}/fd")).context("the host's open files")?.count() as u64;
        Ok(Self { memory, anonymous, handles })
    }

    /// Returns a sentence for each value that has grown by more than the allowed amount.
    pub(super) fn growth_since(&self, early: &Self) -> Vec<String> {
        let mut growth = Vec::new();
        if self.memory > early.memory + early.memory / 5 + SLACK {
            growth.push(format!("memory grew from {} MiB to {} MiB", early.memory >> 20, self.memory >> 20));
        }
        if self.handles > early.handles + SLACK_HANDLES {
            growth.push(format!("file handles grew from {} to {}", early.handles, self.handles));
        }
        growth
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5} MiB  {:>4} handles", self.memory >> 20, self.handles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_reported_above_the_allowed_amount() {
        let early = Usage { memory: 100 << 20, anonymous: 60 << 20, handles: 40 };
        assert!(early.growth_since(&early).is_empty());
        assert!(Usage { memory: 150 << 20, handles: 60, ..early }.growth_since(&early).is_empty());
        let late = Usage { memory: 300 << 20, handles: 400, ..early };
        assert_eq!(
            late.growth_since(&early),
            ["memory grew from 100 MiB to 300 MiB", "file handles grew from 40 to 400"]
        );
    }

    #[test]
    fn the_usage_of_a_process_is_read() {
        let own = Usage::read(std::process::id()).unwrap();
        assert!(own.memory > 0 && own.handles > 0, "{own:?}");
    }
}
