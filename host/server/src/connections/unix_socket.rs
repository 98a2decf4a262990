//! A Unix socket to listen on.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The mode of the socket: the user and the group of the process may connect.
const MODE: u32 = 0o660;

/// A listening socket, whose file is removed when it is dropped.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The number of its file, which another process can have replaced.
    inode: u64,
}

impl UnixSocket {
    /// Listens at a path. A stale socket at the path is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process listens, [`io::ErrorKind::AlreadyExists`] if the file is no
    /// socket, and errors of the file system.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        check_replaceable(path)?;
        // It gets its permissions before anybody can find it.
        let new = path.with_added_extension("new");
        remove_socket(&new)?;
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(MODE))?;
        let inode = fs::metadata(&new)?.ino();
        fs::rename(&new, path)?;
        Ok(Self { listener, path: path.to_owned(), inode })
    }

    pub(super) async fn accept(&self) -> io::Result<tokio::net::UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            // It may have been removed since.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that a path is free, or has a stale socket.
fn check_replaceable(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) => Err(error),
    }
}

/// Removes the socket of a process that ended while it bound the socket.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
