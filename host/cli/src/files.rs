//! Finding files below a folder.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders of build tools, which hold nothing of interest.
const SKIPPED: [&str; 4] = ["target", "node_modules", "venv", "__pycache__"];

/// Files below `folder` whose name `fits`, sorted; hidden folders and those of build tools are left out.
pub fn find(folder: &Path, fits: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                    folders.push(entry.path());
                }
            } else if fits(&name) && entry.path().is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_every_folder_that_may_hold_one() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["x.yaml", "b/x.yaml", "a/deep/x.yaml", "target/x/x.yaml", ".git/x.yaml", "a/other.yaml"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = find(folder.path(), |name| name == "x.yaml").unwrap();
        let found: Vec<_> =
            found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(found, ["a/deep/x.yaml", "b/x.yaml", "x.yaml"]);
    }
}
