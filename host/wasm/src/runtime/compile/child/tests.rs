//! Child processes that behave as no compiler does.

use std::num::NonZeroU32;
use std::time::Duration;

use super::*;

/// A reply with two bytes of code.
const REPLY: &str = r"printf '\001\002\000\000\000\000\000\000\000ok'";

fn limits() -> CompileLimits {
    CompileLimits { memory: 4 << 20, threads: NonZeroU32::MIN, ..CompileLimits::default() }
}

/// Compiles with a shell script instead of the compiler. The script gets the arguments of a worker.
async fn compile_by(script: &str, limits: &CompileLimits) -> Result<Vec<u8>, String> {
    let args = ["-c", script, "worker"].map(OsString::from);
    let compiled = compile(Path::new("/bin/sh"), &args, limits, Bytes::from_static(b"wasm")).await;
    compiled.map_err(|error| error.to_string())
}

/// Returns the error of a script that replies no code.
async fn failure(script: &str) -> String {
    compile_by(script, &limits()).await.err().unwrap_or_default()
}

#[tokio::test]
async fn the_code_of_a_reply_is_returned() {
    assert_eq!(compile_by(REPLY, &limits()).await.unwrap(), b"ok");
    let read = format!("[ \"$(head -c 12 | tail -c 4)\" = wasm ] && {REPLY}");
    assert_eq!(compile_by(&read, &limits()).await.unwrap(), b"ok");
    let lingering = format!("{REPLY}; exec sleep 1000");
    assert_eq!(compile_by(&lingering, &limits()).await.unwrap(), b"ok", "its exit is not awaited");
}

#[tokio::test]
async fn a_child_gets_its_limits_and_no_environment_variables() {
    let with_limits = format!("[ \"$*\" = '4194304 60 1' ] && {REPLY}");
    assert_eq!(compile_by(&with_limits, &limits()).await.unwrap(), b"ok");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let without_variables = format!("[ -z \"$CARGO_MANIFEST_DIR\" ] && {REPLY}");
    assert_eq!(compile_by(&without_variables, &limits()).await.unwrap(), b"ok");
}

#[tokio::test]
async fn a_child_that_crashes_is_an_error_with_the_end_of_stderr() {
    assert_eq!(
        failure("echo first >&2; printf 'last\\033[2J\\n\\n' >&2; exit 3").await,
        "the compiler crashed (exit status: 3: last [2J); change the file to try again"
    );
    assert_eq!(failure("kill -9 $$").await, "the compiler crashed (signal: 9 (SIGKILL)); change the file to try again");
    assert_eq!(failure("exit 0").await, "the compiler crashed (exit status: 0); change the file to try again");
    let half = r"printf '\001\011\000\000\000\000\000\000\000half'";
    assert_eq!(failure(half).await, "the compiler crashed (exit status: 0); change the file to try again");
    let unknown = REPLY.replace(r"\001", r"\007");
    assert_eq!(failure(&unknown).await, "the compiler crashed (exit status: 0); change the file to try again");
}

#[tokio::test]
async fn a_child_that_floods_stderr_is_read_to_its_end() {
    let error = failure("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; exit 1").await;
    assert_eq!(error, "the compiler crashed (exit status: 1: last); change the file to try again");
}

#[tokio::test]
async fn the_limits_of_a_child_are_named() {
    assert_eq!(
        failure("kill -XCPU $$").await,
        "compiling it takes more than 60s of CPU time; split its largest functions, or raise `compile.time` in hatchery.yaml"
    );
    assert_eq!(
        failure("echo 'memory allocation of 100 bytes failed' >&2; kill -ABRT $$").await,
        "compiling it takes more than 4 MiB of memory; split its largest functions, or raise `compile.memory` in hatchery.yaml"
    );
    let denied = r"printf '\002\032\000\000\000\000\000\000\000Cannot allocate memory (12)'";
    assert!(failure(denied).await.starts_with("compiling it takes more than 4 MiB of memory; "));
    assert_eq!(failure(r"printf '\002\003\000\000\000\000\000\000\000bad'").await, "bad");
    // 2 MiB.
    let large = r"printf '\001\000\000\040\000\000\000\000\000'; exec sleep 1000";
    assert_eq!(
        failure(large).await,
        "its compiled code has more than 1 MiB, a quarter of `compile.memory`; raise that in hatchery.yaml"
    );
}

#[tokio::test]
async fn a_child_that_only_waits_is_killed() {
    let limits = CompileLimits { wall: Duration::from_millis(200), ..limits() };
    assert_eq!(
        compile_by("exec sleep 1000", &limits).await.unwrap_err(),
        "compiling it has not ended after 200ms; raise `compile.wall` in hatchery.yaml if this machine is busy"
    );
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let error = compile(Path::new("/no/such"), &[], &limits(), Bytes::new()).await.unwrap_err().to_string();
    assert_eq!(error, "the compiler cannot be started: No such file or directory (os error 2)");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_is_killed_when_its_compilation_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 1000", file.display());
    let task = tokio::spawn(async move { compile_by(&script, &limits()).await });
    let mut poll = tokio::time::interval(Duration::from_millis(5));
    while !file.exists() {
        poll.tick().await;
    }
    let process = Path::new("/proc").join(std::fs::read_to_string(file).unwrap().trim());
    assert!(process.exists());
    task.abort();
    while process.exists() {
        poll.tick().await;
    }
}
