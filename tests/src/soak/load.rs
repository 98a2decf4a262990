//! The kinds of requests, with their expected outcomes.

use anyhow::{Context, ensure};

use crate::event::{text_at, texts, tool_response};
use crate::host::session_path;
use crate::paths::{self, Swap, swap};
use crate::swapper::running_version;
use crate::{Folder, Host};

/// Small limits, so that calls that exceed them end quickly.
const SETTINGS: &str = "limits: {cpu: 200ms, wall: 2s, memory: 24MiB}\n\
    components: {greeter: {grants: {state: {write: ['user:name']}}}}\n";

/// An agent whose model calls the tool that is named in the user's message.
const CALLER: &str = "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Call tools.\n\
    tools:\n  - name: misbehaver/trap\n  - name: misbehaver/spin\n  - name: misbehaver/allocate\n  - name: misbehaver/echo\n  - name: seeker/ask\n";

const ANSWERS: &str = "turns:\n\
    \x20 - when: {tool: [trap, spin, allocate, echo, ask]}\n    reply: \"it answered\"\n\
    \x20 - when: {user: trap}\n    reply: [{call: {name: trap}}]\n\
    \x20 - when: {user: deny}\n    reply: [{call: {name: ask, args: {name: any}}}]\n\
    \x20 - when: {user: spin}\n    reply: [{call: {name: spin}}]\n\
    \x20 - when: {user: allocate}\n    reply: [{call: {name: allocate}}]\n\
    \x20 - reply: [{call: {name: echo, args: {value: 1}}}]\n";

/// Adds the components and agents of the requests to a folder.
pub(super) fn prepare(folder: &Folder) -> anyhow::Result<()> {
    folder.write("hatchery.yaml", SETTINGS)?;
    folder.write("caller/root_agent.yaml", CALLER)?;
    folder.write("caller/answers.yaml", ANSWERS)?;
    folder.put("misbehaver.wasm", paths::component("misbehaver")?)?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    folder.put("swap.wasm", swap(Swap::Older)?)
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// A custom agent.
    Agent,
    /// An agent of a component that is being replaced.
    Swapped,
    /// A tool that succeeds.
    Tool,
    /// A tool that attempts access without a grant.
    Denied,
    /// A tool that traps.
    Trapping,
    /// A tool that never ends.
    Spinning,
    /// A tool that allocates memory without end.
    Allocating,
}

impl Load {
    /// The order of requests. Most of them are harmless, because a spinning call takes much CPU time.
    pub(super) const ALL: [Self; 13] = [
        Self::Agent,
        Self::Swapped,
        Self::Tool,
        Self::Trapping,
        Self::Swapped,
        Self::Tool,
        Self::Allocating,
        Self::Agent,
        Self::Swapped,
        Self::Tool,
        Self::Swapped,
        Self::Denied,
        Self::Spinning,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Swapped => "swapped",
            Self::Tool => "tool",
            Self::Denied => "denied",
            Self::Trapping => "trapping",
            Self::Spinning => "spinning",
            Self::Allocating => "allocating",
        }
    }

    /// Sends the request in a new session, which is deleted afterwards.
    ///
    /// # Errors
    /// If the outcome is not the expected one.
    pub(super) async fn send(self, host: &Host, session: &str) -> anyhow::Result<()> {
        if self == Self::Swapped {
            running_version(host, session).await?;
            host.delete(&session_path("swap", session)).await?;
            return Ok(());
        }
        let (app, text) = match self {
            Self::Agent => ("greeter", "Hello"),
            Self::Swapped => ("swap", "Who are you?"),
            Self::Tool => ("caller", "echo"),
            Self::Denied => ("caller", "deny"),
            Self::Trapping => ("caller", "trap"),
            Self::Spinning => ("caller", "spin"),
            Self::Allocating => ("caller", "allocate"),
        };
        let events = host.ask(app, session, text).await?;
        host.delete(&session_path(app, session)).await?;
        let check_error = |tool: &str, part: &str| {
            let error = text_at(tool_response(&events, tool)?, "/error").to_owned();
            ensure!(error.contains(part), "`{tool}` failed in another way: {error}");
            anyhow::Ok(())
        };
        match self {
            Self::Agent => {
                let last = texts(&events).pop().context("the answer is empty")?;
                ensure!(last.starts_with("This is your first visit"), "greeter answers {last:?}");
            }
            Self::Swapped => {}
            Self::Tool => ensure!(tool_response(&events, "echo")?["value"] == 1, "no echo"),
            Self::Denied => check_error("ask", "may not ask the model")?,
            Self::Trapping => check_error("trap", "it crashed")?,
            // By CPU time or, on a busy machine, by wall time.
            Self::Spinning => check_error("spin", "it exceeded its limit of ")?,
            Self::Allocating => check_error("allocate", " of memory")?,
        }
        Ok(())
    }
}
