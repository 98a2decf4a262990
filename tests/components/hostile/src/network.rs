//! Attacks on the network: unchecked requests, and sockets.

use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use hatchery_guest::prelude::*;
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{Fields, Method, OutgoingRequest, Scheme};

/// A request that the SDK does not check.
#[derive(Deserialize, JsonSchema)]
pub struct Target {
    /// Such as `example.com:80`.
    authority: String,
    /// `GET` when it is omitted.
    method: Option<String>,
    /// `/` when it is omitted.
    path: Option<String>,
    /// Names and values.
    #[serde(default)]
    headers: Vec<(String, String)>,
}

/// Sends a request in plain text, and returns the status of the answer, or the error.
#[tool]
pub async fn fetch(target: Target) -> Value {
    match send(&target) {
        Ok(status) => json!({ "status": status }),
        Err(reason) => json!({ "refused": reason }),
    }
}

fn send(target: &Target) -> Result<u16, String> {
    let fields = Fields::new();
    for (name, value) in &target.headers {
        fields.append(name, value.as_bytes()).map_err(|error| format!("header: {error:?}"))?;
    }
    let request = OutgoingRequest::new(fields);
    if let Some(method) = &target.method {
        request.set_method(&Method::Other(method.clone())).map_err(|()| "method")?;
    }
    request.set_scheme(Some(&Scheme::Http)).map_err(|()| "scheme")?;
    request.set_authority(Some(&target.authority)).map_err(|()| "authority")?;
    request.set_path_with_query(Some(target.path.as_deref().unwrap_or("/"))).map_err(|()| "path")?;
    let pending = handle(request, None).map_err(|code| format!("{code:?}"))?;
    pending.subscribe().block();
    match pending.get() {
        Some(Ok(Ok(response))) => Ok(response.status()),
        Some(Ok(Err(code))) => Err(format!("{code:?}")),
        other => Err(format!("no answer: {}", other.is_some())),
    }
}

/// An address.
#[derive(Deserialize, JsonSchema)]
pub struct Address {
    /// Host and port.
    address: String,
}

/// Tries every kind of socket, and returns how many worked.
#[tool]
pub async fn sockets(Address { address }: Address) -> usize {
    let tries = [
        TcpStream::connect(&address).is_ok(),
        TcpListener::bind("127.0.0.1:0").is_ok(),
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", &address)).is_ok(),
        "localhost:80".to_socket_addrs().is_ok(),
    ];
    tries.into_iter().filter(|worked| *worked).count()
}
