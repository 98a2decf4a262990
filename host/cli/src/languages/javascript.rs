//! Components in JavaScript: componentize-qjs, a build tool with a small engine, driven by the guest SDK.
//!
//! Nothing of the project runs before its program does: npm and Node are started outside of the project, whose `.npmrc` is not read, and no
//! package runs scripts when it is installed. The program itself is imported natively.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::workshop::Workshop;
use super::{Built, ask, copy, is_at_least, sdk};
use crate::files;

/// The oldest Node that the SDK runs on.
const OLDEST: (u32, u32) = (20, 0);

/// What of `package.json` counts.
#[derive(Deserialize)]
struct Manifest {
    name: Option<String>,
    hatchery: Settings,
    #[serde(default)]
    dependencies: serde_json::Map<String, serde_json::Value>,
}

/// The key `hatchery`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The module whose default export is the component, below the project's folder.
    #[serde(default = "index")]
    module: String,
}

fn index() -> String {
    "index.js".into()
}

/// Builds the project in a folder; nothing when the program is wrong, which has been said.
pub fn build(dir: &Path) -> anyhow::Result<Option<Built>> {
    let folder = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let manifest = Manifest::read(&folder.join("package.json"))?;
    let workshop = Workshop::open()?;
    let node = Node::find(workshop.folder())?;
    let tools = workshop.tools("javascript", &[sdk::JAVASCRIPT_LOCK, &node.version], |tools| node.install(tools))?;
    let sdk = workshop.sdk()?;
    let component = workshop.component(&folder, &[&sdk.to_string_lossy(), &tools.to_string_lossy()], |work, out| {
        anstream::eprintln!("building {} with componentize-qjs", folder.display());
        let app = node.assemble(&folder, &manifest, &sdk, work)?;
        node.compile(&manifest.hatchery.module, &tools, &sdk, work, &app, out)
    })?;
    let own_name = folder.file_name().map_or_else(|| "component".into(), |name| name.to_string_lossy().into_owned());
    let name = manifest.name.unwrap_or(own_name);
    // Names such as `@ada/dice` belong to a scope, which is not part of a file's name.
    let name = name.rsplit('/').next().unwrap_or(&name).to_owned();
    Ok(component.map(|file| Built { file, name, folder }))
}

impl Manifest {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// True when it depends on more than the SDK, which is brought along.
    fn has_packages(&self) -> bool {
        self.dependencies.keys().any(|name| name != SDK)
    }
}

/// The SDK's own name.
const SDK: &str = "hatchery-guest";

/// The machine's Node.
struct Node {
    program: OsString,
    version: String,
}

impl Node {
    fn find(place: &Path) -> anyhow::Result<Self> {
        let advice = "install Node 20 or newer with npm, from https://nodejs.org or your package manager, or set HATCHERY_NODE to it";
        let program = std::env::var_os("HATCHERY_NODE").filter(|chosen| !chosen.is_empty());
        let program = program.unwrap_or_else(|| "node".into());
        let version = ask(&program, &["--version"], place, advice)?;
        if !is_at_least(&version, OLDEST) {
            bail!("{} is Node {version}, which is too old; {advice}", program.display());
        }
        Ok(Self { program, version })
    }

    /// Has npm install what a lock file in a folder says.
    fn install_locked(folder: &Path, what: &str) -> anyhow::Result<()> {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        ask(
            npm.as_ref(),
            &["--version"],
            folder,
            "npm comes with Node, from https://nodejs.org or your package manager",
        )?;
        let mut install = Command::new(npm);
        install.args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        // What npm says of its own on stdout is not what was asked for.
        let installed = install.current_dir(folder).stdout(std::process::Stdio::null()).status();
        if !installed.with_context(|| format!("cannot start {npm}"))?.success() {
            bail!(
                "npm could not install {what}; this once it needs the network. Behind a mirror or a proxy, set `npm config set registry` or \
                 HTTPS_PROXY, and build again"
            );
        }
        Ok(())
    }

    fn install(&self, tools: &Path) -> anyhow::Result<()> {
        anstream::eprintln!(
            "installing componentize-qjs for Node {}, once; it is kept in {}",
            self.version,
            tools.display()
        );
        for (name, text) in [("package.json", sdk::JAVASCRIPT_TOOLS), ("package-lock.json", sdk::JAVASCRIPT_LOCK)] {
            std::fs::write(tools.join(name), text).with_context(|| tools.join(name).display().to_string())?;
        }
        Self::install_locked(tools, "componentize-qjs")
    }

    /// Puts the program, its packages and the SDK into one folder, as the build tool wants them.
    fn assemble(&self, project: &Path, manifest: &Manifest, sdk: &Path, work: &Path) -> anyhow::Result<PathBuf> {
        let app = work.join("app");
        let _ = std::fs::remove_dir_all(&app);
        let is_source = |name: &str| [".js", ".mjs", ".json"].iter().any(|extension| name.ends_with(extension));
        copy(project, &files::find(project, is_source)?, &app)?;
        if manifest.has_packages() {
            if !app.join("package-lock.json").is_file() {
                bail!("{}: its packages are not locked; run `npm install` there once", project.display());
            }
            anstream::eprintln!("installing the packages of {}", project.display());
            Self::install_locked(&app, "the packages")?;
        }
        let own = sdk.join("javascript");
        // npm leaves a link there when the project has the SDK by its folder; nothing may be written through it.
        let brought = app.join("node_modules").join(SDK);
        let _ = std::fs::remove_file(&brought);
        let _ = std::fs::remove_dir_all(&brought);
        copy(&own, &files::find(&own, |_| true)?, &brought)?;
        Ok(app)
    }

    fn compile(
        &self,
        module: &str,
        tools: &Path,
        sdk: &Path,
        work: &Path,
        app: &Path,
        out: &Path,
    ) -> anyhow::Result<bool> {
        let mut prepare = Command::new(&self.program);
        prepare.arg(app.join("node_modules").join(SDK).join("src/build.js")).arg(module).arg(sdk.join("wit")).arg(work);
        if !prepare.current_dir(work).status().context("cannot start Node")?.success() {
            return Ok(false);
        }
        let mut compile = Command::new(&self.program);
        compile.arg(tools.join("node_modules/componentize-qjs/bin/componentize-qjs"));
        compile.arg("--js").arg(app.join("hatchery-entry.js")).arg("--module-root").arg(app);
        compile.arg("--wit").arg(work.join("wit")).args(["--world", "app"]).arg("--output").arg(out);
        let output = compile.current_dir(app).output().context("cannot start Node")?;
        if !output.status.success() {
            anstream::eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.status.success())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_module_is_index_js_unless_the_manifest_says_otherwise() {
        let read = |value| serde_json::from_value::<Manifest>(value).map_err(|error| error.to_string());
        let dice = read(json!({"name": "dice", "hatchery": {}, "dependencies": {"hatchery-guest": "0.1"}})).unwrap();
        assert_eq!((dice.hatchery.module.as_str(), dice.has_packages()), ("index.js", false));
        let other = read(json!({"hatchery": {"module": "src/x.js"}, "dependencies": {"left-pad": "1"}})).unwrap();
        assert_eq!((other.hatchery.module.as_str(), other.has_packages()), ("src/x.js", true));
        let error = read(json!({"hatchery": {"modul": "x"}})).map(|_| ()).unwrap_err();
        assert!(error.contains("unknown field `modul`"), "{error}");
    }

    #[test]
    fn packages_that_are_not_locked_are_refused() {
        let (project, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let manifest = r#"{"hatchery": {}, "dependencies": {"left-pad": "1"}}"#;
        std::fs::write(project.path().join("package.json"), manifest).unwrap();
        let manifest = Manifest::read(&project.path().join("package.json")).unwrap();
        let node = Node { program: "node".into(), version: "v20".into() };
        let error = node.assemble(project.path(), &manifest, project.path(), work.path()).unwrap_err().to_string();
        assert!(error.ends_with("its packages are not locked; run `npm install` there once"), "{error}");
    }
}
