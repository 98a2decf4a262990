//! The embedded guest SDKs and contract. A component is always built with the versions of this host.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A file: its path below the folder that it is unpacked to, and its text.
pub type EmbeddedFile = (&'static str, &'static str);

/// Embeds files of one folder of the repository.
macro_rules! embed {
    ($from:literal, $to:literal: $($file:literal)*) => {
        &[$((concat!($to, "/", $file), include_str!(concat!("../../../../", $from, "/", $file)))),*]
    };
}

pub const CONTRACT: &[EmbeddedFile] =
    embed!("wit", "wit": "types.wit" "imports.wit" "exports.wit" "sync.wit" "worlds.wit");

pub const PYTHON: &[EmbeddedFile] = embed!("guest-sdk/python/src/hatchery_guest", "python/hatchery_guest":
    "__init__.py" "agent.py" "build.py" "callback.py" "code_executor.py" "component/__init__.py" "component/calls.py"
    "component/convert.py" "component/exports.py" "component/hooks.py" "component/host.py" "component/specs.py" "content.py" "context.py"
    "errors.py" "examples.py" "export.py" "model.py" "plugin.py" "py.typed" "run_info.py" "runner.py" "schema.py" "sessions.py"
    "signature.py" "summarizer.py" "testing.py" "tool.py" "toolset.py");

pub const JAVASCRIPT: &[EmbeddedFile] = embed!("guest-sdk/js", "javascript":
    "package.json" "src/build.js" "src/component.js" "src/content.js" "src/context.js" "src/convert.js" "src/errors.js" "src/exports.js"
    "src/hooks.js" "src/index.d.ts" "src/index.js" "src/json.js" "src/schema.js" "src/specs.js" "src/testing.d.ts" "src/testing.js");

/// The `package.json` with the build tools for JavaScript.
pub const JAVASCRIPT_TOOLS: &str = include_str!("../../../../guest-sdk/js/build-tools/package.json");
/// The `package-lock.json` of [`JAVASCRIPT_TOOLS`].
pub const JAVASCRIPT_LOCK: &str = include_str!("../../../../guest-sdk/js/build-tools/package-lock.json");

/// The `requirements.txt` with the build tools for Python.
pub const PYTHON_LOCK: &str = include_str!("../../../../guest-sdk/python/build-requirements.txt");

/// Returns all files to unpack.
pub fn all_files() -> [&'static [EmbeddedFile]; 3] {
    [CONTRACT, PYTHON, JAVASCRIPT]
}

/// Writes files below a folder and returns the folder.
pub fn unpack(files: &[&[EmbeddedFile]], folder: &Path) -> anyhow::Result<PathBuf> {
    for (name, text) in files.iter().copied().flatten() {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn embedded(files: &[EmbeddedFile], folder: &str) -> BTreeSet<PathBuf> {
        files.iter().map(|(name, _)| Path::new(name).strip_prefix(folder).unwrap().to_owned()).collect()
    }

    fn in_repository(folder: &str, extensions: &[&str]) -> BTreeSet<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        let has_extension = |name: &str| extensions.iter().any(|extension| name.ends_with(extension));
        let found = crate::files::find(&root, has_extension).unwrap();
        found.iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect()
    }

    #[test]
    fn every_file_of_the_sdks_is_embedded() {
        assert_eq!(embedded(CONTRACT, "wit"), in_repository("wit", &[".wit"]));
        let python = in_repository("guest-sdk/python/src/hatchery_guest", &[".py", "py.typed"]);
        assert_eq!(embedded(PYTHON, "python/hatchery_guest"), python);
        let mut javascript = in_repository("guest-sdk/js/src", &[".js", ".ts"]);
        javascript = javascript.iter().map(|path| Path::new("src").join(path)).collect();
        javascript.insert("package.json".into());
        assert_eq!(embedded(JAVASCRIPT, "javascript"), javascript);
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
