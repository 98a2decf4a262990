//! Attacks by clients: requests are limited in size, time, names and content, and one client does not block the others.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use hatchery_tests::host::{TIMEOUT, USER, message, session_path};
use hatchery_tests::stage::new_session_id;
use hatchery_tests::{Answer, Stage, paths};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

async fn send(stage: &Stage, path: &str, body: String) -> Result<Answer> {
    let request = stage.host.request(Method::POST, path).header("content-type", "application/json").body(body);
    stage.host.send(request).await
}

fn assert_refused(answer: &Answer) {
    assert!((400..500).contains(&answer.status), "{}: {} {}", answer.request, answer.status, answer.text);
}

#[tokio::test]
async fn a_page_of_another_origin_reaches_nothing() -> Result<()> {
    let stage = Stage::new("").await?;
    let port = stage.host.url.rsplit(':').next().context("a port")?.to_owned();
    let foreign = [
        ("host", "evil.example".to_owned()),
        ("host", format!("evil.example:{port}")),
        ("host", format!("127.0.0.1.evil.example:{port}")),
        ("origin", "https://evil.example".into()),
        ("origin", "null".into()),
        ("origin", "http://localhost:1".into()),
        ("sec-fetch-site", "cross-site".into()),
    ];
    for (name, value) in foreign {
        for (method, path) in
            [(Method::GET, "/list-apps".to_owned()), (Method::POST, session_path("greeter", &new_session_id()))]
        {
            let answer = stage.host.send(stage.host.request(method, &path).header(name, &value)).await?;
            assert!((400..500).contains(&answer.status), "{name}: {value}: {path}: {}", answer.status);
        }
    }
    let body = message("greeter", "s", "Hello").to_string();
    let simple = stage.host.request(Method::POST, "/run").header("content-type", "text/plain").body(body);
    assert_refused(&stage.host.send(simple).await?);
    let nosniff = stage.host.get("/list-apps").await?;
    assert_eq!(nosniff.headers.get("x-content-type-options").map(|value| value.as_bytes()), Some(&b"nosniff"[..]));
    stage.check_neighbours().await
}

#[tokio::test]
async fn names_cannot_leave_a_folder_and_are_limited_in_length() -> Result<()> {
    let stage = Stage::new("").await?;
    stage.host.create_session("greeter", "s").await?;
    let artifact = json!({ "text": "x" });
    for name in
        ["../../escape", "..%2f..%2fescape", "a/../../escape", "/etc/escape", "a\u{0}b", "a\nb", "..", "CON\\..\\..\\x"]
    {
        let body = json!({ "filename": name, "artifact": artifact });
        let answer = stage.host.post(&format!("{}/artifacts", session_path("greeter", "s")), &body).await?;
        assert!(answer.status < 500, "{name:?}: {}", answer.text);
    }
    let long = "x".repeat(60_000);
    for name in ["..%2f..%2f..%2fescape", "%2e%2e", "a%00b", "a%0d%0ab", "%1b%5b2J", long.as_str()] {
        for path in [
            format!("/apps/greeter/users/{USER}/sessions/{name}"),
            format!("/apps/greeter/users/{name}/sessions/s"),
            format!("/apps/{name}/users/{USER}/sessions/s"),
            format!("{}/artifacts/{name}", session_path("greeter", "s")),
        ] {
            let answer = stage.host.get(&path).await?;
            assert!(answer.status < 500 && !answer.text.contains("root:"), "{path:.80}: {}", answer.status);
        }
        let created = stage.host.post(&format!("/apps/greeter/users/{USER}/sessions/{name}"), &json!({})).await?;
        let is_odd = name.contains("%0") || name.contains("%1b") || name.len() > 256;
        assert!(!is_odd || (400..500).contains(&created.status), "{name:.40}: {}", created.status);
    }
    let data = stage.folder.data();
    let outside: Vec<_> =
        std::fs::read_dir(data.parent().context("a parent")?)?.flatten().map(|it| it.file_name()).collect();
    assert!(outside.iter().all(|name| !name.to_string_lossy().contains("escape")), "{outside:?}");
    let log = stage.host.log();
    assert!(!log.contains('\u{1b}') && !log.contains("\r"), "control characters reached the log");
    stage.check_neighbours().await
}

#[tokio::test]
async fn deep_or_ambiguous_json_is_refused() -> Result<()> {
    let stage = Stage::new("").await?;
    let deep = format!("{{\"state\": {}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let sessions = format!("/apps/greeter/users/{USER}/sessions");
    assert_refused(&send(&stage, &sessions, deep).await?);
    assert_refused(&send(&stage, &sessions, "{\"state\": {\"a\": 1e400}}".into()).await?);
    assert_refused(&send(&stage, &sessions, "{\"sessionId\": \"one\", \"sessionId\": \"two\"}".into()).await?);
    assert_refused(&send(&stage, &sessions, "{\"state\": {\"a\": \"\\ud800\"}}".into()).await?);
    stage.check_neighbours().await
}

#[tokio::test]
async fn a_million_state_keys_do_not_delay_other_users() -> Result<()> {
    let stage = Stage::new("").await?;
    let keys: Vec<String> = (0..1_300_000).map(|key| format!("\"k{key}\":1")).collect();
    let body = format!("{{\"state\":{{{}}}}}", keys.join(","));
    let sessions = format!("/apps/greeter/users/{USER}/sessions");
    let answer = stage.withstand(send(&stage, &sessions, body.clone())).await?;
    assert_refused(&answer);
    let run = format!(
        "{{\"appName\":\"greeter\",\"userId\":\"{USER}\",\"sessionId\":\"s\",\"newMessage\":{{\"parts\":[{{\"text\":\"Hello\"}}]}},\"stateDelta\":{{{}}}}}",
        keys.join(",")
    );
    stage.host.create_session("greeter", "s").await?;
    let answer = stage.withstand(send(&stage, "/run", run)).await?;
    assert_refused(&answer);
    let state = stage.host.session("greeter", "s").await?["state"].to_string();
    assert!(state.len() < 1 << 20, "{} bytes of state", state.len());
    Ok(())
}

#[tokio::test]
async fn a_body_of_zeros_needs_no_gigabyte() -> Result<()> {
    let stage = Stage::new("").await?;
    let zeros = vec!["0"; 8_000_000].join(",");
    for (path, body) in [
        (format!("/apps/greeter/users/{USER}/sessions"), format!("{{\"state\":{{\"a\":[{zeros}]}}}}")),
        (
            "/run".to_owned(),
            format!("{{\"stateDelta\":{{\"a\":[{zeros}]}},\"newMessage\":{{\"parts\":[{{\"text\":\"a\"}}]}}}}"),
        ),
    ] {
        let answer = stage.withstand(send(&stage, &path, body)).await?;
        assert!(answer.status >= 400, "{}", answer.status);
    }
    Ok(())
}

#[tokio::test]
async fn slow_clients_do_not_lock_out_others() -> Result<()> {
    const FILES: usize = 512;
    let folder = Stage::folder("")?;
    // A host with few file handles, which it cannot raise.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {FILES}; exec \"$0\" \"$@\"")).arg(paths::hatchery()?);
    command.env("XDG_CACHE_HOME", paths::cache_folder("cache")?).env_remove("HATCHERY_LOG").kill_on_drop(true);
    let stage = Stage::serve_with_command(command, folder).await?;
    let address = stage.host.url.trim_start_matches("http://").parse::<SocketAddr>()?;
    let mut drips: Vec<TcpStream> = Vec::new();
    for _ in 0..FILES {
        // From their own address, as they would come from another machine.
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.2:0".parse()?)?;
        drips.push(socket.connect(address).await?);
    }
    let head =
        "POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{";
    let dripping = async {
        // Those that were refused may be closed by now.
        for drip in &mut drips {
            let _ = drip.write_all(head.as_bytes()).await;
        }
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        loop {
            ticks.tick().await;
            for drip in &mut drips {
                let _ = drip.write_all(b" ").await;
            }
        }
    };
    // No later client has a connection yet.
    let served = async {
        for _ in 0..3 {
            check_new_connection(address).await.context("while they drip")?;
        }
        stage.check_neighbours().await.context("while they drip")
    };
    tokio::select! {
        served = served => served?,
        () = dripping => {}
    }
    stage.host.wait_for_log("a peer has the maximum number of connections").await?;
    drop(drips);
    stage.check_neighbours().await
}

/// Sends a request over a new connection.
async fn check_new_connection(address: SocketAddr) -> Result<()> {
    let ask = async {
        let mut connection = TcpStream::connect(address).await?;
        connection.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        Ok(())
    };
    tokio::time::timeout(TIMEOUT / 4, ask).await.context("it waits for an answer")?
}
