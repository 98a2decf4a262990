//! `hatchery pull`: downloads components from registries and verifies those in the folder.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hatchery_registry::{
    Change, ComponentFolder, Credentials, PullMode, PulledComponent, Reference, RegistryClient, RegistryError,
    SignaturePolicy, SignatureVerifier, TrustedKey,
};
use serde_json::json;

use crate::files::require_folder;
use crate::flags::with_pull_flags;
use crate::host::ConfigArgs;
use crate::outcome::Outcome;
use crate::progress::TransferProgress;
use crate::terminal::{BOLD, DIM, ERROR, WARNING, escape_control, format_error, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery pull my-agents registry.example/team/dice:1.0\n  hatchery pull my-agents\n  hatchery pull my-agents \
                  --update\n\nThe first command adds a component. The second restores and verifies the components in hatchery.lock. The \
                  third updates them to the current versions of their tags.\n\nCredentials are HATCHERY_REGISTRY_USER and \
                  HATCHERY_REGISTRY_PASSWORD, for the registry in HATCHERY_REGISTRY, or the credentials of `docker login`."
)]
pub struct Args {
    /// The served folder
    dir: PathBuf,
    /// Registry, repository and tag or digest; all components in hatchery.lock by default
    reference: Option<Reference>,
    /// Name of the component in the folder; the last part of the repository's name by default
    #[arg(long, requires = "reference")]
    name: Option<String>,
    /// Replace locked and locally changed components by the registry's current versions
    #[arg(long, conflicts_with = "locked")]
    update: bool,
    /// Do not change hatchery.lock; fail if the component is not in it, or has a different reference
    #[arg(long)]
    locked: bool,
    /// Check signatures of trusted keys: off, warn or require; overrides `registry.signatures` of hatchery.yaml
    #[arg(long, value_name = "POLICY")]
    signatures: Option<SignaturePolicy>,
    /// Trust this minisign public key, or the one in this file, in addition to the keys in hatchery.yaml
    #[arg(long, value_name = "KEY_OR_FILE", value_parser = parse_trusted_key)]
    trust: Vec<TrustedKey>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Use HTTP instead of HTTPS; registries on this machine always use HTTP
    #[arg(long)]
    plain_http: bool,
    /// Print a line of JSON for each component
    #[arg(long)]
    json: bool,
}

/// Returns the key in a text or in the file that the text names.
///
/// # Errors
/// The reason as a string, because clap prints no causes.
fn parse_trusted_key(text: &str) -> Result<TrustedKey, String> {
    let key = match Path::new(text) {
        path if path.is_file() => std::fs::read_to_string(path).map_err(|error| error.to_string())?,
        _ => text.to_owned(),
    };
    key.parse().map_err(|error: RegistryError| error.to_string())
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    require_folder(&args.dir)?;
    let progress = TransferProgress::start();
    let client = RegistryClient::new(Credentials::from_env()?, args.plain_http, progress.listener());
    let folder = ComponentFolder::new(args.dir.clone(), client, args.signature_verifier()?);
    let results = match &args.reference {
        Some(reference) => {
            let name = args.name.as_deref().unwrap_or(reference.name());
            vec![(name.to_owned(), folder.add(reference, Some(name), args.mode()).await)]
        }
        None => folder.restore(args.mode()).await.map_err(with_pull_flags)?,
    };
    drop(progress);
    let mut outcome = Outcome::Success;
    for (name, result) in results {
        if result.is_err() {
            outcome = Outcome::Failure;
        }
        let result = result.map_err(with_pull_flags);
        if args.json { print_json(&name, result)? } else { print(&name, result)? }
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
        verifier.check().map_err(with_pull_flags)?;
        Ok(verifier)
    }
}

fn print_json(name: &str, result: anyhow::Result<PulledComponent>) -> anyhow::Result<()> {
    let line = match result {
        Ok(pulled) => serde_json::to_value(pulled)?,
        Err(error) => json!({"name": name, "error": format_error(&error)}),
    };
    Ok(writeln!(plain_stdout(), "{line}")?)
}

fn print(name: &str, result: anyhow::Result<PulledComponent>) -> io::Result<()> {
    let pulled = match result {
        Ok(pulled) => pulled,
        Err(error) => {
            anstream::eprintln!("{ERROR}error:{ERROR:#} {name}: {}", escape_control(&format_error(&error)));
            return Ok(());
        }
    };
    for warning in &pulled.warnings {
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {warning}");
    }
    let change = match pulled.change {
        Change::Added => "added",
        Change::Restored => "restored",
        Change::Updated => "updated",
        Change::Unchanged => "unchanged",
    };
    let (name, reference, manifest) = (&pulled.name, &pulled.reference, &pulled.manifest);
    let signer = pulled.signer.map(|signer| format!("  signed by {signer}")).unwrap_or_default();
    writeln!(stdout(), "{BOLD}{name}{BOLD:#} {change}  {DIM}{reference}  {manifest}{signer}{DIM:#}")
}
