//! Problems of files are shown where people look: in the log, in `/components`, in the announcement, beside a run.

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::text_at;
use hatchery_tests::host::{entry, has_app, reason};
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

use crate::cli::hatchery;

const HELLO: &str = "name: hello\nmodel: scripted:answers.yaml\ninstruction: Talk.\n";
const ANSWERS: &str = "turns:\n  - reply: hi\n";

fn hello() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.put("hello/root_agent.yaml", HELLO)?;
    folder.put("answers.yaml", ANSWERS)?;
    Ok(folder)
}

#[tokio::test]
async fn the_log_names_the_file_of_a_wrong_agent_once_with_its_line() -> Result<()> {
    let folder = hello()?;
    folder.put("hello/root_agent.yaml", "agent_class: Robot\nname: hello\n")?;
    let host = Host::serve(&folder).await?;
    host.wait_for_log("hello/root_agent.yaml:1:1: agent class `Robot` not found").await?;
    let log = host.log();
    let line = log.lines().find(|line| line.contains(" rejected: ")).context("a rejected file")?;
    assert_eq!(line.matches("root_agent.yaml").count(), 1, "{line}");
    Ok(())
}

#[tokio::test]
async fn an_invalid_configuration_is_reported_until_it_is_valid() -> Result<()> {
    let folder = hello()?;
    folder.put("hatchery.yaml", "server:\n  allow_import: true\n")?;
    let host = Host::serve(&folder).await?;
    folder.put("hatchery.yaml", "server:\n  allow_imports: true\n")?;
    let components =
        host.wait_until("it is reported", |components| reason(components, "hatchery.yaml").is_some()).await?;
    let file = entry(&components, "hatchery.yaml").context("hatchery.yaml")?;
    assert_eq!((text_at(file, "/state"), &file["previousServes"]), ("rejected", &json!(true)));
    let answer = reason(&components, "hatchery.yaml").context("a reason")?;
    assert!(answer.starts_with("hatchery.yaml:2:3: server: unknown field `allow_imports`"), "{answer}");
    assert!(answer.ends_with("did you mean `allow_import`? The previous settings remain in force"), "{answer}");
    assert!(has_app(&components, "hello"), "{components}");
    folder.put("hatchery.yaml", "server:\n  allow_import: true\n")?;
    host.wait_until("it is valid", |components| entry(components, "hatchery.yaml").is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_reported_once() -> Result<()> {
    let folder = hello()?;
    let host = Host::serve(&folder).await?;
    let moved = folder.data().join("moved");
    std::fs::rename(folder.served(), &moved)?;
    let is_reported = |components: &Value| components["files"].to_string().contains("the folder cannot be read");
    let components = host.wait_until("it is reported", is_reported).await?;
    assert!(has_app(&components, "hello"), "what served keeps serving: {components}");
    // A scan or more later.
    std::fs::create_dir(folder.served())?;
    std::fs::write(folder.file("other.yaml"), "x: 1")?;
    host.wait_until("it is read again", |components| !is_reported(components)).await?;
    // The log arrives on its own.
    host.wait_for_log("the folder cannot be read").await?;
    let reports = host.log().matches("the folder cannot be read").count();
    assert_eq!(reports, 1, "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn no_warning_follows_when_folders_are_removed_or_moved() -> Result<()> {
    let folder = hello()?;
    for number in 0..5 {
        std::fs::create_dir_all(folder.file(&format!("empty/{number}")))?;
    }
    let host = Host::serve(&folder).await?;
    for name in ["one", "two", "three"] {
        folder.put(&format!("{name}/root_agent.yaml"), HELLO)?;
        host.wait_for_app(name).await?;
        std::fs::remove_dir_all(folder.file(name))?;
        host.wait_until("it is gone", |components| !has_app(components, name)).await?;
    }
    let is_missing = |components: &Value| components["files"].to_string().contains("the folder cannot be read");
    let moved = folder.data().join("moved");
    std::fs::rename(folder.served(), &moved)?;
    host.wait_until("the served folder is missing", is_missing).await?;
    std::fs::rename(&moved, folder.served())?;
    host.wait_until("it is there again", |components| !is_missing(components)).await?;
    folder.put("last/root_agent.yaml", HELLO)?;
    host.wait_for_log("hello, last").await?;
    let log = host.log();
    assert!(!log.contains("cannot watch") && !log.contains("notify::"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_missing_key_of_a_model_is_shown_before_the_first_message_and_read_from_the_env_file() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("hello/root_agent.yaml", HELLO.replace("scripted:answers.yaml", "gemini-2.5-flash"))?;
    let host = Host::serve(&folder).await?;
    let components = host.components().await?;
    let warning = components["warnings"][0].as_str().context("a warning")?;
    assert!(warning.contains("GOOGLE_API_KEY") && warning.ends_with("(used by `hello`)"), "{warning}");
    assert_eq!(host.announcement["warnings"][0], warning);
    drop(host);
    let checked = hatchery(&folder.served(), &["doctor", "."]).await?;
    assert!(!checked.success && checked.stdout.contains("GOOGLE_API_KEY"), "{}", checked.stdout);

    folder.put(".env", "# mine\nGOOGLE_API_KEY=abc\nHTTPS_PROXY=http://127.0.0.1:9\n")?;
    let host = Host::serve(&folder).await?;
    assert_eq!(host.components().await?.get("warnings"), None);
    host.wait_for_log(".env: ignoring HTTPS_PROXY: only names that end in _KEY").await?;
    let checked = hatchery(&folder.served(), &["doctor", "."]).await?;
    assert!(checked.success, "{}", checked.stdout);
    Ok(())
}

#[tokio::test]
async fn the_reason_why_an_app_cannot_be_used_is_printed_once() -> Result<()> {
    let folder = Folder::empty()?;
    for app in ["broken", "other"] {
        folder.write(&format!("{app}/root_agent.yaml"), format!("name: {app}\nmodel: m\nmodle: m\n"))?;
    }
    for command in [&["run", ".", "broken"][..], &["run", "broken"], &["eval", "broken"]] {
        let output = hatchery(&folder.served(), command).await?;
        assert!(!output.success && output.stderr.contains("error: app `broken` cannot be used: "), "{}", output.stderr);
        for app in ["broken", "other"] {
            let place = format!("{app}/root_agent.yaml:3:");
            assert_eq!(output.stderr.matches(&place).count(), 1, "{command:?}: {}", output.stderr);
        }
    }
    Ok(())
}

#[tokio::test]
async fn run_names_other_files_that_are_not_loaded_in_one_line() -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "hello", "--kind", "yaml"]).await?;
    ensure!(created.success, "{}", created.stderr);
    folder.write("broken.wasm", "nonsense")?;
    folder.write("other/root_agent.yaml", "agent_class: Robot\nname: other\n")?;
    let warning = "warning: not loaded: broken.wasm, other/root_agent.yaml; `hatchery doctor .` shows why\n";
    for args in [&["run", ".", "hello", "-m", "I am Ada"][..], &["test", "."]] {
        let output = hatchery(&folder.served(), args).await?;
        assert!(output.success, "{args:?}: {}{}", output.stdout, output.stderr);
        assert_eq!(output.stderr, warning, "{args:?}");
    }
    let unknown = hatchery(&folder.served(), &["run", ".", "nobody", "-m", "Hello"]).await?;
    for part in [
        "not loaded: broken.wasm: component `broken` is not a WebAssembly file",
        "other/root_agent.yaml:1:1: agent class `Robot` not found",
        "error: app `nobody` not found; available: hello\n",
    ] {
        assert!(unknown.stderr.contains(part), "{part:?} is not in {:?}", unknown.stderr);
    }
    Ok(())
}
