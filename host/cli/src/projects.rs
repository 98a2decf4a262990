//! The projects of components in a folder, and the ones that were never built.

use std::path::{Path, PathBuf};

use hatchery::shell::quote_path;

use crate::files;
use crate::languages::Language;

/// The files by which [`Language::detect`] finds a project.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "pyproject.toml", "package.json"];

/// Returns the folder itself if it is a project, or else the folders of all projects below it, sorted.
pub fn find_projects(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_project(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let manifests = files::find(folder, |name| MANIFESTS.contains(&name))?;
    let mut folders: Vec<_> = manifests.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect();
    folders.dedup();
    folders.retain(|folder| is_project(folder));
    Ok(folders)
}

/// Returns true for the folder of a component's project. A crate without a component, such as a library, is not a
/// project.
fn is_project(folder: &Path) -> bool {
    match Language::detect(folder) {
        Ok(Language::Python | Language::JavaScript | Language::TypeScript) => true,
        Ok(Language::Rust) => {
            std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|manifest| manifest.contains("cdylib"))
        }
        Err(_) => false,
    }
}

/// Returns true if the folder has a component of an earlier build.
pub fn has_component(folder: &Path) -> bool {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|extension| extension == "wasm"))
}

/// Returns the projects in a served folder whose component is nowhere in it. Empty if the folder cannot be read.
pub fn find_unbuilt(folder: &Path) -> Vec<PathBuf> {
    let components = files::find_components(folder).unwrap_or_default();
    let names: Vec<_> = components.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
    let mut projects = find_projects(folder).unwrap_or_default();
    projects.retain(|project| !has_component(project) && !names.iter().any(|name| is_named(project, name)));
    projects
}

/// Returns true if the component of a project may have this name: its folder has it, or its manifest contains it.
fn is_named(project: &Path, name: &str) -> bool {
    let in_quotes = format!("{name}\"");
    project.file_name().is_some_and(|folder| folder == name)
        || MANIFESTS
            .iter()
            .any(|file| std::fs::read_to_string(project.join(file)).is_ok_and(|manifest| manifest.contains(&in_quotes)))
}

/// Returns the projects in a served folder that are not built, with the command that builds one of them: the one in a
/// folder named `app`, or else the first. `None` if there are none.
pub fn explain_unbuilt(folder: &Path, app: Option<&str>) -> Option<String> {
    let projects = find_unbuilt(folder);
    let is_app = |project: &&PathBuf| app.is_some_and(|app| project.file_name().is_some_and(|name| name == app));
    let next = projects.iter().find(is_app).or_else(|| projects.first())?;
    let names: Vec<_> = projects.iter().map(|project| project.display().to_string()).collect();
    Some(format!("not built yet: {}; run `hatchery build {}`", names.join(", "), quote_path(next)))
}

/// Returns the error for a folder without components.
pub fn explain_no_component(folder: &Path) -> String {
    let next = explain_unbuilt(folder, None).unwrap_or_else(|| "create one with `hatchery build`".into());
    format!("no component found in {}; {next}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn every_project_below_a_folder_is_found_and_libraries_are_not() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a/Cargo.toml", "[package]\n[lib]\ncrate-type = [\"cdylib\"]\n");
        write(folder.path(), "a/library/Cargo.toml", "[package]\n");
        write(folder.path(), "b/package.json", "{\"hatchery\": {}}");
        write(folder.path(), "b/node_modules/x/package.json", "{\"hatchery\": {}}");
        write(folder.path(), "c/root_agent.yaml", "");
        let found = |folder: &Path| find_projects(folder).unwrap();
        assert_eq!(found(folder.path()), [folder.path().join("a"), folder.path().join("b")]);
        assert_eq!(found(&folder.path().join("a")), [folder.path().join("a")]);
        assert!(found(&folder.path().join("c")).is_empty());
    }

    #[test]
    fn a_component_of_an_earlier_build_is_found() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "app.py", "");
        assert!(!has_component(folder.path()));
        write(folder.path(), "dice.wasm", "");
        assert!(has_component(folder.path()));
        assert!(!has_component(&folder.path().join("missing")));
    }

    #[test]
    fn projects_are_unbuilt_until_their_component_is_anywhere_in_the_served_folder() {
        let folder = tempfile::tempdir().unwrap();
        for project in ["a", "b", "src/c"] {
            write(folder.path(), &format!("{project}/package.json"), "{\"name\": \"@x/named\", \"hatchery\": {}}");
        }
        let path = |project: &str| folder.path().join(project);
        assert_eq!(find_unbuilt(folder.path()), [path("a"), path("b"), path("src/c")]);
        write(folder.path(), "a/other.wasm", "");
        write(folder.path(), "c.wasm", "");
        assert_eq!(find_unbuilt(folder.path()), [path("b")]);
        write(folder.path(), "named.wasm", "");
        assert!(find_unbuilt(folder.path()).is_empty());
        assert!(find_unbuilt(&path("missing")).is_empty());
    }

    #[test]
    fn the_project_of_the_wanted_app_is_built_first() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(explain_unbuilt(folder.path(), Some("b")), None);
        for project in ["a", "b"] {
            write(folder.path(), &format!("{project}/package.json"), "{\"hatchery\": {}}");
        }
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let explain = |app| explain_unbuilt(folder.path(), app).unwrap();
        let both = format!("not built yet: {}, {}; run `hatchery build ", a.display(), b.display());
        assert_eq!(explain(Some("b")), format!("{both}{}`", quote_path(&b)));
        assert_eq!(explain(Some("other")), format!("{both}{}`", quote_path(&a)));
        assert_eq!(explain(None), format!("{both}{}`", quote_path(&a)));
        let expected = format!("no component found in {}; {}", folder.path().display(), explain(None));
        assert_eq!(explain_no_component(folder.path()), expected);
    }
}
