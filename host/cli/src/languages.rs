//! Building components, one file per language.
//!
//! The guest SDKs and the contract are embedded in this command. Rust is built by cargo. The build tools for Python and
//! JavaScript are installed in locked versions into the user's cache folder ([`build_cache`]) and called by the SDK.

mod build_cache;
pub mod javascript;
pub mod python;
pub mod rust;
mod sdk;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use build_cache::{BuildCache, BuildTools};
use hatchery_wasm::join_program;

use crate::files::require_folder;

/// The result of a build.
#[derive(Debug)]
pub struct BuiltComponent {
    /// The WebAssembly component.
    pub bytes: Vec<u8>,
    /// The name of the project.
    pub name: String,
    /// The folder of the project.
    pub folder: PathBuf,
    /// True for an interpreter with a program, which only `hatchery dev` builds.
    pub is_development: bool,
}

impl BuiltComponent {
    /// Reads a component from a folder of the build tool.
    fn read(file: &Path, name: String, folder: PathBuf) -> anyhow::Result<Self> {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self { bytes, name, folder, is_development: false })
    }

    /// Joins the files of an interpreter and of its program.
    fn join_program_files(interpreter: &Path, program: &Path, name: String, folder: PathBuf) -> anyhow::Result<Self> {
        let read = |file: &Path| std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        let bytes = join_program(&read(interpreter)?, &read(program)?);
        Ok(Self { bytes, name, folder, is_development: true })
    }
}

/// The language of a component's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    Rust,
    #[value(alias = "py")]
    Python,
    #[value(name = "js", alias = "javascript")]
    JavaScript,
    #[value(name = "ts", alias = "typescript")]
    TypeScript,
}

impl Language {
    /// Detects the language of the project in a folder by its manifest. TypeScript is built as JavaScript.
    pub fn detect(dir: &Path) -> anyhow::Result<Self> {
        require_folder(dir)?;
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
            [] => bail!("{} is not a component project: {}", dir.display(), describe_missing_manifest(dir)),
            _ => {
                let languages: Vec<_> = languages.iter().map(|language| format!("{language:?}")).collect();
                bail!(
                    "{} has projects in several languages: {}; move each to its own folder",
                    dir.display(),
                    languages.join(", ")
                )
            }
        }
    }
}

/// Returns what makes a folder a project.
fn describe_missing_manifest(dir: &Path) -> &'static str {
    if dir.join("pyproject.toml").is_file() {
        "its pyproject.toml has no table [tool.hatchery]; add one, with `module = \"NAME\"` unless the main module is app.py"
    } else if dir.join("package.json").is_file() {
        "its package.json has no key \"hatchery\"; add \"hatchery\": {}, with \"module\": \"FILE\" in it unless the main \
         module is index.js or index.ts"
    } else {
        "no Cargo.toml, no pyproject.toml with [tool.hatchery], and no package.json with \"hatchery\"; create a project with \
         `hatchery new`"
    }
}

/// Unpacks the SDK of a scripting language, on which projects depend by path, and returns its folder.
pub fn unpack_sdk(language: Language) -> anyhow::Result<PathBuf> {
    let folder = match language {
        Language::Python => "python",
        Language::JavaScript | Language::TypeScript => "javascript",
        Language::Rust => return BuildCache::open(BuildTools::Cargo)?.unpack_rust_sdk(),
    };
    Ok(BuildCache::open(BuildTools::Scripting)?.unpack_sdk()?.join(folder))
}

/// The exit code of an SDK's build for a program that an interpreter cannot run.
const NEEDS_SNAPSHOT: i32 = 3;

/// The file name of an interpreter in its folder of the build cache.
const INTERPRETER: &str = "interpreter.wasm";

/// Returns the name of a folder, for a project whose manifest names none.
fn folder_name(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "component".into(), |name| name.to_string_lossy().into_owned())
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

/// Timeout for importing and building a project.
const BUILD_TIMEOUT: Duration = Duration::from_secs(900);

/// Interval at which a program that was started is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a program that imports the modules of a project. A program that does not end within `timeout` is killed.
fn run_with_timeout(command: &mut Command, program: &str, timeout: Duration) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {program}"))? {
            return Ok(status);
        }
        if started.elapsed() >= timeout {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "importing and building the project took longer than {} s; look for a loop or a wait at the top level of a module",
                timeout.as_secs_f32()
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
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
        assert!(error.ends_with("several languages: Python, JavaScript; move each to its own folder"), "{error}");
    }

    #[test]
    fn a_folder_without_a_project_is_explained() {
        let error = language(&[("notes.txt", "")]).unwrap_err();
        assert!(error.contains("no pyproject.toml with [tool.hatchery]"), "{error}");
        assert!(error.ends_with("create a project with `hatchery new`"), "{error}");
    }

    #[test]
    fn a_manifest_that_is_not_of_a_component_is_answered_with_what_it_needs() {
        let error = language(&[("pyproject.toml", "[project]\n")]).unwrap_err();
        assert!(error.contains("its pyproject.toml has no table [tool.hatchery]; add one"), "{error}");
        let error = language(&[("package.json", "{}")]).unwrap_err();
        assert!(error.contains("its package.json has no key \"hatchery\"; add \"hatchery\": {}"), "{error}");
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
    fn a_project_that_loops_when_it_is_imported_ends_the_build() {
        let mut endless = Command::new("sleep");
        let error = run_with_timeout(endless.arg("1000"), "sleep", Duration::from_millis(100)).unwrap_err().to_string();
        assert!(error.contains("longer than 0.1 s; look for a loop"), "{error}");
        assert!(run_with_timeout(&mut Command::new("true"), "true", BUILD_TIMEOUT).unwrap().success());
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_at_least("3.11.2", (3, 11)) && is_at_least("v22.1.0", (20, 0)) && is_at_least("4.0", (3, 11)));
        assert!(!is_at_least("3.9.18", (3, 11)) && !is_at_least("v18.20.1", (20, 0)) && !is_at_least("", (1, 0)));
    }
}
