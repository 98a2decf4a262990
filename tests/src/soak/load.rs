//! The kinds of requests, each with what must come of it.

use anyhow::{Context, ensure};

use crate::event::{text_at, texts, tool_response};
use crate::host::session_path;
use crate::paths::{self, Swap, swap};
use crate::swapping::version_that_answers;
use crate::{Folder, Host};

/// Small limits, so that bad calls end soon.
const SETTINGS: &str = "limits: {cpu: 200ms, wall: 2s, memory: 24MiB}\n\
    components: {greeter: {grants: {state: {write: ['user:name']}}}}\n";

/// An agent whose model calls the tool that the user names.
const CALLER: &str = "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Call tools.\n\
    tools:\n  - name: misbehaver/trap\n  - name: misbehaver/spin\n  - name: misbehaver/allocate\n  - name: misbehaver/echo\n  - name: seeker/ask\n";

const ANSWERS: &str = "turns:\n\
    \x20 - when: {tool: [trap, spin, allocate, echo, ask]}\n    reply: \"it answered\"\n\
    \x20 - when: {user: trap}\n    reply: [{call: {name: trap}}]\n\
    \x20 - when: {user: deny}\n    reply: [{call: {name: ask, args: {name: any}}}]\n\
    \x20 - when: {user: spin}\n    reply: [{call: {name: spin}}]\n\
    \x20 - when: {user: allocate}\n    reply: [{call: {name: allocate}}]\n\
    \x20 - reply: [{call: {name: echo, args: {value: 1}}}]\n";

/// Puts all that is asked for into a folder.
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
    /// An agent that is code.
    Agent,
    /// An agent that is swapped all the time.
    Swapped,
    /// A tool that works.
    Tool,
    /// A tool that asks for what it is not granted.
    Denied,
    /// A tool that traps.
    Trapping,
    /// A tool that never ends.
    Spinning,
    /// A tool that takes memory without end.
    Allocating,
}

impl Load {
    /// Good ones come more often than bad ones, as spinning costs most of the time that there is.
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

    /// Asks for it in a session of its own, which is deleted afterwards.
    ///
    /// # Errors
    /// When not that comes of it which must.
    pub(super) async fn ask(self, host: &Host, session: &str) -> anyhow::Result<()> {
        if self == Self::Swapped {
            version_that_answers(host, session).await?;
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
        let failure = |tool: &str, part: &str| {
            let error = text_at(tool_response(&events, tool)?, "/error").to_owned();
            ensure!(error.contains(part), "`{tool}` failed in another way: {error}");
            anyhow::Ok(())
        };
        match self {
            Self::Agent => {
                let last = texts(&events).pop().context("nothing was said")?;
                ensure!(last.starts_with("This is your first visit"), "the greeter said {last:?}");
            }
            Self::Swapped => {}
            Self::Tool => ensure!(tool_response(&events, "echo")?["value"] == 1, "no echo"),
            Self::Denied => failure("ask", "may not ask the model")?,
            Self::Trapping => failure("trap", "it crashed")?,
            // By CPU time or, when many want the processors, by time.
            Self::Spinning => failure("spin", "raise `limits.")?,
            Self::Allocating => failure("allocate", "raise `limits.memory`")?,
        }
        Ok(())
    }
}
