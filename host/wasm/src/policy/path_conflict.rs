//! Conflicts between folders that components may write and paths that the host opens.
//!
//! A component that may write a folder may replace any entry in it by a link. A path inside of that folder can
//! therefore lead anywhere when the host opens it again: at the next start, reload of a grant, or use of a cache. So no
//! path that the host opens may be inside of a writable folder, and no writable folder may be inside of a folder that
//! belongs to the host alone.
//!
//! The root of a writable folder itself is safe: its entry is in the parent folder, which, by the same rule, no
//! component may write. That is why two components may be granted the same folder, and why `read` and `write` may be
//! mixed there.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use super::resolved_path::{Relation, ResolvedPath};
use super::{Access, Folder, Grants};

/// A file or folder that the host itself uses, such as a database or a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPath {
    /// Purpose of the path, as in "the session database (`session_service`)".
    pub purpose: String,
    /// The path, which need not exist yet. A relative path starts at the working directory.
    pub path: PathBuf,
}

/// A granted folder at a location that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConflict {
    component: String,
    folder: PathBuf,
    access: Access,
    position: Position,
    other: PathBuf,
    /// Purpose of `other`, a phrase that follows a comma.
    purpose: String,
}

/// Position of a granted folder relative to the other path of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Same,
    Ancestor,
    Descendant,
}

impl Error for PathConflict {}

impl fmt::Display for PathConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, folder, access, position, other, purpose } = self;
        let access = match access {
            Access::Read => "read",
            Access::Write => "written",
        };
        let (folder, other) = (folder.display(), other.display());
        let relation = match position {
            Position::Same => "is",
            Position::Ancestor => "contains",
            Position::Descendant => "is inside of",
        };
        write!(
            f,
            "components.{component}.grants.files: `{folder}` ({access}) {relation} `{other}`, {purpose}; \
             grant a folder that is outside of it"
        )
    }
}

/// Checks that no writable folder contains, or is inside of, a folder of another grant. No writable folder may contain
/// the file of a secret, or overlap with a `protected` path. Links are followed, and every folder on the way counts.
///
/// The same folder may be granted more than once, to one component or to several. Read-only folders may be nested.
///
/// # Errors
/// Returns the first conflict. Its message names the keys of both sides.
pub fn check_writable_folders<'a>(
    components: impl Iterator<Item = (&'a str, &'a Grants)>,
    protected: &[ProtectedPath],
) -> Result<(), PathConflict> {
    let components: Vec<_> = components.collect();
    let granted: Vec<_> = folders(&components).collect();
    check_grants(&components, &granted, |_, _| true)?;
    writable(&granted).try_for_each(|folder| folder.check_protected(protected))
}

/// Checks the folders of `component` as [`check_writable_folders`] does, against its own grants and the grants of
/// each other component.
///
/// # Errors
/// Returns the first conflict.
pub(crate) fn check_folders_of<'a>(
    component: &str,
    components: impl Iterator<Item = (&'a str, &'a Grants)>,
) -> Result<(), PathConflict> {
    let components: Vec<_> = components.collect();
    let granted: Vec<_> = folders(&components).collect();
    check_grants(&components, &granted, |one, other| one == component || other == component)
}

/// Checks writable folders against the folders and secrets of those pairs of components for which `concerns` returns
/// true.
fn check_grants(
    components: &[(&str, &Grants)],
    granted: &[FolderGrant<'_>],
    concerns: impl Fn(&str, &str) -> bool,
) -> Result<(), PathConflict> {
    for folder in writable(granted) {
        let mut others = granted.iter().filter(|other| concerns(folder.component, other.component));
        others.try_for_each(|other| folder.check_grant(other))?;
    }
    for (component, grants) in components {
        for (name, file) in grants.secrets.iter().filter_map(|secret| Some((secret.name(), secret.file()?))) {
            let purpose = format!("which components.{component}.grants.secrets reads for `{name}`");
            let secret = ResolvedPath::new(file);
            let mut folders = writable(granted).filter(|folder| concerns(folder.component, component));
            folders.try_for_each(|folder| folder.check_host_path(file, &secret, &purpose))?;
        }
    }
    Ok(())
}

fn writable<'a, 'b>(granted: &'b [FolderGrant<'a>]) -> impl Iterator<Item = &'b FolderGrant<'a>> {
    granted.iter().filter(|grant| grant.folder.access == Access::Write)
}

/// Checks that no granted folder contains, is or is inside of a `private` path, whose content no component may read.
///
/// # Errors
/// Returns the first conflict.
pub fn check_readable_folders<'a>(
    components: impl Iterator<Item = (&'a str, &'a Grants)>,
    private: &[ProtectedPath],
) -> Result<(), PathConflict> {
    let components: Vec<_> = components.collect();
    folders(&components).try_for_each(|folder| folder.check_protected(private))
}

/// Checks that no writable folder contains one of these folders, in which the host follows no links. A writable folder
/// may be one of them, or be inside of it.
///
/// # Errors
/// Returns the first conflict.
pub fn check_opened_folders<'a>(
    components: impl Iterator<Item = (&'a str, &'a Grants)>,
    opened: &[ProtectedPath],
) -> Result<(), PathConflict> {
    let components: Vec<_> = components.collect();
    let granted: Vec<_> = folders(&components).collect();
    for ProtectedPath { purpose, path } in opened {
        let resolved = ResolvedPath::new(path);
        if let Some(folder) = writable(&granted).find(|it| resolved.relation(&it.resolved) == Relation::Inside) {
            return Err(folder.conflict(Position::Ancestor, path, purpose.clone()));
        }
    }
    Ok(())
}

/// A granted folder, with its resolved path.
struct FolderGrant<'a> {
    component: &'a str,
    folder: &'a Folder,
    resolved: ResolvedPath,
}

fn folders<'a>(components: &[(&'a str, &'a Grants)]) -> impl Iterator<Item = FolderGrant<'a>> {
    let of_one = |(component, grants): &(&'a str, &'a Grants)| {
        let component = *component;
        grants.files.iter().map(move |folder| FolderGrant {
            component,
            folder,
            resolved: ResolvedPath::new(&folder.host),
        })
    };
    components.iter().flat_map(of_one)
}

impl FolderGrant<'_> {
    fn check_grant(&self, other: &Self) -> Result<(), PathConflict> {
        let verb = match other.folder.access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        let purpose = || format!("which components.{}.grants.files {verb}", other.component);
        match other.resolved.relation(&self.resolved) {
            Relation::Inside => Err(self.conflict(Position::Ancestor, &other.folder.host, purpose())),
            Relation::Contains => Err(self.conflict(Position::Descendant, &other.folder.host, purpose())),
            Relation::Same | Relation::Disjoint => Ok(()),
        }
    }

    fn check_protected(&self, paths: &[ProtectedPath]) -> Result<(), PathConflict> {
        paths.iter().try_for_each(|it| self.check_host_path(&it.path, &ResolvedPath::new(&it.path), &it.purpose))
    }

    fn check_host_path(&self, path: &Path, resolved: &ResolvedPath, purpose: &str) -> Result<(), PathConflict> {
        let position = match resolved.relation(&self.resolved) {
            Relation::Inside => Position::Ancestor,
            Relation::Contains => Position::Descendant,
            Relation::Same => Position::Same,
            Relation::Disjoint => return Ok(()),
        };
        Err(self.conflict(position, path, purpose.into()))
    }

    fn conflict(&self, position: Position, other: &Path, purpose: String) -> PathConflict {
        PathConflict {
            component: self.component.into(),
            folder: self.folder.host.clone(),
            access: self.folder.access,
            position,
            other: other.into(),
            purpose,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Checks grants given as (component, folder below `root`, access).
    fn check(root: &Path, grants: &[(&str, &str, Access)], protected: &[&str]) -> Result<(), String> {
        let grants: Vec<_> = grants
            .iter()
            .map(|(component, folder, access)| {
                let guest = format!("/{folder}").try_into().unwrap();
                let files = vec![Folder { host: root.join(folder), guest, access: *access, base: None }];
                (*component, Grants { files, ..Grants::default() })
            })
            .collect();
        let protected: Vec<_> = protected
            .iter()
            .map(|path| ProtectedPath { purpose: "the cache (`data_dir`)".into(), path: root.join(path) })
            .collect();
        let message = |conflict: PathConflict| conflict.to_string().replace(&format!("{}/", root.display()), "");
        check_writable_folders(grants.iter().map(|(name, grants)| (*name, grants)), &protected).map_err(message)
    }

    use Access::{Read, Write};

    #[test]
    fn a_grant_below_a_written_folder_is_refused_and_both_keys_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/ref")).unwrap();
        let below = "components.a.grants.files: `data` (written) contains `data/ref`, which components.b.grants.files reads; \
                     grant a folder that is outside of it";
        assert_eq!(check(&root, &[("a", "data", Write), ("b", "data/ref", Read)], &[]).unwrap_err(), below);
        assert_eq!(check(&root, &[("b", "data/ref", Read), ("a", "data", Write)], &[]).unwrap_err(), below);
        let own = check(&root, &[("a", "data", Write), ("a", "data/ref", Write)], &[]).unwrap_err();
        assert!(own.contains("`data/ref`, which components.a.grants.files writes"), "{own}");
        assert_eq!(
            check(&root, &[("a", "data", Read), ("b", "data/ref", Write)], &[]).unwrap_err(),
            "components.b.grants.files: `data/ref` (written) is inside of `data`, which components.a.grants.files reads; \
             grant a folder that is outside of it"
        );
    }

    #[test]
    fn the_same_folder_and_folders_that_are_only_read_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/ref")).unwrap();
        for grants in [
            [("a", "data", Write), ("b", "data", Write)],
            [("a", "data", Write), ("b", "data", Read)],
            [("a", "data", Read), ("b", "data/ref", Read)],
            [("a", "data", Write), ("b", "database", Read)],
        ] {
            check(folder.path(), &grants, &["elsewhere/new"]).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_a_component_has_put_in_place_does_not_hide_where_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("data/ref")).unwrap();
        let error = check(folder.path(), &[("a", "data", Write), ("b", "data/ref", Read)], &[]).unwrap_err();
        assert!(error.contains("`data` (written) contains `data/ref`"), "{error}");
    }

    #[test]
    fn a_written_folder_keeps_off_what_the_host_uses() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/cache")).unwrap();
        let error =
            |granted: &str, protected: &str| check(folder.path(), &[("a", granted, Write)], &[protected]).unwrap_err();
        assert_eq!(
            error("data", "data/cache/new.db"),
            "components.a.grants.files: `data` (written) contains `data/cache/new.db`, the cache (`data_dir`); \
             grant a folder that is outside of it"
        );
        assert!(error("data", "data").contains("`data` (written) is `data`, the cache (`data_dir`)"));
        assert!(error("data/cache", "data").contains("(written) is inside of `data`, the cache (`data_dir`)"));
        check(folder.path(), &[("a", "data", Read)], &["data/cache"]).unwrap();
    }

    #[test]
    fn a_readable_folder_excludes_private_paths() {
        let (grants, path) =
            (Grants { files: vec![read("/srv")], ..Grants::default() }, PathBuf::from("/srv/sessions.db"));
        let private = [ProtectedPath { purpose: "the session database".into(), path }];
        let error = check_readable_folders([("a", &grants)].into_iter(), &private).unwrap_err().to_string();
        assert!(error.contains("`/srv` (read) contains `/srv/sessions.db`, the session database"), "{error}");
    }

    #[test]
    fn the_file_of_a_secret_lies_outside_of_written_folders() {
        let text = r#"{"secrets": [{"name": "key", "file": "/srv/data/key", "host": "a.com", "header": "x"}]}"#;
        let (b, mut a) = (serde_json::from_str::<Grants>(text).unwrap(), Grants::default());
        a.files = vec![Folder { access: Write, ..read("/srv/data") }];
        let error = check_writable_folders([("a", &a), ("b", &b)].into_iter(), &[]).unwrap_err().to_string();
        assert!(
            error.contains("contains `/srv/data/key`, which components.b.grants.secrets reads for `key`"),
            "{error}"
        );
    }

    fn read(host: &str) -> Folder {
        Folder { host: host.into(), guest: "/x".to_owned().try_into().unwrap(), access: Read, base: None }
    }
}
