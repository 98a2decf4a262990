//! `hatchery build`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use hatchery_wasm::write_atomically;

use crate::languages::{self, Built, Language};
use crate::terminal::{BOLD, stdout};
use crate::verbs::Outcome;

/// What to build.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery build dice\n  hatchery build dice --out my-agents/dice.wasm",
    after_long_help = "A component in Rust is a crate; one in Python a folder with a pyproject.toml that has a table \
                       [tool.hatchery]; one in JavaScript a folder with a package.json that has a key \"hatchery\". The build \
                       tools of the last two are installed by their locked versions when they are needed first, and kept in the \
                       user's cache; after that no network is needed.\n\nA build runs code of the project and of its dependencies on this machine, \
                       with your rights: cargo runs build scripts (build.rs) and procedural macros, and a module in Python or \
                       JavaScript is imported to see what it exports. Build only what you would run; `hatchery serve` needs the \
                       .wasm file alone.\n\nExample:\n  hatchery build dice\n  hatchery build dice \
                       --out my-agents/dice.wasm"
)]
pub struct Args {
    /// The folder of the component's sources
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The file, or the existing folder, that gets the component; NAME.wasm beside its sources by default
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// The cargo profile, for components in Rust
    #[arg(long, default_value = "release")]
    profile: String,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let built = match Language::of(&args.dir)? {
        Language::Rust => languages::rust::build(&args.dir, &args.profile)?,
        Language::Python => languages::python::build(&args.dir)?,
        Language::JavaScript => languages::javascript::build(&args.dir)?,
    };
    let Some(built) = built else { return Ok(Outcome::Failure) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    ensure!(
        !built.name.is_empty() && !built.name.starts_with('.') && built.name.chars().all(is_plain),
        "`{}` cannot name a component: only letters, digits, `_`, `-` and `.` can be in a name",
        built.name
    );
    let out = destination(&built, args.out);
    let bytes = std::fs::read(&built.file).with_context(|| built.file.display().to_string())?;
    // A host may be watching: it sees the old file or the new one, never half of it.
    write_atomically(&out, &bytes).with_context(|| format!("cannot write {}", out.display()))?;
    writeln!(stdout(), "{BOLD}{}{BOLD:#} ({} KiB)", out.display(), bytes.len().div_ceil(1024))?;
    Ok(Outcome::Success)
}

fn destination(built: &Built, out: Option<PathBuf>) -> PathBuf {
    let file = format!("{}.wasm", built.name);
    match out {
        Some(folder) if folder.is_dir() => folder.join(file),
        Some(path) => path,
        None => built.folder.join(file),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_component_lands_beside_its_manifest_under_its_name() {
        let built = Built { file: "/t/my_tool.wasm".into(), name: "my-tool".into(), folder: "/w/tool".into() };
        assert_eq!(destination(&built, None), Path::new("/w/tool/my-tool.wasm"));
        assert_eq!(destination(&built, Some("x/y.wasm".into())), Path::new("x/y.wasm"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(destination(&built, Some(folder.path().into())), folder.path().join("my-tool.wasm"));
    }
}
