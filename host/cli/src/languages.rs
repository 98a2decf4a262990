//! Building components, one file per language.
//!
//! Rust is cargo's business. For Python and JavaScript the host brings the guest SDK and the contract along, has their build tools installed
//! by locked versions into the user's cache ([`workshop`]), and lets the SDK do the rest.

pub mod javascript;
pub mod python;
pub mod rust;
mod sdk;
mod workshop;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// A component that was built.
#[derive(Debug)]
pub struct Built {
    /// Where it is.
    pub file: PathBuf,
    /// The name that its project has.
    pub name: String,
    /// The project's folder.
    pub folder: PathBuf,
}

/// A language that components are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// Rust.
    Rust,
    /// Python.
    Python,
    /// JavaScript.
    #[value(name = "js", alias = "javascript")]
    JavaScript,
}

impl Language {
    /// That of the project in a folder.
    pub fn of(dir: &Path) -> anyhow::Result<Self> {
        let says =
            |file: &str, word: &str| std::fs::read_to_string(dir.join(file)).is_ok_and(|text| text.contains(word));
        let mut found = Vec::new();
        if dir.join("Cargo.toml").is_file() {
            found.push(Self::Rust);
        }
        if says("pyproject.toml", "[tool.hatchery]") {
            found.push(Self::Python);
        }
        if says("package.json", "\"hatchery\":") {
            found.push(Self::JavaScript);
        }
        match found.as_slice() {
            [language] => Ok(*language),
            [] => bail!(
                "{}: there is no Cargo.toml, no pyproject.toml with [tool.hatchery] and no package.json with \"hatchery\"; `hatchery new` begins a component",
                dir.display()
            ),
            _ => bail!(
                "{}: it could be built as {}; keep one of them in a folder",
                dir.display(),
                found.iter().map(|language| format!("{language:?}")).collect::<Vec<_>>().join(" or as ")
            ),
        }
    }
}

/// What a program of the machine says on stdout.
///
/// It is started in the folder `place`, which is none of the project's: programs look for settings and modules where they are. Errors name the
/// program; `advice` says how one gets it.
fn ask(program: &OsStr, args: &[&str], place: &Path, advice: &str) -> anyhow::Result<String> {
    let output = Command::new(program).args(args).current_dir(place).stderr(Stdio::null()).output();
    let name = program.display();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("{name} was not found; {advice}"),
        output => output.with_context(|| format!("cannot start {name}"))?,
    };
    if !output.status.success() {
        bail!("`{name} {}` failed ({}); {advice}", args.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// True when a version such as `3.11.2` or `v20.1.0` is at least `wanted`.
fn is_at_least(version: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}

/// Copies files to the same places below another folder.
fn copy(from: &Path, files: &[PathBuf], to: &Path) -> anyhow::Result<()> {
    for file in files {
        let target = to.join(file.strip_prefix(from).unwrap_or(file));
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        std::fs::copy(file, &target).with_context(|| target.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(files: &[(&str, &str)]) -> Result<Language, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Language::of(folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_project_s_manifest_tells_its_language() {
        let (python, js) = (("pyproject.toml", "[tool.hatchery]\n"), ("package.json", r#"{"hatchery": {}}"#));
        assert_eq!(language(&[("Cargo.toml", "")]), Ok(Language::Rust));
        assert_eq!(language(&[python]), Ok(Language::Python));
        assert_eq!(language(&[js]), Ok(Language::JavaScript));
        assert_eq!(language(&[("Cargo.toml", ""), ("package.json", "{}")]), Ok(Language::Rust));
        let error = language(&[python, js]).unwrap_err();
        assert!(
            error.ends_with("it could be built as Python or as JavaScript; keep one of them in a folder"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_without_a_component_is_told_how_to_begin() {
        let error = language(&[("pyproject.toml", "[project]\n")]).unwrap_err();
        assert!(error.contains("no pyproject.toml with [tool.hatchery]"), "{error}");
        assert!(error.ends_with("`hatchery new` begins a component"), "{error}");
    }

    #[test]
    fn programs_that_are_missing_or_fail_come_with_advice() {
        let here = Path::new(".");
        let error =
            ask(OsStr::new("/no/such/python3"), &["--version"], here, "install Python").unwrap_err().to_string();
        assert_eq!(error, "/no/such/python3 was not found; install Python");
        let error = ask(OsStr::new("false"), &["-v"], here, "install it anew").unwrap_err().to_string();
        assert!(error.starts_with("`false -v` failed") && error.ends_with("install it anew"), "{error}");
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_at_least("3.11.2", (3, 11)) && is_at_least("v22.1.0", (20, 0)) && is_at_least("4.0", (3, 11)));
        assert!(!is_at_least("3.9.18", (3, 11)) && !is_at_least("v18.20.1", (20, 0)) && !is_at_least("", (1, 0)));
    }
}
