//! The kinds of load: an app, a message, a route, and where sessions are stored.

use std::ffi::OsString;

use anyhow::Context;

use crate::{Folder, Host, paths};

/// A kind of load. A report has one row for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) turn: Turn,
    pub(super) route: Route,
    pub(super) sessions: Sessions,
    /// `None` for the plan's number.
    pub(super) connections: Option<usize>,
    /// Number of other clients that read long event streams slowly meanwhile.
    pub(super) slow_readers: usize,
}

/// A message and the expected answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) app: &'static str,
    pub(super) text: &'static str,
    /// A text of the answer, without which it is a failure.
    pub(super) expected: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Run,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sessions {
    Memory,
    Sqlite,
}

/// A native agent that answers at once.
pub(super) const NATIVE: Turn = Turn { app: "native", text: "Hello", expected: "You said Hello." };
/// A native agent with a built-in tool.
pub(super) const RECALL: Turn = Turn { app: "recall", text: "What did I say?", expected: "Nothing yet." };
/// The same with a tool of a component.
pub(super) const PRIMES: Turn = Turn { app: "primes", text: "Which are prime?", expected: "Prime: " };
/// An agent of a component.
const GREETER: Turn = Turn { app: "greeter", text: "Hello", expected: "Hello" };
/// An agent with a tool and a callback of a component.
pub(super) const DICE: Turn = Turn { app: "dice", text: "Roll a die with 20 sides", expected: "You rolled" };

/// A native agent with an answer of 256 KiB in 1,024 chunks.
pub(super) const LONG: Turn = Turn { app: "long", text: "Tell me everything", expected: "word" };

/// Names of rows whose ratios are reported.
pub(super) mod name {
    pub(crate) const NATIVE: &str = "native agent, one step, sessions in memory";
    pub(crate) const BUILT_IN_TOOL: &str = "native agent, two steps, built-in tool, memory";
    pub(crate) const COMPONENT_TOOL: &str = "native agent, two steps, tool in a component, memory";
    pub(crate) const DICE: &str = "`dice`, two steps, tool and callback in a component, memory";
    pub(crate) const DICE_SQLITE: &str = "`dice`, SQLite";
    pub(crate) const STREAM: &str = "native agent, `/run_sse`, memory";
    pub(crate) const STREAMS: &str = "native agent, `/run_sse`, memory, 1,000 streams";
    pub(crate) const SLOW_READERS: &str = "native agent, `/run_sse`, memory, beside 200 slow readers";
}

pub(super) const SCENARIOS: [Scenario; 12] = [
    Scenario::new(name::NATIVE, NATIVE, Sessions::Memory),
    Scenario::new(name::BUILT_IN_TOOL, RECALL, Sessions::Memory),
    Scenario::new(name::COMPONENT_TOOL, PRIMES, Sessions::Memory),
    Scenario::new("`greeter`, agent in a component, memory", GREETER, Sessions::Memory),
    Scenario::new(name::DICE, DICE, Sessions::Memory),
    Scenario::new("native agent, one step, SQLite", NATIVE, Sessions::Sqlite),
    Scenario::new("`greeter`, SQLite", GREETER, Sessions::Sqlite),
    Scenario::new(name::DICE_SQLITE, DICE, Sessions::Sqlite),
    Scenario::new(name::STREAM, NATIVE, Sessions::Memory).streamed(None),
    Scenario::new(name::SLOW_READERS, NATIVE, Sessions::Memory).streamed(None).beside(200),
    Scenario::new("`dice`, `/run_sse`, SQLite", DICE, Sessions::Sqlite).streamed(None),
    STREAMS,
];

/// As many event streams at a time as a host is made for.
pub(super) const STREAMS: Scenario = Scenario::new(name::STREAMS, NATIVE, Sessions::Memory).streamed(Some(1000));

impl Scenario {
    pub(super) const fn new(name: &'static str, turn: Turn, sessions: Sessions) -> Self {
        Self { name, turn, route: Route::Run, sessions, connections: None, slow_readers: 0 }
    }

    pub(super) const fn streamed(self, connections: Option<usize>) -> Self {
        Self { route: Route::Stream, connections, ..self }
    }

    const fn beside(self, slow_readers: usize) -> Self {
        Self { slow_readers, ..self }
    }

    /// Starts a host with the apps of all scenarios.
    pub(super) async fn serve(&self) -> anyhow::Result<Host> {
        let host = serve(self.sessions).await?;
        host.wait_for_app(self.turn.app).await?;
        Ok(host)
    }
}

/// Starts a host with the apps of all scenarios.
pub(super) async fn serve(sessions: Sessions) -> anyhow::Result<Host> {
    let folder = folder()?;
    let config = folder.operator_config();
    let mut args: Vec<OsString> = vec!["--config".into(), config.into()];
    if sessions == Sessions::Memory {
        args.extend(["--session-service", "memory:", "--memory-service", "memory:"].map(OsString::from));
    }
    Host::serve_with_args(&folder, &[], &args).await
}

/// The files of `greeter`.
const CONFIG: &str = "server: { max_connections_per_peer: 1100, max_concurrent_runs: 1100 }\ncomponents:\n  greeter:\n    grants:\n      state: { write: [\"user:name\"] }\n";

/// Creates a folder with the apps of all scenarios.
fn folder() -> anyhow::Result<Folder> {
    let folder = Folder::empty()?;
    folder.write_operator_config(CONFIG)?;
    folder
        .write("native/root_agent.yaml", "name: native\nmodel: scripted:native/answers.yaml\ninstruction: Answer.\n")?;
    folder.write("native/answers.yaml", "turns:\n  - reply: \"You said {user}.\"\n")?;
    folder.write("long/root_agent.yaml", "name: long\nmodel: scripted:long/answers.yaml\ninstruction: Answer.\n")?;
    let words = "word ".repeat((256 << 10) / 5);
    folder
        .write("long/answers.yaml", format!("turns:\n  - reply:\n      - text: \"{words}\"\n        chunks: 1024\n"))?;
    folder.write(
        "recall/root_agent.yaml",
        "name: recall\nmodel: scripted:recall/answers.yaml\ninstruction: Answer.\ntools: [{ name: load_memory }]\n",
    )?;
    folder.write(
        "recall/answers.yaml",
        "turns:\n  - when: { tool: load_memory }\n    reply: Nothing yet.\n\
         \x20 - reply: [{ call: { name: load_memory, args: { query: hello } } }]\n",
    )?;
    folder.write(
        "primes/root_agent.yaml",
        "name: primes\nmodel: scripted:primes/answers.yaml\ninstruction: Answer.\ntools: [{ name: dice/check_prime }]\n",
    )?;
    folder.write(
        "primes/answers.yaml",
        "turns:\n  - when: { tool: check_prime }\n    reply: \"Prime: {tool.primes}\"\n\
         \x20 - reply: [{ call: { name: check_prime, args: { numbers: [2, 4, 7, 9, 13] } } }]\n",
    )?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    folder.put("dice/dice.wasm", paths::component("dice")?)?;
    let answers = paths::repository().join("sample-agents/dice/answers.yaml");
    folder.write("dice/answers.yaml", std::fs::read(&answers).with_context(|| answers.display().to_string())?)?;
    Ok(folder)
}
