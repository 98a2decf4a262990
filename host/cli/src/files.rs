//! Checks of folders, and recursive search for files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::shell::quote_path;
use hatchery_wasm::IGNORED_FOLDERS;

/// Returns an error unless a path is a folder. For a file, it names the folder that contains it.
pub fn require_folder(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if path.is_file() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        bail!("{} is a file; name the folder that contains it: {}", path.display(), quote_path(parent));
    }
    bail!("{} is not a folder", path.display())
}

/// Returns the files below `folder` whose name `matches`, sorted. Skips hidden folders and build tools' folders.
pub fn find(folder: &Path, matches: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !IGNORED_FOLDERS.contains(&&*name) {
                    folders.push(entry.path());
                }
            } else if matches(&name) && entry.path().is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the components below `folder`, sorted. Hidden files, which a host does not load, are skipped.
pub fn find_components(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    find(folder, |name| name.ends_with(".wasm") && !name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_answered_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root_agent.yaml");
        std::fs::write(&file, "").unwrap();
        let error = |path: &Path| require_folder(path).unwrap_err().to_string();
        let (name, parent) = (file.display(), folder.path().display());
        assert_eq!(error(&file), format!("{name} is a file; name the folder that contains it: {parent}"));
        assert_eq!(error(Path::new("/no/such")), "/no/such is not a folder");
        require_folder(folder.path()).unwrap();
    }

    #[test]
    fn files_are_found_in_all_folders_except_hidden_and_build_folders() {
        let folder = tempfile::tempdir().unwrap();
        for path in
            ["x.yaml", "b/x.yaml", "a/deep/x.yaml", "target/x/x.yaml", "venv/x.yaml", ".git/x.yaml", "a/other.yaml"]
        {
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
