//! Code in containers, as the requests to the engine show it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use futures::poll;
use hatchery_core::CodeExecutor;
use hatchery_executors::ContainerConfig;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Builder;

use crate::call_in;
use crate::fake_engine::FakeEngine;
use crate::suite::{ENDED, TestEngine, code, executor, failure, run, stateful};

/// Code that leaves a thread behind.
const THREAD: &str = "import threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()";

#[tokio::test]
async fn no_more_containers_exist_at_a_time_than_the_settings_allow() {
    let engine = FakeEngine::start().await;
    let executor = executor(ContainerConfig { max_containers: 2, ..engine.config() });
    let call = call_in("s1");
    join_all(["1", "2", "3", "4"].map(|number| executor.execute(code(number), &call))).await;
    assert_eq!((engine.created().len(), engine.most(), engine.count()), (4, 2, 0));
}

#[tokio::test]
async fn a_container_is_isolated_and_limited() {
    let engine = FakeEngine::start().await;
    let limits = ContainerConfig { memory: 64 << 20, disk: 1 << 20, cpus: 0.5, pids: 7, ..engine.config() };
    run(&executor(limits), code("print(1)")).await;
    let container = &engine.created()[0];
    assert_eq!((&container["Image"], &container["NetworkDisabled"]), (&json!("python:3"), &json!(true)));
    let (host, masked) = (&container["HostConfig"], "ro,noexec,nosuid,size=4k");
    for (key, expected) in [
        ("NetworkMode", json!("none")),
        ("Memory", json!(64 << 20)),
        ("MemorySwap", json!(64 << 20)),
        ("NanoCpus", json!(500_000_000)),
        ("PidsLimit", json!(7)),
        ("ReadonlyRootfs", json!(true)),
        ("CapDrop", json!(["ALL"])),
        ("SecurityOpt", json!(["no-new-privileges"])),
        ("AutoRemove", json!(true)),
        ("Init", json!(false)),
        (
            "Tmpfs",
            json!({"/tmp": "rw,noexec,nosuid,size=64m", "/work": "rw,exec,nosuid,size=1048576",
                "/run": masked, "/var/tmp": masked, "/data": masked}),
        ),
        ("Mounts", json!(null)),
    ] {
        assert_eq!(host[key], expected, "{key}");
    }
}

#[tokio::test]
async fn a_container_ends_by_itself_if_its_host_has_died() {
    let engine = FakeEngine::start().await;
    run(&executor(engine.config()), code("print(1)")).await;
    let command = engine.created()[0]["Entrypoint"].clone();
    // The times of the host, and ten seconds.
    assert_eq!((&command[3], &command[4]), (&json!("910"), &json!("70")));
    for (idle, request) in [("60", Some("while True: pass")), ("0.2", None), ("0.2", Some(THREAD))] {
        let folder = tempfile::tempdir().unwrap();
        let mut kernel = tokio::process::Command::new("python3");
        kernel.args(["-c", command[2].as_str().unwrap(), idle, "0.2", "1000"]).current_dir(folder.path());
        let mut kernel = kernel.process_group(0).spawn().unwrap();
        let group = kernel.id().unwrap();
        let socket = folder.path().join(".hatchery-kernel");
        let connect = async {
            loop {
                if let Ok(stream) = tokio::net::UnixStream::connect(&socket).await {
                    return stream;
                }
                tokio::task::yield_now().await;
            }
        };
        let _connection = match request {
            None => None,
            Some(code) => {
                let mut stream = connect.await;
                stream.write_all(format!("{}\n", json!(code)).as_bytes()).await.unwrap();
                Some(stream)
            }
        };
        assert!(!kernel.wait().await.unwrap().success());
        // With the first process, an engine ends all others.
        let kill = std::process::Command::new("kill").args(["-9", "--", &format!("-{group}")]).status();
        kill.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_its_container_is_created_leaves_nothing() {
    let engine = FakeEngine::start().await;
    let executor = Arc::new(executor(engine.config()));
    engine.close_gate();
    let cancelled = executor.clone();
    let cancelled = tokio::spawn(async move { cancelled.execute(code("print(1)"), &call_in("s1")).await });
    engine.wait_until_asked().await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    engine.open_gate();
    while engine.removed().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!((engine.count(), engine.removed()), (0, vec!["container-1".to_owned()]));
}

#[tokio::test]
async fn a_session_whose_code_was_cancelled_is_lost_and_the_next_code_is_told() {
    let engine = FakeEngine::start().await;
    let executor = Arc::new(executor(engine.config()));
    run(&executor, stateful("x = 1")).await;
    let cancelled = executor.clone();
    let cancelled = tokio::spawn(async move { cancelled.execute(stateful("while True: pass"), &call_in("s1")).await });
    while engine.executed() < 2 {
        tokio::task::yield_now().await;
    }
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
    assert_eq!(run(&executor, stateful("print(2)")).await.stdout, "2\n");
    while engine.removed().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!((engine.count(), engine.removed()), (1, vec!["container-1".to_owned()]));
}

#[test]
fn idle_containers_are_removed_also_after_the_end_of_the_runtime_that_waited_for_them() {
    let server = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = server.block_on(FakeEngine::start());
    let executor = executor(ContainerConfig { idle_timeout: Duration::from_millis(100), ..engine.config() });
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(run(&executor, stateful("x = 1")));
    runtime().block_on(async {
        assert_eq!(run(&executor, stateful("print(x)")).await.stdout, "1\n");
        let removed = async {
            while engine.count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), removed).await.expect("it is still there");
    });
}

#[tokio::test]
async fn the_container_of_a_session_whose_code_runs_while_the_executor_is_closed_is_removed() {
    let engine = FakeEngine::start().await;
    let executor = executor(engine.config());
    engine.close_gate();
    let close = async {
        engine.wait_until_asked().await;
        let mut end = pin!(executor.close());
        assert!(poll!(end.as_mut()).is_pending());
        engine.open_gate();
        end.await;
    };
    let (output, ()) = tokio::join!(run(&executor, stateful("print(1)")), close);
    assert_eq!(output.stdout, "1\n");
    assert_eq!((engine.count(), engine.removed()), (0, vec!["container-1".to_owned()]));
}

#[tokio::test]
async fn containers_that_a_host_has_left_before_they_started_are_removed() {
    let engine = FakeEngine::start().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    engine.abandon("old", now - 3_600);
    engine.abandon("of-another-host", now);
    run(&executor(engine.config()), code("print(1)")).await;
    assert_eq!(engine.removed(), ["old", "container-1"]);
}
