//! `hatchery build`: builds a component from its sources.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use hatchery_wasm::write_atomically;

use crate::commands::Outcome;
use crate::languages::{self, BuiltComponent, Language};
use crate::terminal::{BOLD, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery build dice\n  hatchery build dice --out my-agents/dice.wasm",
    after_long_help = "A project is a crate (Rust), a folder with a pyproject.toml that has a table [tool.hatchery] (Python), \
                       or a folder with a package.json that has a key \"hatchery\" (JavaScript). The build tools for Python \
                       and JavaScript are downloaded by the first build, in locked versions, into the user's cache folder. \
                       Later builds need no network.\n\nA build runs code of the project and of its dependencies on this \
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
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let built = match Language::detect(&args.dir)? {
        Language::Rust => languages::rust::build(&args.dir, &args.profile)?,
        Language::Python => languages::python::build(&args.dir)?,
        Language::JavaScript => languages::javascript::build(&args.dir)?,
    };
    let Some(built) = built else { return Ok(Outcome::Failure) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    ensure!(
        !built.name.is_empty() && !built.name.starts_with('.') && built.name.chars().all(is_plain),
        "`{}` is not a valid component name; change the name of the project: a name has letters, digits, `_`, `-` and `.`, and \
         does not start with `.`",
        built.name
    );
    let out = destination(&built, args.out);
    let bytes = std::fs::read(&built.file).with_context(|| built.file.display().to_string())?;
    // A host that watches the folder must never see a partial file.
    write_atomically(&out, &bytes).with_context(|| format!("cannot write {}", out.display()))?;
    writeln!(stdout(), "built {BOLD}{}{BOLD:#} ({} KiB)", out.display(), bytes.len().div_ceil(1024))?;
    Ok(Outcome::Success)
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
    use std::path::Path;

    use super::*;

    #[test]
    fn the_default_output_is_in_the_project_folder() {
        let built = BuiltComponent { file: "/t/my_tool.wasm".into(), name: "my-tool".into(), folder: "/w/tool".into() };
        assert_eq!(destination(&built, None), Path::new("/w/tool/my-tool.wasm"));
        assert_eq!(destination(&built, Some("x/y.wasm".into())), Path::new("x/y.wasm"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(destination(&built, Some(folder.path().into())), folder.path().join("my-tool.wasm"));
    }
}
