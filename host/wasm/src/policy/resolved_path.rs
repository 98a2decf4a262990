//! Symlink resolution of a host path, which records every folder and link that the path leads through.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{self, Component, Path, PathBuf};

/// Maximum number of links to follow, as on Linux. A path with more counts as unresolvable.
const MAX_LINKS: u32 = 40;

/// A file system entry. Its path contains no links, except for the entry itself if it is one.
#[derive(Debug, Clone)]
struct Entry {
    path: PathBuf,
    /// Device and inode. `None` if the platform has none or the entry does not exist.
    id: Option<(u64, u64)>,
    is_link: bool,
}

impl Entry {
    fn new(path: PathBuf) -> Self {
        let metadata = fs::symlink_metadata(&path).ok();
        let is_link = metadata.as_ref().is_some_and(Metadata::is_symlink);
        Self { id: metadata.as_ref().and_then(identity), path, is_link }
    }

    /// Returns true if both are the same entry, also under different paths (bind mounts, letter case).
    fn is_same(&self, other: &Self) -> bool {
        self.path == other.path || self.id.is_some() && self.id == other.id
    }
}

/// A resolved path.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    /// Entries in the order of resolution. Links and the folders that they lead to are separate entries.
    entries: Vec<Entry>,
    target: Entry,
}

/// Relation of the locations of two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// Both lead to the same entry.
    Same,
    /// The first path leads through the second.
    Inside,
    /// The second path leads through the first.
    Contains,
    /// Neither path leads through the other.
    Disjoint,
}

impl ResolvedPath {
    /// Resolves `path`. The part that does not exist is used as written.
    pub(super) fn new(path: &Path) -> Self {
        let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (mut entries, mut current, mut links) = (Vec::new(), PathBuf::new(), 0);
        let mut pending = components(&absolute);
        while let Some(component) = pending.pop() {
            match Path::new(&component).components().next() {
                Some(Component::CurDir) | None => {}
                Some(Component::ParentDir) => {
                    current.pop();
                }
                Some(Component::Prefix(_)) => current.push(&component),
                Some(Component::RootDir) => {
                    current.push(&component);
                    entries.push(Entry::new(current.clone()));
                }
                Some(Component::Normal(name)) => {
                    let path = current.join(name);
                    let link = fs::read_link(&path).ok().filter(|_| links < MAX_LINKS);
                    entries.push(Entry::new(path.clone()));
                    match link {
                        Some(link) => {
                            links += 1;
                            pending.extend(components(&link));
                        }
                        None => current = path,
                    }
                }
            }
        }
        Self { entries, target: Entry::new(current) }
    }

    /// Returns the path without links, as far as it exists.
    pub(super) fn target(&self) -> &Path {
        &self.target.path
    }

    /// Returns the first link that the path leads through after `base`, which must be its beginning. Links in the root
    /// folder do not count: some systems have `/tmp` and `/var` as links, and only the system's owner can change them.
    pub(super) fn first_link(&self, base: Option<&Path>) -> Option<&Path> {
        let start = base.map_or(0, |base| Self::new(base).entries.len());
        let is_in_root = |path: &Path| path.parent().is_none_or(|parent| parent.parent().is_none());
        let mut rest = self.entries.iter().skip(start);
        rest.find(|entry| entry.is_link && !is_in_root(&entry.path)).map(|entry| entry.path.as_path())
    }

    /// Opens the folder that the path leads to. Links that were created since the path was resolved are not followed.
    ///
    /// # Errors
    /// If the folder does not exist, is not a folder, cannot be read, or has been replaced.
    pub(super) fn open_folder(&self) -> io::Result<File> {
        open_without_links(&self.target)
    }

    /// Returns the relation of this path to `other`. A path that leads through `other`, also by links, is inside of it.
    pub(super) fn relation(&self, other: &Self) -> Relation {
        if self.leads_through(other) {
            Relation::Inside
        } else if other.leads_through(self) {
            Relation::Contains
        } else if self.target.is_same(&other.target) {
            Relation::Same
        } else {
            Relation::Disjoint
        }
    }

    /// Returns true if the target of `other` is an entry of this path other than the last one.
    fn leads_through(&self, other: &Self) -> bool {
        let last = self.entries.len().saturating_sub(1);
        self.entries.iter().take(last).any(|entry| entry.is_same(&other.target))
    }
}

/// Returns the components of a path in reverse order.
fn components(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
}

/// Opens entry by entry, each relative to the handle of the previous one.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn open_without_links(entry: &Entry) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat(CWD, "/", flags, Mode::empty())?;
    for name in entry.path.iter().skip(1) {
        folder = openat(&folder, name, flags, Mode::empty())?;
    }
    // A handle opened with `O_PATH` does not check the permission to read.
    openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(folder.into())
}

/// Opens by path, then checks that the opened folder is the one that was resolved.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android", target_os = "freebsd"))))]
fn open_without_links(entry: &Entry) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let folder = File::options().read(true).custom_flags(flags as i32).open(&entry.path)?;
    if entry.id.is_none() || identity(&folder.metadata()?) != entry.id {
        return Err(io::Error::other("it was replaced while it was opened"));
    }
    Ok(folder)
}

#[cfg(windows)]
fn open_without_links(entry: &Entry) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;

    /// Required to open folders.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    /// Others may read and write the folder, but not rename or delete it.
    const FILE_SHARE_READ_WRITE: u32 = 3;
    let mut options = File::options();
    options.read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).share_mode(FILE_SHARE_READ_WRITE);
    let folder = options.open(&entry.path)?;
    if ResolvedPath::new(&entry.path).entries.iter().any(|entry| entry.is_link) || !folder.metadata()?.is_dir() {
        return Err(io::Error::other("it is not a folder, or was replaced while it was opened"));
    }
    Ok(folder)
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_lies_below_every_folder_that_it_leads_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("data/ref")).unwrap();
        fs::create_dir(path("other")).unwrap();
        symlink(path("data"), path("alias")).unwrap();
        symlink("data/way", path("through")).unwrap();
        symlink(path("other"), path("data/way")).unwrap();
        symlink(".", path("data/self")).unwrap();
        let data = ResolvedPath::new(&path("data"));
        let expected = [
            ("data", Relation::Same),
            ("alias", Relation::Same),
            ("data/ref", Relation::Inside),
            ("alias/ref", Relation::Inside),
            ("data/way", Relation::Inside),
            ("through", Relation::Inside),
            ("data/self", Relation::Inside),
            ("data/not/yet", Relation::Inside),
            ("other/../data/ref", Relation::Inside),
            ("other", Relation::Disjoint),
            ("database", Relation::Disjoint),
            (".", Relation::Contains),
        ];
        for (name, relation) in expected {
            assert_eq!(ResolvedPath::new(&path(name)).relation(&data), relation, "{name}");
        }
        assert_eq!(ResolvedPath::new(&path("through")).target(), path("other").canonicalize().unwrap());
    }

    #[test]
    fn links_after_the_base_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/data")).unwrap();
        symlink("real", root.join("current")).unwrap();
        symlink("data", root.join("real/link")).unwrap();
        let link = |base: Option<&str>, name: &str| {
            let base = base.map(|base| root.join(base));
            ResolvedPath::new(&root.join(name))
                .first_link(base.as_deref())
                .map(|link| link.strip_prefix(&root).unwrap().to_owned())
        };
        assert_eq!(link(None, "real/data"), None);
        assert_eq!(link(None, "current/data"), Some("current".into()));
        assert_eq!(link(Some("current"), "current/data"), None);
        assert_eq!(link(Some("current"), "current/link"), Some("real/link".into()));
    }

    #[test]
    fn a_link_that_is_put_in_place_after_the_resolution_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/ref");
        fs::create_dir_all(&path).unwrap();
        let resolved = ResolvedPath::new(&path);
        resolved.open_folder().unwrap();
        fs::rename(folder.path().join("data"), folder.path().join("moved")).unwrap();
        assert!(resolved.open_folder().is_err());
        symlink("moved", folder.path().join("data")).unwrap();
        assert!(resolved.open_folder().is_err());
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        ResolvedPath::new(&folder.path().join("a"));
    }
}
