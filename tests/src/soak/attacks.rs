//! Attacks of hostile components, and their outcomes.

use anyhow::Context;
use serde_json::{Value, json};

use crate::event::tool_response;
use crate::host::{message, session_path};
use crate::paths::{component, puppet};
use crate::stage::{ATTACKER, attacker_yaml, call_message};
use crate::{Folder, Host};

/// Adds the hostile components and the agent that calls their tools to a folder.
pub(super) fn prepare(folder: &Folder) -> anyhow::Result<()> {
    folder.put("hostile.wasm", component("hostile")?)?;
    folder.put("puppet.wasm", puppet("schema")?)?;
    let tools = ["Toolset", "puppet/bomb", "puppet/explode"];
    folder.write(&format!("{ATTACKER}/root_agent.yaml"), attacker_yaml(ATTACKER, &tools))
}

pub(super) struct Attack {
    /// The name in reports.
    pub(super) name: &'static str,
    target: Target,
}

enum Target {
    /// A tool with its arguments.
    Tool(&'static str, Value),
    /// An agent with its message.
    Agent(&'static str, Value),
}

/// Returns all attacks that end quickly.
pub(super) fn all() -> Vec<Attack> {
    let tool = |name, tool, args| Attack { name, target: Target::Tool(tool, args) };
    let agent = |name, agent, command| Attack { name, target: Target::Agent(agent, command) };
    vec![
        tool("unsent bodies", "bodies", json!({ "count": 1000, "bytes": 1 << 20 })),
        tool("unsent header fields", "fields", json!({ "count": 1000, "bytes": 120 << 10 })),
        tool("random bytes", "random", json!({ "bytes": 1_u64 << 40 })),
        tool("handles", "handles", json!({ "count": 100_000 })),
        tool("memory", "grow", json!({})),
        tool("calls at once", "own_calls", json!({ "count": 8, "bytes": 16 << 20 })),
        tool("own address", "fetch", json!({ "authority": "127.0.0.1:80" })),
        tool("sockets", "sockets", json!({ "address": "127.0.0.1:80" })),
        tool("paths", "climb", json!({})),
        tool("surroundings", "surroundings", json!({})),
        tool("state keys", "state_flood", json!({ "count": 20_000, "bytes": 1 })),
        tool("state bytes", "state_flood", json!({ "count": 30, "bytes": 1_000_000 })),
        tool("artifacts", "artifact_flood", json!({ "count": 10, "bytes": 1 << 20 })),
        tool("log", "log_flood", json!({ "count": 5_000 })),
        tool("output", "output_flood", json!({ "count": 5_000 })),
        tool("spin", "spin", json!({})),
        tool("recursion", "chain", json!({})),
        tool("calls", "many_calls", json!({ "count": 10_000 })),
        tool("deep result", "deep_json", json!({})),
        tool("broken result", "invalid_json", json!({})),
        tool("schema", "explode", json!({ "numbers": 20_000 })),
        agent("large events", "torrent", json!({ "count": 40, "bytes": 2_000_000 })),
        agent("many events", "torrent", json!({ "count": 20_000, "bytes": 10 })),
        agent("state of events", "torrent", json!({ "kind": "keys", "count": 10, "bytes": 5_000 })),
        agent("forged call", "forger", json!({ "kind": "call" })),
        agent("forged text", "forger", json!({ "kind": "text" })),
        agent("forged actions", "forger", json!({ "kind": "actions" })),
        agent("forged request", "impostor", json!({ "kind": "impostor", "args": { "to": "Mallory" } })),
        agent("state of others", "meddler", json!({ "kind": "state" })),
        agent("compaction", "meddler", json!({ "kind": "compaction" })),
        agent("spinning agent", "spinner", json!({})),
    ]
}

impl Attack {
    /// Runs the attack in a new session, which is deleted afterwards. Returns the outcome in a word or two.
    ///
    /// # Errors
    /// If the host does not work as expected. A failed run is not an error.
    pub(super) async fn run(&self, host: &Host, session: &str) -> anyhow::Result<String> {
        let (app, text) = match &self.target {
            Target::Tool(tool, args) => (ATTACKER, call_message(tool, args.clone())),
            Target::Agent(agent, command) => (*agent, command.to_string()),
        };
        host.create_session(app, session).await?;
        let answer = host.post("/run", &message(app, session, &text)).await?;
        let path = session_path(app, session);
        host.get(&path).await?.json(200).context("the session cannot be read")?;
        let deleted = host.delete(&path).await?;
        anyhow::ensure!(deleted.status < 300, "the session cannot be deleted: {}", deleted.text);
        let body: Value = serde_json::from_str(&answer.text).context("the answer is not JSON")?;
        if answer.status != 200 {
            let code = body.get("code").and_then(Value::as_str).unwrap_or_default();
            anyhow::ensure!(!matches!(code, "" | "STORE_FAILED" | "INTERNAL"), "{}", answer.text);
            return Ok(code.to_owned());
        }
        Ok(match &self.target {
            Target::Tool(tool, _) => outcome(tool_response(body.as_array().context("events")?, tool)?),
            Target::Agent(..) => "ended".to_owned(),
        })
    }
}

/// Returns the outcome of a tool call with this response.
fn outcome(answer: &Value) -> String {
    let text = answer.to_string();
    let outcome = match text.as_str() {
        text if text.contains("it exceeded its limit of ") => "limit",
        text if text.contains("DENIED") || text.contains(" may not ") => "denied",
        _ if answer.get("error").is_some() || answer.get("refused").is_some() => "error",
        _ => "ended",
    };
    outcome.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_a_limit_a_denial_an_error_or_none_of_them() {
        for (answer, expected) in [
            (json!({ "error": "tool `x` failed: it exceeded its limit of 64 MiB of memory" }), "limit"),
            (json!({ "refused": "ErrorCode::InternalError(Some(\"DENIED: no\"))" }), "denied"),
            (json!({ "error": "it crashed" }), "error"),
            (json!({ "result": 1 }), "ended"),
        ] {
            assert_eq!(outcome(&answer), expected);
        }
    }
}
