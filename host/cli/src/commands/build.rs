//! `hatchery build`: builds a component from its sources.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use hatchery::shell::quote_path;
use hatchery::{CONFIG_FILE, Config};
use hatchery_core::check_agent_name;
use hatchery_engine::yaml::ROOT_FILE;
use hatchery_files::{FileAccess, write_atomically};
use hatchery_wasm::{Inspection, inspect};

use crate::compiler;
use crate::host::StorageArgs;
use crate::inspection::uncallable_tools;
use crate::languages::{self, BuiltComponent, Language};
use crate::outcome::Outcome;
use crate::projects::find_projects;
use crate::terminal::{BOLD, ERROR, WARNING, escape_control, format_error, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery build dice\n  hatchery build dice --out my-agents/dice.wasm",
    after_long_help = "A project is a crate (Rust), a folder with a pyproject.toml that has a table [tool.hatchery] (Python), \
                       or a folder with a package.json that has a key \"hatchery\" (JavaScript). The build tools for Python \
                       and JavaScript are downloaded by the first build, in locked versions, into the user's cache folder. \
                       Later builds need no network. Projects in Rust share one target folder there, unless they are members of a workspace \
                       or CARGO_TARGET_DIR is set.\n\nThe component is written only if a host can load it: it is compiled to \
                       machine code, which a host then finds in the code cache, and describes itself, without any grants.\n\nA build runs code of the project and of its dependencies on this \
                       machine, with your permissions: cargo runs build scripts (build.rs) and procedural macros, and \
                       Python or JavaScript modules are imported to find their exports. Build only code that you trust. \
                       `hatchery serve` needs only the .wasm file.\n\nExamples:\n  hatchery build dice\n  \
                       hatchery build dice --out my-agents/dice.wasm"
)]
pub struct Args {
    /// Folder of the project
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Output file, or an existing folder; NAME.wasm in the project folder by default
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Cargo profile of a component in Rust
    #[arg(long, default_value = "release")]
    profile: String,
    /// Write the component without checking that a host can load it
    #[arg(long)]
    no_check: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    check_project(&args.dir)?;
    let options =
        BuildOptions { profile: args.profile, out: args.out, is_checked: !args.no_check, is_development: false };
    let built = match build_project(&args.dir, options).await? {
        BuildResult::Built(built) => built,
        BuildResult::Failed => return Ok(Outcome::Failure),
        BuildResult::Unloadable(reason) | BuildResult::Rejected(reason) => {
            anstream::eprintln!(
                "{ERROR}error:{ERROR:#} it compiles, but a host would not load it: {}",
                escape_control(&reason)
            );
            return Ok(Outcome::Failure);
        }
    };
    let kib = built.size.div_ceil(1024);
    let mut out = stdout();
    writeln!(out, "built {BOLD}{}{BOLD:#} ({kib} KiB){}", built.file.display(), escape_control(&built.items))?;
    for warning in built.warnings {
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {}", escape_control(&warning));
    }
    Ok(Outcome::Success)
}

/// Checks that there is something to build.
///
/// # Errors
/// If the folder is an agent in YAML, or has projects in it but is none.
fn check_project(dir: &Path) -> anyhow::Result<()> {
    if Language::detect(dir).is_ok() {
        return Ok(());
    }
    let (name, path) = (dir.display(), quote_path(dir));
    ensure!(
        !dir.join(ROOT_FILE).is_file(),
        "{name} is an agent in YAML, which needs no build; `hatchery dev {path}` serves it"
    );
    let projects = if dir.is_dir() { find_projects(dir)? } else { Vec::new() };
    if let Some(first) = projects.first() {
        let names: Vec<_> = projects.iter().map(|project| project.display().to_string()).collect();
        bail!(
            "{name} is no project, but there are projects in it: {}; `hatchery build {}` builds one, `hatchery dev {path}` all",
            names.join(", "),
            quote_path(first)
        );
    }
    Ok(())
}

/// Options of a build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Cargo profile of a component in Rust.
    pub profile: String,
    /// Output file or folder.
    pub out: Option<PathBuf>,
    /// Whether to check that a host can load the component.
    pub is_checked: bool,
    /// Whether to build a development component where the language has one, which is faster.
    pub is_development: bool,
}

pub enum BuildResult {
    Built(BuiltFile),
    /// The build tool reported errors in the sources.
    Failed,
    /// The component was built, but a host cannot compile it or run its description.
    Unloadable(String),
    /// The component was built and describes itself, but a host would reject the description.
    Rejected(String),
}

/// A component that was written.
pub struct BuiltFile {
    pub file: PathBuf,
    /// Size in bytes.
    size: u64,
    /// Its exports, for example `: agent dice, tool roll_die`.
    pub items: String,
    pub warnings: Vec<String>,
    /// True if the file had the same content before.
    pub is_unchanged: bool,
}

/// Builds the project in a folder, checks that a host would load the component, and writes it. A component that cannot
/// be loaded is not written, so the previous one keeps serving.
pub async fn build_project(dir: &Path, options: BuildOptions) -> anyhow::Result<BuildResult> {
    check_output(options.out.as_deref())?;
    let Some(built) = build_sources(dir, &options).await? else { return Ok(BuildResult::Failed) };
    let is_development = built.is_development;
    let result = check_and_write(built, &options).await?;
    if !is_development || !matches!(result, BuildResult::Unloadable(_)) {
        return Ok(result);
    }
    // A snapshot has more than the interpreter: files of the project, and modules that only WebAssembly imports.
    anstream::eprintln!("building {} as for a release, which takes longer", dir.display());
    let options = BuildOptions { is_development: false, ..options };
    let Some(built) = build_sources(dir, &options).await? else { return Ok(BuildResult::Failed) };
    check_and_write(built, &options).await
}

/// Builds a component from the sources in a folder. Returns `None` if the build tool reported errors in them.
async fn build_sources(dir: &Path, options: &BuildOptions) -> anyhow::Result<Option<BuiltComponent>> {
    let (folder, profile, is_development) = (dir.to_owned(), options.profile.clone(), options.is_development);
    let built = tokio::task::spawn_blocking(move || match (Language::detect(&folder)?, is_development) {
        (Language::Rust, _) => languages::rust::build(&folder, &profile),
        (Language::Python, false) => languages::python::build(&folder),
        (Language::Python, true) => languages::python::develop(&folder),
        (Language::JavaScript | Language::TypeScript, false) => languages::javascript::build(&folder),
        (Language::JavaScript | Language::TypeScript, true) => languages::javascript::develop(&folder),
    });
    built.await.context("the build panicked")?
}

/// Writes a component if a host would load it.
async fn check_and_write(built: BuiltComponent, options: &BuildOptions) -> anyhow::Result<BuildResult> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    ensure!(
        !built.name.is_empty() && !built.name.starts_with('.') && built.name.chars().all(is_plain),
        "`{}` is not a valid component name; change the name of the project: a name has letters, digits, `_`, `-` and `.`, and \
         does not start with `.`",
        built.name
    );
    let file = destination(&built, options.out.clone());
    let (mut items, mut warnings) = (String::new(), Vec::new());
    if options.is_checked {
        let inspection = match inspect_built(&built, &file).await? {
            Ok(inspection) => inspection,
            Err(reason) => return Ok(BuildResult::Unloadable(reason)),
        };
        // Agents are built when the folder is served, because they use other items of it.
        if let Some(error) = inspection.agents.iter().find_map(|agent| check_agent_name(&agent.name).err()) {
            return Ok(BuildResult::Rejected(error.to_string()));
        }
        items = format_items(&inspection);
        warnings = uncallable_tools(&inspection);
    }
    let is_unchanged = std::fs::read(&file).is_ok_and(|before| before == built.bytes);
    // A host that watches the folder must never see a partial file.
    write_atomically(&file, &built.bytes, FileAccess::Default)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(BuildResult::Built(BuiltFile { file, size: built.bytes.len() as u64, items, warnings, is_unchanged }))
}

/// Checks that the output can be written, before a long build.
fn check_output(out: Option<&Path>) -> anyhow::Result<()> {
    let parent = out.filter(|out| !out.is_dir()).and_then(Path::parent).filter(|parent| *parent != Path::new(""));
    if let Some(parent) = parent {
        ensure!(parent.is_dir(), "--out: there is no folder {}; create it first", parent.display());
    }
    Ok(())
}

/// Loads a component as a host would, without grants.
///
/// # Errors
/// The reason why a host would reject it.
async fn inspect_built(built: &BuiltComponent, file: &Path) -> anyhow::Result<Result<Inspection, String>> {
    let config = config_beside(file);
    let cache = StorageArgs::default().code_cache(|name| std::env::var_os(name));
    let options = compiler::load_options(&config, cache)?;
    let inspected = inspect(&options, &built.name, built.bytes.clone()).await;
    Ok(inspected.map_err(|error| format_error(&error.into())))
}

/// Returns the configuration of the folder that serves a component, which is its own folder or the parent. Its limits
/// decide whether the component can be loaded. Returns the default if there is no valid configuration.
fn config_beside(file: &Path) -> Config {
    let folder = file.parent().unwrap_or(Path::new("")).canonicalize().unwrap_or_default();
    let folders = [Some(folder.as_path()), folder.parent()].into_iter().flatten();
    let config = folders.filter(|folder| folder.join(CONFIG_FILE).is_file()).find_map(|it| Config::load(it).ok());
    config.unwrap_or_default()
}

/// Lists the agents, tools and other items of a component.
fn format_items(inspection: &Inspection) -> String {
    let list = |label: &str, names: Vec<&str>| (!names.is_empty()).then(|| format!("{label} {}", names.join(", ")));
    let lists = [
        list("agents", inspection.agents.iter().map(|it| it.name.as_str()).collect()),
        list("tools", inspection.tools.iter().map(|it| it.name.as_str()).collect()),
        list("callbacks", inspection.callbacks.iter().map(|it| it.name.as_str()).collect()),
        list("plugins", inspection.plugins.iter().map(|it| it.name.as_str()).collect()),
        list("models", inspection.models.iter().map(String::as_str).collect()),
        list("code executors", inspection.code_executors.iter().map(String::as_str).collect()),
        list("summarizers", inspection.summarizers.iter().map(String::as_str).collect()),
        list("examples", inspection.examples.iter().map(String::as_str).collect()),
    ];
    let lists: Vec<_> = lists.into_iter().flatten().collect();
    if lists.is_empty() { String::new() } else { format!(": {}", lists.join("; ")) }
}

fn destination(built: &BuiltComponent, out: Option<PathBuf>) -> PathBuf {
    let file = format!("{}.wasm", built.name);
    match out {
        Some(folder) if folder.is_dir() => folder.join(file),
        Some(path) => path,
        None => built.folder.join(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_output_folder_is_named_before_the_build() {
        let error = check_output(Some(Path::new("/no/such/x.wasm"))).unwrap_err().to_string();
        assert_eq!(error, "--out: there is no folder /no/such; create it first");
        assert!(check_output(None).is_ok() && check_output(Some(Path::new("x.wasm"))).is_ok());
    }

    #[test]
    fn a_folder_without_a_project_is_answered_with_what_to_do_instead() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, name) = (folder.path(), folder.path().display());
        assert!(check_project(folder).is_ok() && check_project(Path::new("/no/such")).is_ok());
        std::fs::create_dir(folder.join("dice")).unwrap();
        std::fs::write(folder.join("dice/package.json"), "{\"hatchery\": {}}").unwrap();
        assert!(check_project(&folder.join("dice")).is_ok());
        let expected = format!(
            "{name} is no project, but there are projects in it: {name}/dice; `hatchery build {name}/dice` builds one, \
             `hatchery dev {name}` all"
        );
        assert_eq!(check_project(folder).unwrap_err().to_string(), expected);
        std::fs::write(folder.join(ROOT_FILE), "").unwrap();
        let expected = format!("{name} is an agent in YAML, which needs no build; `hatchery dev {name}` serves it");
        assert_eq!(check_project(folder).unwrap_err().to_string(), expected);
    }

    #[test]
    fn the_default_output_is_in_the_project_folder() {
        let (name, folder) = ("my-tool".into(), "/w/tool".into());
        let built = BuiltComponent { bytes: Vec::new(), name, folder, is_development: false };
        assert_eq!(destination(&built, None), Path::new("/w/tool/my-tool.wasm"));
        assert_eq!(destination(&built, Some("x/y.wasm".into())), Path::new("x/y.wasm"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(destination(&built, Some(folder.path().into())), folder.path().join("my-tool.wasm"));
    }
}
