//! Folders and files that only their owner may read. On systems without Unix permissions they are made as usual.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a folder and those above it that are missing, for the owner only. What is there keeps its permissions.
///
/// # Errors
/// If a folder cannot be made.
pub fn create_dir_all(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes a new file for the owner only.
///
/// # Errors
/// If it exists already, or cannot be made.
pub fn create_file(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// True if other users of the machine may read a file, or list a folder. False where that cannot be found out.
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

/// Takes all rights on a folder from everybody but its owner. Only for folders that the host has made.
///
/// # Errors
/// If the folder is somebody else's.
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

/// Warns of what others may read: a file or folder with data that lies in a folder which others may enter too. What the host has not
/// made is not changed.
pub fn warn_if_readable(path: &Path) {
    let is_enclosed =
        path.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !is_readable_by_others(folder));
    if !is_enclosed && is_readable_by_others(path) {
        let shown = path.display();
        tracing::warn!("{shown} may be read by other users of this machine; to change that: chmod go= {shown}");
    }
}
