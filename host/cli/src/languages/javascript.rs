//! Builds components in JavaScript and TypeScript: the guest SDK bundles them with esbuild and calls componentize-qjs,
//! which embeds QuickJS.
//!
//! No other code of the project runs before its main module is imported: npm and Node are started outside of the
//! project, its `.npmrc` is ignored, and install scripts of packages are disabled.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;

use super::build_cache::{BuildCache, BuildTools, hash};
use super::{
    BUILD_TIMEOUT, BuiltComponent, INTERPRETER, NEEDS_SNAPSHOT, capture_stdout, copy_files, folder_name, is_at_least,
    run_with_timeout, sdk,
};
use crate::files;

/// Timeout for importing the main module in Node.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The minimum version of Node for the SDK.
const MIN_VERSION: (u32, u32) = (20, 0);

/// The parts of `package.json` that are used.
#[derive(Deserialize)]
struct Manifest {
    name: Option<String>,
    hatchery: BuildSettings,
    #[serde(default)]
    dependencies: serde_json::Map<String, Value>,
}

/// The value of the key `hatchery`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildSettings {
    /// The main module, relative to the folder of the project. Its default export is the component. `None`: `index.ts`
    /// or `index.js`.
    module: Option<String>,
}

/// Extensions of the files that are copied for a build.
const SOURCES: [&str; 10] = [".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".json", ".txt"];

/// Builds the project in a folder. `None` if its code is invalid, after the SDK has printed the errors.
pub fn build(dir: &Path) -> anyhow::Result<Option<BuiltComponent>> {
    Project::open(dir)?.build()
}

/// Builds a development component: the program is run by an interpreter that is compiled once for all programs. A
/// program that needs a snapshot is built as by [`build`].
pub fn develop(dir: &Path) -> anyhow::Result<Option<BuiltComponent>> {
    Project::open(dir)?.develop()
}

/// A project with its build tools.
struct Project {
    folder: PathBuf,
    manifest: Manifest,
    cache: BuildCache,
    node: Node,
    tools: PathBuf,
    sdk: PathBuf,
}

impl Project {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let folder = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let manifest = Manifest::read(&folder.join("package.json"))?;
        let cache = BuildCache::open(BuildTools::Scripting)?;
        let node = Node::find(cache.folder())?;
        let tools =
            cache.install_tools("javascript", &[sdk::JAVASCRIPT_LOCK, &node.version], |tools| node.install(tools))?;
        let sdk = cache.unpack_sdk()?;
        Ok(Self { folder, manifest, cache, node, tools, sdk })
    }

    fn build(self) -> anyhow::Result<Option<BuiltComponent>> {
        let versions = [&*self.sdk.to_string_lossy(), &*self.tools.to_string_lossy()];
        let component = self.cache.build_component(&self.folder, &versions, |work, out| {
            anstream::eprintln!("building {} with componentize-qjs", self.folder.display());
            assemble(&self.folder, &self.manifest, &self.sdk, work)?;
            let build = self.steps(work);
            Ok(build.prepare(&self.manifest.module(&self.folder), &self.sdk)? && build.componentize(out)?)
        })?;
        component.map(|file| BuiltComponent::read(&file, self.name(), self.folder)).transpose()
    }

    fn develop(self) -> anyhow::Result<Option<BuiltComponent>> {
        let interpreter = self.interpreter()?;
        let work = self.cache.work_folder(&self.folder)?;
        assemble(&self.folder, &self.manifest, &self.sdk, &work)?;
        match self.steps(&work).develop(&self.manifest.module(&self.folder), &work.join("program.json"))? {
            Development::Invalid => Ok(None),
            Development::NeedsSnapshot => self.build(),
            Development::Program(program) => {
                let name = self.name();
                BuiltComponent::join_program_files(&interpreter, &program, name, self.folder).map(Some)
            }
        }
    }

    /// Returns the interpreter of development components. Creates it if necessary.
    fn interpreter(&self) -> anyhow::Result<PathBuf> {
        let versions = [&*self.sdk.to_string_lossy(), &*self.tools.to_string_lossy()];
        let folder = self.cache.install_tools("interpreter-javascript", &versions, |folder| {
            anstream::eprintln!("creating the interpreter of components in development (first build only)");
            copy_sdk(&self.sdk, &folder.join("app"))?;
            self.steps(folder).create_interpreter(&self.sdk, &folder.join(INTERPRETER))
        })?;
        Ok(folder.join(INTERPRETER))
    }

    fn steps<'a>(&'a self, work: &'a Path) -> SdkBuild<'a> {
        SdkBuild { node: &self.node, tools: &self.tools, work }
    }

    /// Returns the name of the component.
    fn name(&self) -> String {
        let name = self.manifest.name.clone().unwrap_or_else(|| folder_name(&self.folder));
        // The scope of a name such as `@ada/dice` is not part of the file name.
        name.rsplit('/').next().unwrap_or(&name).to_owned()
    }
}

impl Manifest {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Returns the main module of the project in a folder.
    fn module(&self, folder: &Path) -> String {
        let default = || if folder.join("index.ts").is_file() { "index.ts".into() } else { "index.js".into() };
        self.hatchery.module.clone().unwrap_or_else(default)
    }

    /// Returns true if there are dependencies other than the SDK, which is embedded.
    fn has_packages(&self) -> bool {
        self.dependencies.keys().any(|name| name != SDK_PACKAGE)
    }
}

/// The package name of the SDK.
const SDK_PACKAGE: &str = "hatchery-guest";

/// The script of the SDK that builds, in the working folder.
const BUILD_SCRIPT: &str = "app/node_modules/hatchery-guest/src/build.js";

/// The file in the working folder that identifies the installed packages.
const PACKAGES_KEY: &str = "packages-key";

/// The Node of the machine.
struct Node {
    program: OsString,
    version: String,
}

impl Node {
    fn find(working_dir: &Path) -> anyhow::Result<Self> {
        let advice = "install Node 20 or newer with npm, from https://nodejs.org or your package manager, or set HATCHERY_NODE to its path";
        let program = std::env::var_os("HATCHERY_NODE").filter(|program| !program.is_empty());
        let program = program.unwrap_or_else(|| "node".into());
        let version = capture_stdout(&program, &["--version"], working_dir, advice)?;
        if !is_at_least(&version, MIN_VERSION) {
            bail!("{} is too old: it is Node {version}; {advice}", program.display());
        }
        Ok(Self { program, version })
    }

    /// Installs the packages of the lock file in a folder with npm. `packages` describes them in errors.
    fn install_locked(folder: &Path, packages: &str) -> anyhow::Result<()> {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        capture_stdout(
            npm.as_ref(),
            &["--version"],
            folder,
            "install npm with Node, from https://nodejs.org or your package manager",
        )?;
        let mut install = Command::new(npm);
        install.args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        // Stdout is for the result of this command.
        let status = install.current_dir(folder).stdout(Stdio::null()).status();
        if !status.with_context(|| format!("cannot start {npm}"))?.success() {
            bail!(
                "npm could not install {packages}; the first build needs network access. Behind a mirror or proxy, run `npm config \
                 set registry URL` or set HTTPS_PROXY, and build again"
            );
        }
        Ok(())
    }

    fn install(&self, tools: &Path) -> anyhow::Result<()> {
        anstream::eprintln!(
            "installing componentize-qjs and esbuild for Node {} into {} (first build only)",
            self.version,
            tools.display()
        );
        for (name, text) in [("package.json", sdk::JAVASCRIPT_TOOLS), ("package-lock.json", sdk::JAVASCRIPT_LOCK)] {
            std::fs::write(tools.join(name), text)
                .with_context(|| format!("cannot write {}", tools.join(name).display()))?;
        }
        Self::install_locked(tools, "componentize-qjs and esbuild")
    }
}

/// Copies the sources, the packages and the SDK into the folder `app` for the build tool. Packages are installed again
/// only if their lock file has changed.
fn assemble(project: &Path, manifest: &Manifest, sdk: &Path, work: &Path) -> anyhow::Result<()> {
    let app = work.join("app");
    let packages = if manifest.has_packages() { Some(packages_key(project)?) } else { None };
    let key_file = work.join(PACKAGES_KEY);
    let is_installed =
        packages.is_some() && std::fs::read_to_string(&key_file).ok() == packages && app.join("node_modules").is_dir();
    if is_installed {
        remove_sources(&app)?;
    } else {
        let _ = std::fs::remove_file(&key_file);
        let _ = std::fs::remove_dir_all(&app);
    }
    let is_source = |name: &str| SOURCES.iter().any(|extension| name.ends_with(extension));
    copy_files(project, &files::find(project, is_source)?, &app)?;
    if let Some(key) = packages.filter(|_| !is_installed) {
        anstream::eprintln!("installing the packages of {}", project.display());
        remove_sdk_from_lock(&app)?;
        Node::install_locked(&app, "the packages")?;
        std::fs::write(&key_file, key).with_context(|| format!("cannot write {}", key_file.display()))?;
    }
    copy_sdk(sdk, &app)
}

/// Returns a string that identifies the packages of a project.
fn packages_key(project: &Path) -> anyhow::Result<String> {
    let lock = project.join("package-lock.json");
    if !lock.is_file() {
        bail!("{} has no package-lock.json; run `npm install` in the project and build again", project.display());
    }
    let read = |file: PathBuf| std::fs::read(&file).with_context(|| file.display().to_string());
    let (manifest, lock) = (read(project.join("package.json"))?, read(lock)?);
    Ok(hash([&*manifest, &*lock]))
}

/// Removes everything in a folder but its packages.
fn remove_sources(app: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(app).with_context(|| app.display().to_string())?;
    for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_name() != "node_modules") {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Copies the SDK to the packages in a folder.
fn copy_sdk(sdk: &Path, app: &Path) -> anyhow::Result<()> {
    let sources = sdk.join("javascript");
    // If the project depends on the SDK by path, npm creates a link. Files must not be written through it.
    let target = app.join("node_modules").join(SDK_PACKAGE);
    let _ = std::fs::remove_file(&target);
    let _ = std::fs::remove_dir_all(&target);
    copy_files(&sources, &files::find(&sources, |_| true)?, &target)
}

/// The steps of the SDK's build script.
struct SdkBuild<'a> {
    node: &'a Node,
    tools: &'a Path,
    /// The folder of the sources and of generated files.
    work: &'a Path,
}

/// The result of preparing a program for the interpreter.
enum Development {
    /// The program, as the interpreter reads it.
    Program(PathBuf),
    /// Only a snapshot can run it.
    NeedsSnapshot,
    /// It has an error, which is printed.
    Invalid,
}

impl SdkBuild<'_> {
    /// Bundles the program and finds its exports. Returns false after an error in it, which is printed.
    fn prepare(&self, module: &str, sdk: &Path) -> anyhow::Result<bool> {
        let mut prepare = self.command("prepare");
        prepare.arg(module).arg(sdk.join("wit")).arg(self.work).arg(self.tools);
        Ok(run_with_timeout(&mut prepare, "Node", IMPORT_TIMEOUT)?.success())
    }

    /// Creates the component. Returns false after an error of the program in WebAssembly, which is printed.
    fn componentize(&self, out: &Path) -> anyhow::Result<bool> {
        let mut componentize = self.command("componentize");
        componentize.arg(self.work).arg(self.tools).arg(out);
        Ok(run_with_timeout(&mut componentize, "Node", BUILD_TIMEOUT)?.success())
    }

    /// Bundles the program for the interpreter into a file.
    fn develop(&self, module: &str, out: &Path) -> anyhow::Result<Development> {
        let mut develop = self.command("develop");
        develop.arg(module).arg(self.work).arg(self.tools).arg(out);
        let status = run_with_timeout(&mut develop, "Node", IMPORT_TIMEOUT)?;
        Ok(match status.code() {
            Some(0) => Development::Program(out.to_owned()),
            Some(NEEDS_SNAPSHOT) => Development::NeedsSnapshot,
            Some(_) | None => Development::Invalid,
        })
    }

    /// Creates the interpreter of development components.
    fn create_interpreter(&self, sdk: &Path, out: &Path) -> anyhow::Result<()> {
        let mut create = self.command("interpreter");
        create.arg(sdk.join("wit")).arg(self.work).arg(self.tools).arg(out);
        if !run_with_timeout(&mut create, "Node", BUILD_TIMEOUT)?.success() {
            bail!("the interpreter of components in development cannot be created; `hatchery build` does not need it");
        }
        Ok(())
    }

    fn command(&self, step: &str) -> Command {
        let mut command = Command::new(&self.node.program);
        // Stack traces name the lines of the sources.
        command.arg("--enable-source-maps").arg(self.work.join(BUILD_SCRIPT)).arg(step);
        // Stdout is for the result of this command.
        command.current_dir(self.work).stdout(Stdio::null());
        command
    }
}

/// Removes the SDK, which is embedded, from the manifest and the lock file in a copy of a project. A lock file with a
/// path dependency would lead to a folder that the copy does not have.
fn remove_sdk_from_lock(app: &Path) -> anyhow::Result<()> {
    for name in ["package.json", "package-lock.json"] {
        let file = app.join(name);
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut json: Value = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        remove_sdk(&mut json);
        std::fs::write(&file, json.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Removes the SDK from the text of a manifest or of a lock file.
fn remove_sdk(json: &mut Value) {
    let remove_dependency = |package: &mut Value| {
        for key in ["dependencies", "devDependencies"] {
            if let Some(dependencies) = package.get_mut(key).and_then(Value::as_object_mut) {
                dependencies.remove(SDK_PACKAGE);
            }
        }
    };
    remove_dependency(json);
    let Some(packages) = json.get_mut("packages").and_then(Value::as_object_mut) else { return };
    packages.values_mut().for_each(remove_dependency);
    let installed = packages.remove(&format!("node_modules/{SDK_PACKAGE}"));
    // The entry of the folder that the link leads to.
    if let Some(folder) = installed.as_ref().and_then(|it| it.get("resolved")).and_then(Value::as_str) {
        packages.remove(folder);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_module_is_index_js_or_index_ts_unless_the_manifest_says_otherwise() {
        let read = |value| serde_json::from_value::<Manifest>(value).map_err(|error| error.to_string());
        let folder = tempfile::tempdir().unwrap();
        let dice = read(json!({"name": "dice", "hatchery": {}, "dependencies": {"hatchery-guest": "0.2"}})).unwrap();
        assert_eq!((dice.module(folder.path()).as_str(), dice.has_packages()), ("index.js", false));
        let other = read(json!({"hatchery": {"module": "src/x.js"}, "dependencies": {"left-pad": "1"}})).unwrap();
        std::fs::write(folder.path().join("index.ts"), "").unwrap();
        assert_eq!((other.module(folder.path()).as_str(), other.has_packages()), ("src/x.js", true));
        assert_eq!(dice.module(folder.path()), "index.ts");
        let error = read(json!({"hatchery": {"modul": "x"}})).map(|_| ()).unwrap_err();
        assert!(error.contains("unknown field `modul`"), "{error}");
    }

    #[test]
    fn the_embedded_sdk_is_not_installed_by_npm() {
        let mut lock = json!({"lockfileVersion": 3, "packages": {
            "": {"dependencies": {"hatchery-guest": "file:/c/sdk", "marked": "^1"}},
            "../c/sdk": {"name": "hatchery-guest", "version": "0.2.0"},
            "node_modules/hatchery-guest": {"resolved": "../c/sdk", "link": true},
            "node_modules/marked": {"version": "1.0.0"},
        }});
        remove_sdk(&mut lock);
        let left = json!({"lockfileVersion": 3, "packages": {
            "": {"dependencies": {"marked": "^1"}}, "node_modules/marked": {"version": "1.0.0"},
        }});
        assert_eq!(lock, left);
        let mut manifest = json!({"devDependencies": {"hatchery-guest": "file:x"}});
        remove_sdk(&mut manifest);
        assert_eq!(manifest, json!({"devDependencies": {}}));
    }

    #[test]
    fn packages_without_a_lock_file_are_refused() {
        let (project, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let manifest = r#"{"hatchery": {}, "dependencies": {"left-pad": "1"}}"#;
        std::fs::write(project.path().join("package.json"), manifest).unwrap();
        let manifest = Manifest::read(&project.path().join("package.json")).unwrap();
        let error = assemble(project.path(), &manifest, project.path(), work.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("has no package-lock.json; run `npm install` in the project and build again"),
            "{error}"
        );
    }
}
