//! Unix permissions of folders and files that only their owner may access. Other systems use their defaults.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder and its missing parents with access for the owner only. Existing folders keep their permissions.
pub fn create_dir_all(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates a file with access for the owner only.
///
/// # Errors
/// If it exists already or cannot be created.
pub fn create_file(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Returns true if other users of the machine may read a file or list a folder. Returns false if this is unknown.
pub fn is_readable_by_others(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Removes all permissions on a folder except its owner's. To be used only for folders that the host has
/// created.
///
/// # Errors
/// If the folder has another owner.
pub fn restrict_dir(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        Ok(())
    }
}

/// Logs a warning if other users may read a file or folder with data, and its parent folder does not prevent it.
/// Changes nothing, because the host has not created it.
pub fn warn_if_readable(path: &Path) {
    let is_enclosed =
        path.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !is_readable_by_others(folder));
    if !is_enclosed && is_readable_by_others(path) {
        let folder = path.display();
        tracing::warn!("{folder} is readable by other users of this machine; to change that, run `chmod go= {folder}`");
    }
}
