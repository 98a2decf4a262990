//! Graceful shutdown.

use std::time::Duration;

use hatchery::ServerConfig;
use hatchery_core::{SessionKey, StoredRun};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{Host, post_bytes, run_body, wait_for};

#[tokio::test]
async fn the_server_waits_for_active_runs() {
    let mut host = Host::start().await;
    host.session("waits").await;
    let mut stream = host.connect(&post_bytes("/run_sse", &run_body("waits", "hello"))).await;
    wait_for(&host.signals.started).await;
    host.stop();
    let mut answer = String::new();
    // The listener closes before the run ends.
    while TcpStream::connect(host.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    host.signals.resume.add_permits(1);
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("Done."), "{answer}");
    host.stopped().await;
}

#[tokio::test]
async fn runs_that_exceed_the_drain_timeout_are_cancelled_and_report_it() {
    let config = ServerConfig { drain_timeout: Duration::from_millis(20), ..ServerConfig::default() };
    let mut host = Host::with(config).await;
    host.session("waits").await;
    let mut stream = host.connect(&post_bytes("/run_sse", &run_body("waits", "hello"))).await;
    wait_for(&host.signals.started).await;
    host.stop();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"code\":\"CANCELLED\""), "{answer}");
    wait_for(&host.signals.cancelled).await;
    host.stopped().await;
}

#[tokio::test]
async fn a_server_without_runs_stops_at_once_even_with_idle_connections() {
    let config = ServerConfig { drain_timeout: Duration::from_secs(600), ..ServerConfig::default() };
    let mut host = Host::with(config).await;
    host.get_json("/health").await;
    host.stop();
    host.stopped().await;
}

#[tokio::test]
async fn the_follower_of_a_run_of_another_host_does_not_hold_up_a_stop() {
    let (drain_timeout, keep_alive) = (Duration::from_secs(600), Duration::from_millis(10));
    let mut host = Host::with(ServerConfig { drain_timeout, keep_alive, ..ServerConfig::default() }).await;
    host.session("waits").await;
    let run = StoredRun::new(SessionKey::new("waits", "u", "s"), "r1", 0);
    host.services.sessions.runs().unwrap().add(&run).await.unwrap();
    let path = "/apps/waits/users/u/sessions/s/runs/r1/events";
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut lines = BufReader::new(host.connect(request.as_bytes()).await).lines();
    while lines.next_line().await.unwrap().expect("the stream has ended") != ": keep-alive" {}
    host.stop();
    host.stopped().await;
}
