//! `hatchery new`.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};

use crate::template::{self, Kind, Name, Sdk};
use crate::terminal::stdout;
use crate::verbs::Outcome;

/// What to begin.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery new dice --kind agent\n  hatchery new greeter --kind yaml --path my-agents"
)]
pub struct Args {
    /// The name of the component or app, and of the new folder
    name: Name,
    /// What it is to be
    #[arg(long, value_enum, default_value_t = Kind::Agent)]
    kind: Kind,
    /// Where the new folder goes
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// The folder of hatchery-guest; without it, the one of the repository around the new folder, or else the released version
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// The released version that fits this host.
const RELEASED: &str = "0.1";

/// Where the SDK is in its repository.
const IN_REPOSITORY: &str = "guest-sdk/rust";

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let name = args.name.to_string();
    let folder = if args.path == Path::new(".") { name.into() } else { args.path.join(name) };
    let sdk = sdk(args.sdk.as_deref(), &args.path)?;
    let written = template::write(args.kind, &args.name, &sdk, &folder)?;
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

fn sdk(given: Option<&Path>, place: &Path) -> anyhow::Result<Sdk> {
    if let Some(given) = given {
        let path = given.canonicalize().with_context(|| format!("--sdk {}", given.display()))?;
        if !path.join("Cargo.toml").is_file() {
            bail!(
                "--sdk {}: there is no Cargo.toml; it must be the folder of the crate hatchery-guest",
                given.display()
            );
        }
        return Ok(Sdk::Path(path));
    }
    Ok(in_repository(place).map_or(Sdk::Version(RELEASED), Sdk::Path))
}

/// The SDK of the repository around a place, as seen from a folder in that place.
fn in_repository(place: &Path) -> Option<PathBuf> {
    // The place itself need not exist yet.
    let place = std::path::absolute(place).ok()?;
    let place: PathBuf = place.components().filter(|part| *part != Component::CurDir).collect();
    let (up, root) =
        place.ancestors().enumerate().find(|(_, root)| root.join(IN_REPOSITORY).join("Cargo.toml").is_file())?;
    let has_parent_parts = place.components().any(|part| part == Component::ParentDir);
    if has_parent_parts {
        return Some(root.join(IN_REPOSITORY));
    }
    let mut relative: PathBuf = std::iter::repeat_n("..", up + 1).collect();
    relative.push(IN_REPOSITORY);
    Some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_the_repository_its_own_sdk_is_used() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(IN_REPOSITORY)).unwrap();
        std::fs::write(root.path().join(IN_REPOSITORY).join("Cargo.toml"), "").unwrap();
        let deep = root.path().join("agents/mine");
        assert_eq!(sdk(None, root.path()).unwrap(), Sdk::Path("../guest-sdk/rust".into()));
        assert_eq!(sdk(None, &deep).unwrap(), Sdk::Path("../../../guest-sdk/rust".into()));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(sdk(None, elsewhere.path()).unwrap(), Sdk::Version("0.1"));
        let given = root.path().join(IN_REPOSITORY);
        assert_eq!(sdk(Some(&given), elsewhere.path()).unwrap(), Sdk::Path(given.canonicalize().unwrap()));
    }

    #[test]
    fn an_sdk_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = sdk(Some(folder.path()), Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("it must be the folder of the crate hatchery-guest"), "{error}");
        assert!(sdk(Some(Path::new("/no/such")), Path::new(".")).unwrap_err().to_string().contains("--sdk /no/such"));
    }
}
