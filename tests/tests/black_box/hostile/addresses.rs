//! Attacks by HTTP requests to hosts that are not granted and to private addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use hatchery_tests::Stage;
use hatchery_tests::paths::component;
use hatchery_tests::stage::with_greeter;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Starts a server that counts its connections.
async fn server() -> Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = visits.clone();
    tokio::spawn(async move {
        while let Ok((_connection, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    Ok((port, visits))
}

/// Serves `hostile` with grants for plain HTTP to these hosts on this port.
async fn stage(hosts: &[String], port: u16) -> Result<Stage> {
    let folder = Stage::folder("")?;
    let network: Vec<String> = hosts.iter().map(|host| format!("\"http://{host}:{port}\"")).collect();
    folder.write_operator_config(&with_greeter(&format!(
        "limits: {{connect_timeout: 2s, first_byte_timeout: 2s}}\ncomponents: {{hostile: {{grants: {{network: [{}]}}}}}}\n",
        network.join(", ")
    ))?)?;
    folder.put("vault.wasm", component("vault")?)?;
    Stage::serve(folder).await
}

#[tokio::test]
async fn no_spelling_of_a_local_address_is_reachable() -> Result<()> {
    let (port, visits) = server().await?;
    // Spellings that a grant can name are granted; the others are tried too.
    let granted: Vec<String> =
        ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254"]
            .map(Into::into)
            .into();
    let stage = stage(&granted, port).await?;
    let spelled = [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "127.0.0.1.",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
        "example.com#@127.0.0.1",
        "127.0.0.1%00.example.com",
        "localhost\r\nx-forged: 1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
    ];
    stage
        .withstand(async {
            for spelling in spelled {
                let answer = stage.attack("fetch", json!({ "authority": format!("{spelling}:{port}") })).await?;
                assert!(answer.get("refused").is_some() || answer.get("error").is_some(), "{spelling}: {answer}");
            }
            Ok(())
        })
        .await?;
    assert_eq!(visits.load(Ordering::SeqCst), 0, "a request arrived");
    stage.wait_for_audit(&["denied", "component=\"hostile\"", "private_network"]).await
}

#[tokio::test]
async fn without_a_grant_there_are_no_requests_and_no_sockets() -> Result<()> {
    let (port, visits) = server().await?;
    let stage = Stage::new("").await?;
    let answer = stage.attack("fetch", json!({ "authority": format!("127.0.0.1:{port}") })).await?;
    assert!(answer.to_string().contains("DENIED"), "{answer}");
    let sockets = stage.attack("sockets", json!({ "address": format!("127.0.0.1:{port}") })).await?;
    assert_eq!(sockets["result"], 0, "{sockets}");
    assert_eq!(visits.load(Ordering::SeqCst), 0, "a connection arrived");
    stage.wait_for_audit(&["denied", "component=\"hostile\"", "network"]).await
}

#[tokio::test]
async fn headers_and_methods_cannot_redirect_a_request() -> Result<()> {
    let (port, visits) = server().await?;
    let stage = stage(&["localhost".into()], port).await?;
    let authority = format!("localhost:{port}");
    let requests: [Value; 4] = [
        json!({ "authority": authority, "method": "CONNECT" }),
        json!({ "authority": authority, "method": "TRACE" }),
        json!({ "authority": authority, "headers": [["host", "internal"], ["transfer-encoding", "chunked"]] }),
        json!({ "authority": authority, "headers": [["x-a", "b\r\nhost: internal"]] }),
    ];
    for request in requests {
        let answer = stage.attack("fetch", request.clone()).await?;
        assert!(answer.get("refused").is_some() || answer.get("error").is_some(), "{request}: {answer}");
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0, "a request arrived at an own address");
    Ok(())
}
