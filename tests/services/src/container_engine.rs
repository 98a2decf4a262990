//! Engines of containers for tests: Debian's Docker and Podman, each with its own socket and folder, without
//! networks. Only root can start them.
#![allow(clippy::missing_errors_doc, reason = "every function fails if the engine does")]

mod debian;
mod programs;

use std::fs::{self, File};
use std::io::PipeReader;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::skip;
use programs::Programs;

const CLEANUP: &str = include_str!("container_engine/cleanup.sh");
const ROOTFS: &str = include_str!("container_engine/rootfs.py");

/// Settings of Podman. Its own limits are more than processes without `CAP_SYS_RESOURCE` may set.
const PODMAN_CONFIG: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
                             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";

/// An image that [`ContainerEngine::start`] makes. It has `python3` only.
pub const PYTHON_IMAGE: &str = "localhost/python:3";

/// A timeout that only a defect reaches.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    Docker,
    Podman,
}

/// A running engine. It ends, with its containers, when this is dropped or the process has ended.
pub struct ContainerEngine {
    kind: EngineKind,
    folder: PathBuf,
    programs: Programs,
    service: Option<Child>,
    /// Its standard input keeps the engine running.
    cleanup: Option<Child>,
}

impl ContainerEngine {
    /// Starts an engine with [`PYTHON_IMAGE`]. `None`, after a message on the standard error, if this machine cannot
    /// run its containers. `cache` is a folder for unpacked packages.
    #[must_use]
    pub fn start(kind: EngineKind, cache: &Path) -> Option<Self> {
        match Self::try_start(kind, cache) {
            Ok(engine) => Some(engine),
            Err(error) => {
                skip(&format!("tests with {kind:?}: {error:#}"));
                None
            }
        }
    }

    fn try_start(kind: EngineKind, cache: &Path) -> anyhow::Result<Self> {
        let programs = programs::programs(kind, cache)?;
        // Paths of sockets are short.
        let folder = tempfile::Builder::new().prefix("engine").tempdir_in("/tmp")?.keep();
        fs::write(folder.join("containers.conf"), PODMAN_CONFIG)?;
        let mut engine = Self { kind, folder, programs, service: None, cleanup: None };
        engine.cleanup = Some(engine.start_cleanup()?);
        engine.start_service()?;
        engine.import_python(PYTHON_IMAGE, &[])?;
        let limits = ["--network", "none", "--memory", "64m", "--pids-limit", "20", "--cpus", "0.5"];
        let container =
            engine.client(&["run", "--rm"]).args(limits).args([PYTHON_IMAGE, "python3", "-c", "pass"]).output()?;
        ensure!(container.status.success(), "it cannot run containers: {}", lossy(&container.stderr));
        Ok(engine)
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("engine.sock")
    }

    /// Returns a call of the command `docker` or `podman`.
    #[must_use]
    pub fn client(&self, args: &[&str]) -> Command {
        let words = self.client_words();
        let mut command = Command::new(words.first().map_or("", String::as_str));
        self.programs.add_to(&mut command);
        command.env("CONTAINERS_CONF", self.folder.join("containers.conf")).args(words.iter().skip(1)).args(args);
        // Podman leaves files there if a container has used up its memory.
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Calls the command, and returns what it prints.
    pub fn call(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.client(args).output()?;
        ensure!(output.status.success(), "{args:?}: {}", lossy(&output.stderr));
        Ok(lossy(&output.stdout))
    }

    /// Returns the ids of the containers with a label, whatever their state is.
    pub fn containers(&self, label: &str) -> anyhow::Result<Vec<String>> {
        let ids = self.call(&["ps", "--all", "--quiet", "--filter", &format!("label={label}")])?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// Returns the id of the first process of a container.
    pub fn process(&self, container: &str) -> anyhow::Result<String> {
        self.call(&["inspect", "--format", "{{.State.Pid}}", container])
    }

    pub fn remove(&self, container: &str) -> anyhow::Result<()> {
        self.call(&["rm", "--force", container]).map(drop)
    }

    /// Makes an image from a root file system: a tar archive. `changes` are instructions of a Containerfile.
    pub fn import(&self, rootfs: impl Into<Stdio>, image: &str, changes: &[&str]) -> anyhow::Result<()> {
        let mut import = self.client(&["import"]);
        for change in changes {
            import.args(["--change", change]);
        }
        let output = import.args(["-", image]).stdin(rootfs).output()?;
        ensure!(output.status.success(), "{image} cannot be made: {}", lossy(&output.stderr));
        Ok(())
    }

    /// Makes an image with the `python3` of this machine.
    pub fn import_python(&self, image: &str, changes: &[&str]) -> anyhow::Result<()> {
        let (reader, writer): (PipeReader, _) = std::io::pipe()?;
        let mut rootfs = Command::new("python3").args(["-c", ROOTFS]).stdout(writer).spawn()?;
        self.import(reader, image, changes)?;
        ensure!(rootfs.wait()?.success(), "the root file system is not complete");
        Ok(())
    }

    /// Kills the engine, but not its containers.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut service = self.service.take().context("it does not run")?;
        service.kill()?;
        service.wait()?;
        Ok(())
    }

    /// Starts the engine again after [`ContainerEngine::kill`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        // One that was killed has left them. Docker waits for its containerd if the process id is in use, also by a
        // zombie.
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(self.folder.join("exec/containerd/containerd.pid"));
        self.start_service()
    }

    fn start_service(&mut self) -> anyhow::Result<()> {
        let socket = format!("unix://{}", self.socket().display());
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut service = match self.kind {
            EngineKind::Docker => {
                let mut dockerd = Command::new("dockerd");
                dockerd.args(["--host", &socket, "--data-root", &path("root"), "--exec-root", &path("exec")]);
                dockerd.args(["--pidfile", &path("dockerd.pid"), "--bridge", "none"]);
                dockerd.args(["--iptables=false", "--ip6tables=false"]);
                self.programs.add_to(&mut dockerd);
                dockerd
            }
            EngineKind::Podman => self.client(&["system", "service", "--time", "0", &socket]),
        };
        let log = File::options().create(true).append(true).open(self.folder.join("service.log"))?;
        // A signal to the tests does not reach it.
        let service = service.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let service = service.spawn().with_context(|| format!("{:?} cannot be started", self.kind))?;
        fs::write(self.folder.join("service.pid"), service.id().to_string())?;
        self.service = Some(service);
        self.wait_until_it_listens()
    }

    fn wait_until_it_listens(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        // Docker listens before it answers.
        while UnixStream::connect(self.socket()).is_err() || self.call(&["ps"]).is_err() {
            let status = self.service.as_mut().map(Child::try_wait).transpose()?;
            if status.flatten().is_some() || start.elapsed() > TIMEOUT {
                let log = fs::read_to_string(self.folder.join("service.log"))?;
                let mut last: Vec<_> = log.lines().rev().take(3).collect();
                last.reverse();
                bail!("it does not listen: {}", last.join("\n"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn client_words(&self) -> Vec<String> {
        let folder = self.folder.display();
        let words = match self.kind {
            EngineKind::Docker => format!("docker --host unix://{}", self.socket().display()),
            EngineKind::Podman => format!(
                "podman --root {folder}/root --runroot {folder}/run --tmpdir {folder}/tmp --runtime {}",
                self.programs.runtime()
            ),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    fn start_cleanup(&self) -> anyhow::Result<Child> {
        let mut cleanup = Command::new("sh");
        self.programs.add_to(&mut cleanup);
        cleanup.env("CONTAINERS_CONF", self.folder.join("containers.conf"));
        cleanup.args(["-c", CLEANUP, "cleanup"]).arg(&self.folder).args(self.client_words());
        let cleanup =
            cleanup.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn();
        cleanup.context("`sh` cannot be started")
    }
}

impl Drop for ContainerEngine {
    fn drop(&mut self) {
        let Some(mut cleanup) = self.cleanup.take() else { return };
        drop(cleanup.stdin.take());
        if let Some(service) = &mut self.service {
            // The cleanup ends it, and waits for that.
            let _ = service.wait();
        }
        let _ = cleanup.wait();
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
