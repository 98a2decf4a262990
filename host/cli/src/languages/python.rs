//! Builds components in Python with componentize-py, which is installed in a virtual environment and called by the
//! guest SDK.
//!
//! No other code of the project runs before its main module is imported. Python is isolated (`-I`, or `-P` where it
//! must find the SDK) and started outside of the project: a `json.py` or `pip.py` there does not shadow a module.

mod packages;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::build_cache::{BuildCache, BuildTools};
use super::{
    BUILD_TIMEOUT, BuiltComponent, INTERPRETER, NEEDS_SNAPSHOT, capture_stdout, copy_files, folder_name, is_at_least,
    run_with_timeout, sdk,
};
use crate::files;

/// The minimum version of Python for the SDK.
const MIN_VERSION: (u32, u32) = (3, 11);

/// The parts of `pyproject.toml` that are used.
#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    project: ManifestProject,
    tool: ManifestTool,
}

#[derive(Default, Deserialize)]
struct ManifestProject {
    name: Option<String>,
}

#[derive(Deserialize)]
struct ManifestTool {
    hatchery: BuildSettings,
}

/// The table `[tool.hatchery]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildSettings {
    /// The main module, which calls `export`.
    #[serde(default = "default_module")]
    module: String,
}

fn default_module() -> String {
    "app".into()
}

/// Builds the project in a folder. `None` if its code is invalid, after the SDK has printed the errors.
pub fn build(dir: &Path) -> anyhow::Result<Option<BuiltComponent>> {
    Project::open(dir)?.build()
}

/// Builds a development component: the program is run by an interpreter that is compiled once for all programs with the
/// same packages and imports.
pub fn develop(dir: &Path) -> anyhow::Result<Option<BuiltComponent>> {
    Project::open(dir)?.develop()
}

/// A project with its build tools.
struct Project {
    folder: PathBuf,
    manifest: Manifest,
    cache: BuildCache,
    python: Python,
    tools: PathBuf,
    sdk: PathBuf,
}

impl Project {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let folder = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let cache = BuildCache::open(BuildTools::Scripting)?;
        let python = Python::find(cache.folder())?;
        let manifest = python.read_manifest(&folder.join("pyproject.toml"), cache.folder())?;
        let tools =
            cache.install_tools("python", &[sdk::PYTHON_LOCK, &python.version], |tools| python.install(tools))?;
        let sdk = cache.unpack_sdk()?;
        Ok(Self { folder, manifest, cache, python, tools, sdk })
    }

    fn build(self) -> anyhow::Result<Option<BuiltComponent>> {
        let versions = [sdk::PYTHON_LOCK, &*self.sdk.to_string_lossy(), &self.python.version];
        // This may write a lock file, on which the component depends.
        let packages = packages::install(&self.folder, &self.cache.work_folder(&self.folder)?, &self.tools)?;
        let component = self.cache.build_component(&self.folder, &versions, |work, out| {
            let paths = copy_modules(&self.folder, work)?;
            let folder = self.folder.display();
            anstream::eprintln!("building {folder} with componentize-py; this takes about half a minute");
            let mut build = self.sdk_build(work, out);
            build.args(["--module", self.module()]).arg("--wit").arg(self.sdk.join("wit")).args(paths).args(packages);
            Ok(run_with_timeout(&mut build, "Python", BUILD_TIMEOUT)?.success())
        })?;
        component.map(|file| BuiltComponent::read(&file, self.name(), self.folder)).transpose()
    }

    fn develop(self) -> anyhow::Result<Option<BuiltComponent>> {
        let work = self.cache.work_folder(&self.folder)?;
        let packages = packages::install(&self.folder, &work, &self.tools)?;
        let paths = copy_modules(&self.folder, &work)?;
        let program = work.join("program.json");
        let mut develop = self.sdk_build(&work, &program);
        develop.args(["--develop", "--module", self.module()]).args(&paths).args(&packages);
        match run_with_timeout(&mut develop, "Python", BUILD_TIMEOUT)?.code() {
            Some(0) => {}
            Some(NEEDS_SNAPSHOT) => return self.build(),
            Some(_) | None => return Ok(None),
        }
        let interpreter = self.interpreter(&work, packages.as_deref())?;
        BuiltComponent::join_program_files(&interpreter, &program, self.name(), self.folder).map(Some)
    }

    /// Returns the interpreter with the packages of the project and with the modules that it imports. Creates it if
    /// necessary.
    fn interpreter(&self, work: &Path, packages: Option<&Path>) -> anyhow::Result<PathBuf> {
        let imports = work.join("imports.json");
        let names = std::fs::read_to_string(&imports).with_context(|| imports.display().to_string())?;
        let installed = packages.map(installed_packages).transpose()?.unwrap_or_default();
        let versions =
            [sdk::PYTHON_LOCK, &*self.sdk.to_string_lossy(), &self.python.version, &*names, &*installed.join("\n")];
        let folder = self.cache.install_tools("interpreter-python", &versions, |folder| {
            anstream::eprintln!(
                "creating an interpreter with the imports of {}; this takes about half a minute, and is repeated when they change",
                self.folder.display()
            );
            let mut create = self.sdk_build(folder, &folder.join(INTERPRETER));
            create.arg("--interpreter").arg(&imports).arg("--wit").arg(self.sdk.join("wit"));
            create.args(packages);
            if !run_with_timeout(&mut create, "Python", BUILD_TIMEOUT)?.success() {
                bail!("the interpreter of components in development cannot be created; `hatchery build` does not need it");
            }
            Ok(())
        })?;
        Ok(folder.join(INTERPRETER))
    }

    /// Returns the build command of the SDK, without its arguments.
    fn sdk_build(&self, work: &Path, out: &Path) -> Command {
        let mut build = Command::new(program(&self.tools, "python"));
        build.args(["-P", "-s", "-m", "hatchery_guest.build", "--work"]).arg(work).arg("--out").arg(out);
        // Modules of the environment or the current folder must not get into the component.
        build.current_dir(work).env("PYTHONPATH", self.sdk.join("python")).env_remove("PYTHONHOME");
        build.env("PYTHONDONTWRITEBYTECODE", OsStr::new("1"));
        build
    }

    /// Returns the main module.
    fn module(&self) -> &str {
        &self.manifest.tool.hatchery.module
    }

    /// Returns the name of the component.
    fn name(&self) -> String {
        self.manifest.project.name.clone().unwrap_or_else(|| folder_name(&self.folder))
    }
}

/// The Python interpreter of the machine.
struct Python {
    program: OsString,
    /// Version and path of the executable.
    version: String,
}

impl Python {
    fn find(working_dir: &Path) -> anyhow::Result<Self> {
        let advice = "install Python 3.11 or newer, for example with `apt install python3 python3-venv`, or set HATCHERY_PYTHON to its path";
        let program = std::env::var_os("HATCHERY_PYTHON").filter(|program| !program.is_empty());
        let program = program.unwrap_or_else(|| "python3".into());
        let script = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)";
        let version = capture_stdout(&program, &["-I", "-c", script], working_dir, advice)?;
        let number = version.split(' ').next().unwrap_or_default();
        if !is_at_least(number, MIN_VERSION) {
            bail!("{} is too old: it is Python {number}; {advice}", program.display());
        }
        Ok(Self { program, version })
    }

    /// Reads the manifest of a project, with the TOML parser of Python.
    fn read_manifest(&self, manifest: &Path, working_dir: &Path) -> anyhow::Result<Manifest> {
        let script = "import json, sys, tomllib; print(json.dumps(tomllib.load(open(sys.argv[1], 'rb')), default=str))";
        let mut command = Command::new(&self.program);
        let output = command.args(["-I", "-c", script]).arg(manifest).current_dir(working_dir).output();
        let output = output.with_context(|| format!("cannot start {}", self.program.display()))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let error = stderr.lines().last().unwrap_or("cannot be read");
            bail!("{}: {}", manifest.display(), error.trim_start_matches("tomllib.TOMLDecodeError: "));
        }
        parse_manifest(&output.stdout).with_context(|| manifest.display().to_string())
    }

    /// Creates a virtual environment with the build tools.
    fn install(&self, tools: &Path) -> anyhow::Result<()> {
        anstream::eprintln!("installing componentize-py into {} (first build only)", tools.display());
        let status = Command::new(&self.program)
            .args(["-I", "-m", "venv"])
            .arg(tools)
            .current_dir(tools)
            .stdout(Stdio::null())
            .status();
        let status = status.with_context(|| format!("cannot start {}", self.program.display()))?;
        if !status.success() {
            bail!(
                "cannot create a virtual environment for Python; on Debian and Ubuntu, run `apt install python3-venv`"
            );
        }
        let lock = tools.join("requirements.txt");
        std::fs::write(&lock, sdk::PYTHON_LOCK).with_context(|| format!("cannot write {}", lock.display()))?;
        let status = packages::pip(tools).args(["--require-hashes", "--no-deps", "-r"]).arg(&lock).status();
        if !status.context("cannot start pip")?.success() {
            bail!(
                "pip could not install componentize-py; the first build needs network access. Behind a mirror or proxy, set \
                 PIP_INDEX_URL or HTTPS_PROXY, and build again"
            );
        }
        Ok(())
    }
}

/// Parses a manifest that was converted to JSON. Errors have no position, which would be one in the JSON.
fn parse_manifest(json: &[u8]) -> serde_json::Result<Manifest> {
    serde_json::from_value(serde_json::from_slice(json)?)
}

/// Returns the path of a program in a virtual environment.
fn program(tools: &Path, name: &str) -> PathBuf {
    if cfg!(windows) { tools.join("Scripts").join(format!("{name}.exe")) } else { tools.join("bin").join(name) }
}

/// Copies the modules of the project. Returns the module search paths.
fn copy_modules(project: &Path, work: &Path) -> anyhow::Result<Vec<PathBuf>> {
    // Built from a copy, because the interpreter writes compiled modules next to the sources.
    let program = work.join("program");
    let _ = std::fs::remove_dir_all(&program);
    copy_files(project, &files::find(project, |name| !name.ends_with(".wasm") && !name.ends_with(".pyc"))?, &program)?;
    let mut paths = vec![program.join("src")];
    paths.retain(|path| path.is_dir());
    paths.push(program);
    Ok(paths)
}

/// Returns the names and versions of the packages in a folder, sorted.
fn installed_packages(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut packages: Vec<_> = names.filter(|name| name.ends_with(".dist-info")).collect();
    packages.sort();
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(json: serde_json::Value) -> Result<Manifest, String> {
        parse_manifest(json.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_module_is_app_unless_the_manifest_says_otherwise() {
        let read = manifest(json!({"project": {"name": "dice"}, "tool": {"hatchery": {}, "x": 1}})).unwrap();
        assert_eq!((read.project.name.as_deref(), &*read.tool.hatchery.module), (Some("dice"), "app"));
        assert_eq!(manifest(json!({"tool": {"hatchery": {"module": "a.b"}}})).unwrap().tool.hatchery.module, "a.b");
    }

    #[test]
    fn an_error_of_the_manifest_has_no_position_in_its_json() {
        let error = manifest(json!({"tool": {"hatchery": {"modul": "a"}}})).map(|_| ()).unwrap_err();
        assert_eq!(error, "unknown field `modul`, expected `module`");
    }
}
