//! `hatchery pull`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery_registry::{
    Change, ComponentFolder, Credentials, PullMode, PulledComponent, Reference, RegistryClient, RegistryError,
    SignaturePolicy, SignatureVerifier, TrustedKey,
};
use serde_json::json;

use crate::host::ConfigArgs;
use crate::progress::TransferProgress;
use crate::terminal::{BOLD, DIM, ERROR, explain, plain_stdout, stdout};
use crate::verbs::Outcome;

/// What to pull, and into which folder.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery pull my-agents registry.example/team/dice:1.0\n  hatchery pull my-agents\n  hatchery pull my-agents \
                  --update\n\nThe first adds a component. The second restores and verifies all that hatchery.lock lists. The third takes \
                  what the registries have now.\n\nCredentials come from HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD for the registry \
                  in HATCHERY_REGISTRY, or from `docker login`."
)]
pub struct Args {
    /// The served folder
    dir: PathBuf,
    /// Registry, repository and tag or digest; all that is in hatchery.lock when left out
    reference: Option<Reference>,
    /// The component's name in the folder; the last part of the repository's name by default
    #[arg(long, requires = "reference")]
    name: Option<String>,
    /// Replace what is locked, and what has been changed in the folder, by what the registry has now
    #[arg(long, conflicts_with = "locked")]
    update: bool,
    /// Leave hatchery.lock as it is: what it does not name, or names otherwise, is an error
    #[arg(long)]
    locked: bool,
    /// What happens to components that no trusted key has signed: off, warn or require; as hatchery.yaml says by default
    #[arg(long, value_name = "POLICY")]
    signatures: Option<SignaturePolicy>,
    /// Trust this minisign public key, or the one in this file, too
    #[arg(long, value_name = "KEY_OR_FILE", value_parser = trusted_key)]
    trust: Vec<TrustedKey>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Speak plain HTTP, as is done with registries on this machine anyway
    #[arg(long)]
    plain_http: bool,
    /// Write a line of JSON for each component
    #[arg(long)]
    json: bool,
}

fn trusted_key(text: &str) -> anyhow::Result<TrustedKey> {
    let path = Path::new(text);
    if path.is_file() {
        let key = std::fs::read_to_string(path).with_context(|| text.to_owned())?;
        return key.parse().with_context(|| text.to_owned());
    }
    Ok(text.parse()?)
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{}: there is no such folder", args.dir.display());
    }
    let progress = TransferProgress::start();
    let client = RegistryClient::new(Credentials::from_env()?, args.plain_http, progress.listener());
    let folder = ComponentFolder::new(args.dir.clone(), client, args.signature_verifier()?);
    let results = match &args.reference {
        Some(reference) => vec![folder.add(reference, args.name.as_deref(), args.mode()).await],
        None => folder.restore(args.mode()).await?,
    };
    drop(progress);
    let mut outcome = Outcome::Success;
    for result in results {
        if result.is_err() {
            outcome = Outcome::Failure;
        }
        if args.json { print_json(result)? } else { print(result)? }
    }
    Ok(outcome)
}

impl Args {
    fn mode(&self) -> PullMode {
        match (self.update, self.locked) {
            (true, _) => PullMode::Update,
            (false, true) => PullMode::Locked,
            (false, false) => PullMode::Add,
        }
    }

    /// Creates the verifier from hatchery.yaml and the flags.
    fn signature_verifier(&self) -> anyhow::Result<SignatureVerifier> {
        let config = self.config.source(&self.dir).load()?.require_host_access()?.config;
        let keys = config.registry.trusted_keys.iter().chain(&self.trust).cloned().collect();
        let verifier = config.signature_verifier_with(self.signatures.unwrap_or(config.registry.signatures), keys);
        verifier.check()?;
        Ok(verifier)
    }
}

fn print_json(result: Result<PulledComponent, RegistryError>) -> anyhow::Result<()> {
    let line = match result {
        Ok(pulled) => serde_json::to_value(pulled)?,
        Err(error) => json!({"error": explain(&error.into())}),
    };
    Ok(writeln!(plain_stdout(), "{line}")?)
}

fn print(result: Result<PulledComponent, RegistryError>) -> io::Result<()> {
    let pulled = match result {
        Ok(pulled) => pulled,
        Err(error) => {
            anstream::eprintln!("{ERROR}error:{ERROR:#} {}", explain(&error.into()));
            return Ok(());
        }
    };
    for warning in &pulled.warnings {
        anstream::eprintln!("{ERROR}warning:{ERROR:#} {warning}");
    }
    let change = match pulled.change {
        Change::Added => "added",
        Change::Restored => "restored",
        Change::Updated => "updated",
        Change::Unchanged => "unchanged",
    };
    let (name, reference, manifest) = (&pulled.name, &pulled.reference, &pulled.manifest);
    let signed = pulled.signer.map(|signer| format!("  signed by {signer}")).unwrap_or_default();
    writeln!(stdout(), "{BOLD}{name}{BOLD:#} {change}  {DIM}{reference}  {manifest}{signed}{DIM:#}")
}
