//! `hatchery trust`: the user's decisions about folders whose configuration requests access outside of the folder. It
//! reads `hatchery.yaml` and the list of trusted folders, and runs nothing.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::CONFIG_FILE;
use hatchery::audit::TARGET;
use hatchery::shell::quoted_path;
use hatchery::trust::{ConfigSource, LoadedConfig, TrustStatus, TrustStore, UntrustedReason};
use serde_json::json;

use crate::host::trust_store;
use crate::terminal::{BOLD, DIM, harmless, plain_stdout, stdout};
use crate::verbs::Outcome;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery trust my-agents\n  hatchery trust my-agents --yes\n  hatchery trust --list\n  \
                        hatchery trust --revoke my-agents\n\n\
    Settings of a folder's hatchery.yaml that stay inside of the folder take effect at once. Access outside of it (network,\n\
    secrets, environment variables, other folders, services and models elsewhere, trusted keys, allowed hosts) needs trust in\n\
    the file, and new trust when the file changes. Trust does not cover the components in the folder: a component that\n\
    replaces another one has the grants of its name.\n\n\
    Nothing in the folder is run. Decisions are stored in $XDG_CONFIG_HOME/hatchery/trusted.json, or in ~/.config."
)]
pub struct Args {
    /// The served folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Trust the folder without asking
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    yes: bool,
    /// List the trusted folders
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Remove the folder from the trusted ones; a running host withdraws its access at once
    #[arg(long)]
    revoke: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let store = trust_store().context("cannot store decisions: set HOME or XDG_CONFIG_HOME")?;
    if args.list {
        return list(&store, args.json);
    }
    if args.revoke {
        return revoke(&store, &args);
    }
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let loaded = ConfigSource::new(&args.dir).with_trust_store(Some(store.clone())).required(true).load()?;
    let is_trusted = match &loaded.status {
        TrustStatus::NotRequired | TrustStatus::Trusted | TrustStatus::Named => true,
        TrustStatus::Untrusted(UntrustedReason::WritableByAll { .. } | UntrustedReason::NoList(_)) => {
            bail!("{}", loaded.explanation().unwrap_or_default())
        }
        TrustStatus::Untrusted(UntrustedReason::Undecided | UntrustedReason::Changed) => {
            decide(&store, &args, &loaded)?
        }
    };
    report(&args, &loaded, is_trusted)?;
    Ok(if is_trusted { Outcome::Success } else { Outcome::Failure })
}

/// Prints the requested access and asks. The stored hash is that of the text that was printed.
fn decide(store: &TrustStore, args: &Args, loaded: &LoadedConfig) -> anyhow::Result<bool> {
    let mut out = anstream::stderr();
    writeln!(out, "{} requests access outside of its folder:\n", harmless(&loaded.file.display().to_string()))?;
    for access in &loaded.external {
        writeln!(out, "  {BOLD}{}{BOLD:#}: {}", harmless(&access.key), harmless(&access.value))?;
    }
    writeln!(out)?;
    if !args.yes {
        if !io::stdin().is_terminal() {
            bail!(
                "there is no terminal for the question; review the lines above and run `hatchery trust {} --yes`",
                quoted_path(&args.dir)
            );
        }
        write!(out, "Trust it? [y/N] ")?;
        out.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(false);
        }
    }
    store.trust(&args.dir, &loaded.sha256)?;
    let (file, detail) = (loaded.file.display(), loaded.external_keys());
    tracing::info!(target: TARGET, decision = "trusted", %file, sha256 = loaded.sha256, detail, "trust");
    Ok(true)
}

fn report(args: &Args, loaded: &LoadedConfig, is_trusted: bool) -> io::Result<()> {
    let folder = args.dir.display();
    if args.json {
        let rights: Vec<_> =
            loaded.external.iter().map(|access| json!({"key": access.key, "value": access.value})).collect();
        let line = json!({"folder": args.dir, "trusted": is_trusted, "sha256": loaded.sha256, "rights": rights});
        return writeln!(plain_stdout(), "{line}");
    }
    let mut out = stdout();
    match (&loaded.status, is_trusted) {
        (TrustStatus::NotRequired, _) => {
            writeln!(out, "{folder}: {CONFIG_FILE} requests no access outside of the folder, so it needs no trust")
        }
        (TrustStatus::Trusted, _) => writeln!(out, "{folder} is already trusted"),
        (_, true) => writeln!(out, "{folder} is trusted until {CONFIG_FILE} changes"),
        (_, false) => writeln!(out, "{folder} is not trusted"),
    }
}

fn revoke(store: &TrustStore, args: &Args) -> anyhow::Result<Outcome> {
    let was_trusted = store.revoke(&args.dir)?;
    tracing::info!(target: TARGET, decision = "revoked", folder = %args.dir.display(), "trust");
    let folder = args.dir.display();
    if args.json {
        writeln!(plain_stdout(), "{}", json!({"folder": args.dir, "trusted": false, "revoked": was_trusted}))?;
    } else if was_trusted {
        writeln!(stdout(), "{folder} is no longer trusted")?;
    } else {
        writeln!(stdout(), "{folder} was not trusted")?;
    }
    Ok(if was_trusted { Outcome::Success } else { Outcome::Failure })
}

fn list(store: &TrustStore, as_json: bool) -> anyhow::Result<Outcome> {
    let state = |folder: &Path, trusted: &str| match std::fs::read(folder.join(CONFIG_FILE)) {
        Ok(text) if hatchery::trust::sha256(&text) == trusted => "trusted",
        Ok(_) => "changed since",
        Err(_) => "missing",
    };
    let folders = store.list()?;
    if folders.is_empty() && !as_json {
        writeln!(stdout(), "no folder is trusted")?;
    }
    for entry in folders {
        let state = state(&entry.folder, &entry.sha256);
        if as_json {
            writeln!(plain_stdout(), "{}", json!({"folder": entry.folder, "sha256": entry.sha256, "state": state}))?;
        } else {
            writeln!(stdout(), "{}  {DIM}{state}{DIM:#}", entry.folder.display())?;
        }
    }
    Ok(Outcome::Success)
}
