//! Who may talk to the server: keys and tokens, over every protocol, and pages of other origins.

use std::ffi::OsStr;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::{Answer, Folder, Host, paths};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::hatchery_with;

const OPERATOR: &str = "operator-key-0123456789";
const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789";

/// Alice may use all apps, Bob `echo` only.
const CONFIG: &str = "\
server:
  auth:
    keys:
      - { name: operator, from: OPERATOR_KEY, role: operate }
      - { name: alice, from: ALICE_KEY, user: alice }
      - { name: bob, from: BOB_KEY, user: bob, apps: [echo] }
  cors:
    mapping: /**
    origins: [http://localhost:4200]
mcp: { expose: { tools: ['dice/*'] } }
";

const ENVIRONMENT: [(&str, &str); 3] = [("OPERATOR_KEY", OPERATOR), ("ALICE_KEY", ALICE), ("BOB_KEY", BOB)];

fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    for app in ["echo", "greeting"] {
        let agent = format!("name: {app}\nmodel: scripted:{app}/answers.yaml\ninstruction: Answer.\n");
        folder.write(&format!("{app}/root_agent.yaml"), agent)?;
        folder.write(&format!("{app}/answers.yaml"), "turns:\n  - reply: 'You said {user}.'\n")?;
    }
    folder.put("dice.wasm", paths::component("dice")?)?;
    folder.write("hatchery.yaml", CONFIG)?;
    Ok(folder)
}

async fn serve() -> Result<Host> {
    Host::serve_with_environment(&folder()?, &ENVIRONMENT).await
}

async fn get(host: &Host, key: &str, path: &str) -> Result<Answer> {
    host.send(host.request(Method::GET, path).bearer_auth(key)).await
}

async fn post(host: &Host, key: &str, path: &str, body: &Value) -> Result<Answer> {
    host.send(host.request(Method::POST, path).bearer_auth(key).json(body)).await
}

fn run(app: &str, user: &str) -> Value {
    let message = json!({"role": "user", "parts": [{"text": "hi"}]});
    json!({"appName": app, "userId": user, "sessionId": "s", "newMessage": message})
}

#[tokio::test]
async fn clients_run_their_apps_for_their_user_and_nothing_else() -> Result<()> {
    let host = serve().await?;
    host.get("/list-apps").await?.error(401, "UNAUTHENTICATED")?;
    get(&host, "wrong-key-0123456789", "/list-apps").await?.error(401, "INVALID_CREDENTIALS")?;
    assert_eq!(get(&host, BOB, "/list-apps").await?.json(200)?, json!(["echo"]));
    post(&host, BOB, "/apps/echo/users/bob/sessions/s", &json!({})).await?.json(200)?;
    let events = post(&host, BOB, "/run", &run("echo", "bob")).await?;
    ensure!(events.json(200)?.to_string().contains("You said hi."), "{}", events.text);
    let streamed = post(&host, BOB, "/run_sse", &run("echo", "bob")).await?;
    ensure!(streamed.status == 200 && streamed.text.starts_with("data: "), "{}", streamed.text);
    post(&host, BOB, "/run", &run("echo", "alice")).await?.error(403, "USER_NOT_ALLOWED")?;
    post(&host, BOB, "/run", &run("greeting", "bob")).await?.error(404, "APP_NOT_FOUND")?;
    get(&host, BOB, "/components").await?.error(403, "ROLE_REQUIRED")?;
    get(&host, OPERATOR, "/components").await?.json(200)?;
    get(&host, OPERATOR, "/apps/echo/users/bob/sessions/s").await?.json(200)?;
    host.wait_for_log("an unknown API key").await?;
    let log = host.log();
    ensure!(!log.contains("wrong-key") && !log.contains(BOB), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_uses_the_server_and_a_foreign_one_does_not() -> Result<()> {
    let host = serve().await?;
    let preflight = |origin: &str| {
        let request = host.request(Method::OPTIONS, "/run_sse").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization,content-type")
    };
    let allowed = host.send(preflight("http://localhost:4200")).await?;
    ensure!(allowed.status == 204, "{}", allowed.text);
    ensure!(
        allowed.headers.get("access-control-allow-headers").is_some_and(|value| value == "authorization, content-type")
    );
    host.send(preflight("http://localhost:4201")).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    post(&host, ALICE, "/apps/echo/users/alice/sessions/s", &json!({})).await?.json(200)?;
    let page = host.request(Method::POST, "/run_sse").bearer_auth(ALICE).header("origin", "http://localhost:4200");
    let events = host.send(page.json(&run("echo", "alice"))).await?;
    ensure!(events.status == 200, "{}", events.text);
    ensure!(events.headers.get("access-control-allow-origin").is_some_and(|value| value == "http://localhost:4200"));
    Ok(())
}

/// A client of the Model Context Protocol.
struct McpClient<'a> {
    host: &'a Host,
    key: &'static str,
    session: Option<String>,
}

impl<'a> McpClient<'a> {
    async fn connect(host: &'a Host, key: &'static str) -> Result<Self> {
        let mut client = Self { host, key, session: None };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = client.send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await?;
        let session = answer.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        client.session = Some(session.with_context(|| answer.text.clone())?.to_owned());
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(client)
    }

    async fn send(&self, message: Value) -> Result<Answer> {
        let request = self.host.request(Method::POST, "/mcp").bearer_auth(self.key).json(&message).timeout(TIMEOUT);
        let request = request.header("accept", "application/json, text/event-stream");
        self.host.send(self.session.iter().fold(request, |request, id| request.header("mcp-session-id", id))).await
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        let answer = self.send(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await?;
        let messages = answer.text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?).ok());
        let mut answers = messages.filter(|message: &Value| message.get("id") == Some(&json!(1)));
        answers.next().with_context(|| answer.text.clone())
    }

    async fn tools(&self) -> Result<Vec<String>> {
        let answer = self.call("tools/list", json!({})).await?;
        let tools = answer.pointer("/result/tools").and_then(Value::as_array).context("tools")?;
        Ok(tools.iter().filter_map(|tool| tool.get("name")?.as_str()).map(Into::into).collect())
    }
}

#[tokio::test]
async fn clients_of_mcp_see_their_apps_and_run_them_as_their_user() -> Result<()> {
    let host = serve().await?;
    host.post("/mcp", &json!({})).await?.error(401, "UNAUTHENTICATED")?;
    let (alice, bob) = (McpClient::connect(&host, ALICE).await?, McpClient::connect(&host, BOB).await?);
    assert_eq!(alice.tools().await?, ["dice_check_prime", "dice_roll_die", "run_dice", "run_echo", "run_greeting"]);
    assert_eq!(bob.tools().await?, ["run_echo"]);
    for name in ["run_greeting", "dice_roll_die"] {
        let refused = bob.call("tools/call", json!({"name": name, "arguments": {"message": "hi"}})).await?;
        assert_eq!(refused.pointer("/error/message"), Some(&json!(format!("Unknown tool: {name}"))));
    }
    let arguments = json!({"message": "hi", "session": "m"});
    let answer = bob.call("tools/call", json!({"name": "run_echo", "arguments": arguments})).await?;
    assert_eq!(answer.pointer("/result/structuredContent/response"), Some(&json!("You said hi.")), "{answer}");
    get(&host, BOB, "/apps/echo/users/bob/sessions/m").await?.json(200)?;
    // A session belongs to a user: the same id is another session for another one.
    alice.call("tools/call", json!({"name": "run_echo", "arguments": arguments})).await?;
    let session = get(&host, ALICE, "/apps/echo/users/alice/sessions/m").await?.json(200)?;
    assert_eq!(session.get("events").and_then(Value::as_array).map(Vec::len), Some(2), "{session}");
    // Who holds a session of the protocol acts as who sends the request.
    let borrowed = McpClient { host: &host, key: BOB, session: alice.session.clone() };
    assert_eq!(borrowed.tools().await?, ["run_echo"]);
    Ok(())
}

#[tokio::test]
async fn clients_of_mcp_without_a_user_share_no_sessions() -> Result<()> {
    let folder = folder()?;
    let config = CONFIG.replace("user: alice }", "apps: [echo] }").replace("user: bob, ", "");
    folder.write("hatchery.yaml", &config)?;
    let host = Host::serve_with_environment(&folder, &ENVIRONMENT).await?;
    let arguments = json!({"message": "hi", "session": "m"});
    for key in [ALICE, BOB, OPERATOR] {
        let client = McpClient::connect(&host, key).await?;
        let answer = client.call("tools/call", json!({"name": "run_echo", "arguments": arguments})).await?;
        assert_eq!(answer.pointer("/result/structuredContent/response"), Some(&json!("You said hi.")), "{answer}");
    }
    for user in ["MCP_CLIENT_key_alice", "MCP_CLIENT_key_bob", "MCP_CLIENT_key_operator"] {
        let session = get(&host, OPERATOR, &format!("/apps/echo/users/{user}/sessions/m")).await?.json(200)?;
        assert_eq!(session.get("events").and_then(Value::as_array).map(Vec::len), Some(2), "{session}");
    }
    Ok(())
}

#[tokio::test]
async fn tasks_of_a2a_belong_to_the_user_of_the_client() -> Result<()> {
    let host = serve().await?;
    let call = async |key: &str, app: &str, method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        post(&host, key, &format!("/a2a/{app}"), &body).await
    };
    let message = json!({"messageId": "m1", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let sent = call(ALICE, "echo", "SendMessage", json!({"message": message})).await?.json(200)?;
    let task = sent.pointer("/result/task/id").with_context(|| sent.to_string())?.clone();
    let session = get(&host, ALICE, "/apps/echo/users/alice/sessions/c").await?.json(200)?;
    ensure!(session.to_string().contains("You said hi."), "{session}");
    let own = call(ALICE, "echo", "GetTask", json!({"id": task})).await?.json(200)?;
    assert_eq!(own.pointer("/result/id"), Some(&task), "{own}");
    for method in ["GetTask", "CancelTask"] {
        let foreign = call(BOB, "echo", method, json!({"id": task})).await?.json(200)?;
        assert_eq!(foreign.pointer("/error/code"), Some(&json!(-32001)), "{foreign}");
    }
    let listed = call(BOB, "echo", "ListTasks", json!({"contextId": "c"})).await?.json(200)?;
    assert_eq!(listed.pointer("/result/tasks"), Some(&json!([])), "{listed}");
    let mut follow_up = message.clone();
    if let Some(follow_up) = follow_up.as_object_mut() {
        follow_up.insert("taskId".into(), task.clone());
    }
    let foreign = call(BOB, "echo", "SendMessage", json!({"message": follow_up})).await?.json(200)?;
    assert_eq!(foreign.pointer("/error/code"), Some(&json!(-32001)), "{foreign}");
    call(BOB, "greeting", "SendMessage", json!({"message": message})).await?.error(404, "APP_NOT_FOUND")?;
    get(&host, BOB, "/a2a/greeting/.well-known/agent-card.json").await?.error(404, "APP_NOT_FOUND")?;
    get(&host, BOB, "/a2a/echo/.well-known/agent-card.json").await?.json(200)?;
    host.get("/a2a/echo/.well-known/agent-card.json").await?.error(401, "UNAUTHENTICATED")?;
    Ok(())
}

#[tokio::test]
async fn with_authentication_the_server_listens_on_every_address() -> Result<()> {
    let folder = folder()?;
    let config = folder.file("hatchery.yaml");
    let args: [&OsStr; 4] = ["--config".as_ref(), config.as_os_str(), "--host".as_ref(), "0.0.0.0".as_ref()];
    let host = Host::serve_with_args(&folder, &ENVIRONMENT, &args).await?;
    host.get("/list-apps").await?.error(401, "UNAUTHENTICATED")?;
    let named = host.request(Method::GET, "/list-apps").bearer_auth(ALICE).header("host", "agents.example");
    assert_eq!(host.send(named).await?.json(200)?, json!(["dice", "echo", "greeting"]));
    ensure!(!host.log().contains("has no authentication"), "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn keys_are_withdrawn_and_added_by_a_signal() -> Result<()> {
    let folder = folder()?;
    let key = folder.data().join("carol.key");
    std::fs::create_dir_all(folder.data())?;
    std::fs::write(&key, "carol-key-0123456789\n")?;
    let bob = "      - { name: bob, from: BOB_KEY, user: bob, apps: [echo] }\n";
    let carol = format!("      - {{ name: carol, file: '{}', user: carol }}\n", key.display());
    let config = folder.file("hatchery.yaml");
    std::fs::write(&config, CONFIG.replace(bob, &format!("{bob}{carol}")))?;
    let args: [&OsStr; 2] = ["--config".as_ref(), config.as_os_str()];
    let host = Host::serve_with_args(&folder, &ENVIRONMENT, &args).await?;
    assert_eq!(get(&host, "carol-key-0123456789", "/list-apps").await?.json(200)?, json!(["dice", "echo", "greeting"]));
    get(&host, BOB, "/list-apps").await?.json(200)?;
    std::fs::write(&key, "carol-next-key-0123456789\n")?;
    std::fs::write(&config, CONFIG.replace(bob, &carol))?;
    host.signal("-HUP").await?;
    host.wait_for_log("decision=\"applied\"").await?;
    for withdrawn in [BOB, "carol-key-0123456789"] {
        get(&host, withdrawn, "/list-apps").await?.error(401, "INVALID_CREDENTIALS")?;
    }
    get(&host, "carol-next-key-0123456789", "/list-apps").await?.json(200)?;
    std::fs::write(&config, "server: { auth: { keys: [] } }")?;
    host.signal("-HUP").await?;
    host.wait_for_log("has neither `keys` nor `oidc`").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    get(&host, ALICE, "/list-apps").await?.json(200)?;
    Ok(())
}

#[tokio::test]
async fn clients_reach_the_host_over_tls_with_its_certificate() -> Result<()> {
    let folder = folder()?;
    std::fs::create_dir_all(folder.data())?;
    let (certificate, key) = (folder.data().join("cert.pem"), folder.data().join("key.pem"));
    let write = || -> Result<reqwest::Certificate> {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(&key, pair.signing_key.serialize_pem())?;
        std::fs::write(&certificate, pair.cert.pem())?;
        Ok(reqwest::Certificate::from_der(pair.cert.der())?)
    };
    // A new client has no session that it could resume.
    let client_of = |root: &reqwest::Certificate| {
        reqwest::Client::builder().no_proxy().timeout(TIMEOUT).tls_certs_only([root.clone()]).build()
    };
    // Installs the provider of cryptography of clients.
    let host = serve().await?;
    drop(host);
    let first = write()?;
    let tls = format!("  tls: {{ certificate: '{}', key: '{}' }}\n", certificate.display(), key.display());
    let config = folder.file("hatchery.yaml");
    std::fs::write(&config, CONFIG.replace("  cors:\n", &format!("{tls}  cors:\n")))?;
    let args: [&OsStr; 2] = ["--config".as_ref(), config.as_os_str()];
    let host = Host::serve_with_args(&folder, &ENVIRONMENT, &args).await?;
    ensure!(host.url.starts_with("https://127.0.0.1:"), "{}", host.url);
    let list = async |root: &reqwest::Certificate| -> Result<Value> {
        let answer = client_of(root)?.get(format!("{}/list-apps", host.url)).bearer_auth(ALICE).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    };
    assert_eq!(list(&first).await?, json!(["dice", "echo", "greeting"]));
    let card = client_of(&first)?.get(format!("{}/a2a/echo/.well-known/agent-card.json", host.url));
    let card = card.bearer_auth(ALICE).send().await?;
    let url = card.json::<Value>().await?.pointer("/supportedInterfaces/0/url").cloned();
    assert_eq!(url, Some(json!(format!("{}/a2a/echo", host.url))));
    let second = write()?;
    host.signal("-HUP").await?;
    host.wait_for_log("the certificate was read again").await?;
    list(&second).await?;
    ensure!(list(&first).await.is_err(), "the certificate before is not served any more");
    std::fs::write(&key, "no key")?;
    host.signal("-HUP").await?;
    host.wait_for_log("it has no private key in PEM; the previous certificate stays in use").await?;
    list(&second).await?;
    Ok(())
}

#[tokio::test]
async fn keys_need_trust_and_values() -> Result<()> {
    let folder = folder()?;
    let user = folder.data().join("config");
    let user = [("XDG_CONFIG_HOME", user.to_str().context("UTF-8")?)];
    let untrusted = hatchery_with(&folder.served(), &["serve", ".", "--port", "0"], &user).await?;
    ensure!(!untrusted.success, "{}", untrusted.stdout);
    for line in [
        "server.cors[0].origins: http://localhost:4200",
        "server.auth.keys.operator: operate *, from OPERATOR_KEY",
        "server.auth.keys.bob: use echo as the user bob, from BOB_KEY",
    ] {
        ensure!(untrusted.stderr.contains(line), "{line}: {}", untrusted.stderr);
    }
    let args = ["serve", ".", "--port", "0", "--config", "hatchery.yaml"];
    let without_keys = hatchery_with(&folder.served(), &args, &user).await?;
    ensure!(!without_keys.success, "{}", without_keys.stdout);
    let expected = "server.auth: the API key `operator` is missing: the environment variable `OPERATOR_KEY` is not set";
    ensure!(without_keys.stderr.contains(expected), "{}", without_keys.stderr);
    Ok(())
}

#[tokio::test]
async fn authenticated_a2a_clients_get_the_tools_of_agents_in_the_extended_card() -> Result<()> {
    let host = serve().await?;
    let public = get(&host, ALICE, "/a2a/dice/.well-known/agent-card.json").await?.json(200)?;
    assert_eq!(public.pointer("/capabilities/extendedAgentCard"), Some(&json!(true)));
    assert_eq!(public["supportsAuthenticatedExtendedCard"], true);
    let tools = |card: &Value| {
        let skills = card.pointer("/skills").and_then(Value::as_array).into_iter().flatten();
        let tools = skills.filter(|skill| skill["tags"] == json!(["tool"])).map(|skill| skill["id"].clone());
        tools.collect::<Vec<_>>()
    };
    assert_eq!(tools(&public), Vec::<Value>::new());
    for method in ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let extended = post(&host, ALICE, "/a2a/dice", &call).await?.json(200)?;
        let extended = extended.get("result").context("a card")?;
        assert_eq!(extended["supportedInterfaces"], public["supportedInterfaces"]);
        ensure!(tools(extended).contains(&json!("dice-roll_die")), "{extended}");
    }
    let over_http = get(&host, ALICE, "/a2a/dice/extendedAgentCard").await?.json(200)?;
    ensure!(tools(&over_http).contains(&json!("dice-roll_die")), "{over_http}");
    ensure!(host.stop().await?);
    Ok(())
}
