//! A process of `hatchery serve`, and an HTTP client for it.

mod output;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::process::{Child, Command};

use self::output::{Log, read_announcement};
use crate::folder::Folder;
use crate::sse::Stream;
use crate::{Answer, event, paths, threads};

/// A timeout that only a defect reaches.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for the start of a host that must compile components. Compilers run with a low priority.
const LOADING_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for building components, whose dependencies may have to be downloaded and compiled.
const BUILD_TIMEOUT: Duration = Duration::from_secs(900);

/// Interval for polling the host: it does not notify clients about changes in its folder.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The user of most tests.
pub const USER: &str = "tester";

/// A running host. Dropping it kills it.
pub struct Host {
    /// Its base URL, `http://127.0.0.1:<port>`.
    pub url: String,
    /// The JSON line that it printed when it was ready.
    pub announcement: Value,
    child: Child,
    client: Client,
    log: Log,
    /// Must outlive the process.
    _folder: Folder,
}

impl Host {
    /// Serves a folder on a free port, with its data in [`Folder::data`]. Returns when it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn serve(folder: &Folder) -> anyhow::Result<Self> {
        Self::serve_with_environment(folder, &[]).await
    }

    /// Like [`Host::serve`], with additional environment variables.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn serve_with_environment(folder: &Folder, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::launch(paths::command()?, folder, environment, &config_args(folder), ReadyWhen::Loaded).await
    }

    /// Like [`Host::serve`], with another command. The arguments of `hatchery` are appended to it.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn serve_with_command(command: Command, folder: &Folder) -> anyhow::Result<Self> {
        Self::launch(command, folder, &[], &config_args(folder), ReadyWhen::Loaded).await
    }

    /// Like [`Host::serve_with_environment`], but returns as soon as the host listens, before all components are
    /// loaded.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn serve_while_loading(folder: &Folder, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::launch(paths::command()?, folder, environment, &config_args(folder), ReadyWhen::Listening).await
    }

    /// Like [`Host::serve_with_environment`], with additional arguments, and without trusting the folder's
    /// configuration.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn serve_with_args(
        folder: &Folder,
        environment: &[(&str, &str)],
        args: &[impl AsRef<OsStr>],
    ) -> anyhow::Result<Self> {
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self::launch(paths::command()?, folder, environment, &args, ReadyWhen::Loaded).await
    }

    /// Starts `hatchery dev` in a folder, with the output of builds in the log. Returns when everything is built and
    /// served.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn develop(folder: &Folder, dir: &Path) -> anyhow::Result<Self> {
        let mut command = paths::command()?;
        command.current_dir(dir).arg("dev");
        Self::spawn(command, folder, ReadyWhen::Built).await
    }

    async fn launch(
        mut command: Command,
        folder: &Folder,
        environment: &[(&str, &str)],
        args: &[OsString],
        ready_when: ReadyWhen,
    ) -> anyhow::Result<Self> {
        command.envs(environment.iter().copied()).arg("serve").args(args);
        let data = folder.data();
        command.arg(folder.served());
        if !args.iter().any(|arg| arg == "--session-service") {
            command.arg("--session-service").arg(format!("sqlite://{}", data.join("sessions.db").display()));
        }
        command.arg("--artifact-service").arg(format!("file://{}", data.join("artifacts").display()));
        Self::spawn(command, folder, ready_when).await
    }

    async fn spawn(mut command: Command, folder: &Folder, ready_when: ReadyWhen) -> anyhow::Result<Self> {
        command.args(["--port", "0", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let log = Log::default();
        let stderr = child.stderr.take().context("stderr is a pipe")?;
        let mut log_end = tokio::spawn(log.clone().follow(stderr));
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let timeout = if ready_when == ReadyWhen::Built { BUILD_TIMEOUT } else { TIMEOUT };
        let mut announcement = read_announcement(&mut stdout, &log, &mut log_end, timeout).await?;
        let is_loading = announcement.pointer("/loading/0").is_some();
        if is_loading && ready_when != ReadyWhen::Listening {
            announcement = read_announcement(&mut stdout, &log, &mut log_end, LOADING_TIMEOUT).await?;
        }
        // A full pipe would block the host.
        tokio::spawn(Log::default().follow(stdout));
        let url = announcement.get("url").and_then(Value::as_str).context("the announcement has no `url`")?.to_owned();
        Ok(Self { url, announcement, child, client: client()?, log, _folder: folder.clone() })
    }

    /// Kills the process with SIGKILL.
    ///
    /// # Errors
    /// If it has already ended.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "it has already ended: {}", self.log.text());
        self.child.kill().await.context("kill")
    }

    /// Stops the process with SIGTERM. Returns true if its exit code was 0.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn stop(self) -> anyhow::Result<bool> {
        self.signal("-TERM").await?;
        self.wait_for_end().await
    }

    /// Waits for the end of the process after a signal. Returns true if its exit code was 0.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn wait_for_end(mut self) -> anyhow::Result<bool> {
        let id = self.child.id().context("it has already ended")?.to_string();
        let status = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        let describe = || format!("still running after {TIMEOUT:?}: {}{}", self.log.text(), threads::describe(&id));
        Ok(status.with_context(describe)??.success())
    }

    /// Sends a signal to the process, such as `-STOP`.
    ///
    /// # Errors
    /// If the process has ended.
    pub async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("it has already ended")?.to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await?;
        ensure!(sent.success(), "cannot send {signal} to it");
        Ok(())
    }

    /// Returns the process id, or `None` if the process has ended.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Like [`Host::wait_until`], for the result of a build.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_until_built(&self, what: &str, condition: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.wait_within(BUILD_TIMEOUT, what, condition).await
    }

    /// Waits until its log contains a string.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_for_log(&self, text: &str) -> anyhow::Result<()> {
        self.wait_until_log(&format!("{text:?}"), |log| log.contains(text)).await
    }

    /// Waits until its log fulfils a condition.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_until_log(&self, what: &str, condition: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let poll = async {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            while !condition(&self.log.text()) {
                ticks.tick().await;
            }
        };
        let outcome = tokio::time::timeout(TIMEOUT, poll).await;
        outcome.with_context(|| format!("waited {TIMEOUT:?} for {what} in the host's log: {}", self.log.text()))
    }

    /// Creates a request.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(&self, request: RequestBuilder) -> anyhow::Result<Answer> {
        let request = request.build()?;
        let name = format!("{} {}", request.method(), request.url().path());
        let response = self.client.execute(request).await;
        let response = response.with_context(|| format!("{name}; the host's log: {}", self.log.text()))?;
        Answer::read(name, response).await
    }

    /// Sends a `GET` request.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a `POST` request with JSON.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a `DELETE` request.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Creates a session of [`USER`].
    ///
    /// # Errors
    /// If it cannot be created.
    pub async fn create_session(&self, app: &str, id: &str) -> anyhow::Result<()> {
        let session = self.post(&session_path(app, id), &json!({})).await?.json(200)?;
        ensure!(session.get("id") == Some(&id.into()), "{session}");
        Ok(())
    }

    /// Returns a session of [`USER`] with its events.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn session(&self, app: &str, id: &str) -> anyhow::Result<Value> {
        self.get(&session_path(app, id)).await?.json(200)
    }

    /// Sends a message to `/run`, and returns the events.
    ///
    /// # Errors
    /// If the run fails, or an event is malformed.
    pub async fn run(&self, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
        events_of(&self.post("/run", &message(app, session, text)).await?.json(200)?)
    }

    /// Creates a session and sends a message in it.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub async fn ask(&self, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
        self.create_session(app, session).await?;
        self.run(app, session, text).await
    }

    /// Sends a message to `/run_sse`. With `streaming`, the stream includes partial events.
    ///
    /// # Errors
    /// If the answer is not a stream.
    pub async fn stream(&self, app: &str, session: &str, text: &str, streaming: bool) -> anyhow::Result<Stream> {
        self.stream_over("/run_sse", app, session, text, streaming).await
    }

    /// Like [`Host::stream`], with another path.
    ///
    /// # Errors
    /// If the answer is not a stream.
    pub async fn stream_over(
        &self,
        path: &str,
        app: &str,
        session: &str,
        text: &str,
        streaming: bool,
    ) -> anyhow::Result<Stream> {
        let mut body = message(app, session, text);
        if let Some(body) = body.as_object_mut() {
            body.insert("streaming".into(), streaming.into());
        }
        Stream::open(self.request(Method::POST, path).json(&body).send().await?).await
    }

    /// Returns the states of all components.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn components(&self) -> anyhow::Result<Value> {
        self.get("/components").await?.json(200)
    }

    /// Returns the names of the apps.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn apps(&self) -> anyhow::Result<Vec<String>> {
        Ok(serde_json::from_value(self.get("/list-apps").await?.json(200)?)?)
    }

    /// Waits until the states of the components fulfil a condition, and returns them.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.wait_within(TIMEOUT, what, condition).await
    }

    async fn wait_within(
        &self,
        timeout: Duration,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let poll = async {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            loop {
                ticks.tick().await;
                let components = self.components().await?;
                if condition(&components) {
                    return anyhow::Ok(components);
                }
            }
        };
        match tokio::time::timeout(timeout, poll).await {
            Ok(components) => components,
            Err(_) => anyhow::bail!(
                "waited {timeout:?} until {what}; the components are {}; the host's log: {}",
                self.components().await?,
                self.log.text()
            ),
        }
    }

    /// Waits until a file is rejected, and returns the reason.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_for_refusal(&self, file: &str) -> anyhow::Result<String> {
        let is_refused = |components: &Value| reason(components, file).is_some();
        let components = self.wait_until(&format!("{file} is refused"), is_refused).await?;
        reason(&components, file).context("it has a reason")
    }

    /// Waits until an app exists.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_for_app(&self, app: &str) -> anyhow::Result<Value> {
        self.wait_until(&format!("there is the app {app}"), |components| has_app(components, app)).await
    }
}

/// Returns the arguments that trust the configuration of a folder: the operator's file outside of it, or else the one
/// in it.
fn config_args(folder: &Folder) -> Vec<OsString> {
    let files = [folder.operator_config(), folder.file("hatchery.yaml")];
    let file = files.into_iter().find(|file| file.is_file());
    file.map(|file| vec!["--config".into(), file.into()]).unwrap_or_default()
}

/// When a starting host counts as ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadyWhen {
    Listening,
    Loaded,
    /// Loaded, after a build.
    Built,
}

/// Returns true if an app is loaded.
pub fn has_app(components: &Value, app: &str) -> bool {
    let apps = components.get("apps").and_then(Value::as_array).into_iter().flatten();
    apps.into_iter().any(|entry| event::text_at(entry, "/name") == app)
}

/// Returns why a file is not served. `None` if it is served or does not exist.
pub fn reason(components: &Value, file: &str) -> Option<String> {
    entry(components, file)?.get("reason").and_then(Value::as_str).map(Into::into)
}

/// Returns the entry of a file.
pub fn entry<'a>(components: &'a Value, file: &str) -> Option<&'a Value> {
    let files = components.get("files").and_then(Value::as_array)?;
    files.iter().find(|entry| event::text_at(entry, "/path") == file)
}

/// Returns the URL path of a session of [`USER`].
pub fn session_path(app: &str, id: &str) -> String {
    format!("/apps/{app}/users/{USER}/sessions/{id}")
}

/// Returns the body of a run request.
pub fn message(app: &str, session: &str, text: &str) -> Value {
    json!({
        "appName": app,
        "userId": USER,
        "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"text": text}]},
    })
}

/// Returns the events of a JSON array after checking them.
///
/// # Errors
/// If one is malformed.
pub fn events_of(json: &Value) -> anyhow::Result<Vec<Value>> {
    let events = json.as_array().with_context(|| format!("{json} is not an array"))?;
    events.iter().try_for_each(event::check)?;
    Ok(events.clone())
}

/// Returns the events of a session, or of the error of a failed run.
///
/// # Errors
/// If there are none, or one is malformed.
pub fn events_in(json: &Value) -> anyhow::Result<Vec<Value>> {
    events_of(json.get("events").with_context(|| format!("{json} has no `events`"))?)
}

pub(crate) fn client() -> anyhow::Result<Client> {
    // An earlier test in this process may have installed it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(Client::builder().no_proxy().timeout(TIMEOUT).build()?)
}
