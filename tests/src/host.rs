//! The real `hatchery serve`, and a client of it.

use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::folder::Folder;
use crate::sse::Stream;
use crate::{Answer, event, paths};

/// Longer than anything takes that a test waits for; who waits so long has found a defect.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a cold cache takes to be filled when all tests do so at the same time. Compilers run with a low priority.
const LOADING_PATIENCE: Duration = Duration::from_secs(300);

/// How often a test looks whether the host has noticed a change in its folder: from outside there is nothing to wait on.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The user of all tests that do not care.
pub const USER: &str = "tester";

/// A running host. Dropping it kills it.
pub struct Host {
    /// Where it listens, `http://127.0.0.1:<port>`.
    pub url: String,
    /// What it said when it was ready.
    pub announced: Value,
    child: Child,
    client: Client,
    log: Log,
    /// Kept as long as the host may use it.
    _folder: Folder,
}

/// What a process wrote to stderr so far.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Host {
    /// Serves a folder on a free port, with its data in [`Folder::data`]; back when it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn serve(folder: &Folder) -> anyhow::Result<Self> {
        Self::serve_in(folder, &[]).await
    }

    /// The same with more variables in its environment.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn serve_in(folder: &Folder, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::launch(paths::command()?, folder, environment, &own_config(folder), Until::Loaded).await
    }

    /// The same by a command of one's own, which gets the arguments of `hatchery` appended.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn serve_by(command: Command, folder: &Folder) -> anyhow::Result<Self> {
        Self::launch(command, folder, &[], &own_config(folder), Until::Loaded).await
    }

    /// The same, but ready as soon as it listens, whatever is still being loaded.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn serve_while_loading(folder: &Folder, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::launch(paths::command()?, folder, environment, &own_config(folder), Until::Listening).await
    }

    /// The same as [`Host::serve_in`] with more arguments, and a configuration that nobody trusts unless these say so.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn serve_with(
        folder: &Folder,
        environment: &[(&str, &str)],
        args: &[impl AsRef<OsStr>],
    ) -> anyhow::Result<Self> {
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self::launch(paths::command()?, folder, environment, &args, Until::Loaded).await
    }

    async fn launch(
        mut command: Command,
        folder: &Folder,
        environment: &[(&str, &str)],
        args: &[OsString],
        until: Until,
    ) -> anyhow::Result<Self> {
        command.envs(environment.iter().copied()).arg("serve").args(args);
        let data = folder.data();
        command.arg(folder.served());
        command.arg("--session-service").arg(format!("sqlite://{}", data.join("sessions.db").display()));
        command.arg("--artifact-service").arg(format!("file://{}", data.join("artifacts").display()));
        command.args(["--port", "0", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let log = Log::default();
        let stderr = child.stderr.take().context("stderr is a pipe")?;
        let mut log_end = tokio::spawn(log.clone().follow(stderr));
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let mut announced = announcement(&mut stdout, &log, &mut log_end, PATIENCE).await?;
        let is_loading = announced.pointer("/loading/0").is_some();
        if is_loading && until == Until::Loaded {
            announced = announcement(&mut stdout, &log, &mut log_end, LOADING_PATIENCE).await?;
        }
        // A pipe that nobody reads would stop the host one day.
        tokio::spawn(Log::default().follow(stdout));
        let url = announced.get("url").and_then(Value::as_str).context("no `url` announced")?.to_owned();
        Ok(Self { url, announced, child, client: client()?, log, _folder: folder.clone() })
    }

    /// Kills it as `kill -9` does: nothing of its code runs any more.
    ///
    /// # Errors
    /// When it has ended already.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "it has ended before: {}", self.log.text());
        self.child.kill().await.context("kill")
    }

    /// Asks it to end, and gives whether it did so without complaint.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(mut self) -> anyhow::Result<bool> {
        let id = self.child.id().context("it has ended before")?.to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().await?;
        ensure!(told.success(), "cannot send a signal to it");
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        Ok(status.with_context(|| format!("still there after {PATIENCE:?}: {}", self.log.text()))??.success())
    }

    /// The id of its process; nothing when it has ended.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until its log holds a text.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn until_logged(&self, text: &str) -> anyhow::Result<()> {
        self.until_log(&format!("{text:?}"), |log| log.contains(text)).await
    }

    /// Waits until its log is as `is_so` says.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn until_log(&self, what: &str, is_so: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let look = async {
            let mut looks = tokio::time::interval(LOOK_AGAIN);
            while !is_so(&self.log.text()) {
                looks.tick().await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        found.with_context(|| format!("waited {PATIENCE:?} for {what} in the host's log: {}", self.log.text()))
    }

    /// A request, as it is.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// When there is none.
    pub async fn send(&self, request: RequestBuilder) -> anyhow::Result<Answer> {
        let request = request.build()?;
        let name = format!("{} {}", request.method(), request.url().path());
        let response = self.client.execute(request).await;
        let response = response.with_context(|| format!("{name}; the host's log: {}", self.log.text()))?;
        Answer::read(name, response).await
    }

    /// `GET`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// `DELETE`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Creates a session of [`USER`].
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn create_session(&self, app: &str, id: &str) -> anyhow::Result<()> {
        let session = self.post(&session_path(app, id), &json!({})).await?.json(200)?;
        ensure!(session.get("id") == Some(&id.into()), "{session}");
        Ok(())
    }

    /// The session of [`USER`] with its events.
    ///
    /// # Errors
    /// When there is none.
    pub async fn session(&self, app: &str, id: &str) -> anyhow::Result<Value> {
        self.get(&session_path(app, id)).await?.json(200)
    }

    /// Says something over `/run`, and gives the events.
    ///
    /// # Errors
    /// When the run fails, or an event is not as it must be.
    pub async fn run(&self, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
        events_of(&self.post("/run", &message(app, session, text)).await?.json(200)?)
    }

    /// Says something in a new session.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub async fn ask(&self, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
        self.create_session(app, session).await?;
        self.run(app, session, text).await
    }

    /// Says something over `/run_sse`, with the pieces of answers too if `streaming`.
    ///
    /// # Errors
    /// When no stream comes back.
    pub async fn stream(&self, app: &str, session: &str, text: &str, streaming: bool) -> anyhow::Result<Stream> {
        self.stream_over("/run_sse", app, session, text, streaming).await
    }

    /// As [`Host::stream`], over another spelling of the route.
    ///
    /// # Errors
    /// When no stream comes back.
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

    /// What is loaded, and what is not and why.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn components(&self) -> anyhow::Result<Value> {
        self.get("/components").await?.json(200)
    }

    /// Names of the apps.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn apps(&self) -> anyhow::Result<Vec<String>> {
        Ok(serde_json::from_value(self.get("/list-apps").await?.json(200)?)?)
    }

    /// Waits until what is loaded is as `is_so` says, and gives it.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let look = async {
            let mut looks = tokio::time::interval(LOOK_AGAIN);
            loop {
                looks.tick().await;
                let components = self.components().await?;
                if is_so(&components) {
                    return anyhow::Ok(components);
                }
            }
        };
        match tokio::time::timeout(PATIENCE, look).await {
            Ok(found) => found,
            Err(_) => anyhow::bail!(
                "waited {PATIENCE:?} until {what}; now there is {}; the host's log: {}",
                self.components().await?,
                self.log.text()
            ),
        }
    }

    /// Waits until a file does not serve, and gives why.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn until_refused(&self, file: &str) -> anyhow::Result<String> {
        let refused = |components: &Value| reason(components, file).is_some();
        let components = self.until(&format!("{file} is refused"), refused).await?;
        reason(&components, file).context("it has a reason")
    }

    /// Waits until there is an app of this name.
    ///
    /// # Errors
    /// When none comes.
    pub async fn until_app(&self, app: &str) -> anyhow::Result<Value> {
        self.until(&format!("there is the app {app}"), |components| has_app(components, app)).await
    }
}

/// The arguments that trust the configuration of a folder, if it has one: the operator's outside of it, or the test's own in it.
fn own_config(folder: &Folder) -> Vec<OsString> {
    let files = [folder.operator_config(), folder.file("hatchery.yaml")];
    let file = files.into_iter().find(|file| file.is_file());
    file.map(|file| vec!["--config".into(), file.into()]).unwrap_or_default()
}

/// What a host that starts is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Listening,
    Loaded,
}

/// Reads the next line in which a host says where it listens and what is loaded. If the host has closed its output instead,
/// waits for the end of its log, so that the error carries all of it.
async fn announcement(
    stdout: &mut (impl AsyncBufRead + Unpin),
    log: &Log,
    log_end: &mut JoinHandle<()>,
    patience: Duration,
) -> anyhow::Result<Value> {
    let mut line = String::new();
    let ready = tokio::time::timeout(patience, stdout.read_line(&mut line)).await;
    ready.with_context(|| format!("not ready after {patience:?}: {}", log.text()))??;
    if line.is_empty() {
        let _ = tokio::time::timeout(PATIENCE, log_end).await;
    }
    serde_json::from_str(&line).with_context(|| format!("said {line:?} at the start: {}", log.text()))
}

/// True when an app of this name is loaded.
pub fn has_app(components: &Value, app: &str) -> bool {
    let apps = components.get("apps").and_then(Value::as_array).into_iter().flatten();
    apps.into_iter().any(|entry| event::text_at(entry, "/name") == app)
}

/// Why a file does not serve; `None` when it does, or is not there.
pub fn reason(components: &Value, file: &str) -> Option<String> {
    entry(components, file)?.get("reason").and_then(Value::as_str).map(Into::into)
}

/// What is known about a file.
pub fn entry<'a>(components: &'a Value, file: &str) -> Option<&'a Value> {
    let files = components.get("files").and_then(Value::as_array)?;
    files.iter().find(|entry| event::text_at(entry, "/path") == file)
}

/// The path of a session of [`USER`].
pub fn session_path(app: &str, id: &str) -> String {
    format!("/apps/{app}/users/{USER}/sessions/{id}")
}

/// The body of a run.
pub fn message(app: &str, session: &str, text: &str) -> Value {
    json!({
        "appName": app,
        "userId": USER,
        "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"text": text}]},
    })
}

/// The events in a JSON array, checked.
///
/// # Errors
/// When one of them is not as it must be.
pub fn events_of(json: &Value) -> anyhow::Result<Vec<Value>> {
    let events = json.as_array().with_context(|| format!("{json} is not an array"))?;
    events.iter().try_for_each(event::check)?;
    Ok(events.clone())
}

/// The events of a session, or of the error that a failed run is.
///
/// # Errors
/// When there are none, or one of them is not as it must be.
pub fn events_in(json: &Value) -> anyhow::Result<Vec<Value>> {
    events_of(json.get("events").with_context(|| format!("{json} has no `events`"))?)
}

pub(crate) fn client() -> anyhow::Result<Client> {
    // The second test of a process finds the provider installed, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(Client::builder().no_proxy().timeout(PATIENCE).build()?)
}

impl Log {
    async fn follow(self, pipe: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&line);
            text.push('\n');
        }
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
