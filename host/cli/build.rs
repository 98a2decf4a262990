//! Embeds the guest SDKs and the contract: writes `sdk_files.rs`, the lists of files that `languages/sdk.rs` includes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Folders that components do not need.
const SKIPPED: [&str; 4] = ["tests", "target", "node_modules", "__pycache__"];

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("no {name}")));
    let root = variable("CARGO_MANIFEST_DIR")?.join("../..").canonicalize()?;
    let wit = files(&root.join("wit"), &["wit"])?;
    let mut rust = vec![(PathBuf::from("Cargo.toml"), Content::Text(workspace(&root.join("Cargo.toml"))?))];
    rust.extend(files_below("rust", files(&root.join("guest-sdk/rust"), &["rs", "toml"])?));
    rust.extend(files_below("rust/wit", wit.clone()));
    let mut javascript = files_below("javascript/src", files(&root.join("guest-sdk/js/src"), &["js", "ts"])?);
    javascript.push(("javascript/package.json".into(), Content::File(root.join("guest-sdk/js/package.json"))));
    let python = files(&root.join("guest-sdk/python/src/hatchery_guest"), &["py", "py.typed"])?;
    let mut code = String::new();
    for (name, list) in [
        ("CONTRACT", files_below("wit", wit)),
        ("RUST", rust),
        ("PYTHON", files_below("python/hatchery_guest", python)),
        ("JAVASCRIPT", javascript),
    ] {
        write_list(&mut code, name, &list).map_err(io::Error::other)?;
    }
    fs::write(variable("OUT_DIR")?.join("sdk_files.rs"), code)
}

/// The content of an embedded file.
#[derive(Clone)]
enum Content {
    File(PathBuf),
    Text(String),
}

type Files = Vec<(PathBuf, Content)>;

/// Returns the files below a folder with one of these extensions or names, with their paths relative to it.
fn files(folder: &Path, extensions: &[&str]) -> io::Result<Files> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let (mut found, mut pending) = (Files::new(), vec![folder.to_owned()]);
    while let Some(current) = pending.pop() {
        for entry in fs::read_dir(&current)? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            let name = name.to_string_lossy();
            let is_link = path.symlink_metadata()?.is_symlink();
            if path.is_dir() && !is_link && !SKIPPED.contains(&&*name) {
                pending.push(path);
            } else if path.is_file() && extensions.iter().any(|it| name == *it || name.ends_with(&format!(".{it}"))) {
                found.push((path.strip_prefix(folder).unwrap_or(&path).to_owned(), Content::File(path)));
            }
        }
    }
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(found)
}

fn files_below(folder: &str, files: Files) -> Files {
    files.into_iter().map(|(path, content)| (Path::new(folder).join(path), content)).collect()
}

/// Returns the manifest of a workspace with only the SDK for Rust, whose crates inherit from it. It has the package
/// metadata, the versions of dependencies and the lints of the repository.
fn workspace(manifest: &Path) -> io::Result<String> {
    println!("cargo:rerun-if-changed={}", manifest.display());
    let text = fs::read_to_string(manifest)?;
    let mut workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"rust\", \"rust/macros\"]\n".to_owned();
    let mut is_inherited = false;
    for line in text.lines() {
        if line.starts_with('[') {
            is_inherited = line.starts_with("[workspace.");
        }
        match line {
            _ if !is_inherited => {}
            _ if line.starts_with("hatchery-guest-macros =") => {
                workspace.push_str("hatchery-guest-macros = { path = \"rust/macros\" }\n");
            }
            _ if line.contains("{ path = ") => {}
            line => workspace.extend([line, "\n"]),
        }
    }
    Ok(workspace)
}

/// Writes a constant with the path and the text of each file.
fn write_list(code: &mut String, name: &str, files: &Files) -> std::fmt::Result {
    writeln!(code, "pub const {name}: &[EmbeddedFile] = &[")?;
    for (path, content) in files {
        let path = path.to_string_lossy().replace('\\', "/");
        match content {
            Content::File(file) => writeln!(code, "    ({path:?}, include_str!({:?})),", file.display().to_string())?,
            Content::Text(text) => writeln!(code, "    ({path:?}, {text:?}),")?,
        }
    }
    writeln!(code, "];")
}
