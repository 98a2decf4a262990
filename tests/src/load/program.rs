//! A server that a load test starts as its own process, so that its CPU time can be read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A program that serves `POST /apps/{app}/users/{user}/sessions/{session}` and `POST /run` below the URL that it
/// prints as its first line.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name in the report.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables of its environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// A running program. Dropping it kills it.
pub(super) struct RunningProgram {
    pub(super) url: String,
    child: Child,
}

impl Program {
    /// Parses `NAME=PATH`.
    ///
    /// # Errors
    /// If there is no `=`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, path) = text.split_once('=').with_context(|| format!("`{text}` is not NAME=PATH"))?;
        Ok(Self { name: name.to_owned(), path: path.into(), args: Vec::new(), environment: Vec::new() })
    }

    pub(super) async fn start(&self) -> anyhow::Result<RunningProgram> {
        let mut command = Command::new(&self.path);
        command.args(&self.args).envs(self.environment.iter().cloned()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.path.display()))?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        Ok(RunningProgram { url: line.with_context(|| format!("{} printed no URL", self.name))?, child })
    }
}

impl RunningProgram {
    pub(super) fn process(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_name_is_refused() {
        let program = Program::parse("rival=/opt/rival").unwrap();
        assert_eq!((program.name.as_str(), program.path.to_str()), ("rival", Some("/opt/rival")));
        assert_eq!(Program::parse("/opt/rival").unwrap_err().to_string(), "`/opt/rival` is not NAME=PATH");
    }
}
