//! Building components, one file per language.
//!
//! Rust is built by cargo. For Python and JavaScript the guest SDK and the contract are embedded in this command. Their
//! build tools are installed in locked versions into the user's cache folder ([`build_cache`]) and called by the SDK.

mod build_cache;
pub mod javascript;
pub mod python;
pub mod rust;
mod sdk;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The result of a build.
#[derive(Debug)]
pub struct BuiltComponent {
    /// The component, in a folder of the build tool.
    pub file: PathBuf,
    /// The name of the project.
    pub name: String,
    /// The folder of the project.
    pub folder: PathBuf,
}

/// The language of a component's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    Rust,
    Python,
    #[value(name = "js", alias = "javascript")]
    JavaScript,
}

impl Language {
    /// Detects the language of the project in a folder by its manifest.
    pub fn detect(dir: &Path) -> anyhow::Result<Self> {
        let contains =
            |file: &str, word: &str| std::fs::read_to_string(dir.join(file)).is_ok_and(|text| text.contains(word));
        let mut languages = Vec::new();
        if dir.join("Cargo.toml").is_file() {
            languages.push(Self::Rust);
        }
        if contains("pyproject.toml", "[tool.hatchery]") {
            languages.push(Self::Python);
        }
        if contains("package.json", "\"hatchery\":") {
            languages.push(Self::JavaScript);
        }
        match languages.as_slice() {
            [language] => Ok(*language),
            [] => bail!(
                "{} is not a component project: no Cargo.toml, no pyproject.toml with [tool.hatchery], and no package.json \
                 with \"hatchery\"; create a project with `hatchery new`",
                dir.display()
            ),
            _ => {
                let languages: Vec<_> = languages.iter().map(|language| format!("{language:?}")).collect();
                bail!(
                    "{} has projects in several languages: {}; move each to a folder of its own",
                    dir.display(),
                    languages.join(", ")
                )
            }
        }
    }
}

/// Runs a program and returns its stdout. Errors end with `advice`, which says how to install the program.
///
/// `working_dir` must not be in the project, because programs read settings and modules from there.
fn capture_stdout(program: &OsStr, args: &[&str], working_dir: &Path, advice: &str) -> anyhow::Result<String> {
    let output = Command::new(program).args(args).current_dir(working_dir).stderr(Stdio::null()).output();
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

/// Returns true if a version such as `3.11.2` or `v20.1.0` is at least `minimum`.
fn is_at_least(version: &str, minimum: (u32, u32)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= minimum
}

/// Copies files below `from` to the same relative paths below `to`.
fn copy_files(from: &Path, files: &[PathBuf], to: &Path) -> anyhow::Result<()> {
    for file in files {
        let target = to.join(file.strip_prefix(from).unwrap_or(file));
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        std::fs::copy(file, &target).with_context(|| format!("cannot copy {}", file.display()))?;
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
        Language::detect(folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_manifest_determines_the_language() {
        let (python, js) = (("pyproject.toml", "[tool.hatchery]\n"), ("package.json", r#"{"hatchery": {}}"#));
        assert_eq!(language(&[("Cargo.toml", "")]), Ok(Language::Rust));
        assert_eq!(language(&[python]), Ok(Language::Python));
        assert_eq!(language(&[js]), Ok(Language::JavaScript));
        assert_eq!(language(&[("Cargo.toml", ""), ("package.json", "{}")]), Ok(Language::Rust));
        let error = language(&[python, js]).unwrap_err();
        assert!(error.ends_with("several languages: Python, JavaScript; move each to a folder of its own"), "{error}");
    }

    #[test]
    fn a_folder_without_a_project_is_explained() {
        let error = language(&[("pyproject.toml", "[project]\n")]).unwrap_err();
        assert!(error.contains("no pyproject.toml with [tool.hatchery]"), "{error}");
        assert!(error.ends_with("create a project with `hatchery new`"), "{error}");
    }

    #[test]
    fn errors_of_programs_end_with_advice() {
        let here = Path::new(".");
        let error = capture_stdout(OsStr::new("/no/such/python3"), &["--version"], here, "install Python")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "/no/such/python3 was not found; install Python");
        let error = capture_stdout(OsStr::new("false"), &["-v"], here, "reinstall it").unwrap_err().to_string();
        assert!(error.starts_with("`false -v` failed") && error.ends_with("reinstall it"), "{error}");
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_at_least("3.11.2", (3, 11)) && is_at_least("v22.1.0", (20, 0)) && is_at_least("4.0", (3, 11)));
        assert!(!is_at_least("3.9.18", (3, 11)) && !is_at_least("v18.20.1", (20, 0)) && !is_at_least("", (1, 0)));
    }
}
