//! Builds components in Rust with cargo. The crate `hatchery-guest` is the embedded one unless the project names a
//! path, and all projects share one target folder unless they are in a workspace or have their own target folder.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;

use super::BuiltComponent;
use super::build_cache::{BuildCache, BuildTools};

/// The crate of the SDK.
const SDK_PACKAGE: &str = "hatchery-guest";

/// The file that gives cargo the path of the embedded SDK, relative to the folder of a project.
const CARGO_CONFIG: &str = ".cargo/config.toml";

/// Cargo's profile for development.
const DEV_PROFILE: &str = "dev";

/// Settings of [`DEV_PROFILE`]: debug information and code without any optimization make a component so large that
/// compiling it to machine code takes longer than cargo.
const DEV_SETTINGS: [&str; 3] =
    ["profile.dev.opt-level=1", "profile.dev.debug=false", "profile.dev.strip=\"debuginfo\""];

const TARGET: &str = "wasm32-wasip2";

/// Builds the crate in a folder. `None` if it does not compile, after cargo has printed the errors.
pub fn build(dir: &Path, profile: &str) -> anyhow::Result<Option<BuiltComponent>> {
    let package = Package::find(dir)?;
    ensure_target(dir)?;
    // Held until the component is read: another project of the same name would replace it in the target folder.
    let cache = BuildCache::open(BuildTools::Cargo)?;
    let settings = CargoSettings::new(&package, &cache)?;
    let Some(file) = compile(&package, profile, &settings)? else { return Ok(None) };
    BuiltComponent::read(&file, package.name, package.folder).map(Some)
}

/// Writes `.cargo/config.toml` into a new project, so that `cargo test` and editors find the embedded SDK.
pub fn write_sdk_config(project: &Path) -> anyhow::Result<PathBuf> {
    let sdk = BuildCache::open(BuildTools::Cargo)?.unpack_rust_sdk()?;
    write_patch(project, &sdk)
}

fn write_patch(project: &Path, sdk: &Path) -> anyhow::Result<PathBuf> {
    let file = project.join(CARGO_CONFIG);
    let text = format!(
        "# The SDK that comes with the command `hatchery`, on this machine. `hatchery build` creates this file if it is missing.\n\
         [patch.crates-io]\n{SDK_PACKAGE} = {{ path = {:?} }}\n",
        sdk.display().to_string()
    );
    std::fs::create_dir_all(project.join(".cargo")).with_context(|| format!("cannot create {}", file.display()))?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// The settings of cargo for a project.
#[derive(Debug, Default, PartialEq, Eq)]
struct CargoSettings {
    /// The embedded SDK, if the project depends on a released version of it.
    sdk: Option<PathBuf>,
    /// The target folder, if cargo would choose the one in the project.
    target: Option<PathBuf>,
}

impl CargoSettings {
    fn new(package: &Package, cache: &BuildCache) -> anyhow::Result<Self> {
        let sdk = if package.uses_released_sdk { Some(cache.unpack_rust_sdk()?) } else { None };
        if let Some(sdk) = sdk.as_deref().filter(|_| !package.folder.join(CARGO_CONFIG).exists()) {
            write_patch(&package.folder, sdk)?;
        }
        let target = package.has_own_target.then(|| cache.rust_target());
        Ok(Self { sdk, target })
    }

    fn apply(&self, cargo: &mut Command) {
        if let Some(sdk) = &self.sdk {
            let patch = format!("patch.crates-io.{SDK_PACKAGE}.path={:?}", sdk.display().to_string());
            cargo.arg("--config").arg(patch);
        }
        if let Some(target) = &self.target {
            cargo.arg("--target-dir").arg(target);
        }
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns the error of a program that cannot be started, with advice if it is not installed.
fn explain_start_error(program: &str, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("{program} was not found; install Rust from https://rustup.rs, or put {program} on the PATH")
        }
        _ => anyhow::Error::new(error).context(format!("cannot start {program}")),
    }
}

/// The crate of a component.
#[derive(Debug)]
struct Package {
    name: String,
    folder: PathBuf,
    /// True if it depends on the SDK by version.
    uses_released_sdk: bool,
    /// True if cargo would build it in the folder `target` of its own folder.
    has_own_target: bool,
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    #[serde(default)]
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
    #[serde(default)]
    dependencies: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    /// `registry+URL`; `None` for a path.
    source: Option<String>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    crate_types: Vec<String>,
}

impl Package {
    fn find(dir: &Path) -> anyhow::Result<Self> {
        let manifest = dir.join("Cargo.toml");
        let manifest = manifest
            .canonicalize()
            .with_context(|| format!("{}: no crate found; create one with `hatchery new`", manifest.display()))?;
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .current_dir(manifest.parent().unwrap_or(dir))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| explain_start_error("cargo", error))?;
        if !output.status.success() {
            bail!("`cargo metadata` failed for {}", manifest.display());
        }
        Self::in_metadata(&output.stdout, &manifest)
    }

    fn in_metadata(metadata: &[u8], manifest: &Path) -> anyhow::Result<Self> {
        let metadata: Metadata =
            serde_json::from_slice(metadata).context("cannot parse the output of `cargo metadata`")?;
        let target_folder = metadata.target_directory;
        let package = metadata.packages.into_iter().find(|package| package.manifest_path == manifest);
        let package = package.ok_or_else(|| {
            anyhow!("{} is a workspace without a root package; name the folder of a crate", manifest.display())
        })?;
        let mut types = package.targets.iter().flat_map(|target| &target.crate_types);
        if !types.any(|kind| kind == "cdylib") {
            bail!("{} does not build a component; add\n\n[lib]\ncrate-type = [\"cdylib\"]", manifest.display());
        }
        let folder = manifest.parent().unwrap_or(Path::new(".")).to_owned();
        let is_released = |it: &MetadataDependency| it.source.as_deref().is_some_and(|it| it.starts_with("registry+"));
        Ok(Self {
            uses_released_sdk: package.dependencies.iter().any(|it| it.name == SDK_PACKAGE && is_released(it)),
            has_own_target: target_folder == folder.join("target"),
            name: package.name,
            folder,
        })
    }
}

/// Adds the target to the toolchain that builds `dir`, if it is missing.
fn ensure_target(dir: &Path) -> anyhow::Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(dir)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| explain_start_error("rustc", error))?;
    if !output.status.success() {
        bail!("`rustc --print sysroot` failed; check the Rust toolchain");
    }
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if sysroot.join("lib/rustlib").join(TARGET).is_dir() {
        return Ok(());
    }
    anstream::eprintln!("adding the target {TARGET} with rustup");
    let status = Command::new("rustup").args(["target", "add", TARGET]).current_dir(dir).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => bail!("rustup cannot add the target {TARGET}; run `rustup target add {TARGET}` to see why"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "the Rust toolchain in {} lacks the target {TARGET}, and rustup was not found; install the target with your \
             package manager, or Rust from https://rustup.rs",
            sysroot.display()
        ),
        Err(error) => Err(explain_start_error("rustup", error)),
    }
}

/// A message of `cargo build` in JSON.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        manifest_path: PathBuf,
        filenames: Vec<PathBuf>,
    },
    #[serde(other)]
    Other,
}

/// Builds the component and returns its file. `None` if it does not compile, after cargo has printed the errors.
fn compile(package: &Package, profile: &str, settings: &CargoSettings) -> anyhow::Result<Option<PathBuf>> {
    let manifest = package.folder.join("Cargo.toml");
    let mut cargo = Command::new(cargo());
    cargo.args(["build", "--lib", "--target", TARGET, "--profile", profile]);
    if profile == DEV_PROFILE {
        for setting in DEV_SETTINGS {
            cargo.arg("--config").arg(setting);
        }
    }
    settings.apply(&mut cargo);
    let output = cargo
        .args(["--message-format", "json-render-diagnostics", "--manifest-path"])
        .arg(&manifest)
        .current_dir(&package.folder)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| explain_start_error("cargo", error))?;
    if !output.status.success() {
        return Ok(None);
    }
    let file = find_wasm_file(&String::from_utf8_lossy(&output.stdout), &manifest);
    file.map(Some).ok_or_else(|| {
        anyhow!("cargo built {} without a .wasm file; check that its crate-type is cdylib", package.name)
    })
}

fn find_wasm_file(messages: &str, manifest: &Path) -> Option<PathBuf> {
    let files = messages.lines().filter_map(|line| match serde_json::from_str(line) {
        Ok(Message::CompilerArtifact { manifest_path, filenames }) if manifest_path == manifest => Some(filenames),
        _ => None,
    });
    files.flatten().find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(kind: &str) -> anyhow::Result<Package> {
        let metadata = json!({"packages": [
            {"name": "other", "manifest_path": "/w/other/Cargo.toml", "targets": []},
            {"name": "my-tool", "manifest_path": "/w/tool/Cargo.toml", "targets": [{"crate_types": [kind], "name": "x"}]},
        ]});
        Package::in_metadata(metadata.to_string().as_bytes(), Path::new("/w/tool/Cargo.toml"))
    }

    #[test]
    fn a_crate_without_a_component_is_explained() {
        let error = package("lib").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("crate-type = [\"cdylib\"]"), "{error}");
        let error = Package::in_metadata(b"{\"packages\":[]}", Path::new("/w/Cargo.toml")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("is a workspace without a root package"), "{error}");
    }

    #[test]
    fn a_project_of_its_own_shares_the_target_folder_and_takes_the_embedded_sdk() {
        let find = |target: &str, source: Option<&str>| {
            let metadata = json!({"target_directory": target, "packages": [{
                "name": "tool", "manifest_path": "/w/tool/Cargo.toml", "targets": [{"crate_types": ["cdylib"]}],
                "dependencies": [{"name": "hatchery-guest", "source": source}, {"name": "serde", "source": "registry+x"}],
            }]});
            let found = Package::in_metadata(metadata.to_string().as_bytes(), Path::new("/w/tool/Cargo.toml")).unwrap();
            (found.has_own_target, found.uses_released_sdk)
        };
        assert_eq!(find("/w/tool/target", Some("registry+https://example.org/index")), (true, true));
        assert_eq!(find("/w/target", None), (false, false), "a member of a workspace that depends on the SDK by path");
        let mut cargo = Command::new("cargo");
        let (sdk, target) = (Some("/c/sdk".into()), Some("/c/target".into()));
        CargoSettings { sdk, target }.apply(&mut cargo);
        let args: Vec<_> = cargo.get_args().collect();
        assert_eq!(args, ["--config", "patch.crates-io.hatchery-guest.path=\"/c/sdk\"", "--target-dir", "/c/target"]);
    }

    #[test]
    fn a_missing_program_is_explained() {
        let error = explain_start_error("cargo", io::Error::from(io::ErrorKind::NotFound)).to_string();
        assert!(error.starts_with("cargo was not found; install Rust"), "{error}");
    }

    #[test]
    fn the_wasm_file_is_found_in_the_messages_of_cargo() {
        let messages = [
            json!({"reason": "compiler-artifact", "manifest_path": "/r/serde/Cargo.toml", "filenames": ["/t/libserde.rlib"]}),
            json!({"reason": "build-script-executed", "out_dir": "/t"}),
            json!({"reason": "compiler-artifact", "manifest_path": "/w/tool/Cargo.toml", "filenames": ["/t/my_tool.wasm"]}),
            json!({"reason": "build-finished", "success": true}),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n");
        assert_eq!(find_wasm_file(&messages, Path::new("/w/tool/Cargo.toml")), Some("/t/my_tool.wasm".into()));
        assert_eq!(find_wasm_file(&messages, Path::new("/w/other/Cargo.toml")), None);
    }
}
