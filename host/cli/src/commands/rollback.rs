//! `hatchery rollback`: replaces a component by an earlier revision. Changes only files; a server that watches the
//! folder reloads the component.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::shell::quote_path;
use hatchery::{audit, catalog};
use hatchery_wasm::{Revisions, Settings, StoredRevision, component_files, file_sha256};
use serde_json::json;

use crate::files::require_folder;
use crate::host::ConfigArgs;
use crate::outcome::Outcome;
use crate::terminal::{BOLD, DIM, http_date, list_names, plain_stdout, stdout};

/// Number of characters of a hash in text output.
const SHORT_HASH_CHARS: usize = 12;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery rollback word-counter\n  hatchery rollback word-counter --list --dir my-agents\n  \
                        hatchery rollback word-counter --to 3f5a0c --dir my-agents"
)]
pub struct Args {
    /// Name of the component: its file name without `.wasm`
    #[arg(value_name = "NAME")]
    name: String,
    /// The revision, as a prefix of its SHA-256; by default the one that was served before the current one
    #[arg(long, value_name = "SHA", conflicts_with = "list")]
    to: Option<String>,
    /// The served folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The data folder of the server; DIR/.hatchery by default
    #[arg(long, value_name = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// List the stored revisions and exit
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the command that lists the revisions, for error messages.
    fn list_command(&self) -> String {
        let mut command = format!("hatchery rollback {} --list", self.name);
        let dir = Some(&self.dir).filter(|dir| dir.as_path() != Path::new("."));
        for (flag, path) in [("--dir", dir), ("--data-dir", self.data_dir.as_ref())] {
            if let Some(path) = path {
                command.push_str(&format!(" {flag} {}", quote_path(path)));
            }
        }
        command
    }
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    require_folder(&args.dir)?;
    let config = args.config.source(&args.dir).load()?.require_host_access()?.config;
    let store = catalog::revisions(&args.dir, args.data_dir.as_deref(), &config);
    let revisions = list_revisions(&store, &args.name)?;
    let current = CurrentFile::find(&args.dir, &args.name, &catalog::component_settings(&config))?;
    if args.list {
        print_list(&args, &revisions, &current)?;
        return Ok(Outcome::Success);
    }
    let target = match &args.to {
        Some(prefix) => find_by_prefix(&revisions, prefix, &args)?,
        None => find_previous(&revisions, &current, &args.name)?,
    };
    if current.sha256.as_ref() == Some(&target.sha256) {
        bail!("`{}` is already at revision {}", args.name, short(&target.sha256));
    }
    let revision = || format!("revision {} of `{}`", short(&target.sha256), args.name);
    let bytes = store.read(&args.name, &target.sha256).with_context(revision)?;
    let signature = store.read_signature(&args.name, &target.sha256).with_context(revision)?;
    // A revision that the host would refuse to load is not restored.
    let verification = config.signature_verifier().check_signed(&current.path, &bytes, signature.as_deref());
    let verification = verification
        .inspect_err(|error| audit::record_signature_refusal(&current.path, "roll back", &error.to_string()));
    if let Some(warning) = verification.with_context(revision)? {
        tracing::warn!("{warning}");
    }
    store
        .restore(&args.name, &target.sha256, &current.path)
        .with_context(|| format!("cannot replace {}; it is unchanged", current.path.display()))?;
    print_result(&args, target, &current)?;
    Ok(Outcome::Success)
}

/// The file of a component in the served folder.
struct CurrentFile {
    path: PathBuf,
    /// `None` if the file does not exist.
    sha256: Option<String>,
}

impl CurrentFile {
    fn find(folder: &Path, name: &str, settings: &Settings) -> anyhow::Result<Self> {
        match component_files(folder, name, settings).as_slice() {
            [] => Ok(Self { path: folder.join(format!("{name}.wasm")), sha256: None }),
            [path] => {
                let sha256 = file_sha256(path).with_context(|| format!("cannot read {}", path.display()))?;
                Ok(Self { path: path.clone(), sha256: Some(sha256) })
            }
            paths => {
                let paths: Vec<_> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
                bail!("{} are components named `{name}`; rename or remove one", paths.join(" and "))
            }
        }
    }
}

/// Returns the stored revisions of a component, newest first.
fn list_revisions(store: &Revisions, name: &str) -> anyhow::Result<Vec<StoredRevision>> {
    let folder = store.directory().display();
    // A separator would lead to another folder.
    let is_valid_name = !name.contains(['/', '\\']) && !name.starts_with('.');
    let revisions =
        if is_valid_name { store.list(name).with_context(|| format!("cannot read {folder}"))? } else { Vec::new() };
    if revisions.is_empty() {
        let names = store.names().with_context(|| format!("cannot read {folder}"))?;
        bail!(
            "no stored revision of `{name}` in {folder}; available: {}. `hatchery serve` stores each revision that it serves",
            list_names(&names)
        );
    }
    Ok(revisions)
}

fn find_by_prefix<'a>(
    revisions: &'a [StoredRevision],
    prefix: &str,
    args: &Args,
) -> anyhow::Result<&'a StoredRevision> {
    let name = &args.name;
    let prefix = prefix.to_ascii_lowercase();
    let matches: Vec<_> = revisions.iter().filter(|revision| revision.sha256.starts_with(&prefix)).collect();
    match matches.as_slice() {
        [revision] => Ok(revision),
        [] => bail!("no stored revision of `{name}` starts with `{prefix}`; see `{}`", args.list_command()),
        several => {
            bail!("{} stored revisions of `{name}` start with `{prefix}`; use a longer prefix", several.len())
        }
    }
}

/// Returns the revision that was served before the current one.
fn find_previous<'a>(
    revisions: &'a [StoredRevision],
    current: &CurrentFile,
    name: &str,
) -> anyhow::Result<&'a StoredRevision> {
    let index = current.sha256.as_ref().and_then(|hash| revisions.iter().position(|it| it.sha256 == *hash));
    let previous = index.map_or(revisions.first(), |index| revisions.get(index + 1));
    previous.with_context(|| {
        let hash = current.sha256.as_deref().map(short).unwrap_or_default();
        format!("`{name}` has no stored revision before the current one, {hash}")
    })
}

fn print_list(args: &Args, revisions: &[StoredRevision], current: &CurrentFile) -> anyhow::Result<()> {
    let is_current = |revision: &StoredRevision| current.sha256.as_ref() == Some(&revision.sha256);
    if args.json {
        let revisions = revisions.iter().map(|it| {
            json!({"sha256": it.sha256, "size": it.size, "servedSince": it.served_since, "isCurrent": is_current(it)})
        });
        let file = current.path.display().to_string();
        let list = json!({"name": args.name, "file": file, "revisions": revisions.collect::<Vec<_>>()});
        writeln!(plain_stdout(), "{list}")?;
        return Ok(());
    }
    let mut out = stdout();
    for revision in revisions {
        let mark = if is_current(revision) { "  current" } else { "" };
        let time = http_date(revision.served_since);
        let (hash, size) = (short(&revision.sha256), revision.size);
        writeln!(out, "{BOLD}{hash}{BOLD:#}  {size} bytes  {DIM}served since {time}{DIM:#}{mark}")?;
    }
    Ok(())
}

fn print_result(args: &Args, target: &StoredRevision, previous: &CurrentFile) -> anyhow::Result<()> {
    if args.json {
        let file = previous.path.display().to_string();
        let line = json!({
            "name": args.name, "file": file, "sha256": target.sha256, "previousSha256": previous.sha256,
        });
        writeln!(plain_stdout(), "{line}")?;
        return Ok(());
    }
    let replaced = match &previous.sha256 {
        Some(hash) => format!("it replaces {}", short(hash)),
        None => "the file did not exist".to_owned(),
    };
    let (path, hash) = (previous.path.display(), short(&target.sha256));
    writeln!(stdout(), "restored {path} ({hash}); {replaced}. A server that watches the folder reloads it")?;
    Ok(())
}

fn short(sha256: &str) -> &str {
    sha256.get(..SHORT_HASH_CHARS).unwrap_or(sha256)
}
