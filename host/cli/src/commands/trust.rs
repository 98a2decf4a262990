//! `hatchery trust`: allows or denies the access outside of a folder that its configuration requests. Reads only
//! `hatchery.yaml` and the list of trusted folders, and runs nothing of the folder.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use hatchery::audit::TARGET;
use hatchery::shell::quote_path;
use hatchery::trust::{ConfigSource, LoadedConfig, TrustStatus, TrustStore, UntrustedReason};
use hatchery::{CONFIG_FILE, ConfigError};
use serde_json::json;

use crate::files::require_folder;
use crate::host::trust_store;
use crate::outcome::Outcome;
use crate::terminal::{BOLD, DIM, escape_control, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery trust my-agents\n  hatchery trust my-agents --yes\n  hatchery trust --list\n  \
                        hatchery trust --revoke my-agents\n\n\
    Settings in hatchery.yaml that only concern the folder need no trust. Access outside of the folder (network, secrets, \
    environment variables, other folders, external services and models, trusted keys, allowed hosts) needs it, and needs it \
    again after each change of the file. Trust is in the file, not in the components: a component that replaces another one \
    gets the grants of its name.\n\n\
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
    /// Stop trusting the folder; a running host withdraws its access immediately
    #[arg(long)]
    revoke: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let store = trust_store().context("no folder for the list of trusted folders; set HOME or XDG_CONFIG_HOME")?;
    if args.list {
        return list(&store, args.json);
    }
    if args.revoke {
        return revoke(&store, &args);
    }
    require_folder(&args.dir)?;
    let source = ConfigSource::new(&args.dir).with_trust_store(Some(store.clone())).required(true);
    let loaded = source.load().map_err(|error| match error {
        ConfigError::Missing { file, .. } => {
            anyhow!("{}: file not found, so there is nothing to trust", file.display())
        }
        error => error.into(),
    })?;
    let is_trusted = match &loaded.status {
        TrustStatus::NotRequired | TrustStatus::Trusted | TrustStatus::Named => true,
        TrustStatus::Untrusted(UntrustedReason::WritableByAll { .. } | UntrustedReason::NoList(_)) => {
            bail!("{}", loaded.explanation().unwrap_or_default())
        }
        TrustStatus::Untrusted(UntrustedReason::Undecided | UntrustedReason::Changed) => {
            decide(&store, &args, &loaded)?
        }
    };
    print_result(&args, &loaded, is_trusted)?;
    Ok(if is_trusted { Outcome::Success } else { Outcome::Failure })
}

/// Prints the requested access and asks. Stores the hash of exactly the text that was printed.
fn decide(store: &TrustStore, args: &Args, loaded: &LoadedConfig) -> anyhow::Result<bool> {
    let mut out = anstream::stderr();
    writeln!(out, "{} requests access outside of its folder:\n", escape_control(&loaded.file.display().to_string()))?;
    for request in &loaded.external {
        writeln!(out, "  {BOLD}{}{BOLD:#}: {}", escape_control(&request.key), escape_control(&request.value))?;
    }
    writeln!(out)?;
    if !args.yes {
        if !io::stdin().is_terminal() {
            bail!(
                "cannot ask without a terminal; review the lines above and run `hatchery trust {} --yes`",
                quote_path(&args.dir)
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

fn print_result(args: &Args, loaded: &LoadedConfig, is_trusted: bool) -> io::Result<()> {
    let folder = args.dir.display();
    if args.json {
        let access: Vec<_> =
            loaded.external.iter().map(|request| json!({"key": request.key, "value": request.value})).collect();
        let line =
            json!({"folder": folder.to_string(), "trusted": is_trusted, "sha256": loaded.sha256, "access": access});
        return writeln!(plain_stdout(), "{line}");
    }
    let mut out = stdout();
    match (&loaded.status, is_trusted) {
        (TrustStatus::NotRequired, _) => {
            writeln!(out, "{folder} needs no trust: {CONFIG_FILE} requests no access outside of the folder")
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
        writeln!(
            plain_stdout(),
            "{}",
            json!({"folder": folder.to_string(), "trusted": false, "revoked": was_trusted})
        )?;
    } else if was_trusted {
        writeln!(stdout(), "{folder} is no longer trusted")?;
    } else {
        writeln!(stdout(), "{folder} was not trusted")?;
    }
    Ok(if was_trusted { Outcome::Success } else { Outcome::Failure })
}

fn list(store: &TrustStore, as_json: bool) -> anyhow::Result<Outcome> {
    let state = |folder: &Path, trusted_hash: &str| match std::fs::read(folder.join(CONFIG_FILE)) {
        Ok(text) if hatchery::trust::sha256(&text) == trusted_hash => "trusted",
        Ok(_) => "changed",
        Err(_) => "missing",
    };
    let folders = store.list()?;
    if folders.is_empty() && !as_json {
        writeln!(stdout(), "no trusted folders")?;
    }
    for entry in folders {
        let state = state(&entry.folder, &entry.sha256);
        if as_json {
            writeln!(
                plain_stdout(),
                "{}",
                json!({"folder": entry.folder.display().to_string(), "sha256": entry.sha256, "state": state})
            )?;
        } else {
            writeln!(stdout(), "{}  {DIM}{state}{DIM:#}", entry.folder.display())?;
        }
    }
    Ok(Outcome::Success)
}
