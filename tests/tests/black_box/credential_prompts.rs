//! Credentials that tools request from the user of `hatchery run`.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use hatchery_test_services::serve_http;
use hatchery_tests::{Folder, paths, skip};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};

const KEY: &str = "k3y-of-ada";
const TOKEN: &str = "us3r-t0ken";
const PASSWORD: &str = "p4ssword of ada ";
/// `ada` with [`PASSWORD`].
const BASIC: &str = "Basic YWRhOnA0c3N3b3JkIG9mIGFkYSA=";

/// An API with orders, and an OAuth server. Records the credentials of requests for orders, and the forms of requests
/// for tokens.
#[derive(Clone, Default)]
struct Shop {
    credentials: Arc<Mutex<Vec<String>>>,
    forms: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    async fn start() -> (Self, String) {
        let shop = Self::default();
        let routes = Router::new().route("/v1/orders", get(orders)).route("/token", post(token));
        let url = serve_http(routes.with_state(shop.clone())).await;
        (shop, url)
    }

    fn credentials(&self) -> Vec<String> {
        self.credentials.lock().map(|seen| seen.clone()).unwrap_or_default()
    }
}

async fn orders(State(shop): State<Shop>, headers: HeaderMap) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let credential = header("x-api-key").or_else(|| header("authorization")).unwrap_or_default().to_owned();
    let is_good = [KEY, BASIC, &format!("Bearer {TOKEN}")].contains(&&*credential);
    if let Ok(mut seen) = shop.credentials.lock() {
        seen.push(credential);
    }
    if is_good { Json(json!({"orders": 2})).into_response() } else { StatusCode::UNAUTHORIZED.into_response() }
}

async fn token(State(shop): State<Shop>, form: String) -> Response {
    let is_good = form.contains("code=g00d-c0de") && form.contains("redirect_uri=http%3A%2F%2Flocalhost%2Fcallback");
    if let Ok(mut forms) = shop.forms.lock() {
        forms.push(form);
    }
    if is_good {
        Json(json!({"access_token": TOKEN, "expires_in": 3600})).into_response()
    } else {
        (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response()
    }
}

/// Returns a folder with an agent that asks the shop for orders with a credential of the user.
fn folder(shop: &str, user: &Value) -> Result<Folder> {
    let folder = Folder::empty()?;
    let document = json!({"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
        "paths": {"/orders": {"get": {"operationId": "list_orders"}}}});
    folder.write("clerk/shop.json", document.to_string())?;
    folder.write(
        "clerk/root_agent.yaml",
        "name: clerk\nmodel: scripted:clerk/answers.yaml\ninstruction: Answer.\ntools:\n  - name: OpenAPIToolset\n    args: \
         {api: shop}\n",
    )?;
    folder.write(
        "clerk/answers.yaml",
        "turns:\n  - when: { tool: list_orders, result: pending }\n    reply: I wait for you.\n  - when: { tool: list_orders, result: the \
         user has not granted }\n    reply: As you like.\n  - when: { tool: list_orders }\n    reply: \"There are {tool.orders} \
         orders.\"\n  - reply: [{ call: { name: list_orders } }]\n",
    )?;
    let api = json!({"document": folder.file("clerk/shop.json"), "base_url": format!("{shop}/v1"),
        "auth": {"user": user}});
    folder.write_operator_config(&json!({"openapi": {"apis": {"shop": api}}}).to_string())?;
    Ok(folder)
}

fn api_key() -> Value {
    json!({"api_key": {"in": "header", "name": "X-Api-Key"}})
}

struct Output {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Runs the agent, with `input` as stdin.
async fn run(folder: &Folder, args: &[&str], input: &str) -> Result<Output> {
    let mut command = paths::command()?;
    command.arg("run").arg("--config").arg(folder.operator_config()).args([".", "clerk"]).args(args);
    command.current_dir(folder.served()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("stdin is a pipe")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(Output { status: output.status, stdout, stderr })
}

#[tokio::test]
async fn a_piped_key_answers_the_request_and_is_not_printed() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &api_key())?;
    let Output { status, stdout, stderr } = run(&folder, &["-m", "Which orders?"], &format!("{KEY}\r\n")).await?;
    ensure!(status.success() && stdout.ends_with("There are 2 orders.\n"), "{stdout}{stderr}");
    ensure!(stderr.contains("? list_orders needs your API key for the header X-Api-Key\n"), "{stderr}");
    ensure!(stderr.contains("  API key, or nothing to decline: "), "{stderr}");
    ensure!(!stdout.contains("adk_request_credential") && !stderr.contains("is still running"), "{stdout}{stderr}");
    ensure!(!stdout.contains(KEY) && !stderr.contains(KEY), "the key is printed: {stdout}{stderr}");
    assert_eq!(shop.credentials(), [KEY]);
    Ok(())
}

#[tokio::test]
async fn a_user_name_and_a_password_are_two_lines() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &json!({"http": "basic"}))?;
    let Output { status, stdout, stderr } =
        run(&folder, &["-m", "Which orders?", "--json"], &format!(" ada\n{PASSWORD}\n")).await?;
    ensure!(status.success() && stdout.contains("There are 2 orders."), "{stdout}{stderr}");
    ensure!(stderr.contains("list_orders needs your user name and password"), "{stderr}");
    ensure!(!stdout.contains(PASSWORD) && !stderr.contains(PASSWORD), "the password is printed: {stdout}{stderr}");
    assert_eq!(shop.credentials(), [BASIC]);
    Ok(())
}

#[tokio::test]
async fn a_token_is_one_line() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &json!({"http": "bearer"}))?;
    let Output { status, stdout, stderr } = run(&folder, &["-m", "Which orders?"], TOKEN).await?;
    ensure!(status.success() && stdout.ends_with("There are 2 orders.\n"), "{stdout}{stderr}");
    assert_eq!(shop.credentials(), [format!("Bearer {TOKEN}")]);
    Ok(())
}

#[tokio::test]
async fn a_login_prints_its_url_and_takes_the_code() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let oauth2 = json!({"authorization_url": format!("{url}/authorize"), "token_url": format!("{url}/token"),
        "client_id": "hatchery", "scopes": ["orders.read"]});
    let folder = folder(&url, &json!({"oauth2": oauth2}))?;
    let Output { status, stdout, stderr } = run(&folder, &["-m", "Which orders?"], "g00d-c0de\n").await?;
    ensure!(status.success() && stdout.ends_with("There are 2 orders.\n"), "{stdout}{stderr}");
    let printed = stderr.lines().find(|line| line.starts_with("http")).context("a URL to open")?;
    ensure!(printed.starts_with(&format!("{url}/authorize?")), "{printed}");
    let redirect = printed.matches("redirect_uri=http%3A%2F%2Flocalhost%2Fcallback").count();
    ensure!(redirect == 1 && printed.contains("state="), "{printed}");
    assert_eq!(shop.credentials(), [format!("Bearer {TOKEN}")]);
    Ok(())
}

#[tokio::test]
async fn an_empty_line_declines() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &json!({"http": "basic"}))?;
    let Output { status, stdout, stderr } = run(&folder, &["-m", "Which orders?"], "\n").await?;
    ensure!(status.success() && stdout.ends_with("As you like.\n"), "{stdout}{stderr}");
    ensure!(!stderr.contains("password:"), "the password is asked for: {stderr}");
    assert_eq!(shop.credentials(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn without_an_answer_the_command_says_how_to_give_one() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &api_key())?;
    let advice = "no credential was given; run this command in a terminal, or pass --message and give stdin one line for \
                  each question\n";
    // Without --message, the second line is a message.
    for (args, input) in [(&["-m", "Which orders?"][..], ""), (&[][..], "Which orders?\nAnd of whom?\n")] {
        let Output { status, stdout, stderr } = run(&folder, args, input).await?;
        assert_eq!(status.code(), Some(3), "{stdout}{stderr}");
        ensure!(stderr.ends_with(advice), "{stderr}");
    }
    assert_eq!(shop.credentials(), Vec::<String>::new());
    Ok(())
}

/// Reads what the terminal shows until it contains a string.
async fn read_until(terminal: &mut ChildStdout, shown: &mut String, text: &str) -> Result<()> {
    let mut buffer = [0; 4096];
    while !shown.contains(text) {
        let count = terminal.read(&mut buffer).await?;
        ensure!(count > 0, "the command has ended without `{text}`: {shown}");
        shown.push_str(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()));
    }
    Ok(())
}

#[tokio::test]
async fn a_terminal_shows_the_user_name_and_hides_the_password() -> Result<()> {
    let (shop, url) = Shop::start().await;
    let folder = folder(&url, &json!({"http": "basic"}))?;
    let hatchery = paths::command()?;
    let quote = |text: &OsStr| format!("'{}'", text.to_string_lossy());
    let program = quote(hatchery.as_std().get_program());
    let config = quote(folder.operator_config().as_os_str());
    // `script` of util-linux runs a command in a pseudo-terminal.
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{program} run --config {config} . clerk -m 'Which orders?'"), "/dev/null"]);
    for (name, value) in hatchery.as_std().get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.current_dir(folder.served()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = match script.spawn() {
        Ok(child) => child,
        Err(error) => {
            skip("the prompt in a terminal", &format!("script: {error}"));
            return Ok(());
        }
    };
    let mut stdin = child.stdin.take().context("stdin is a pipe")?;
    let mut terminal = child.stdout.take().context("stdout is a pipe")?;
    let mut shown = String::new();
    read_until(&mut terminal, &mut shown, "user name, or nothing to decline: ").await?;
    stdin.write_all(b"ada\n").await?;
    read_until(&mut terminal, &mut shown, "  password: ").await?;
    stdin.write_all(format!("{PASSWORD}\n").as_bytes()).await?;
    read_until(&mut terminal, &mut shown, "There are 2 orders.").await?;
    ensure!(child.wait().await?.success(), "{shown}");
    ensure!(shown.contains("to decline: ada\r\n") && !shown.contains(PASSWORD.trim()), "{shown}");
    assert_eq!(shop.credentials(), [BASIC]);
    Ok(())
}
