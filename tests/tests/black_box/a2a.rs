//! The Agent2Agent protocol in both roles. The client here writes the messages itself.

mod bad_peers;
mod limits;
mod remote;
mod server;

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host};
use reqwest::{Method, Response};
use serde_json::{Value, json};

/// Agents of a served folder: one that repeats, one that asks a person, and one that never ends by itself.
const AGENTS: [(&str, &str); 9] = [
    (
        "echo/root_agent.yaml",
        "name: echo\ndescription: Repeats.\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n",
    ),
    ("echo/answers.yaml", "turns:\n  - reply: 'You said {user}.'\n"),
    (
        "gambler/root_agent.yaml",
        "name: gambler\nmodel: scripted:gambler/answers.yaml\ninstruction: Roll.\ntools:\n  - name: roll_die\n    \
         require_confirmation: true\n",
    ),
    (
        "gambler/answers.yaml",
        "turns:\n  - when: {tool: roll_die, result: requires confirmation}\n    reply: May I?\n  - when: {tool: roll_die, result: rejected}\n    \
         reply: Then not.\n  - when: {tool: roll_die}\n    reply: Rolled.\n  - reply: [{call: {name: roll_die, args: {sides: 6}}}]\n",
    ),
    (
        "ticker/root_agent.yaml",
        "agent_class: LoopAgent\nname: ticker\nmax_iterations: 100000\nsub_agents:\n  - config_path: tick.yaml\n",
    ),
    ("ticker/tick.yaml", "name: tick\nmodel: scripted:ticker/answers.yaml\ninstruction: Tick.\n"),
    ("ticker/answers.yaml", "turns:\n  - delay_ms: 20\n    reply: tick\n"),
    ("failing/root_agent.yaml", "name: failing\nmodel: scripted:failing/answers.yaml\ninstruction: Fail.\n"),
    ("failing/answers.yaml", "turns:\n  - error: {code: 400, message: no luck}\n"),
];

fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in AGENTS {
        folder.write(name, text)?;
    }
    folder.put("dice.wasm", hatchery_tests::paths::component("dice")?)?;
    Ok(folder)
}

/// A wire version, with the spelling of what these tests use.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    Old,
    New,
}

const VERSIONS: [Version; 2] = [Version::Old, Version::New];

impl Version {
    fn method(self, operation: &str) -> &'static str {
        let [old, new] = match operation {
            "send" => ["message/send", "SendMessage"],
            "stream" => ["message/stream", "SendStreamingMessage"],
            "get" => ["tasks/get", "GetTask"],
            "cancel" => ["tasks/cancel", "CancelTask"],
            "subscribe" => ["tasks/resubscribe", "SubscribeToTask"],
            _ => ["", ""],
        };
        match self {
            Self::Old => old,
            Self::New => new,
        }
    }

    /// Returns the parameters for a message with these parts.
    fn message(self, parts: Value, ids: Value) -> Value {
        let role = match self {
            Self::Old => "user",
            Self::New => "ROLE_USER",
        };
        let mut message = json!({"messageId": "m-1", "role": role, "parts": parts});
        if let (Some(message), Value::Object(ids)) = (message.as_object_mut(), ids) {
            message.extend(ids);
        }
        json!({ "message": message })
    }

    fn text(self, text: &str) -> Value {
        match self {
            Self::Old => json!([{"kind": "text", "text": text}]),
            Self::New => json!([{ "text": text }]),
        }
    }

    fn data(self, data: Value, metadata: Value) -> Value {
        match self {
            Self::Old => json!([{"kind": "data", "data": data, "metadata": metadata}]),
            Self::New => json!([{"data": data, "metadata": metadata}]),
        }
    }

    /// Adds the setting that the answer does not wait.
    fn without_waiting(self, mut params: Value) -> Value {
        let configuration = match self {
            Self::Old => json!({"blocking": false}),
            Self::New => json!({"returnImmediately": true}),
        };
        if let Some(params) = params.as_object_mut() {
            params.insert("configuration".into(), configuration);
        }
        params
    }

    /// Returns the task in the result of a sent message.
    fn task(self, result: &Value) -> Result<Value> {
        let task = match self {
            Self::Old => Some(result).filter(|result| result.get("kind") == Some(&json!("task"))),
            Self::New => result.get("task"),
        };
        task.cloned().with_context(|| result.to_string())
    }

    /// Returns the state of a task or an update as version 0.3 spells it.
    fn state(self, status: &Value) -> String {
        let state = status.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
        state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
    }

    /// Returns the kind and the content of an item of a stream.
    fn update(self, item: &Value) -> Result<(String, Value)> {
        match self {
            Self::Old => {
                let kind = item.get("kind").and_then(Value::as_str).context("a kind")?;
                Ok((kind.into(), item.clone()))
            }
            Self::New => {
                let (key, content) = item.as_object().and_then(|item| item.iter().next()).context("a member")?;
                Ok((key.replace("Update", "-update"), content.clone()))
            }
        }
    }
}

fn body(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// Calls a method and returns the whole answer.
async fn call(host: &Host, app: &str, method: &str, params: &Value) -> Result<Value> {
    let answer = host.post(&format!("/a2a/{app}"), &body(method, params)).await?.json(200)?;
    ensure!(answer.get("id") == Some(&json!(7)) && answer.get("jsonrpc") == Some(&json!("2.0")), "{answer}");
    Ok(answer)
}

/// Calls a method and returns its result.
async fn result(host: &Host, app: &str, method: &str, params: &Value) -> Result<Value> {
    let answer = call(host, app, method, params).await?;
    answer.get("result").cloned().with_context(|| answer.to_string())
}

/// Calls a method and returns the code and the message of its error.
async fn error(host: &Host, app: &str, method: &str, params: &Value) -> Result<(i64, String)> {
    let answer = call(host, app, method, params).await?;
    let error = answer.get("error").with_context(|| answer.to_string())?;
    let message = error.get("message").and_then(Value::as_str).context("a message")?;
    Ok((error.get("code").and_then(Value::as_i64).context("a code")?, message.into()))
}

/// A stream of server-sent events with answers of JSON-RPC.
struct Stream {
    response: Response,
    buffer: String,
}

impl Stream {
    async fn open(host: &Host, app: &str, method: &str, params: &Value) -> Result<Self> {
        let request = host.request(Method::POST, &format!("/a2a/{app}")).json(&body(method, params));
        let response = request.send().await?;
        let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if content_type != Some("text/event-stream") {
            anyhow::bail!("not a stream: {}", response.text().await?);
        }
        Ok(Self { response, buffer: String::new() })
    }

    /// Returns the next result. `None` at the end.
    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.buffer = rest;
                let Some(data) = frame.strip_prefix("data: ") else { continue };
                let answer: Value = serde_json::from_str(data)?;
                return answer.get("result").cloned().map(Some).with_context(|| answer.to_string());
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.push_str(str::from_utf8(&chunk)?),
                None => return Ok(None),
            }
        }
    }

    async fn collect(mut self) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await? {
            items.push(item);
        }
        Ok(items)
    }
}

fn text_of(json: &Value, pointer: &str) -> String {
    json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the texts of the artifacts of a task.
fn artifact_texts(task: &Value) -> Vec<String> {
    let artifacts = task.get("artifacts").and_then(Value::as_array).into_iter().flatten();
    artifacts.map(|artifact| text_of(artifact, "/parts/0/text")).collect()
}
