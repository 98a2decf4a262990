//! `hatchery push`: uploads a component to a registry.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use hatchery_registry::{Credentials, PASSWORD_VARIABLE, Reference, RegistryClient, SigningKey};
use serde_json::json;

use crate::flags::with_push_flags;
use crate::outcome::Outcome;
use crate::progress::TransferProgress;
use crate::terminal::{BOLD, DIM, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery push dice.wasm registry.example/team/dice:1.0\n  hatchery push dice.wasm localhost:5000/dice:1.0 \
                  --sign-with minisign.key\n\nCredentials are HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD, for the registry in \
                  HATCHERY_REGISTRY, or the credentials of `docker login`. A signature covers the component's name and, if the tag is a \
                  version, the version. HATCHERY_SIGNING_PASSWORD is the password of the signing key."
)]
pub struct Args {
    /// The component
    file: PathBuf,
    /// Registry, repository and tag
    reference: Reference,
    /// Sign the component with this minisign secret key
    #[arg(long, value_name = "KEYFILE")]
    sign_with: Option<PathBuf>,
    /// Use HTTP instead of HTTPS; registries on this machine always use HTTP
    #[arg(long)]
    plain_http: bool,
    /// Print the result as a line of JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.file.is_dir() {
        bail!("{} is a folder; name the component in it", args.file.display());
    }
    if !args.file.is_file() {
        bail!("{} not found; build it with `hatchery build`", args.file.display());
    }
    let key = match &args.sign_with {
        Some(path) => Some(SigningKey::read(path, std::env::var(PASSWORD_VARIABLE).ok()).await?),
        None => None,
    };
    let progress = TransferProgress::start();
    let client = RegistryClient::new(Credentials::from_env()?, args.plain_http, progress.listener());
    let result = client.push(&args.file, &args.reference, key.as_ref()).await;
    drop(progress);
    let pushed = result.map_err(with_push_flags)?;
    let pinned = args.reference.with_digest(&pushed.manifest);
    if args.json {
        let mut line = json!({
            "reference": args.reference, "pinned": pinned, "manifest": pushed.manifest, "digest": pushed.file,
        });
        if let (Some(line), Some(signer)) = (line.as_object_mut(), pushed.signer) {
            line.insert("signer".into(), json!(signer));
        }
        writeln!(plain_stdout(), "{line}")?;
    } else {
        let signer = pushed.signer.map(|signer| format!("  signed by {signer}")).unwrap_or_default();
        writeln!(stdout(), "pushed {BOLD}{}{BOLD:#}  {DIM}{pinned}{signer}{DIM:#}", args.reference)?;
    }
    Ok(Outcome::Success)
}
