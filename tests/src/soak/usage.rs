//! What a process uses, as Linux tells it.

use std::fmt;
use std::fs;

use anyhow::Context;
use serde::Serialize;

/// Memory that allocators may hold on to between two looks, bytes.
const SLACK: u64 = 48 << 20;

/// Handles that may be open at one look and not at the other: connections, and a file that is being read.
const SLACK_HANDLES: u64 = 24;

/// Memory and open files of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Resident memory, bytes.
    pub memory: u64,
    /// Open file handles, sockets among them.
    pub handles: u64,
}

impl Usage {
    /// Of the process with this id.
    ///
    /// # Errors
    /// When there is none, or the system does not tell.
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status")).context("the host's use of memory")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        let memory = kib.context("no VmRSS in the process's status")? * 1024;
        let handles = fs::read_dir(format!("{folder}/fd")).context("the host's open files")?.count() as u64;
        Ok(Self { memory, handles })
    }

    /// What has grown since an earlier moment by more than can be chance, a sentence each.
    pub(super) fn growth_since(&self, early: &Self) -> Vec<String> {
        let mut grown = Vec::new();
        if self.memory > early.memory + early.memory / 5 + SLACK {
            grown.push(format!("memory grew from {} MiB to {} MiB", early.memory >> 20, self.memory >> 20));
        }
        if self.handles > early.handles + SLACK_HANDLES {
            grown.push(format!("file handles grew from {} to {}", early.handles, self.handles));
        }
        grown
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
    fn growth_is_told_when_it_cannot_be_chance() {
        let early = Usage { memory: 100 << 20, handles: 40 };
        assert!(early.growth_since(&early).is_empty());
        assert!(Usage { memory: 150 << 20, handles: 60 }.growth_since(&early).is_empty());
        let late = Usage { memory: 300 << 20, handles: 400 };
        assert_eq!(
            late.growth_since(&early),
            ["memory grew from 100 MiB to 300 MiB", "file handles grew from 40 to 400"]
        );
    }

    #[test]
    fn a_process_can_be_asked() {
        let own = Usage::of(std::process::id()).unwrap();
        assert!(own.memory > 0 && own.handles > 0, "{own:?}");
    }
}
