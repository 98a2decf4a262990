//! A host that serves hostile and harmless components, with checks that attacks do not affect it.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::event::{text, texts, tool_response};
use crate::host::{TIMEOUT, USER, message};
use crate::paths::{component, repository};
use crate::soak::Usage;
use crate::{Folder, Host};

/// Allowed growth of a host's memory after an attack in bytes, for allocators and caches.
const MEMORY_SLACK: u64 = 300 << 20;

/// Allowed growth of a host's peak memory during an attack in bytes.
const PEAK_SLACK: u64 = 700 << 20;

/// Allowed growth of the disk usage in bytes.
const DISK_SLACK: u64 = 100 << 20;

/// Allowed growth of the number of open file handles, for connections of the test itself.
const HANDLES_SLACK: u64 = 24;

/// A YAML agent whose model, `hostile/puppeteer`, calls the tools that are named in the user's message.
pub const ATTACKER: &str = "attacker";

/// A served folder with the component `hostile`, its agent [`ATTACKER`], and the samples `greeter` and `dice`.
pub struct Stage {
    /// The served folder.
    pub folder: Folder,
    /// The host that serves it.
    pub host: Host,
}

impl Stage {
    /// Serves the folder with these settings in hatchery.yaml.
    ///
    /// # Errors
    /// If the host does not start.
    pub async fn new(settings: &str) -> anyhow::Result<Self> {
        Self::with(settings, &[]).await
    }

    /// Serves the folder with additional components, by file name.
    ///
    /// # Errors
    /// If the host does not start.
    pub async fn with(settings: &str, components: &[(&str, Vec<u8>)]) -> anyhow::Result<Self> {
        let folder = Self::folder(settings)?;
        for (name, bytes) in components {
            folder.put(name, bytes)?;
        }
        Self::serve(folder).await
    }

    /// Serves a folder that was created by [`Stage::folder`].
    ///
    /// # Errors
    /// If the host does not start.
    pub async fn serve(folder: Folder) -> anyhow::Result<Self> {
        Self::serve_with_command(crate::paths::command()?, folder).await
    }

    /// Like [`Stage::serve`], with another command; see [`Host::serve_with_command`].
    ///
    /// # Errors
    /// If the host does not start.
    pub async fn serve_with_command(command: Command, folder: Folder) -> anyhow::Result<Self> {
        let host = Host::serve_with_command(command, &folder).await?;
        host.wait_until("the harmless components serve", |components| {
            ["greeter", "dice"].iter().all(|app| crate::host::has_app(components, app))
        })
        .await?;
        let stage = Self { folder, host };
        stage.check_neighbours().await?;
        Ok(stage)
    }

    /// Creates the folder with these settings in hatchery.yaml.
    ///
    /// # Errors
    /// If something has not been built.
    pub fn folder(settings: &str) -> anyhow::Result<Folder> {
        let folder = Folder::empty()?;
        folder.write("hatchery.yaml", with_greeter(settings)?)?;
        folder.put("hostile.wasm", component("hostile")?)?;
        folder.put("greeter.wasm", component("greeter")?)?;
        folder.put("dice.wasm", component("dice")?)?;
        let answers = repository().join("sample-agents/dice/answers.yaml");
        folder.write("dice/answers.yaml", fs::read(answers)?)?;
        folder.write(&format!("{ATTACKER}/root_agent.yaml"), attacker_yaml(ATTACKER, &["Toolset"]))?;
        Ok(folder)
    }

    /// Lets the attacker call a tool of `hostile` in a new session, and returns the tool's response.
    ///
    /// # Errors
    /// If the run fails.
    pub async fn attack(&self, tool: &str, args: Value) -> anyhow::Result<Value> {
        let session = new_session_id();
        let events = self.host.ask(ATTACKER, &session, &call_message(tool, args)).await?;
        tool_response(&events, tool).cloned()
    }

    /// Sends a message to an agent of `hostile` in a new session, and returns the answer.
    ///
    /// # Errors
    /// If the host does not answer.
    pub async fn send(&self, app: &str, command: &Value) -> anyhow::Result<RunAnswer> {
        let session = new_session_id();
        self.host.create_session(app, &session).await?;
        let answer = self.host.post("/run", &message(app, &session, &command.to_string())).await?;
        let body =
            serde_json::from_str(&answer.text).with_context(|| answer.text.chars().take(500).collect::<String>())?;
        Ok(RunAnswer { session, status: answer.status, body })
    }

    /// Checks that the harmless components answer.
    ///
    /// # Errors
    /// If one does not.
    pub async fn check_neighbours(&self) -> anyhow::Result<()> {
        self.host.get("/health").await?.json(200)?;
        let texts = texts(&self.host.ask("greeter", &new_session_id(), "Hello").await?);
        ensure!(texts.iter().any(|text| text.contains("visit") || text.contains("Hello")), "greeter answers {texts:?}");
        let events = self.host.ask("dice", &new_session_id(), "Roll a die with 20 sides").await?;
        let rolled = events.iter().map(text).collect::<String>();
        ensure!(rolled.contains("rolled") || rolled.contains("You"), "dice answers {rolled:?}");
        Ok(())
    }

    /// Runs an attack. The harmless components must answer during and after it. After it, the host must use about as
    /// much memory, file handles and disk as before.
    ///
    /// # Errors
    /// If one of these conditions does not hold, or the attack could not be run.
    pub async fn withstand<T>(&self, attack: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let before = self.footprint()?;
        self.reset_peak_memory()?;
        let has_ended = AtomicBool::new(false);
        let neighbours = async {
            while !has_ended.load(Ordering::SeqCst) {
                self.check_neighbours().await.context("during the attack")?;
            }
            anyhow::Ok(())
        };
        let attack = async {
            let outcome = attack.await;
            has_ended.store(true, Ordering::SeqCst);
            outcome
        };
        let (outcome, ()) = futures::try_join!(attack, neighbours)?;
        self.check_neighbours().await.context("after the attack")?;
        self.wait_until_calm(&before).await?;
        Ok(outcome)
    }

    /// Waits until the host uses about as much as before.
    async fn wait_until_calm(&self, before: &Footprint) -> anyhow::Result<()> {
        let poll = async {
            let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
            loop {
                ticks.tick().await;
                if self.footprint()?.is_close_to(before) {
                    return anyhow::Ok(());
                }
            }
        };
        let outcome = tokio::time::timeout(TIMEOUT / 4, poll).await;
        outcome
            .with_context(|| format!("before: {before}; now: {:?}", self.footprint().map(|now| now.to_string())))??;
        let peak = self.status_bytes("VmHWM:")?;
        let max = before.usage.memory + PEAK_SLACK;
        ensure!(peak <= max, "the peak was {} MiB; before: {before}", peak >> 20);
        Ok(())
    }

    /// Waits for a line of the audit log that contains all these texts.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn wait_for_audit(&self, parts: &[&str]) -> anyhow::Result<()> {
        let is_logged = |log: &str| {
            let mut lines = log.lines().filter(|line| line.contains("hatchery::audit"));
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        self.host.wait_until_log(&format!("a line of the audit log with {parts:?}"), is_logged).await
    }

    fn footprint(&self) -> anyhow::Result<Footprint> {
        let usage = Usage::read(self.process()?)?;
        Ok(Footprint { usage, disk: size_of(&self.folder.data())? + size_of(&self.folder.served())? })
    }

    fn process(&self) -> anyhow::Result<u32> {
        self.host.process().context("the host has ended")
    }

    /// Resets the peak memory of the process.
    fn reset_peak_memory(&self) -> anyhow::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.process()?), "5").context("clear_refs")
    }

    /// Returns a size from the process's status in bytes.
    fn status_bytes(&self, key: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)).with_context(|| key.to_owned())?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

/// Adds the grants of the sample `greeter` to settings.
///
/// # Errors
/// If they are not a YAML mapping.
pub fn with_greeter(settings: &str) -> anyhow::Result<String> {
    let mut settings: Value = serde_yaml::from_str(settings)?;
    if settings.is_null() {
        settings = json!({});
    }
    let components = settings.as_object_mut().context("a mapping")?.entry("components").or_insert_with(|| json!({}));
    let components = components.as_object_mut().context("components: a mapping")?;
    components.insert("greeter".into(), json!({ "grants": { "state": { "write": ["user:name"] } } }));
    Ok(settings.to_string())
}

/// The answer of `/run`.
#[derive(Debug)]
pub struct RunAnswer {
    /// The id of the session.
    pub session: String,
    /// The HTTP status.
    pub status: u16,
    /// The events, or an error.
    pub body: Value,
}

#[derive(Debug)]
struct Footprint {
    usage: Usage,
    /// The size of the served folder and the host's data in bytes.
    disk: u64,
}

impl Footprint {
    fn is_close_to(&self, before: &Self) -> bool {
        self.usage.memory <= before.usage.memory + MEMORY_SLACK
            && self.usage.handles <= before.usage.handles + HANDLES_SLACK
            && self.disk <= before.disk + DISK_SLACK
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} MiB of files", self.usage, self.disk >> 20)
    }
}

/// Returns the YAML of an agent that calls the tools that are named in the user's message. `Toolset` means all tools of
/// `hostile`.
pub fn attacker_yaml(name: &str, tools: &[&str]) -> String {
    let tools = tools.iter().map(|tool| match *tool {
        "Toolset" => "  - {name: Toolset, args: {name: hostile}}\n".to_owned(),
        tool => format!("  - name: {tool}\n"),
    });
    format!(
        "name: {name}\nmodel: component:hostile/puppeteer\ninstruction: Do it.\ntools:\n{}",
        tools.collect::<String>()
    )
}

/// Returns the message that makes the attacker call a tool.
pub fn call_message(tool: &str, args: Value) -> String {
    call_messages(&[(tool, args)])
}

/// Returns the message that makes the attacker call several tools concurrently.
pub fn call_messages(calls: &[(&str, Value)]) -> String {
    let calls: Vec<Value> = calls.iter().map(|(tool, args)| json!({ "tool": tool, "args": args })).collect();
    json!({ "calls": calls }).to_string()
}

/// Returns an unused session id.
pub fn new_session_id() -> String {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    format!("{USER}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the size of all files in a folder and its subfolders in bytes.
fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        // Files may be deleted concurrently.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        bytes += if metadata.is_dir() { size_of(&entry.path()).unwrap_or(0) } else { metadata.len() };
    }
    Ok(bytes)
}
