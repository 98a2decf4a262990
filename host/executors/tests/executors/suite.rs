//! Code in containers: the same tests with the fake engine, with Docker and with Podman.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::{CodeExecutor, CodeFile, CodeInput, CodeOutput, ToolError};
use hatchery_executors::{ContainerConfig, ContainerExecutor};
use hatchery_test_services::EngineKind;
use hatchery_test_support::keep_events_enabled;

use crate::call_in;
use crate::fake_engine::FakeEngine;
use crate::real_engines::shared;

pub const ENDED: &str = "the container of this session has ended, and the variables and files of earlier code with it; the next \
                         code runs in a new one, so run what you need again";
pub const UNUSABLE: &str = "code cannot run now, because the container engine is not usable; the operator finds the cause in the \
                            log of the host";

/// An engine, for tests that know nothing else of it.
pub trait TestEngine {
    /// Returns settings with its socket and an image that has `python3`.
    fn config(&self) -> ContainerConfig;
    /// Returns the number of containers of executors, whatever their state is.
    fn count(&self) -> usize;
    /// Ends all containers, as an engine does that is restarted.
    fn end_containers(&self);
}

/// Creates a module for each engine, with these tests.
macro_rules! suite {
    ($($test:ident)*) => {
        mod fake {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::FakeEngine::start().await).await;
            })*
        }
        suite!(docker super::EngineKind::Docker; $($test)*);
        suite!(podman super::EngineKind::Podman; $($test)*);
    };
    ($name:ident $kind:expr; $($test:ident)*) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                if let Some(engine) = super::shared($kind).await {
                    super::$test(&*engine).await;
                }
            })*
        }
    };
}

suite! {
    code_gets_files_prints_and_writes_files
    the_error_of_code_has_its_line
    a_session_keeps_variables_and_files_and_others_do_not_see_them
    the_session_that_is_idle_for_the_longest_time_ends_for_a_new_one
    code_waits_for_a_free_container
    the_container_of_an_idle_session_ends_for_code_that_waits
    the_container_of_a_session_ends_after_the_idle_timeout
    code_that_does_not_end_is_stopped_with_its_container
    output_is_bounded
    a_file_with_a_folder_in_its_name_is_an_error
    a_session_whose_container_is_gone_begins_again
    an_engine_that_is_gone_and_an_image_that_is_missing_are_errors_of_the_operator
    large_files_go_in_and_out
    an_executor_that_is_closed_leaves_no_container_and_runs_no_code
}

pub fn executor(config: ContainerConfig) -> ContainerExecutor {
    // A provider of the process is installed by the host otherwise.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    ContainerExecutor::new("python", config).unwrap()
}

pub fn code(code: &str) -> CodeInput {
    CodeInput { code: code.into(), ..CodeInput::default() }
}

pub fn stateful(text: &str) -> CodeInput {
    CodeInput { execution_id: Some("e1".into()), ..code(text) }
}

pub async fn run(executor: &ContainerExecutor, input: CodeInput) -> CodeOutput {
    executor.execute(input, &call_in("s1")).await.unwrap()
}

pub async fn failure(executor: &ContainerExecutor, input: CodeInput) -> String {
    match executor.execute(input, &call_in("s1")).await.unwrap_err() {
        ToolError::Recoverable(message) => message,
        error => panic!("{error:?}"),
    }
}

/// The log of this thread until it is dropped.
pub struct Log(Arc<Mutex<Vec<u8>>>, #[expect(dead_code, reason = "held")] tracing::subscriber::DefaultGuard);

struct Writer(Arc<Mutex<Vec<u8>>>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn capture() -> Self {
        keep_events_enabled();
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Writer(lines.clone())).finish();
        Self(log, tracing::subscriber::set_default(subscriber))
    }

    /// Panics if the text was not logged.
    pub fn contains(&self, text: &str) {
        assert!(self.text().contains(text), "{text:?} is not in the log");
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.text());
        }
    }
}

async fn code_gets_files_prints_and_writes_files(engine: &impl TestEngine) {
    let executor = executor(engine.config());
    let input = CodeFile { name: "data.csv".into(), content: "a\n1\n2\n".into(), mime_type: "text/csv".into() };
    let text =
        "rows = open('data.csv').read().split()[1:]\nprint(sum(map(int, rows)))\nopen('sum.json', 'w').write('[3]')";
    let output = run(&executor, CodeInput { input_files: vec![input], ..code(text) }).await;
    let file = CodeFile { name: "sum.json".into(), content: "[3]".into(), mime_type: "application/json".into() };
    assert_eq!(output, CodeOutput { stdout: "3\n".into(), stderr: String::new(), output_files: vec![file] });
    assert_eq!(engine.count(), 0);
}

async fn the_error_of_code_has_its_line(engine: &impl TestEngine) {
    let executor = executor(engine.config());
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

async fn a_session_keeps_variables_and_files_and_others_do_not_see_them(engine: &impl TestEngine) {
    let executor = executor(engine.config());
    run(&executor, stateful("x = 41\nopen('kept.txt', 'w').write('yes')")).await;
    let output = run(&executor, stateful("print(x + 1, open('kept.txt').read())")).await;
    assert_eq!((output.stdout.as_str(), output.output_files.len()), ("42 yes\n", 0));
    assert_eq!(engine.count(), 1);
    // A client can set the state that the id comes from.
    let other = executor.execute(stateful("print(x)"), &call_in("s2")).await.unwrap();
    assert!(other.stderr.contains("NameError: name 'x' is not defined"), "{other:?}");
    assert_eq!(engine.count(), 2);
}

async fn the_session_that_is_idle_for_the_longest_time_ends_for_a_new_one(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { max_sessions: 2, ..engine.config() });
    for session in ["s1", "s2", "s1", "s3"] {
        executor.execute(stateful("x = 1"), &call_in(session)).await.unwrap();
    }
    while engine.count() > 2 {
        tokio::task::yield_now().await;
    }
    for (session, is_kept) in [("s1", true), ("s3", true), ("s2", false)] {
        let output = executor.execute(stateful("print(x)"), &call_in(session)).await.unwrap();
        assert_eq!(output.stdout == "1\n", is_kept, "{session}: {output:?}");
    }
}

async fn code_waits_for_a_free_container(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { max_containers: 2, ..engine.config() });
    let call = call_in("s1");
    let runs = ["1", "2", "3", "4"].map(|number| executor.execute(code(&format!("print({number})")), &call));
    for (number, output) in (1..).zip(join_all(runs).await) {
        assert_eq!(output.unwrap().stdout, format!("{number}\n"));
    }
    assert_eq!(engine.count(), 0);
}

async fn the_container_of_an_idle_session_ends_for_code_that_waits(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { max_containers: 1, ..engine.config() });
    run(&executor, stateful("x = 1")).await;
    assert_eq!(run(&executor, code("print(2)")).await.stdout, "2\n");
    assert_eq!(engine.count(), 0);
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
}

async fn the_container_of_a_session_ends_after_the_idle_timeout(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { idle_timeout: Duration::from_millis(100), ..engine.config() });
    run(&executor, stateful("x = 1")).await;
    while engine.count() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
    assert_eq!(run(&executor, stateful("print(2)")).await.stdout, "2\n");
}

async fn code_that_does_not_end_is_stopped_with_its_container(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { timeout: Duration::from_millis(400), ..engine.config() });
    let output = run(&executor, stateful("while True: pass")).await;
    assert_eq!(output.stderr, "Code execution timed out after 0.4 seconds.");
    assert_eq!(engine.count(), 0);
}

async fn output_is_bounded(engine: &impl TestEngine) {
    let executor = executor(ContainerConfig { max_output: 1000, ..engine.config() });
    let output = run(&executor, code("print('x' * 5000)")).await;
    assert_eq!((output.stdout.len(), output.stderr.as_str()), (1000, ""));
    let output = run(&executor, code("open('a.txt', 'w').write('x' * 700)\nopen('b.txt', 'w').write('x' * 700)")).await;
    assert_eq!(output.output_files.len(), 1);
    assert_eq!(output.stderr, "Too large to return, all files together: b.txt\n");
}

async fn a_file_with_a_folder_in_its_name_is_an_error(engine: &impl TestEngine) {
    let executor = executor(engine.config());
    let file = CodeFile { name: "../x".into(), ..CodeFile::default() };
    let output = run(&executor, CodeInput { input_files: vec![file], ..code("print(1)") }).await;
    assert_eq!(output.stderr, "the file name `../x` cannot be used for code: it has a folder, or more than 100 bytes");
}

async fn a_session_whose_container_is_gone_begins_again(engine: &impl TestEngine) {
    let executor = executor(engine.config());
    run(&executor, stateful("x = 1")).await;
    engine.end_containers();
    assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED);
    assert_eq!(run(&executor, stateful("x = 2\nprint(x)")).await.stdout, "2\n");
}

async fn an_engine_that_is_gone_and_an_image_that_is_missing_are_errors_of_the_operator(engine: &impl TestEngine) {
    let log = Log::capture();
    let missing = executor(ContainerConfig { image: "missing".into(), ..engine.config() });
    assert_eq!(failure(&missing, code("print(1)")).await, UNUSABLE);
    log.contains("the engine answered with the status 404 Not Found: ");
    log.contains("; pull or build the image first, such as by `docker pull`");
    let nowhere = executor(ContainerConfig::new("/no/such/engine.sock", "python:3"));
    assert_eq!(failure(&nowhere, code("print(1)")).await, UNUSABLE);
    log.contains("cannot reach the container engine at /no/such/engine.sock: ");
    log.contains(
        "start the engine (such as `systemctl start docker`, or `podman system service`), or set `socket` to its socket, which \
         the host must be allowed to use",
    );
}

async fn large_files_go_in_and_out(engine: &impl TestEngine) {
    let executor = executor(engine.config());
    let content: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let input = CodeFile { name: "in.bin".into(), content: content.clone().into(), ..CodeFile::default() };
    let text = "open('out.bin', 'wb').write(open('in.bin', 'rb').read()[::-1])";
    let output = run(&executor, CodeInput { input_files: vec![input], ..code(text) }).await;
    assert_eq!((output.stderr.as_str(), output.output_files.len()), ("", 1));
    assert!(output.output_files[0].content.iter().rev().eq(&content), "the file has changed on its way");
}

async fn an_executor_that_is_closed_leaves_no_container_and_runs_no_code(engine: &impl TestEngine) {
    let (executor, log) = (executor(engine.config()), Log::capture());
    for session in ["s1", "s2"] {
        executor.execute(stateful("x = 1"), &call_in(session)).await.unwrap();
    }
    assert_eq!(engine.count(), 2);
    executor.close().await;
    assert_eq!(engine.count(), 0);
    assert_eq!(failure(&executor, code("print(1)")).await, UNUSABLE);
    log.contains("the host stops, so no more containers are started");
}
