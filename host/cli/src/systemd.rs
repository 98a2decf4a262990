//! The protocol of `sd_notify`: notifies systemd when the service is ready, and when it stops.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The environment variable with the socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";

/// A change that the service manager waits for.
#[derive(Debug, Clone, Copy)]
pub enum Notification {
    /// The server accepts connections.
    Ready,
    /// The server stops.
    Stopping,
}

/// Notifies the service manager, if there is one.
pub fn notify(notification: Notification) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let text = match notification {
        Notification::Ready => "READY=1",
        Notification::Stopping => "STOPPING=1",
    };
    if let Err(error) = send(&socket, text) {
        tracing::warn!(%error, socket = %socket.display(), "the service manager was not notified");
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address(socket)?).map(drop)
}

/// Returns the address of a socket. A name that begins with `@` is abstract: it is not in the file system.
#[cfg(target_os = "linux")]
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn sockets_are_paths_or_abstract_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("hatchery-test-{}", std::process::id());
        for socket in [format!("@{name}"), path.display().to_string()] {
            let receiver = UnixDatagram::bind_addr(&address(socket.as_ref()).unwrap()).unwrap();
            send(socket.as_ref(), "READY=1").unwrap();
            let mut text = [0; 16];
            let length = receiver.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1");
        }
        assert!(send("/no/such/socket".as_ref(), "READY=1").is_err());
    }
}
