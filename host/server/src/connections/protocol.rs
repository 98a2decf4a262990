//! The version of HTTP that a client speaks: over TLS by ALPN, otherwise by its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The names of the versions for ALPN, the preferred one first.
pub(crate) const ALPN: [&[u8]; 2] = [H2, b"http/1.1"];

const H2: &[u8] = b"h2";

/// The preface of HTTP/2, which a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Returns the version that a handshake has chosen. Clients without ALPN speak HTTP/1.1.
    pub(super) fn from_alpn(chosen: Option<&[u8]>) -> Self {
        if chosen == Some(H2) { Self::Http2 } else { Self::Http1 }
    }
}

/// Reads enough bytes to determine the version. Returns it with a stream that begins with these bytes.
pub(super) async fn detect<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Protocol, Rewind<S>)> {
    let mut read = Vec::with_capacity(PREFACE.len());
    let protocol = loop {
        if read.starts_with(PREFACE) {
            break Protocol::Http2;
        }
        if !PREFACE.starts_with(&read) || stream.read_buf(&mut read).await? == 0 {
            break Protocol::Http1;
        }
    };
    Ok((protocol, Rewind { read, position: 0, stream }))
}

/// A stream that begins with bytes that were read before.
pub(super) struct Rewind<S> {
    read: Vec<u8>,
    /// How many of them were read again.
    position: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = this.read.get(this.position..).unwrap_or_default();
        let count = rest.len().min(into.remaining());
        let Some(bytes) = rest.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return Pin::new(&mut this.stream).poll_read(cx, into);
        };
        into.put_slice(bytes);
        this.position += count;
        if this.position == this.read.len() {
            (this.read, this.position) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_the_version_and_are_read_again() {
        for (sent, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", Protocol::Http1),
            ("PROPFIND / HTTP/1.1\r\n\r\n", Protocol::Http1),
            ("PRI * HTTP/1.1\r\n\r\n", Protocol::Http1),
            ("PRI", Protocol::Http1),
            ("", Protocol::Http1),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Protocol::Http2),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and frames", Protocol::Http2),
        ] {
            // Each byte arrives alone.
            let (near, mut far) = duplex(1);
            let send = async {
                far.write_all(sent.as_bytes()).await.unwrap();
                drop(far);
            };
            let receive = async {
                let (protocol, mut stream) = detect(near).await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                (protocol, text)
            };
            let ((), (protocol, text)) = tokio::join!(send, receive);
            assert_eq!((protocol, text.as_str()), (expected, sent));
        }
    }
}
