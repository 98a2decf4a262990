//! Code in containers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use hatchery_core::{CodeExecutor, CodeFile, CodeInput, CodeOutput, ToolError};
use hatchery_executors::{ContainerConfig, ContainerExecutor};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::call_in;
use crate::engine::Engine;

const ENDED: &str = "the container of this session has ended, and the variables and files of earlier code with it; the next \
                     code runs in a new one, so run what you need again";

/// Code that leaves a thread behind.
const THREAD: &str = "import threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()";

fn config(engine: &Engine) -> ContainerConfig {
    ContainerConfig::new(engine.socket(), "python:3")
}

fn executor(config: ContainerConfig) -> ContainerExecutor {
    // A provider of the process is installed by the host otherwise.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    ContainerExecutor::new("python", config).unwrap()
}

fn code(code: &str) -> CodeInput {
    CodeInput { code: code.into(), ..CodeInput::default() }
}

fn stateful(text: &str) -> CodeInput {
    CodeInput { execution_id: Some("e1".into()), ..code(text) }
}

async fn run(executor: &ContainerExecutor, input: CodeInput) -> CodeOutput {
    executor.execute(input, &call_in("s1")).await.unwrap()
}

async fn failure(executor: &ContainerExecutor, input: CodeInput) -> String {
    match executor.execute(input, &call_in("s1")).await.unwrap_err() {
        ToolError::Recoverable(message) => message,
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn code_gets_files_prints_and_writes_files() {
    let engine = Engine::start().await;
    let executor = executor(config(&engine));
    let input = CodeFile { name: "data.csv".into(), content: "a\n1\n2\n".into(), mime_type: "text/csv".into() };
    let text =
        "rows = open('data.csv').read().split()[1:]\nprint(sum(map(int, rows)))\nopen('sum.json', 'w').write('[3]')";
    let output = run(&executor, CodeInput { input_files: vec![input], ..code(text) }).await;
    let file = CodeFile { name: "sum.json".into(), content: "[3]".into(), mime_type: "application/json".into() };
    assert_eq!(output, CodeOutput { stdout: "3\n".into(), stderr: String::new(), output_files: vec![file] });
    assert_eq!((engine.count(), engine.removed()), (0, vec!["container-1".to_owned()]));
}

#[tokio::test]
async fn a_container_is_isolated_and_limited() {
    let engine = Engine::start().await;
    let limits = ContainerConfig { memory: 64 << 20, disk: 1 << 20, cpus: 0.5, pids: 7, ..config(&engine) };
    run(&executor(limits), code("print(1)")).await;
    let container = &engine.created()[0];
    assert_eq!((&container["Image"], &container["NetworkDisabled"]), (&json!("python:3"), &json!(true)));
    let host = &container["HostConfig"];
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
        ("Tmpfs", json!({"/tmp": "rw,noexec,nosuid,size=64m", "/work": "rw,exec,nosuid,size=1048576"})),
        ("Mounts", json!(null)),
    ] {
        assert_eq!(host[key], expected, "{key}");
    }
}

#[tokio::test]
async fn the_error_of_code_has_its_line() {
    let engine = Engine::start().await;
    let executor = executor(config(&engine));
    let output = run(&executor, code("print('before')\n1 / 0")).await;
    assert_eq!(output.stdout, "before\n");
    assert!(
        output.stderr.contains("File \"<code>\", line 2")
            && output.stderr.ends_with("ZeroDivisionError: division by zero\n")
    );
    let output = run(&executor, code("import sys\nprint('careful', file=sys.stderr)")).await;
    assert_eq!(output.stderr, "", "a warning is no failure");
    let output = run(&executor, code("import os\nos._exit(3)")).await;
    assert_eq!(output.stderr, "the process of the code has ended: it may have used too much memory");
}

#[tokio::test]
async fn a_session_keeps_variables_and_files_and_others_do_not_see_them() {
    let engine = Engine::start().await;
    let executor = executor(config(&engine));
    run(&executor, stateful("x = 41\nopen('kept.txt', 'w').write('yes')")).await;
    let output = run(&executor, stateful("print(x + 1, open('kept.txt').read())")).await;
    assert_eq!((output.stdout.as_str(), output.output_files.len()), ("42 yes\n", 0));
    assert_eq!(engine.count(), 1);
    // A client can set the state that the id comes from.
    let other = executor.execute(stateful("print(x)"), &call_in("s2")).await.unwrap();
    assert!(other.stderr.contains("NameError: name 'x' is not defined"), "{other:?}");
    assert_eq!(engine.count(), 2);
}

#[tokio::test]
async fn the_session_that_is_idle_for_the_longest_time_ends_for_a_new_one() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { max_sessions: 2, ..config(&engine) });
    for session in ["s1", "s2", "s1", "s3"] {
        executor.execute(stateful("x = 1"), &call_in(session)).await.unwrap();
    }
    while engine.removed().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.removed(), ["container-2"]);
    assert_eq!(engine.count(), 2);
}

#[tokio::test]
async fn there_are_no_more_containers_than_the_settings_allow() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { max_containers: 2, ..config(&engine) });
    let call = call_in("s1");
    let runs = ["1", "2", "3", "4"].map(|number| executor.execute(code(&format!("print({number})")), &call));
    for (number, output) in (1..).zip(join_all(runs).await) {
        assert_eq!(output.unwrap().stdout, format!("{number}\n"));
    }
    assert_eq!((engine.created().len(), engine.most(), engine.count()), (4, 2, 0));
}

#[tokio::test]
async fn the_container_of_an_idle_session_ends_for_code_that_waits() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { max_containers: 1, ..config(&engine) });
    run(&executor, stateful("x = 1")).await;
    assert_eq!(run(&executor, code("print(2)")).await.stdout, "2\n");
    assert_eq!(engine.removed(), ["container-1", "container-2"]);
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
}

#[tokio::test]
async fn the_container_of_a_session_ends_after_the_idle_timeout() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { idle_timeout: Duration::from_millis(100), ..config(&engine) });
    run(&executor, stateful("x = 1")).await;
    while engine.count() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
    assert_eq!(run(&executor, stateful("print(2)")).await.stdout, "2\n");
}

#[tokio::test]
async fn a_container_ends_by_itself_if_its_host_has_died() {
    let engine = Engine::start().await;
    run(&executor(config(&engine)), code("print(1)")).await;
    let command = engine.created()[0]["Cmd"].clone();
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
    let engine = Engine::start().await;
    let executor = Arc::new(executor(config(&engine)));
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
async fn containers_that_a_host_has_left_before_they_started_are_removed() {
    let engine = Engine::start().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    engine.abandon("old", now - 3_600);
    engine.abandon("of-another-host", now);
    run(&executor(config(&engine)), code("print(1)")).await;
    assert_eq!(engine.removed(), ["old", "container-1"]);
}

#[tokio::test]
async fn code_that_does_not_end_is_stopped_with_its_container() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { timeout: Duration::from_millis(400), ..config(&engine) });
    let output = run(&executor, stateful("while True: pass")).await;
    assert_eq!(output.stderr, "Code execution timed out after 0.4 seconds.");
    assert_eq!((engine.count(), engine.removed()), (0, vec!["container-1".to_owned()]));
}

#[tokio::test]
async fn output_is_bounded() {
    let engine = Engine::start().await;
    let executor = executor(ContainerConfig { max_output: 1000, ..config(&engine) });
    let output = run(&executor, code("print('x' * 5000)")).await;
    assert_eq!((output.stdout.len(), output.stderr.as_str()), (1000, ""));
    let output = run(&executor, code("open('a.txt', 'w').write('x' * 700)\nopen('b.txt', 'w').write('x' * 700)")).await;
    assert_eq!(output.output_files.len(), 1);
    assert_eq!(output.stderr, "Too large to return, all files together: b.txt\n");
}

#[tokio::test]
async fn a_file_with_a_folder_in_its_name_is_an_error() {
    let engine = Engine::start().await;
    let executor = executor(config(&engine));
    let file = CodeFile { name: "../x".into(), ..CodeFile::default() };
    let output = run(&executor, CodeInput { input_files: vec![file], ..code("print(1)") }).await;
    assert_eq!(output.stderr, "the file name `../x` cannot be used for code: it has a folder, or more than 100 bytes");
}

#[tokio::test]
async fn a_session_whose_container_is_gone_begins_again() {
    let engine = Engine::start().await;
    let executor = executor(config(&engine));
    run(&executor, stateful("x = 1")).await;
    engine.restart();
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
    assert_eq!(run(&executor, stateful("x = 2\nprint(x)")).await.stdout, "2\n");
}

#[tokio::test]
async fn an_engine_that_is_gone_and_an_image_that_is_missing_are_errors_of_the_operator() {
    let engine = Engine::start().await;
    let shown = "code cannot run now, because the container engine is not usable; the operator finds the cause in the log of \
                 the host";
    let missing = executor(ContainerConfig { image: "missing".into(), ..config(&engine) });
    assert_eq!(failure(&missing, code("print(1)")).await, shown);
    let nowhere = executor(ContainerConfig::new("/no/such/engine.sock", "python:3"));
    assert_eq!(failure(&nowhere, code("print(1)")).await, shown);
}
