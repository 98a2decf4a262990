//! Hot loading: files that are added, changed and removed while the host runs.

use anyhow::{Context, Result};
use hatchery_tests::host::{entry, has_app, reason};
use hatchery_tests::paths::Swap::{Newer, Older};
use hatchery_tests::paths::swap;
use hatchery_tests::swapper::is_drained;
use hatchery_tests::{Folder, Host, SwapLoad, event};
use serde_json::{Value, json};

/// An app that five times pauses and then runs the agent `swap`.
const STEADY: [(&str, &str); 3] = [
    (
        "steady/root_agent.yaml",
        "agent_class: LoopAgent\nname: steady\nmax_iterations: 5\nsub_agents:\n  - config_path: pause.yaml\n  - code: swap\n",
    ),
    ("steady/pause.yaml", "name: pause\nmodel: scripted:steady/answers.yaml\ninstruction: Wait.\n"),
    ("steady/answers.yaml", "turns:\n  - delay_ms: 150\n    reply: \"pause\"\n"),
];

async fn run_texts(host: &Host, session: &str) -> Result<Vec<String>> {
    Ok(event::texts(&host.ask("swap", session, "Who are you?").await?))
}

/// Returns the generation of the catalog.
fn generation_of(components: &Value) -> u64 {
    components.get("generation").and_then(Value::as_u64).unwrap_or_default()
}

async fn current_generation(host: &Host) -> Result<u64> {
    host.components().await.map(|components| generation_of(&components))
}

/// Waits for a newer generation.
async fn wait_for_newer(host: &Host, generation: u64) -> Result<()> {
    host.wait_until("there is a newer generation", |components| generation_of(components) > generation)
        .await
        .map(|_| ())
}

#[tokio::test]
async fn a_new_component_is_served() -> Result<()> {
    let folder = Folder::empty()?;
    let host = Host::serve(&folder).await?;
    assert!(host.apps().await?.is_empty());
    folder.put("deep/down/swap.wasm", swap(Older)?)?;
    host.wait_for_app("swap").await?;
    assert_eq!(run_texts(&host, "s").await?, Older.texts());
    let components = host.components().await?;
    assert_eq!(reason(&components, "deep/down/swap.wasm"), None);
    assert!(entry(&components, "deep/down/swap.wasm").is_some(), "{components}");
    Ok(())
}

#[tokio::test]
async fn a_new_yaml_agent_is_served_and_a_change_applies_to_the_next_turn() -> Result<()> {
    let folder = Folder::empty()?;
    let host = Host::serve(&folder).await?;
    let agent = |answers: &str| format!("name: echo\nmodel: scripted:echo/{answers}.yaml\ninstruction: Answer.\n");
    folder.put("echo/first.yaml", "turns:\n  - reply: \"first: {user}\"\n")?;
    folder.put("echo/second.yaml", "turns:\n  - reply: \"second: {user}\"\n")?;
    folder.put("echo/root_agent.yaml", agent("first"))?;
    host.wait_for_app("echo").await?;
    assert_eq!(event::texts(&host.ask("echo", "s", "hi").await?), ["first: hi"]);
    let before = current_generation(&host).await?;
    folder.put("echo/root_agent.yaml", agent("second"))?;
    wait_for_newer(&host, before).await?;
    assert_eq!(event::texts(&host.run("echo", "s", "hi").await?), ["second: hi"]);
    Ok(())
}

#[tokio::test]
async fn a_yaml_agent_is_served_once_its_component_is_loaded() -> Result<()> {
    let folder = Folder::empty()?;
    for (name, text) in STEADY {
        folder.write(name, text)?;
    }
    let host = Host::serve(&folder).await?;
    let missing = host.wait_for_refusal("steady/root_agent.yaml").await?;
    assert!(missing.contains("agent `swap` not found"), "{missing}");
    folder.put("swap.wasm", swap(Older)?)?;
    host.wait_for_app("steady").await?;
    let answer = event::texts(&host.ask("steady", "s", "go").await?);
    assert_eq!(answer.len(), 20, "five times a pause and three words: {answer:?}");
    Ok(())
}

#[tokio::test]
async fn deleting_a_component_affects_no_other() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    host.create_session("swap", "s").await?;
    folder.remove("swap.wasm")?;
    host.wait_until("swap is gone", |components| !has_app(components, "swap")).await?;
    let body = hatchery_tests::host::message("swap", "s", "Who are you?");
    let detail = host.post("/run", &body).await?.error(404, "APP_NOT_FOUND")?;
    assert_eq!(
        detail,
        "App not found: swap; available: `concierge`, `data-analyst`, `dice`, `greeter`, `help-desk`, `trip-planner`, `web-fetch`"
    );
    host.ask("greeter", "s", "Hello").await?;
    // The sessions remain: they are found when the same file is back.
    folder.put("swap.wasm", swap(Older)?)?;
    host.wait_for_app("swap").await?;
    host.session("swap", "s").await?;
    Ok(())
}

/// `cargo xtask soak` repeats this a thousand times.
#[tokio::test]
async fn no_request_fails_during_sixty_swaps_and_nothing_leaks() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    let churned = SwapLoad { swaps: 60, clients: 4 }.run(&host, &folder).await?;
    assert_eq!(churned.runs.keys().collect::<Vec<_>>(), [&"newer", &"older"], "both versions answered: {churned:?}");
    // Connections of clients come and go; a handle for each swap would be dozens more.
    assert!(churned.after.handles <= churned.before.handles + 10, "{churned:?}");
    host.wait_for_log("drained").await
}

#[tokio::test]
async fn a_replaced_revision_is_listed_while_a_run_uses_it() -> Result<()> {
    let folder = Folder::empty()?;
    for (name, text) in STEADY {
        folder.write(name, text)?;
    }
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    let serving = host.components().await?;
    let older = event::text_at(&serving, "/components/0/sha256").to_owned();
    assert_eq!(event::text_at(entry(&serving, "swap.wasm").context("the file")?, "/sha256"), older);
    assert_eq!(serving["draining"], json!([]));
    host.create_session("steady", "old").await?;
    let mut old = host.stream("steady", "old", "go", false).await?;
    old.next().await?.context("a first event")?;
    folder.put("swap.wasm", swap(Newer)?)?;
    let replaced = host.wait_until("it drains", |components| !is_drained(components)).await?;
    let draining = &replaced["draining"][0];
    assert_eq!((event::text_at(draining, "/name"), event::text_at(draining, "/sha256")), ("swap", &*older));
    assert!(draining["since"].is_f64() && draining["calls"].is_u64() && draining["isCutOff"] == false, "{draining}");
    assert_ne!(event::text_at(entry(&replaced, "swap.wasm").context("the file")?, "/sha256"), older);
    old.collect().await?;
    host.wait_until("it is drained", is_drained).await?;
    for word in ["replaced", "drained"] {
        host.wait_for_log(word).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_run_on_replaced_code_is_ended_at_its_deadline() -> Result<()> {
    let folder = Folder::empty()?;
    for (name, text) in STEADY {
        folder.write(name, text)?;
    }
    folder.write("hatchery.yaml", "hot_reload: {drain_timeout: 0s}\n")?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    host.create_session("steady", "old").await?;
    let mut old = host.stream("steady", "old", "go", false).await?;
    old.next().await?.context("a first event")?;
    folder.put("swap.wasm", swap(Newer)?)?;
    let events = old.collect().await?;
    let last = events.last().context("an event")?;
    assert_eq!(event::text_at(last, "/code"), "COMPONENT_REPLACED", "{last}");
    assert!(event::text_at(last, "/error").ends_with("start the run again"), "{last}");
    host.wait_for_log("cut off: its runs have not ended in time").await
}

#[tokio::test]
async fn a_run_ends_on_the_code_that_it_started_with() -> Result<()> {
    let folder = Folder::empty()?;
    for (name, text) in STEADY {
        folder.write(name, text)?;
    }
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    host.create_session("steady", "old").await?;
    let mut old = host.stream("steady", "old", "go", false).await?;
    let mut events = vec![old.next().await?.context("a first event")?];

    let before = current_generation(&host).await?;
    folder.put("swap.wasm", swap(Newer)?)?;
    wait_for_newer(&host, before).await?;
    assert_eq!(run_texts(&host, "s").await?, Newer.texts(), "new runs use the new code");
    let new = event::texts(&host.ask("steady", "new", "go").await?);
    assert_eq!(new.iter().filter(|text| text.starts_with("newer ")).count(), 15, "{new:?}");

    events.extend(old.collect().await?);
    let answer = event::texts(&events);
    assert_eq!(answer.iter().filter(|text| text.starts_with("older ")).count(), 15, "{answer:?}");
    assert_eq!(answer.len(), 20, "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_broken_file_is_listed_and_the_old_component_keeps_serving() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    folder.put("swap.wasm", "not a component")?;
    let reason = host.wait_for_refusal("swap.wasm").await?;
    assert!(reason.contains("`swap` is not a WebAssembly file"), "{reason}");
    assert_eq!(run_texts(&host, "s").await?, Older.texts());
    folder.put("swap.wasm", swap(Newer)?)?;
    host.wait_until("it is mended", |components| hatchery_tests::host::reason(components, "swap.wasm").is_none())
        .await?;
    assert_eq!(run_texts(&host, "t").await?, Newer.texts());
    Ok(())
}

#[tokio::test]
async fn a_truncated_file_keeps_the_old_component_serving_until_it_is_complete() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    let whole = swap(Newer)?;
    let before = current_generation(&host).await?;
    folder.write("swap.wasm", &whole[..whole.len() / 2])?;
    let reason = host.wait_for_refusal("swap.wasm").await?;
    assert!(reason.contains("truncated or still being written"), "{reason}");
    assert_eq!(run_texts(&host, "s").await?, Older.texts());
    folder.write("swap.wasm", &whole)?;
    let mended = |components: &Value| {
        generation_of(components) > before && hatchery_tests::host::reason(components, "swap.wasm").is_none()
    };
    host.wait_until("it is whole", mended).await?;
    assert_eq!(run_texts(&host, "t").await?, Newer.texts());
    Ok(())
}

#[tokio::test]
async fn two_files_with_the_same_name_are_an_error_that_names_both() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("first/swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    folder.put("second/swap.wasm", swap(Newer)?)?;
    let reason = host.wait_for_refusal("second/swap.wasm").await?;
    assert!(reason.contains("first/swap.wasm") && reason.contains("second/swap.wasm"), "{reason}");
    assert_eq!(run_texts(&host, "s").await?, Older.texts(), "the older revision keeps serving");
    folder.remove("first/swap.wasm")?;
    let alone = |components: &Value| {
        has_app(components, "swap") && hatchery_tests::host::reason(components, "second/swap.wasm").is_none()
    };
    host.wait_until("the other one serves", alone).await?;
    assert_eq!(run_texts(&host, "t").await?, Newer.texts());
    Ok(())
}

#[tokio::test]
async fn an_app_in_yaml_and_one_in_a_component_cannot_share_a_name() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    folder.write("swap/answers.yaml", "turns:\n  - reply: \"from yaml\"\n")?;
    folder.write("swap/root_agent.yaml", "name: other\nmodel: scripted:swap/answers.yaml\ninstruction: Answer.\n")?;
    let reason = host.wait_for_refusal("swap/root_agent.yaml").await?;
    assert!(reason.contains("swap/root_agent.yaml") && reason.contains("swap.wasm"), "{reason}");
    assert_eq!(run_texts(&host, "s").await?, Older.texts());
    Ok(())
}
