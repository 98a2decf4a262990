//! More connections than the host has file descriptors for: it logs this, reserves some descriptors, and answers other
//! clients.

use std::process::Stdio;

use anyhow::{Context, Result};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::{Folder, paths};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

const DRIP: &[u8] =
    b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";

async fn connect(from: &str, to: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{from}:0").parse()?)?;
    Ok(socket.connect(to.parse()?).await?)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_with_few_descriptors_serves_fewer_connections_and_logs_it() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hatchery.yaml", "server: {max_connections_per_peer: 50}\n")?;
    let command = paths::command()?;
    let program = command.as_std().get_program().to_owned();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 100 && ulimit -Hn 200 && exec \"$0\" \"$@\""]).arg(program);
    for (name, value) in command.as_std().get_envs() {
        value.map(|value| limited.env(name, value));
    }
    limited.arg("serve").arg(folder.served()).args(["--memory", "--port", "0", "--json"]).kill_on_drop(true);
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let announced = tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("a line")?;
    let announced: Value = serde_json::from_str(&announced)?;
    let address = announced["address"].as_str().context("an address")?;

    // One peer drips on as many connections as it may have; a second one is answered.
    let mut dripping = Vec::new();
    for _ in 0..80 {
        let mut stream = connect("127.0.0.2", address).await?;
        // Those beyond the share are closed.
        let _ = stream.write_all(DRIP).await;
        dripping.push(stream);
    }
    let mut other = connect("127.0.0.3", address).await?;
    other.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    tokio::time::timeout(TIMEOUT, other.read_to_string(&mut answer)).await??;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let mut log = BufReader::new(child.stderr.take().context("stderr")?).lines();
    let message = async {
        let mut text = String::new();
        while let Some(line) = log.next_line().await? {
            text.push_str(&line);
            let limits = "server.max_connections is 4096, but this process may open only 200 files, so it serves 100 connections at a time";
            if text.contains(limits) && text.contains("a peer has the maximum number of connections") {
                return anyhow::Ok(());
            }
        }
        anyhow::bail!("the log ends: {text}")
    };
    tokio::time::timeout(TIMEOUT, message).await??;
    Ok(())
}
