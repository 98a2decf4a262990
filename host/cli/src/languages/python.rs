//! Components in Python: componentize-py, in a virtual environment of its own, driven by the guest SDK.
//!
//! Nothing of the project runs before its program does: Python is isolated (`-I`, or `-P` where it needs to find the SDK) and started outside of
//! the project, so that a `json.py` or `pip.py` there is not taken for the module of that name. The program itself is imported natively.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::workshop::Workshop;
use super::{Built, ask, copy, is_at_least, sdk};
use crate::files;

/// The oldest Python that the SDK runs on.
const OLDEST: (u32, u32) = (3, 11);

/// The Python inside of components, for which packages are chosen.
const INSIDE: &str = "3.14";

/// What of `pyproject.toml` counts.
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
    hatchery: Settings,
}

/// `[tool.hatchery]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The module that exports.
    #[serde(default = "app")]
    module: String,
}

fn app() -> String {
    "app".into()
}

/// Builds the project in a folder; nothing when the program is wrong, which has been said.
pub fn build(dir: &Path) -> anyhow::Result<Option<Built>> {
    let folder = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let workshop = Workshop::open()?;
    let python = Python::find(workshop.folder())?;
    let manifest = python.read(&folder.join("pyproject.toml"), workshop.folder())?;
    let tools = workshop.tools("python", &[sdk::PYTHON_LOCK, &python.version], |tools| python.install(tools))?;
    let sdk = workshop.sdk()?;
    let built_with = [sdk::PYTHON_LOCK, &sdk.to_string_lossy(), &python.version].map(ToOwned::to_owned);
    let built_with: Vec<_> = built_with.iter().map(String::as_str).collect();
    let component = workshop.component(&folder, &built_with, |work, out| {
        let paths = paths(&folder, work, &tools)?;
        anstream::eprintln!("building {} with componentize-py; that takes half a minute", folder.display());
        compile(&manifest.tool.hatchery.module, &tools, &sdk, work, &paths, out)
    })?;
    let own_name = folder.file_name().map_or_else(|| "component".into(), |name| name.to_string_lossy().into_owned());
    let name = manifest.project.name.unwrap_or(own_name);
    Ok(component.map(|file| Built { file, name, folder }))
}

/// The machine's Python.
struct Python {
    program: OsString,
    /// Its version and where it is, as it says.
    version: String,
}

impl Python {
    fn find(place: &Path) -> anyhow::Result<Self> {
        let advice = "install Python 3.11 or newer, for example with `apt install python3 python3-venv`, or set HATCHERY_PYTHON to it";
        let program = std::env::var_os("HATCHERY_PYTHON").filter(|chosen| !chosen.is_empty());
        let program = program.unwrap_or_else(|| "python3".into());
        let say = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)";
        let version = ask(&program, &["-I", "-c", say], place, advice)?;
        let number = version.split(' ').next().unwrap_or_default();
        if !is_at_least(number, OLDEST) {
            bail!("{} is Python {number}, which is too old; {advice}", program.display());
        }
        Ok(Self { program, version })
    }

    /// Reads a project's manifest: Python knows TOML.
    fn read(&self, manifest: &Path, place: &Path) -> anyhow::Result<Manifest> {
        let load = "import json, sys, tomllib; print(json.dumps(tomllib.load(open(sys.argv[1], 'rb')), default=str))";
        let mut read = Command::new(&self.program);
        let read = read.args(["-I", "-c", load]).arg(manifest).current_dir(place).output();
        let read = read.with_context(|| format!("cannot start {}", self.program.display()))?;
        if !read.status.success() {
            let said = String::from_utf8_lossy(&read.stderr);
            bail!("{}: {}", manifest.display(), said.lines().last().unwrap_or("it cannot be read"));
        }
        serde_json::from_slice(&read.stdout).with_context(|| manifest.display().to_string())
    }

    /// Makes a virtual environment with the build tools in it.
    fn install(&self, tools: &Path) -> anyhow::Result<()> {
        anstream::eprintln!("installing componentize-py for Python, once; it is kept in {}", tools.display());
        let made = Command::new(&self.program)
            .args(["-I", "-m", "venv"])
            .arg(tools)
            .current_dir(tools)
            .stdout(Stdio::null())
            .status();
        let made = made.with_context(|| format!("cannot start {}", self.program.display()))?;
        if !made.success() {
            bail!("Python cannot make a virtual environment; on Debian and Ubuntu `apt install python3-venv` helps");
        }
        let lock = tools.join("requirements.txt");
        std::fs::write(&lock, sdk::PYTHON_LOCK).with_context(|| lock.display().to_string())?;
        let installed = pip(tools).args(["--require-hashes", "--no-deps", "-r"]).arg(&lock).status();
        if !installed.context("cannot start pip")?.success() {
            bail!(
                "pip could not install componentize-py; this once it needs the network. Behind a mirror or a proxy, set PIP_INDEX_URL or \
                 HTTPS_PROXY, and build again"
            );
        }
        Ok(())
    }
}

/// A program of a virtual environment.
fn program(tools: &Path, name: &str) -> PathBuf {
    if cfg!(windows) { tools.join("Scripts").join(format!("{name}.exe")) } else { tools.join("bin").join(name) }
}

fn pip(tools: &Path) -> Command {
    let mut pip = Command::new(program(tools, "python"));
    pip.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]).current_dir(tools);
    pip
}

/// Where the program's modules are: in the project, and in the packages that it lists, which are installed now.
fn paths(project: &Path, work: &Path, tools: &Path) -> anyhow::Result<Vec<PathBuf>> {
    // A copy, because the interpreter leaves compiled modules beside the sources.
    let program = work.join("program");
    let _ = std::fs::remove_dir_all(&program);
    copy(project, &files::find(project, |name| !name.ends_with(".wasm") && !name.ends_with(".pyc"))?, &program)?;
    let mut paths = vec![program.join("src")];
    paths.retain(|path| path.is_dir());
    paths.push(program);
    let packages = work.join("packages");
    let _ = std::fs::remove_dir_all(&packages);
    let list = project.join("requirements.txt");
    if list.is_file() {
        anstream::eprintln!("installing the packages of {}", list.display());
        let mut pip = pip(tools);
        pip.args(["--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none"]);
        let installed = pip.args(["--python-version", INSIDE, "--target"]).arg(&packages).arg("-r").arg(&list).status();
        if !installed.context("cannot start pip")?.success() {
            bail!(
                "pip could not install what {} lists; packages must be plain Python, as native code of other machines does not run in a \
                 component",
                list.display()
            );
        }
        paths.push(packages);
    }
    Ok(paths)
}

fn compile(module: &str, tools: &Path, sdk: &Path, work: &Path, paths: &[PathBuf], out: &Path) -> anyhow::Result<bool> {
    let mut build = Command::new(program(tools, "python"));
    build.args(["-P", "-s", "-m", "hatchery_guest.build", "--module", module]);
    for (option, path) in [("--wit", &*sdk.join("wit")), ("--work", work), ("--out", out)] {
        build.arg(option).arg(path);
    }
    // What lies about in the environment or in the current folder must not get into the component.
    build.args(paths).current_dir(work).env("PYTHONPATH", sdk.join("python")).env_remove("PYTHONHOME");
    build.env("PYTHONDONTWRITEBYTECODE", OsStr::new("1"));
    Ok(build.status().context("cannot start Python")?.success())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(json: serde_json::Value) -> Result<Manifest, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn the_module_is_app_unless_the_manifest_says_otherwise() {
        let read = manifest(json!({"project": {"name": "dice"}, "tool": {"hatchery": {}, "x": 1}})).unwrap();
        assert_eq!((read.project.name.as_deref(), &*read.tool.hatchery.module), (Some("dice"), "app"));
        assert_eq!(manifest(json!({"tool": {"hatchery": {"module": "a.b"}}})).unwrap().tool.hatchery.module, "a.b");
        let error = manifest(json!({"tool": {"hatchery": {"modul": "a"}}})).map(|_| ()).unwrap_err();
        assert!(error.contains("unknown field `modul`"), "{error}");
    }
}
