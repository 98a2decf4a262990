//! `hatchery grant`: adds the grants that a component requests to `hatchery.yaml`.

use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::CONFIG_FILE;
use hatchery::shell::quote_path;
use hatchery_files::{FileAccess, write_atomically};
use hatchery_wasm::{Settings, component_files, inspect_file};

use crate::config_edit::{EditError, add_grants};
use crate::host::{ConfigArgs, StorageArgs, explain_trust};
use crate::outcome::Outcome;
use crate::terminal::{BOLD, WARNING, escape_control, list_names, stdout};
use crate::{compiler, files};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery grant concierge\n  hatchery grant concierge --dir my-agents --yes\n\n\
    Shows the missing grants that the component requests, asks for approval, and adds them to hatchery.yaml. Comments and \
    layout of the file are preserved. Read the lines before you approve: they decide what the component can access.\n\n\
    A component may use more than it requests in advance, such as hosts. When it is denied, the log has the lines that would \
    allow it.")]
pub struct Args {
    /// Name of the component
    component: String,
    /// The served folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Add the lines without asking
    #[arg(long)]
    yes: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { component, dir, yes } = args;
    files::require_folder(&dir)?;
    let source = ConfigArgs::default().source(&dir);
    let config = source.load()?.config;
    let cache = StorageArgs::default().code_cache(|name| std::env::var_os(name));
    let options = compiler::load_options(&config, cache)?;
    let file = find_component(&dir, &component, &options.settings)?;
    let report = inspect_file(&options, &file).await?.grants;
    let Some(lines) = report.missing_lines(&component) else {
        writeln!(stdout(), "{BOLD}{component}{BOLD:#} has all grants that it requests")?;
        return Ok(Outcome::Success);
    };
    let (folders, grants): (Vec<_>, Vec<_>) =
        report.missing_grants().into_iter().partition(|it| it.starts_with("files: "));
    writeln!(stdout(), "{}", escape_control(&lines))?;
    for (key, why) in report.why.iter().filter(|(key, _)| report.missing.contains_key(key.as_str())) {
        writeln!(stdout(), "# {key}: {}", escape_control(why))?;
    }
    if !folders.is_empty() {
        anstream::eprintln!("{WARNING}not added:{WARNING:#} `files`, since only you know which FOLDER to give");
    }
    if grants.is_empty() {
        return Ok(Outcome::Failure);
    }
    let target = dir.join(CONFIG_FILE);
    if !yes && !confirm(&target)? {
        return Ok(Outcome::Failure);
    }
    let _lock = lock(&dir);
    edit_config(&target, &component, &grants)?;
    writeln!(stdout(), "added to {BOLD}{}{BOLD:#}", target.display())?;
    if explain_trust(&source.load()?).is_some() {
        anstream::eprintln!(
            "{WARNING}the file now requests access outside of its folder;{WARNING:#} to allow it, run: hatchery trust {}",
            quote_path(&dir)
        );
    }
    Ok(Outcome::Success)
}

/// Adds grants of a component to a configuration file, which is created if it does not exist.
fn edit_config(target: &Path, component: &str, grants: &[String]) -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(target) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| target.display().to_string()),
    };
    let edited = add_grants(&text, component, grants).map_err(|error| match error {
        EditError::Invalid(reason) => anyhow::anyhow!("{}: {reason}", target.display()),
        EditError::Layout => {
            anyhow::anyhow!("{}: its layout is unusual, so add the lines above yourself", target.display())
        }
    })?;
    write_atomically(target, edited.as_bytes(), access_of(target))
        .with_context(|| format!("cannot write {}", target.display()))
}

/// Returns the only file of a component.
fn find_component(dir: &Path, component: &str, settings: &Settings) -> anyhow::Result<PathBuf> {
    match component_files(dir, component, settings).as_slice() {
        [file] => Ok(file.clone()),
        [] => {
            let files = files::find_components(dir)?;
            let names: Vec<_> =
                files.iter().filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect();
            bail!("no component `{component}` in {}; available: {}", dir.display(), list_names(&names))
        }
        several => {
            let files: Vec<_> = several.iter().map(|file| format!("`{}`", file.display())).collect();
            bail!("{} are components named `{component}`; rename or remove one", files.join(" and "))
        }
    }
}

/// Locks a folder until the result is dropped, so that concurrent grants are not lost. `None` if it cannot be locked.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Returns the access for a file that replaces `file`. A private file stays private.
fn access_of(file: &Path) -> FileAccess {
    let is_private = file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0);
    if is_private { FileAccess::OwnerOnly } else { FileAccess::Default }
}

/// Asks whether to add the lines.
fn confirm(target: &Path) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("cannot ask without a terminal; pass --yes to add these lines to {}", target.display());
    }
    anstream::eprint!("add these lines to {}? [y/N] ", target.display());
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read stdin")?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
