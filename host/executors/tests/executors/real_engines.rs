//! Code in containers of Docker and Podman: isolation, limits, unusual images, and engines that end.

use std::path::Path;
use std::sync::OnceLock;

use hatchery_core::{CodeExecutor, CodeOutput};
use hatchery_executors::ContainerConfig;
use hatchery_test_services::{ContainerEngine, EngineKind, PYTHON_IMAGE};
use tokio::sync::{Mutex, MutexGuard};

use crate::call_in;
use crate::suite::{ENDED, Log, TestEngine, UNUSABLE, code, executor, failure, run, stateful};

const KINDS: [EngineKind; 2] = [EngineKind::Docker, EngineKind::Podman];
const LABEL: &str = "hatchery=code";

/// The message to the model if the process of its code has ended.
const CRASHED: &str = "the process of the code has ended: it may have used too much memory";

impl TestEngine for ContainerEngine {
    fn config(&self) -> ContainerConfig {
        ContainerConfig::new(self.socket(), PYTHON_IMAGE)
    }

    fn count(&self) -> usize {
        self.containers(LABEL).unwrap().len()
    }

    fn end_containers(&self) {
        self.containers(LABEL).unwrap().iter().for_each(|container| self.remove(container).unwrap());
    }
}

/// Returns an engine without containers, which other tests use before and afterwards. `None`, after a message, if this
/// machine cannot run it.
pub async fn shared(kind: EngineKind) -> Option<MutexGuard<'static, ContainerEngine>> {
    static ENGINES: [OnceLock<Option<Mutex<ContainerEngine>>>; 2] = [const { OnceLock::new() }; 2];
    let engine = ENGINES[usize::from(kind == EngineKind::Podman)].get_or_init(|| start(kind).map(Mutex::new));
    let engine = engine.as_ref()?.lock().await;
    engine.end_containers();
    Some(engine)
}

fn start(kind: EngineKind) -> Option<ContainerEngine> {
    ContainerEngine::start(kind, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

#[tokio::test]
async fn code_has_no_network_no_capabilities_and_nothing_to_write_to_but_memory() {
    let text = "import os, socket
print(os.listdir('/sys/class/net'), *[line.split()[1] for line in open('/proc/self/status') if line[:6] == 'CapEff'])
try:
    socket.create_connection(('192.0.2.1', 80), 5)
except OSError as error:
    print(error.strerror)
mounts = [line.split()[1:3] for line in open('/proc/mounts')]
for folder, _, _ in os.walk('/', onerror=None):
    if folder.startswith(('/proc', '/sys')):
        continue
    try:
        open(folder + '/probe', 'w').close()
    except OSError:
        continue
    mount = max((mount for mount in mounts if folder.startswith(mount[0])), key=lambda mount: len(mount[0]))
    if mount[1] not in ('tmpfs', 'mqueue') or not mount[0].startswith('/dev'):
        print(mount[0], mount[1])";
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let output = run(&executor(engine.config()), code(text)).await;
        let mut lines: Vec<_> = output.stdout.lines().collect();
        lines.sort_unstable();
        let expected = ["/tmp tmpfs", "/work tmpfs", "Network is unreachable", "['lo'] 0000000000000000"];
        assert_eq!((lines, output.stderr.as_str()), (expected.to_vec(), ""), "{kind:?}");
    }
}

#[tokio::test]
async fn memory_processes_and_files_are_limited() {
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let executor = executor(ContainerConfig { memory: 64 << 20, disk: 1 << 20, pids: 10, ..engine.config() });
        let output = run(&executor, stateful("x = bytearray(200 << 20)")).await;
        assert_eq!(output.stderr, CRASHED, "{kind:?}");
        let output = run(&executor, stateful("open('big', 'wb').write(bytes(2 << 20))")).await;
        assert!(output.stderr.contains("No space left on device"), "{kind:?}: {output:?}");
        let fork = "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        time.sleep(600)";
        let output = run(&executor, code(fork)).await;
        assert!(output.stderr.contains("BlockingIOError"), "{kind:?}: {output:?}");
        let output = run(&executor, code("print('next')")).await;
        assert_eq!(output.stdout, "next\n", "{kind:?}");
    }
}

#[tokio::test]
async fn the_entry_point_of_an_image_is_not_run_and_its_volumes_take_no_files() {
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let image = "localhost/unusual:1";
        let changes = ["ENTRYPOINT [\"python3\", \"-c\", \"pass\"]", "CMD [\"ignored\"]", "VOLUME /data", "USER 1000"];
        engine.import_python(image, &changes).unwrap();
        let executor = executor(ContainerConfig { image: image.into(), ..engine.config() });
        let output = run(&executor, code("open('here', 'w').close()\nprint(1)\nopen('/data/there', 'w')")).await;
        assert_eq!(output.stdout, "1\n", "{kind:?}: {output:?}");
        assert!(output.stderr.ends_with("Read-only file system: '/data/there'\n"), "{kind:?}: {output:?}");
        assert_eq!(engine.call(&["volume", "ls", "--quiet"]).unwrap(), "", "{kind:?}");
    }
}

#[tokio::test]
async fn an_image_without_python_is_an_error_of_the_operator() {
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let folder = tempfile::tempdir().unwrap();
        let rootfs = folder.path().join("rootfs.tar");
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let tar =
            std::process::Command::new("tar").arg("-cf").arg(&rootfs).arg("-C").arg(folder.path()).arg("etc").status();
        assert!(tar.unwrap().success());
        engine.import(std::fs::File::open(rootfs).unwrap(), "localhost/empty:1", &[]).unwrap();
        let log = Log::capture();
        let executor = executor(ContainerConfig { image: "localhost/empty:1".into(), ..engine.config() });
        assert_eq!(failure(&executor, code("print(1)")).await, UNUSABLE, "{kind:?}");
        log.contains("; the image must have `python3` on its `PATH`");
        while engine.count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn the_engine_removes_a_container_whose_first_process_has_ended() {
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let executor = executor(engine.config());
        let crash = "import os, threading\nthreading.Timer(0.2, os._exit, [1]).start()";
        run(&executor, stateful(crash)).await;
        while engine.count() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(failure(&executor, stateful("print(1)")).await, ENDED, "{kind:?}");
    }
}

/// Returns the container of code that writes the file `started`, once it has written it.
async fn started(engine: &ContainerEngine) -> String {
    loop {
        for container in engine.containers(LABEL).unwrap() {
            let found = ["exec", &container, "python3", "-c", "open('/work/started')"];
            if engine.call(&found).is_ok() {
                return container;
            }
        }
        tokio::task::yield_now().await;
    }
}

const ENDLESS: &str = "open('started', 'w').close()\nwhile True: pass";

#[tokio::test]
async fn the_container_of_a_run_that_is_cancelled_is_removed() {
    for kind in KINDS {
        let Some(engine) = shared(kind).await else { continue };
        let executor = executor(engine.config());
        let call = call_in("s1");
        tokio::select! {
            output = executor.execute(stateful(ENDLESS), &call) => panic!("{output:?}"),
            _ = started(&engine) => {}
        }
        while engine.count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn an_engine_that_is_killed_during_a_call_is_an_error_and_serves_again_after_its_restart() {
    for kind in KINDS {
        let Some(mut engine) = start(kind) else { continue };
        let (executor, log, call) = (executor(engine.config()), Log::capture(), call_in("s1"));
        run(&executor, stateful("x = 1")).await;
        let killed = async {
            started(&engine).await;
            engine.kill().unwrap();
        };
        let (output, ()) = tokio::join!(executor.execute(stateful(ENDLESS), &call), killed);
        let error = format!("{:?}", output.unwrap_err());
        assert!(error.contains(UNUSABLE), "{kind:?}: {error}");
        log.contains("cannot reach the container engine at ");
        log.contains("could not remove a container: cannot reach the container engine at ");
        engine.restart().unwrap();
        assert_eq!(failure(&executor, stateful("print(x)")).await, ENDED, "{kind:?}");
        assert_eq!(
            run(&executor, stateful("print(2)")).await,
            CodeOutput { stdout: "2\n".into(), ..CodeOutput::default() }
        );
    }
}
