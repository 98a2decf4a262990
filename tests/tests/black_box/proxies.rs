//! nginx and Caddy in front of a host on a Unix socket, with the configuration of `docs/operations.md`.

#![allow(clippy::indexing_slicing, reason = "a missing key of JSON is null")]

mod held_model;
mod proxy;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::{TIMEOUT, USER, message, session_path};
use hatchery_tests::sse::Stream;
use hatchery_tests::{Answer, Folder, event, paths};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use held_model::{CHUNKS, HeldModel};
use proxy::{Kind, NAME, Proxy, Route};

const KEY: &str = "operator-key-0123456789";

/// The configuration of a host behind a proxy, as in the guide.
const CONFIG: &str = "\
server:
  allowed_hosts: [agents.example]
  auth: { keys: [{ name: operator, from: OPERATOR_KEY, role: operate }] }
a2a: { public_url: 'https://agents.example/BASE', expose: { default_app: echo } }
";

/// More than a body of JSON may have.
const LARGE: usize = 20 << 20;

/// A host on a socket. Dropping it kills it.
struct SocketHost {
    socket: PathBuf,
    model: HeldModel,
    _child: Child,
    /// The host could not print if nobody read.
    _stdout: Lines<BufReader<ChildStdout>>,
    _sockets: tempfile::TempDir,
    _folder: Folder,
}

impl SocketHost {
    /// Starts a host with the apps `echo`, whose model is a script, and `held`, whose model waits for the test. `base`
    /// is its base path, or empty.
    async fn start(base: &str, public_path: &str) -> Result<Self> {
        let (folder, model) = (Folder::empty()?, HeldModel::start().await?);
        folder.write("echo/root_agent.yaml", "name: echo\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n")?;
        folder.write("echo/answers.yaml", "turns:\n  - reply: 'You said {user}.'\n")?;
        folder.write("held/root_agent.yaml", "name: held\nmodel: ollama/held\ninstruction: Count.\n")?;
        folder.write_operator_config(&CONFIG.replace("/BASE", public_path))?;
        // Paths of sockets are short.
        let sockets = tempfile::Builder::new().prefix("h").tempdir_in("/tmp")?;
        let socket = sockets.path().join("http.sock");
        let mut command = paths::command()?;
        command.env("OPERATOR_KEY", KEY).env("OLLAMA_BASE_URL", &model.url);
        command.arg("serve").arg(folder.served()).args(["--json", "--data-dir"]).arg(folder.data());
        command.arg("--config").arg(folder.operator_config());
        command.arg("--listen").arg(format!("unix:{}", socket.display()));
        if !base.is_empty() {
            command.args(["--base-path", base]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let line = tokio::time::timeout(TIMEOUT, stdout.next_line()).await??.context("an announcement")?;
        ensure!(serde_json::from_str::<Value>(&line)?["loading"] == json!([]), "{line}");
        Ok(Self { socket, model, _child: child, _stdout: stdout, _sockets: sockets, _folder: folder })
    }
}

/// A client of a host behind a proxy.
struct Client<'a> {
    proxy: &'a Proxy,
    model: &'a HeldModel,
    /// The prefix of the routes, or empty.
    prefix: &'a str,
}

impl Client<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.proxy.request(method, &format!("{}{path}", self.prefix)).bearer_auth(KEY)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer> {
        Answer::read("a request", request.send().await.with_context(|| self.proxy.log())?).await
    }

    async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    async fn create_session(&self, app: &str, id: &str) -> Result<()> {
        self.post(&session_path(app, id), &json!({})).await?.json(200)?;
        Ok(())
    }

    /// Everything that the guide promises.
    async fn check(&self, cookie_path: &str) -> Result<()> {
        let health = self.send(self.proxy.request(Method::GET, &format!("{}/health", self.prefix))).await?;
        ensure!(health.json(200)?["status"] == "ok", "{}", health.text);
        self.check_login(cookie_path).await.context("login")?;
        self.check_pages().await.context("developer UI")?;
        self.check_stream().await.context("stream of a run")?;
        self.check_sockets().await.context("WebSockets")?;
        self.check_upload().await.context("upload")
    }

    /// The host learns that browsers use https.
    async fn check_login(&self, cookie_path: &str) -> Result<()> {
        let login = self.proxy.request(Method::POST, &format!("{}/login", self.prefix));
        let login = login.header("origin", format!("https://{NAME}"));
        let login = login.header("content-type", "application/x-www-form-urlencoded").body(format!("key={KEY}"));
        let answer = self.send(login).await?;
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(answer.status == 303 && header("location") == "./dev-ui/", "{} {}", answer.status, answer.text);
        let cookie = header("set-cookie");
        ensure!(cookie.ends_with("; Secure") && cookie.contains(&format!("; Path={cookie_path};")), "{cookie}");
        let (cookie, _) = cookie.split_once(';').context("a cookie")?;
        let page = self.proxy.request(Method::GET, &format!("{}/list-apps", self.prefix)).header("cookie", cookie);
        ensure!(self.send(page).await?.json(200)? == json!(["echo", "held"]));
        Ok(())
    }

    /// The page of the developer UI, and all files that it names.
    async fn check_pages(&self) -> Result<()> {
        let page = self.get("/dev-ui/").await?;
        ensure!(page.status == 200, "{} {}", page.status, page.text);
        let links = page.text.split('"').filter(|text| text.len() > 2 && text.starts_with("./"));
        let mut count = 0;
        for link in links {
            let file = self.request(Method::GET, &format!("/dev-ui/{}", link.trim_start_matches("./")));
            let file = self.send(file.header("origin", format!("https://{NAME}"))).await?;
            ensure!(file.status == 200 && !file.text.contains("<html"), "{link}: {}", file.status);
            count += 1;
        }
        ensure!(count > 3, "{}", page.text);
        Ok(())
    }

    /// Each event arrives before the model continues.
    async fn check_stream(&self) -> Result<()> {
        self.create_session("held", "s").await?;
        let mut body = message("held", "s", "Count");
        body["streaming"] = json!(true);
        self.model.release_chunk();
        let mut stream = Stream::open(self.request(Method::POST, "/run_sse").json(&body).send().await?).await?;
        for (index, chunk) in CHUNKS.into_iter().enumerate() {
            let event = stream.next().await.context("events are held back")?.context("an event")?;
            ensure!(event::is_partial(&event) && event::text(&event) == chunk, "{event}");
            if index + 1 < CHUNKS.len() {
                self.model.release_chunk();
            }
        }
        let rest = stream.collect().await?;
        ensure!(event::texts(&rest) == [CHUNKS.concat()], "{rest:?}");
        Ok(())
    }

    async fn check_sockets(&self) -> Result<()> {
        let mut socket = self.proxy.open_socket(&format!("{}/ws", self.prefix), KEY).await?;
        let mut run = message("held", "s", "Again");
        run["streaming"] = json!(true);
        socket.send(&json!({"type": "start", "id": "a", "run": run})).await?;
        ensure!(socket.json().await?["type"] == "started");
        for chunk in CHUNKS {
            self.model.release_chunk();
            let message = socket.json().await?;
            ensure!(event::text(&message["event"]) == chunk, "{message}");
        }
        while socket.json().await?["type"] != "end" {}
        socket.close().await?;

        self.create_session("echo", "live").await?;
        let query = format!("app_name=echo&user_id={USER}&session_id=live&modalities=TEXT");
        let mut live = self.proxy.open_socket(&format!("{}/run_live?{query}", self.prefix), KEY).await?;
        live.send(&json!({"content": {"role": "user", "parts": [{"text": "hello"}]}})).await?;
        let mut events = Vec::new();
        loop {
            let event = live.json().await?;
            if event["turnComplete"] == true {
                break;
            }
            events.push(event);
        }
        ensure!(event::texts(&events) == ["You said hello."], "{events:?}");
        live.close().await
    }

    /// An artifact larger than a body of JSON may be, and such a body.
    async fn check_upload(&self) -> Result<()> {
        self.create_session("echo", "s").await?;
        let bytes: Vec<u8> = (0..LARGE as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let path = format!("{}/artifacts/folder/large.bin", session_path("echo", "s"));
        let upload = self.request(Method::PUT, &path).header("content-type", "application/octet-stream");
        self.send(upload.body(bytes.clone())).await?.json(200)?;
        let download = self.request(Method::GET, &format!("{path}?alt=media")).send().await?.error_for_status()?;
        ensure!(download.bytes().await? == bytes, "the artifact has changed");
        let body = message("echo", "s", &"x".repeat(LARGE));
        self.post("/run", &body).await?.error(413, "BODY_TOO_LARGE")?;
        Ok(())
    }

    /// The card of the default app is at the root of the host too.
    async fn check_cards(&self) -> Result<()> {
        let url = format!("https://{NAME}{}/a2a/echo", self.prefix);
        for path in [
            format!("{}/a2a/echo/.well-known/agent-card.json", self.prefix),
            format!("{}/.well-known/agent-card.json", self.prefix),
            "/.well-known/agent-card.json".to_owned(),
        ] {
            let card = self.send(self.proxy.request(Method::GET, &path).bearer_auth(KEY)).await?.json(200)?;
            ensure!(card["url"] == url, "{path}: {card}");
        }
        Ok(())
    }
}

async fn check(kind: Kind, route: Route) -> Result<()> {
    let (base, prefix) = match route {
        Route::Root => ("", ""),
        Route::Prefix => ("/agents", "/agents"),
        Route::StrippedPrefix => ("", "/agents"),
    };
    let host = SocketHost::start(base, prefix).await?;
    let Some(proxy) = Proxy::start(kind, route, Path::new(&host.socket)).await? else { return Ok(()) };
    let client = Client { proxy: &proxy, model: &host.model, prefix };
    client.check(if base.is_empty() { "/" } else { base }).await.with_context(|| proxy.log())?;
    if route != Route::StrippedPrefix {
        client.check_cards().await?;
    }
    if route != Route::Root {
        let elsewhere = client.send(proxy.request(Method::GET, "/health")).await?;
        ensure!(!elsewhere.text.contains("\"ok\""), "only the prefix is the host's: {}", elsewhere.text);
    }
    Ok(())
}

#[tokio::test]
async fn the_configuration_of_nginx_serves_every_protocol() -> Result<()> {
    check(Kind::Nginx, Route::Root).await
}

#[tokio::test]
async fn the_configuration_of_nginx_serves_a_host_below_a_path() -> Result<()> {
    check(Kind::Nginx, Route::Prefix).await
}

#[tokio::test]
async fn nginx_can_remove_a_prefix() -> Result<()> {
    check(Kind::Nginx, Route::StrippedPrefix).await
}

#[tokio::test]
async fn the_configuration_of_caddy_serves_every_protocol() -> Result<()> {
    check(Kind::Caddy, Route::Root).await
}

#[tokio::test]
async fn the_configuration_of_caddy_serves_a_host_below_a_path() -> Result<()> {
    check(Kind::Caddy, Route::Prefix).await
}
