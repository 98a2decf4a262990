//! Changes of the configuration while the host serves: what applies without a restart, and what does not.

mod agents;
mod executors;
mod runs;
mod server;
mod tls;

use std::ffi::OsStr;

use anyhow::{Result, ensure};
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host, event, paths};
use serde_json::{Value, json};

/// An app that answers `Hello`, or `Ahoy` if its instructions say so. For the message `again`, its model calls a tool
/// without end.
const GREETER: [(&str, &str); 2] = [
    ("hello/root_agent.yaml", "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n"),
    (
        "hello/answers.yaml",
        "turns:\n  - when: { user: again }\n    reply: [{ call: { name: again, args: {} } }]\n  - when: { tool: again }\n    \
         reply: [{ call: { name: again, args: {} } }]\n  - when: { system: like a pirate }\n    reply: Ahoy\n  - reply: Hello\n",
    ),
];

const PIRATE: &str = "plugins: [{name: global_instruction, args: {instruction: Talk like a pirate.}}]\n";

/// Returns a folder with the greeter, and a configuration of the operator.
fn folder(config: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in GREETER {
        folder.write(name, text)?;
    }
    folder.write_operator_config(config)?;
    Ok(folder)
}

/// Replaces the configuration of the operator, and waits until the host has applied these sections.
async fn apply(host: &Host, folder: &Folder, config: &str, sections: &[&str]) -> Result<()> {
    let keys: Vec<_> = sections.iter().map(|key| format!("`{key}`")).collect();
    let line = format!("applied without a restart: {}\n", keys.join(", "));
    let before = host.log().matches(&line).count();
    folder.write_operator_config(config)?;
    host.wait_until_log(&line, |log| log.matches(&line).count() > before).await
}

/// Returns the answer of the greeter in a new session.
async fn greet(host: &Host, session: &str) -> Result<String> {
    Ok(event::texts(&host.ask("hello", session, "Hi").await?).concat())
}

/// Returns the value of a setting in force.
async fn setting(host: &Host, key: &str) -> Result<Value> {
    let report = host.get("/config").await?.json(200)?;
    let settings = report.get("settings").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(settings.into_iter().find(|setting| setting.get("key").is_some_and(|it| it == key)).unwrap_or_default())
}

#[tokio::test]
async fn a_file_that_cannot_be_used_leaves_everything_as_it_was() -> Result<()> {
    let folder = folder("server: {small_body_limit: 2MiB}\n")?;
    let host = Host::serve(&folder).await?;
    // The plugin does not exist, so the limit does not apply either.
    folder.write_operator_config("plugins: [nonesuch]\nserver: {small_body_limit: 3MiB}\n")?;
    host.wait_for_log("; the previous settings remain in force").await?;
    let log = host.log();
    assert!(log.contains("plugins[0]: plugin `nonesuch` not found"), "{log}");
    assert_eq!(setting(&host, "server.small_body_limit").await?["value"], "2 MiB");
    assert_eq!(greet(&host, "a").await?, "Hello");
    let components = host.components().await?;
    let refused = hatchery_tests::host::reason(&components, "…/operator.yaml");
    assert!(refused.is_some_and(|reason| reason.ends_with("the previous settings remain in force")), "{components}");
    apply(
        &host,
        &folder,
        &format!("{PIRATE}server: {{small_body_limit: 3MiB}}\n"),
        &["plugins", "server.small_body_limit"],
    )
    .await?;
    assert_eq!(greet(&host, "b").await?, "Ahoy");
    let limit = setting(&host, "server.small_body_limit").await?;
    assert_eq!((&limit["value"], &limit["origin"]), (&json!("3 MiB"), &json!({"kind": "file", "line": 2})));
    Ok(())
}

#[tokio::test]
async fn artifacts_are_not_indexed_while_encryption_is_in_force() -> Result<()> {
    let folder = folder("encryption: {keys: [{id: a, from: DATA_KEY}]}\n")?;
    let host = Host::serve_with_environment(&folder, &[("DATA_KEY", &"a1".repeat(32))]).await?;
    folder.write_operator_config("retrieval: {uploads: {artifacts: true}}\n")?;
    host.wait_for_log("; the previous settings remain in force").await?;
    let log = host.log();
    assert!(
        log.contains("retrieval.uploads: the index of artifacts would hold in plain text what `encryption`"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn what_applies_at_the_next_start_is_named_and_reported() -> Result<()> {
    let folder = folder("durability: process\n")?;
    let host = Host::serve(&folder).await?;
    folder.write_operator_config(
        "durability: power\ninstances: {max: 7}\nserver: {base_path: /x}\nprices: {currency: EUR}\n",
    )?;
    host.wait_for_log("restart the server to apply `durability`, `instances`, `server.base_path`").await?;
    host.wait_for_log("applied without a restart: `prices`").await?;
    let report = host.get("/config").await?.json(200)?;
    assert_eq!(report["pending"], json!(["durability", "instances", "server.base_path"]));
    assert_eq!(report["prices"]["currency"], "EUR");
    let durability = setting(&host, "durability").await?;
    assert_eq!((&durability["value"], &durability["origin"]["kind"]), (&json!("process"), &json!("file")));
    apply(&host, &folder, "durability: process\n", &["prices"]).await?;
    assert_eq!(host.get("/config").await?.json(200)?.get("pending"), None);
    Ok(())
}

#[tokio::test]
async fn a_host_that_watches_no_files_applies_its_configuration_on_a_signal() -> Result<()> {
    let folder = folder("")?;
    let config = folder.operator_config();
    let args: [&OsStr; 3] = ["--no-watch".as_ref(), "--config".as_ref(), config.as_os_str()];
    let host = Host::serve_with_args(&folder, &[], &args).await?;
    assert_eq!(greet(&host, "a").await?, "Hello");
    folder.write_operator_config(PIRATE)?;
    host.signal("-HUP").await?;
    host.wait_for_log("applied without a restart: `plugins`").await?;
    assert_eq!(greet(&host, "b").await?, "Ahoy");
    host.signal("-HUP").await?;
    host.wait_for_log("nothing has changed; keys and certificates were read again").await?;
    folder.write_operator_config("plugins: 5\n")?;
    host.signal("-HUP").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    assert_eq!(greet(&host, "c").await?, "Ahoy");
    Ok(())
}

#[tokio::test]
async fn access_of_the_host_that_is_not_trusted_changes_nothing_but_what_is_removed() -> Result<()> {
    let folder = folder("")?;
    std::fs::remove_file(folder.operator_config())?;
    let user = folder.data().join("config");
    let environment = [("XDG_CONFIG_HOME", user.to_str().unwrap_or_default())];
    let host = Host::serve_with_args(&folder, &environment, &[] as &[&str]).await?;
    folder.put("hatchery.yaml", format!("{PIRATE}server: {{allowed_hosts: ['*']}}\n"))?;
    host.wait_for_log("server.allowed_hosts").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    let foreign = host.request(reqwest::Method::GET, "/list-apps").header("host", "agents.example");
    host.send(foreign).await?.error(403, "HOST_NOT_ALLOWED")?;
    assert_eq!(greet(&host, "a").await?, "Hello");
    folder.put("hatchery.yaml", PIRATE)?;
    host.wait_for_log("applied without a restart: `plugins`").await?;
    assert_eq!(greet(&host, "b").await?, "Ahoy");
    Ok(())
}

#[tokio::test]
async fn access_of_the_host_that_is_not_trusted_leaves_the_digests_of_components() -> Result<()> {
    let folder = folder("")?;
    std::fs::remove_file(folder.operator_config())?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    let digest = "0".repeat(64);
    folder.write("hatchery.yaml", format!("components: {{greeter: {{sha256: 'sha256:{digest}'}}}}\n"))?;
    let user = folder.data().join("config");
    let environment = [("XDG_CONFIG_HOME", user.to_str().unwrap_or_default())];
    let host = Host::serve_with_args(&folder, &environment, &[] as &[&str]).await?;
    host.wait_for_refusal("greeter.wasm").await?;
    folder.put("hatchery.yaml", "server: {allowed_hosts: ['*']}\n")?;
    host.wait_for_log("; the previous settings remain in force").await?;
    let log = host.log();
    ensure!(!log.contains("applied without a restart"), "{log}");
    let reason = host.wait_for_refusal("greeter.wasm").await?;
    ensure!(reason.contains(&digest), "{reason}");
    Ok(())
}

#[tokio::test]
async fn settings_of_apps_and_quotas_change_between_runs() -> Result<()> {
    let folder = folder("")?;
    let host = Host::serve(&folder).await?;
    let run = async |session: &str, text: &str| {
        host.create_session("hello", session).await?;
        host.post("/run", &message("hello", session, text)).await
    };
    let config = "apps: {hello: {max_llm_calls: 3}}\n";
    apply(&host, &folder, config, &["apps"]).await?;
    let detail = run("a", "again").await?.error(500, "LIMIT_REACHED")?;
    assert!(detail.contains('3'), "{detail}");
    apply(&host, &folder, "app_defaults: {max_llm_calls: 2}\n", &["app_defaults", "apps"]).await?;
    let detail = run("b", "again").await?.error(500, "LIMIT_REACHED")?;
    assert!(detail.contains('2'), "{detail}");
    apply(&host, &folder, "quotas: {user_sessions: 2}\n", &["app_defaults", "quotas"]).await?;
    let path = hatchery_tests::host::session_path("hello", "c");
    let detail = host.post(&path, &json!({})).await?.error(429, "QUOTA_EXCEEDED")?;
    assert!(detail.contains("at most 2 sessions"), "{detail}");
    apply(&host, &folder, "quotas: {user_sessions: 3}\n", &["quotas"]).await?;
    host.post(&path, &json!({})).await?.json(200)?;
    Ok(())
}
