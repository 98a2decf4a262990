//! The embedded guest SDKs and contract. A component is always built with the versions of this host.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A file: its path below the folder that it is unpacked to, and its text.
pub type EmbeddedFile = (&'static str, &'static str);

// `CONTRACT`, `RUST`, `PYTHON` and `JAVASCRIPT`: the files of the repository, listed by the build script.
include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// The `package.json` with the build tools for JavaScript.
pub const JAVASCRIPT_TOOLS: &str = include_str!("../../../../guest-sdk/js/build-tools/package.json");
/// The `package-lock.json` of [`JAVASCRIPT_TOOLS`].
pub const JAVASCRIPT_LOCK: &str = include_str!("../../../../guest-sdk/js/build-tools/package-lock.json");

/// The `requirements.txt` with the build tools for Python.
pub const PYTHON_LOCK: &str = include_str!("../../../../guest-sdk/python/build-requirements.txt");

/// Returns the files for Python and JavaScript, and the contract.
pub fn scripting_files() -> [&'static [EmbeddedFile]; 3] {
    [CONTRACT, PYTHON, JAVASCRIPT]
}

/// Writes files below a folder and returns the folder.
pub fn unpack(files: &[&[EmbeddedFile]], folder: &Path) -> anyhow::Result<PathBuf> {
    for (name, text) in files.iter().copied().flatten() {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        // An unchanged file keeps its modification time, so cargo does not compile it again.
        if std::fs::read_to_string(&path).is_ok_and(|written| written == *text) {
            continue;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_of_every_language_is_embedded() {
        let names = |files: &[EmbeddedFile]| files.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert!(names(CONTRACT).contains(&"wit/types.wit"));
        for name in ["Cargo.toml", "rust/Cargo.toml", "rust/src/lib.rs", "rust/macros/src/lib.rs", "rust/wit/types.wit"]
        {
            assert!(names(RUST).contains(&name), "{name}");
        }
        assert!(names(PYTHON).contains(&"python/hatchery_guest/py.typed"));
        for name in ["package.json", "src/index.d.ts", "src/types/items.d.ts"] {
            assert!(names(JAVASCRIPT).contains(&format!("javascript/{name}").as_str()), "{name}");
        }
        assert!(names(RUST).iter().all(|name| !name.contains("/tests/")));
    }

    #[test]
    fn every_sdk_has_the_version_of_the_contract() {
        let text = |files: &[EmbeddedFile], name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| (*text).to_owned()).unwrap()
        };
        let version = hatchery_wasm::version::OFFERED;
        let python = include_str!("../../../../guest-sdk/python/pyproject.toml");
        for (manifest, line) in [
            (text(RUST, "rust/Cargo.toml"), format!("\nversion = \"{version}\"\n")),
            (text(RUST, "rust/macros/Cargo.toml"), format!("\nversion = \"{version}\"\n")),
            (text(JAVASCRIPT, "javascript/package.json"), format!("\n  \"version\": \"{version}\",\n")),
            (python.to_owned(), format!("\nversion = \"{version}\"\n")),
        ] {
            assert!(manifest.contains(&line), "{manifest}");
        }
    }

    #[test]
    fn the_workspace_of_the_sdk_depends_on_no_other_crate_of_the_repository() {
        let (_, manifest) = RUST[0];
        assert!(manifest.contains("hatchery-guest-macros = { path = \"rust/macros\" }\n"), "{manifest}");
        assert!(!manifest.contains("hatchery-core") && !manifest.contains("host/"), "{manifest}");
        assert!(manifest.contains("[workspace.lints.clippy]\n") && !manifest.contains("[profile"), "{manifest}");
    }

    #[test]
    fn everything_that_npm_installs_is_pinned_by_hash() {
        let lock: serde_json::Value = serde_json::from_str(JAVASCRIPT_LOCK).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        assert!(packages.len() > 1);
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")), "{name}");
            assert!(package.get("resolved").is_none(), "{name}: must come from the configured registry");
        }
    }

    #[test]
    fn everything_that_pip_installs_is_pinned_by_hash() {
        let lines = PYTHON_LOCK.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            let is_pinned = line.contains("==") || line.trim_start().starts_with("--hash=sha256:");
            assert!(is_pinned, "{line}");
        }
    }
}
