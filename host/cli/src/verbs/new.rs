//! `hatchery new`.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};

use crate::languages::Language;
use crate::template::{self, Kind, Name, Sdk};
use crate::terminal::stdout;
use crate::verbs::Outcome;

/// What to begin.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery new dice --kind agent\n  hatchery new haiku --lang python\n  hatchery new greeter --kind yaml --path my-agents"
)]
pub struct Args {
    /// The name of the component or app, and of the new folder
    name: Name,
    /// What it is to be
    #[arg(long, value_enum, default_value_t = Kind::Agent)]
    kind: Kind,
    /// The language of a component
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// Where the new folder goes
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// The folder of hatchery-guest; without it, the one of the repository around the new folder, or else the released version
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// The released version that fits this host.
const RELEASED: &str = "0.1";

/// Where the SDK is in its repository, and its manifest.
fn in_sdk(language: Language) -> (&'static str, &'static str) {
    match language {
        Language::Rust => ("guest-sdk/rust", "Cargo.toml"),
        Language::Python => ("guest-sdk/python", "pyproject.toml"),
        Language::JavaScript => ("guest-sdk/js", "package.json"),
    }
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let name = args.name.to_string();
    let folder = if args.path == Path::new(".") { name.into() } else { args.path.join(name) };
    let sdk = sdk(args.lang, args.sdk.as_deref(), &args.path)?;
    let written = template::write(args.kind, args.lang, &args.name, &sdk, &folder)?;
    let mut out = stdout();
    for file in written {
        writeln!(out, "{}", file.display())?;
    }
    let served = args.path.display();
    if args.kind.is_component() {
        writeln!(out, "\nnext:\n  hatchery build {}\n  hatchery serve {served}", folder.display())?;
    } else {
        writeln!(out, "\nnext:\n  hatchery run {}\n  hatchery serve {served}", folder.display())?;
    }
    Ok(Outcome::Success)
}

fn sdk(language: Language, given: Option<&Path>, place: &Path) -> anyhow::Result<Sdk> {
    let (_, manifest) = in_sdk(language);
    if let Some(given) = given {
        let path = given.canonicalize().with_context(|| format!("--sdk {}", given.display()))?;
        if !path.join(manifest).is_file() {
            bail!(
                "--sdk {}: there is no {manifest}; it must be the folder of hatchery-guest for this language",
                given.display()
            );
        }
        return Ok(Sdk::Path(path));
    }
    Ok(in_repository(language, place).map_or(Sdk::Version(RELEASED), Sdk::Path))
}

/// The SDK of the repository around a place, as seen from a folder in that place.
fn in_repository(language: Language, place: &Path) -> Option<PathBuf> {
    let (sdk, manifest) = in_sdk(language);
    // The place itself need not exist yet.
    let place = std::path::absolute(place).ok()?;
    let place: PathBuf = place.components().filter(|part| *part != Component::CurDir).collect();
    let (up, root) = place.ancestors().enumerate().find(|(_, root)| root.join(sdk).join(manifest).is_file())?;
    let has_parent_parts = place.components().any(|part| part == Component::ParentDir);
    if has_parent_parts {
        return Some(root.join(sdk));
    }
    let mut relative: PathBuf = std::iter::repeat_n("..", up + 1).collect();
    relative.push(sdk);
    Some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_the_repository_its_own_sdk_is_used() {
        let root = tempfile::tempdir().unwrap();
        for (folder, manifest) in [Language::Rust, Language::Python].map(in_sdk) {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join(manifest), "").unwrap();
        }
        let sdk = |given, place: &Path| sdk(Language::Rust, given, place);
        let deep = root.path().join("agents/mine");
        assert_eq!(sdk(None, root.path()).unwrap(), Sdk::Path("../guest-sdk/rust".into()));
        assert_eq!(sdk(None, &deep).unwrap(), Sdk::Path("../../../guest-sdk/rust".into()));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(sdk(None, elsewhere.path()).unwrap(), Sdk::Version("0.1"));
        let python = super::sdk(Language::Python, None, root.path()).unwrap();
        assert_eq!(python, Sdk::Path("../guest-sdk/python".into()));
        let given = root.path().join("guest-sdk/rust");
        assert_eq!(sdk(Some(&given), elsewhere.path()).unwrap(), Sdk::Path(given.canonicalize().unwrap()));
    }

    #[test]
    fn an_sdk_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let sdk = |given, place: &Path| sdk(Language::Rust, given, place);
        let error = sdk(Some(folder.path()), Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("it must be the folder of hatchery-guest"), "{error}");
        assert!(sdk(Some(Path::new("/no/such")), Path::new(".")).unwrap_err().to_string().contains("--sdk /no/such"));
    }
}
