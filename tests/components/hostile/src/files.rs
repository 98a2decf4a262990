//! Attacks on files and environment variables that are not granted.

use std::fs;

use hatchery_guest::prelude::*;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};

/// An operation on a file.
#[derive(Deserialize, JsonSchema)]
pub struct Action {
    /// `read`, `write`, `list`, `rename`, `symlink` or `hardlink`.
    action: String,
    /// The granted folder.
    folder: String,
    /// The path in it.
    path: String,
    /// The new path of a `rename`, the target of a `symlink` or the new path of a `hardlink`.
    to: Option<String>,
}

/// Performs an operation on a file without the checks of a standard library, and returns the content.
#[tool]
pub async fn file(action: Action) -> Value {
    match perform(&action) {
        Ok(text) => json!({ "text": text }),
        Err(reason) => json!({ "refused": reason }),
    }
}

fn perform(action: &Action) -> Result<String, String> {
    let folder = folder(&action.folder).ok_or("no such folder is granted")?;
    let (path, to) = (action.path.as_str(), action.to.as_deref().unwrap_or_default());
    let done = |result: Result<(), _>| result.map(|()| String::new()).map_err(|code| format!("{code:?}"));
    match action.action.as_str() {
        "rename" => done(folder.rename_at(path, &folder, to)),
        "symlink" => done(folder.symlink_at(to, path)),
        "hardlink" => done(folder.link_at(PathFlags::empty(), path, &folder, to)),
        "write" => write(&folder, path).map_err(|code| format!("{code:?}")),
        "list" => list(&folder, path).map_err(|code| format!("{code:?}")),
        _ => read(&folder, path).map_err(|code| format!("{code:?}")),
    }
}

type Code = wasip2::filesystem::types::ErrorCode;

fn folder(name: &str) -> Option<Descriptor> {
    get_directories().into_iter().find_map(|(folder, path)| (path == name).then_some(folder))
}

fn read(folder: &Descriptor, path: &str) -> Result<String, Code> {
    let file = folder.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ)?;
    let (bytes, _) = file.read(4096, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(folder: &Descriptor, path: &str) -> Result<String, Code> {
    let file = folder.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::CREATE, DescriptorFlags::WRITE)?;
    file.write(b"written by a guest", 0).map(|_| String::new())
}

fn list(folder: &Descriptor, path: &str) -> Result<String, Code> {
    let folder = folder.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
    let entries = folder.read_directory()?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read_directory_entry()? {
        names.push(entry.name);
    }
    names.sort();
    Ok(names.join(" "))
}

/// Reads files of the machine by every spelling of their path below a granted folder, and returns those that could be
/// read.
#[tool]
pub async fn climb() -> Vec<String> {
    let mut read_paths = Vec::new();
    for (folder, name) in get_directories() {
        let up = "../".repeat(12);
        for path in
            ["/etc/hostname".into(), format!("{up}etc/hostname"), format!("./{up}etc/passwd"), "//etc/passwd".into()]
        {
            if read(&folder, &path).is_ok() {
                read_paths.push(format!("{name}: {path}"));
            }
        }
    }
    read_paths.extend(
        ["/etc/hostname", "/proc/self/environ"].into_iter().filter(|path| fs::read(path).is_ok()).map(Into::into),
    );
    read_paths
}

/// Returns the folders and variables that it has without a grant.
#[tool]
pub async fn surroundings() -> Value {
    let folders: Vec<String> = get_directories().into_iter().map(|(_, name)| name).collect();
    let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    let arguments: Vec<String> = std::env::args().collect();
    json!({ "folders": folders, "variables": variables, "arguments": arguments })
}
