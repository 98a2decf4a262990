//! `hatchery completions`: shell completion scripts and man pages.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::outcome::Outcome;
use crate::terminal::{plain_stdout, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery completions bash > ~/.local/share/bash-completion/completions/hatchery\n  \
    hatchery completions zsh > ~/.zfunc/_hatchery\n  hatchery completions --man ~/.local/share/man/man1"
)]
pub struct Args {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write the man pages of all commands to this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut command = Cli::command();
    if let Some(folder) = args.man {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        clap_mangen::generate_to(command.clone(), &folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        writeln!(stdout(), "{}", folder.join("hatchery.1").display())?;
    }
    if let Some(shell) = args.shell {
        // The generator ends the process if it cannot write, so it does not write to stdout itself.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "hatchery", &mut script);
        plain_stdout().write_all(&script)?;
    }
    Ok(Outcome::Success)
}
