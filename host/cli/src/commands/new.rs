//! `hatchery new`: creates a project from a template.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::shell::quote_path;

use crate::languages::{self, Language};
use crate::outcome::Outcome;
use crate::template::{self, ProjectName, SdkSource, TemplateKind};
use crate::terminal::stdout;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery new dice --kind agent\n  hatchery new haiku --lang python\n  hatchery new dice --lang typescript\n  hatchery new greeter --kind yaml --path my-agents"
)]
pub struct Args {
    /// Name of the component or app, and of the new folder
    name: ProjectName,
    /// Kind of the project
    #[arg(long, value_enum, default_value_t = TemplateKind::Agent)]
    kind: TemplateKind,
    /// Language of the component; Rust by default
    #[arg(long, value_enum)]
    lang: Option<Language>,
    /// Folder in which the new folder is created
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// Folder of the SDK hatchery-guest; by default the one in the surrounding Hatchery repository, or the one that
    /// comes with this command
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// Returns the folder of the SDK in the repository, and the name of its manifest.
fn sdk_location(language: Language) -> (&'static str, &'static str) {
    match language {
        Language::Rust => ("guest-sdk/rust", "Cargo.toml"),
        Language::Python => ("guest-sdk/python", "pyproject.toml"),
        Language::JavaScript | Language::TypeScript => ("guest-sdk/js", "package.json"),
    }
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.kind.is_component() && (args.lang.is_some() || args.sdk.is_some()) {
        bail!("--lang and --sdk are for components: leave them out for an agent in YAML, or choose another --kind");
    }
    let lang = args.lang.unwrap_or(Language::Rust);
    let name = args.name.to_string();
    let folder = if args.path == Path::new(".") { name.into() } else { args.path.join(name) };
    let sdk = find_sdk(lang, args.sdk.as_deref(), &args.path, || languages::unpack_sdk(lang))?;
    let mut files = template::write(args.kind, lang, &args.name, &sdk, &folder)?;
    if sdk == SdkSource::Embedded && args.kind.is_component() {
        files.push(languages::rust::write_sdk_config(&folder)?);
    }
    let mut out = stdout();
    for file in files {
        writeln!(out, "{}", file.display())?;
    }
    writeln!(out, "\nnext steps:\n  cd {}", quote_path(&folder))?;
    let steps = next_steps(args.kind);
    let width = steps.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, comment) in steps {
        writeln!(out, "  {command:<width$}  # {comment}")?;
    }
    Ok(Outcome::Success)
}

/// Returns the commands to run in the new folder, each with its purpose.
fn next_steps(kind: TemplateKind) -> Vec<(&'static str, &'static str)> {
    let build = ("hatchery build", "create the component");
    let run = |command| (command, "send it a message");
    let test = ("hatchery test", "play its conversation.yaml");
    let dev = ("hatchery dev", "serve it, and build again whenever a source is saved");
    match kind {
        TemplateKind::Agent => vec![build, run("hatchery run . -m 'count the words of this'"), test, dev],
        TemplateKind::Yaml => {
            let serve = ("hatchery dev", "serve it, and load it again whenever a file is saved");
            vec![run("hatchery run . -m 'I am Ada'"), test, serve]
        }
        TemplateKind::Tool | TemplateKind::Callback => vec![build, dev],
    }
}

/// Returns the SDK to depend on: the folder of `--sdk`, the SDK of the repository around `parent`, or the one that
/// comes with this command. `unpack` writes it and returns its folder.
fn find_sdk(
    language: Language,
    sdk_folder: Option<&Path>,
    parent: &Path,
    unpack: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<SdkSource> {
    let (repository_folder, manifest) = sdk_location(language);
    if let Some(folder) = sdk_folder {
        let path = folder.canonicalize().with_context(|| format!("--sdk {}", folder.display()))?;
        let text = std::fs::read_to_string(path.join(manifest)).unwrap_or_default();
        if !text.contains("hatchery-guest") || text.contains("[workspace]") {
            bail!(
                "--sdk {}: not the SDK for this language; name the folder {repository_folder} of the Hatchery repository",
                folder.display()
            );
        }
        return Ok(SdkSource::Path(path));
    }
    match (find_in_repository(language, parent), language) {
        (Some(path), _) => Ok(SdkSource::Path(path)),
        (None, Language::Rust) => Ok(SdkSource::Embedded),
        (None, Language::Python | Language::JavaScript | Language::TypeScript) => unpack().map(SdkSource::Path),
    }
}

/// Returns the path of the SDK in the repository around `parent`, relative to a new folder in `parent`. `None` outside
/// of the repository.
fn find_in_repository(language: Language, parent: &Path) -> Option<PathBuf> {
    let (sdk, manifest) = sdk_location(language);
    // `canonicalize` would fail for a folder that does not exist yet.
    let parent = std::path::absolute(parent).ok()?;
    let parent: PathBuf = parent.components().filter(|part| *part != Component::CurDir).collect();
    let (depth, root) = parent.ancestors().enumerate().find(|(_, root)| root.join(sdk).join(manifest).is_file())?;
    if parent.components().any(|part| part == Component::ParentDir) {
        return Some(root.join(sdk));
    }
    let mut relative: PathBuf = std::iter::repeat_n("..", depth + 1).collect();
    relative.push(sdk);
    Some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (folder, manifest) in [Language::Rust, Language::Python].map(sdk_location) {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join(manifest), "name = \"hatchery-guest\"\n").unwrap();
        }
        root
    }

    fn not_unpacked() -> anyhow::Result<PathBuf> {
        bail!("the embedded SDK is not needed")
    }

    #[test]
    fn a_project_in_the_repository_uses_its_sdk() {
        let root = repository();
        let find = |folder, parent: &Path| find_sdk(Language::Rust, folder, parent, not_unpacked).unwrap();
        let deep = root.path().join("agents/mine");
        assert_eq!(find(None, root.path()), SdkSource::Path("../guest-sdk/rust".into()));
        assert_eq!(find(None, &deep), SdkSource::Path("../../../guest-sdk/rust".into()));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(find(None, elsewhere.path()), SdkSource::Embedded);
        let js = find_sdk(Language::JavaScript, None, elsewhere.path(), || Ok("/cache/js".into())).unwrap();
        assert_eq!(js, SdkSource::Path("/cache/js".into()));
        let python = find_sdk(Language::Python, None, root.path(), not_unpacked).unwrap();
        assert_eq!(python, SdkSource::Path("../guest-sdk/python".into()));
        let folder = root.path().join("guest-sdk/rust");
        assert_eq!(find(Some(&folder), elsewhere.path()), SdkSource::Path(folder.canonicalize().unwrap()));
    }

    #[test]
    fn a_folder_that_is_not_the_sdk_is_refused() {
        let root = repository();
        let error = |folder: &Path| {
            find_sdk(Language::Rust, Some(folder), Path::new("."), not_unpacked).unwrap_err().to_string()
        };
        let expected = "not the SDK for this language; name the folder guest-sdk/rust of the Hatchery repository";
        assert!(error(root.path()).ends_with(expected));
        std::fs::write(root.path().join("Cargo.toml"), "[workspace]\nhatchery-guest = {}\n").unwrap();
        assert!(error(root.path()).ends_with(expected), "the root of the repository is a workspace");
        assert!(error(&root.path().join("guest-sdk/python")).ends_with(expected), "another language");
        assert!(error(Path::new("/no/such")).contains("--sdk /no/such"));
    }
}
