//! A host that serves hostile components beside honest ones, and what must hold while they attack it and when they have.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::event::{text, texts, tool_response};
use crate::host::{PATIENCE, USER, message};
use crate::paths::{component, repository};
use crate::soak::Usage;
use crate::{Folder, Host};

/// Memory that a host may hold after an attack beside what it held before, bytes. Allocators and caches take some of it.
const MEMORY_SLACK: u64 = 300 << 20;

/// Memory that a host may use for a moment in an attack, bytes.
const PEAK_SLACK: u64 = 700 << 20;

/// What an attack may leave on the disk, bytes.
const DISK_SLACK: u64 = 100 << 20;

/// Handles that may be open after an attack and were not before: connections of the test itself.
const HANDLES_SLACK: u64 = 24;

/// An agent in YAML whose model, `hostile/puppeteer`, calls the tools that the user's message names.
pub const ATTACKER: &str = "attacker";

/// A served folder with the component `hostile`, its agent [`ATTACKER`], and the samples `greeter` and `dice`.
pub struct Stage {
    /// What is served.
    pub folder: Folder,
    /// Who serves it.
    pub host: Host,
}

impl Stage {
    /// With these settings in hatchery.yaml.
    ///
    /// # Errors
    /// When the host does not start.
    pub async fn new(settings: &str) -> anyhow::Result<Self> {
        Self::with(settings, &[]).await
    }

    /// With more components beside, by their files' names.
    ///
    /// # Errors
    /// When the host does not start.
    pub async fn with(settings: &str, components: &[(&str, Vec<u8>)]) -> anyhow::Result<Self> {
        let folder = Self::folder(settings)?;
        for (name, bytes) in components {
            folder.put(name, bytes)?;
        }
        Self::serve(folder).await
    }

    /// Serves a folder that [`Stage::folder`] made.
    ///
    /// # Errors
    /// When the host does not start.
    pub async fn serve(folder: Folder) -> anyhow::Result<Self> {
        Self::serve_by(crate::paths::command()?, folder).await
    }

    /// The same by a command of one's own, as [`Host::serve_by`].
    ///
    /// # Errors
    /// When the host does not start.
    pub async fn serve_by(command: Command, folder: Folder) -> anyhow::Result<Self> {
        let host = Host::serve_by(command, &folder).await?;
        host.until("the neighbours serve", |components| {
            ["greeter", "dice"].iter().all(|app| crate::host::has_app(components, app))
        })
        .await?;
        let stage = Self { folder, host };
        stage.neighbours_answer().await?;
        Ok(stage)
    }

    /// What is to be served, with these settings in hatchery.yaml.
    ///
    /// # Errors
    /// When something has not been built.
    pub fn folder(settings: &str) -> anyhow::Result<Folder> {
        let folder = Folder::empty()?;
        folder.write("hatchery.yaml", with_greeter(settings)?)?;
        folder.put("hostile.wasm", component("hostile")?)?;
        folder.put("greeter.wasm", component("greeter")?)?;
        folder.put("dice.wasm", component("dice")?)?;
        let answers = repository().join("sample-agents/dice/answers.yaml");
        folder.write("dice/answers.yaml", fs::read(answers)?)?;
        folder.write(&format!("{ATTACKER}/root_agent.yaml"), attacker(ATTACKER, &["Toolset"]))?;
        Ok(folder)
    }

    /// Has the attacker call a tool of `hostile` in a new session, and gives the tool's answer.
    ///
    /// # Errors
    /// When the run fails.
    pub async fn attack(&self, tool: &str, args: Value) -> anyhow::Result<Value> {
        let session = new_session();
        let events = self.host.ask(ATTACKER, &session, &order(tool, args)).await?;
        tool_response(&events, tool).cloned()
    }

    /// Says something to an agent of `hostile` in a new session; gives the session, and the status and JSON of the answer.
    ///
    /// # Errors
    /// When the host does not answer.
    pub async fn say(&self, app: &str, wish: &Value) -> anyhow::Result<Said> {
        let session = new_session();
        self.host.create_session(app, &session).await?;
        let answer = self.host.post("/run", &message(app, &session, &wish.to_string())).await?;
        let body =
            serde_json::from_str(&answer.text).with_context(|| answer.text.chars().take(500).collect::<String>())?;
        Ok(Said { session, status: answer.status, body })
    }

    /// The honest neighbours answer as ever.
    ///
    /// # Errors
    /// When one does not.
    pub async fn neighbours_answer(&self) -> anyhow::Result<()> {
        self.host.get("/health").await?.json(200)?;
        let said = texts(&self.host.ask("greeter", &new_session(), "Hello").await?);
        ensure!(said.iter().any(|text| text.contains("visit") || text.contains("Hello")), "the greeter said {said:?}");
        let events = self.host.ask("dice", &new_session(), "Roll a die with 20 sides").await?;
        let rolled = events.iter().map(text).collect::<String>();
        ensure!(rolled.contains("rolled") || rolled.contains("You"), "the dice said {rolled:?}");
        Ok(())
    }

    /// Does something hostile. The neighbours must answer while it goes on and when it is over, and then the host must hold no more
    /// memory, handles and disk than before.
    ///
    /// # Errors
    /// When one of this does not hold, or the attack could not be tried.
    pub async fn withstand<T>(&self, attack: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let before = self.footprint()?;
        self.forget_peak()?;
        let is_over = AtomicBool::new(false);
        let neighbours = async {
            while !is_over.load(Ordering::SeqCst) {
                self.neighbours_answer().await.context("while it was attacked")?;
            }
            anyhow::Ok(())
        };
        let attack = async {
            let outcome = attack.await;
            is_over.store(true, Ordering::SeqCst);
            outcome
        };
        let (outcome, ()) = futures::try_join!(attack, neighbours)?;
        self.neighbours_answer().await.context("after it was attacked")?;
        self.is_calm(&before).await?;
        Ok(outcome)
    }

    /// Waits until the host holds what it held before, or a little more.
    async fn is_calm(&self, before: &Footprint) -> anyhow::Result<()> {
        let look = async {
            let mut looks = tokio::time::interval(std::time::Duration::from_millis(50));
            loop {
                looks.tick().await;
                if self.footprint()?.is_near(before) {
                    return anyhow::Ok(());
                }
            }
        };
        let calm = tokio::time::timeout(PATIENCE / 4, look).await;
        calm.with_context(|| format!("before: {before}; now: {:?}", self.footprint().map(|now| now.to_string())))??;
        let peak = self.status("VmHWM:")?;
        let most = before.usage.memory + PEAK_SLACK;
        ensure!(peak <= most, "it used {} MiB for a moment, before: {before}", peak >> 20);
        Ok(())
    }

    /// Waits until the audit log holds a line with all of these texts.
    ///
    /// # Errors
    /// When none comes.
    pub async fn until_audited(&self, parts: &[&str]) -> anyhow::Result<()> {
        let is_there = |log: &str| {
            let mut lines = log.lines().filter(|line| line.contains("hatchery::audit"));
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        self.host.until_log(&format!("a line of the audit log with {parts:?}"), is_there).await
    }

    fn footprint(&self) -> anyhow::Result<Footprint> {
        let usage = Usage::of(self.process()?)?;
        Ok(Footprint { usage, disk: size_of(&self.folder.data())? + size_of(&self.folder.served())? })
    }

    fn process(&self) -> anyhow::Result<u32> {
        self.host.process().context("the host has ended")
    }

    /// Begins to measure the most memory anew.
    fn forget_peak(&self) -> anyhow::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.process()?), "5").context("clear_refs")
    }

    /// A size in the process's status, bytes.
    fn status(&self, key: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)).with_context(|| key.to_owned())?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

/// Settings with what the sample `greeter` is granted beside.
///
/// # Errors
/// When they are not YAML of a mapping.
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

/// An answer of `/run`.
#[derive(Debug)]
pub struct Said {
    /// The session in which it was said.
    pub session: String,
    /// The HTTP status.
    pub status: u16,
    /// Events, or an error.
    pub body: Value,
}

#[derive(Debug)]
struct Footprint {
    usage: Usage,
    /// Bytes of the served folder and of the host's data.
    disk: u64,
}

impl Footprint {
    fn is_near(&self, before: &Self) -> bool {
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

/// An agent in YAML that calls tools as the user says. `Toolset` stands for all tools of `hostile`.
pub fn attacker(name: &str, tools: &[&str]) -> String {
    let tools = tools.iter().map(|tool| match *tool {
        "Toolset" => "  - {name: Toolset, args: {name: hostile}}\n".to_owned(),
        tool => format!("  - name: {tool}\n"),
    });
    format!(
        "name: {name}\nmodel: component:hostile/puppeteer\ninstruction: Do it.\ntools:\n{}",
        tools.collect::<String>()
    )
}

/// The message that has a tool called.
pub fn order(tool: &str, args: Value) -> String {
    orders(&[(tool, args)])
}

/// The message that has tools called at the same time.
pub fn orders(calls: &[(&str, Value)]) -> String {
    let calls: Vec<Value> = calls.iter().map(|(tool, args)| json!({ "tool": tool, "args": args })).collect();
    json!({ "calls": calls }).to_string()
}

/// An id that no session has.
pub fn new_session() -> String {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    format!("{USER}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Bytes of all files in a folder and below it.
fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        // What goes away while one looks takes no place.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        bytes += if metadata.is_dir() { size_of(&entry.path()).unwrap_or(0) } else { metadata.len() };
    }
    Ok(bytes)
}
