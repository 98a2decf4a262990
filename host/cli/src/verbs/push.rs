//! `hatchery push`.

use std::io::Write;
use std::path::PathBuf;

use hatchery_registry::{Credentials, PASSWORD_VARIABLE, Reference, RegistryClient, SigningKey};
use serde_json::json;

use crate::progress::TransferProgress;
use crate::terminal::{BOLD, DIM, plain_stdout, stdout};
use crate::verbs::Outcome;

/// What to push, and where to.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery push dice.wasm registry.example/team/dice:1.0\n  hatchery push dice.wasm localhost:5000/dice:1.0 \
                  --sign-with minisign.key\n\nCredentials come from HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD for the registry in \
                  HATCHERY_REGISTRY, or from `docker login`. A signature is for the name in the reference and, if the tag is one, \
                  the version. The password of a key is read from HATCHERY_SIGNING_PASSWORD."
)]
pub struct Args {
    /// The component
    file: PathBuf,
    /// Registry, repository and tag
    reference: Reference,
    /// Sign the component with this minisign secret key
    #[arg(long, value_name = "KEYFILE")]
    sign_with: Option<PathBuf>,
    /// Speak plain HTTP, as is done with registries on this machine anyway
    #[arg(long)]
    plain_http: bool,
    /// Write the result as a line of JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let key = match &args.sign_with {
        Some(path) => Some(SigningKey::read(path, std::env::var(PASSWORD_VARIABLE).ok()).await?),
        None => None,
    };
    let progress = TransferProgress::start();
    let client = RegistryClient::new(Credentials::from_env()?, args.plain_http, progress.listener());
    let pushed = client.push(&args.file, &args.reference, key.as_ref()).await?;
    drop(progress);
    let pinned = args.reference.pinned(&pushed.manifest);
    if args.json {
        let mut line = json!({
            "reference": args.reference, "pinned": pinned, "manifest": pushed.manifest, "digest": pushed.file,
        });
        if let (Some(line), Some(signer)) = (line.as_object_mut(), pushed.signer) {
            line.insert("signer".into(), json!(signer));
        }
        writeln!(plain_stdout(), "{line}")?;
    } else {
        let signed = pushed.signer.map(|signer| format!("  signed by {signer}")).unwrap_or_default();
        writeln!(stdout(), "{BOLD}{}{BOLD:#}  {DIM}{pinned}{signed}{DIM:#}", args.reference)?;
    }
    Ok(Outcome::Success)
}
