//! `hatchery rollback`: puts a revision of a component that has served before back in its place. It works on files and needs no server; one
//! that watches the folder swaps as it always does.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::{audit, catalog};
use hatchery_wasm::{Revisions, Settings, StoredRevision, component_files, file_sha256, write_atomically};
use serde_json::json;

use crate::host::ConfigArgs;
use crate::terminal::{BOLD, DIM, plain_stdout, stdout};
use crate::verbs::Outcome;

/// How much of a hash people are shown.
const SHORT: usize = 12;

/// What to go back to.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery rollback word-counter\n  hatchery rollback word-counter --list --dir my-agents\n  \
                        hatchery rollback word-counter --to 3f5a0c --dir my-agents"
)]
pub struct Args {
    /// The component: the name of its file without `.wasm`
    #[arg(value_name = "NAME")]
    name: String,
    /// The revision, by the beginning of its SHA-256; without it, the one that served before the one in place
    #[arg(long, value_name = "SHA", conflicts_with = "list")]
    to: Option<String>,
    /// The served folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The folder for data, if the server was told another than DIR/.hatchery
    #[arg(long, value_name = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Only show which revisions there are
    #[arg(long)]
    list: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let config = args.config.source(&args.dir).load()?.require_host_access()?.config;
    let revisions = catalog::revisions(&args.dir, args.data_dir.as_deref(), &config);
    let kept = kept(&revisions, &args.name)?;
    let place = Place::find(&args.dir, &args.name, &catalog::component_settings(&config))?;
    if args.list {
        show(&args, &kept, &place)?;
        return Ok(Outcome::Success);
    }
    let target = match &args.to {
        Some(wanted) => named(&kept, wanted, &args.name)?,
        None => previous(&kept, &place, &args.name)?,
    };
    if place.sha256.as_ref() == Some(&target.sha256) {
        bail!("`{}` is at {} already", args.name, short(&target.sha256));
    }
    let bytes = revisions.read(&args.name, &target.sha256);
    let revision = || format!("revision {} of `{}`", short(&target.sha256), args.name);
    let bytes = bytes.with_context(revision)?;
    let signature = revisions.read_signature(&args.name, &target.sha256).with_context(revision)?;
    // What the host would not load is not put in its place.
    let admitted = config.signature_verifier().check_signed(&place.file, &bytes, signature.as_deref());
    let admitted =
        admitted.inspect_err(|error| audit::record_signature_refusal(&place.file, "roll back", &error.to_string()));
    if let Some(warning) = admitted.with_context(revision)? {
        tracing::warn!("{warning}");
    }
    put_in_place(&place.file, &bytes, signature.as_deref())
        .with_context(|| format!("{} stays as it is", place.file.display()))?;
    report(&args, target, &place)?;
    Ok(Outcome::Success)
}

/// Replaces a component with its signature: first the signature, since a host that watches the folder looks at both when the file changes.
fn put_in_place(file: &Path, bytes: &[u8], signature: Option<&str>) -> io::Result<()> {
    let beside = file.with_extension("wasm.minisig");
    match signature {
        Some(signature) => write_atomically(&beside, signature.as_bytes())?,
        None => match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        },
    }
    write_atomically(file, bytes)
}

/// The file of a component, and what is in it; nothing when it is to be made.
struct Place {
    file: PathBuf,
    sha256: Option<String>,
}

impl Place {
    fn find(folder: &Path, name: &str, settings: &Settings) -> anyhow::Result<Self> {
        match component_files(folder, name, settings).as_slice() {
            [] => Ok(Self { file: folder.join(format!("{name}.wasm")), sha256: None }),
            [file] => {
                let sha256 = file_sha256(file).with_context(|| format!("{} cannot be read", file.display()))?;
                Ok(Self { file: file.clone(), sha256: Some(sha256) })
            }
            files => {
                let files: Vec<_> = files.iter().map(|file| format!("`{}`", file.display())).collect();
                bail!("{} are components named `{name}`; rename or remove one", files.join(" and "))
            }
        }
    }
}

fn kept(revisions: &Revisions, name: &str) -> anyhow::Result<Vec<StoredRevision>> {
    let folder = revisions.directory().display();
    // A name with a separator would be a path to somewhere else.
    let is_name = !name.contains(['/', '\\']) && !name.starts_with('.');
    let kept = if is_name { revisions.list(name).with_context(|| folder.to_string())? } else { Vec::new() };
    if kept.is_empty() {
        let names = revisions.names().with_context(|| folder.to_string())?;
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let known =
            if names.is_empty() { "there is none of any component".to_owned() } else { format!("there is {names}") };
        bail!("no revision of `{name}` is kept in {folder}; {known}. `hatchery serve` keeps what it loads");
    }
    Ok(kept)
}

/// The revision whose hash begins like this.
fn named<'a>(kept: &'a [StoredRevision], wanted: &str, name: &str) -> anyhow::Result<&'a StoredRevision> {
    let wanted = wanted.to_ascii_lowercase();
    let fitting: Vec<_> = kept.iter().filter(|revision| revision.sha256.starts_with(&wanted)).collect();
    match fitting.as_slice() {
        [revision] => Ok(revision),
        [] => {
            bail!("no kept revision of `{name}` begins with `{wanted}`; `hatchery rollback {name} --list` shows them")
        }
        several => bail!("{} kept revisions of `{name}` begin with `{wanted}`; give more of it", several.len()),
    }
}

/// The revision that served before the one in place.
fn previous<'a>(kept: &'a [StoredRevision], place: &Place, name: &str) -> anyhow::Result<&'a StoredRevision> {
    let current = place.sha256.as_ref().and_then(|hash| kept.iter().position(|revision| revision.sha256 == *hash));
    let previous = current.map_or(kept.first(), |current| kept.get(current + 1));
    previous.with_context(|| {
        let hash = place.sha256.as_deref().map(short).unwrap_or_default();
        format!("`{name}` has nothing to go back to: no revision is kept that served before {hash}, which is in place")
    })
}

fn show(args: &Args, kept: &[StoredRevision], place: &Place) -> anyhow::Result<()> {
    let is_current = |revision: &StoredRevision| place.sha256.as_ref() == Some(&revision.sha256);
    if args.json {
        let revisions = kept.iter().map(|it| {
            json!({"sha256": it.sha256, "size": it.size, "servedSince": it.served_since, "isInPlace": is_current(it)})
        });
        let list = json!({"name": args.name, "file": place.file, "revisions": revisions.collect::<Vec<_>>()});
        writeln!(plain_stdout(), "{list}")?;
        return Ok(());
    }
    let mut out = stdout();
    for revision in kept {
        let mark = if is_current(revision) { "  in place" } else { "" };
        let time = httpdate::fmt_http_date(
            std::time::UNIX_EPOCH + std::time::Duration::from_secs_f64(revision.served_since.as_seconds().max(0.0)),
        );
        let (hash, size) = (short(&revision.sha256), revision.size);
        writeln!(out, "{BOLD}{hash}{BOLD:#}  {size} bytes  {DIM}served since {time}{DIM:#}{mark}")?;
    }
    Ok(())
}

fn report(args: &Args, target: &StoredRevision, place: &Place) -> anyhow::Result<()> {
    if args.json {
        let done = json!({
            "name": args.name, "file": place.file, "sha256": target.sha256, "replaced": place.sha256,
        });
        writeln!(plain_stdout(), "{done}")?;
        return Ok(());
    }
    let before = place.sha256.as_deref().map_or_else(|| "nothing".to_owned(), |hash| short(hash).to_owned());
    writeln!(
        stdout(),
        "{} is {} now, and was {before}; a server that watches the folder runs it within a second",
        place.file.display(),
        short(&target.sha256)
    )?;
    Ok(())
}

fn short(sha256: &str) -> &str {
    sha256.get(..SHORT).unwrap_or(sha256)
}
