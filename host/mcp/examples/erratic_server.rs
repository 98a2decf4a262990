//! An MCP server over standard input and output for tests, written without a library: some of its tools, and some of
//! the modes that its first argument selects, break the rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "only tests use it")]

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Default)]
struct ErraticServer {
    mode: String,
    /// How often tools were listed.
    lists: u32,
    /// How many cancellations arrived.
    cancelled: u32,
    /// True once the tool `grown` exists.
    has_grown: bool,
    /// The call that waits for an answer of the client.
    asking: Option<Value>,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_default();
    match mode.as_str() {
        "broken" => {
            eprintln!("the disk is on fire");
            std::process::exit(3);
        }
        "until-file" if !args.next().is_some_and(|file| Path::new(&file).exists()) => std::process::exit(3),
        _ => {}
    }
    let mut server = ErraticServer { mode, ..ErraticServer::default() };
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        server.handle(&message);
    }
}

fn send(message: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}").unwrap();
    out.flush().unwrap();
}

fn answer(id: &Value, result: Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn text(id: &Value, text: impl Into<Value>) {
    answer(id, json!({"content": [{"type": "text", "text": text.into()}]}));
}

fn notify(method: &str, params: Value) {
    send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

impl ErraticServer {
    fn handle(&mut self, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str() {
            Some("initialize") if self.mode == "silent" => {}
            Some("initialize") => answer(
                id,
                json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "erratic", "version": "1"},
                }),
            ),
            Some("tools/list") => self.list(id, params),
            Some("tools/call") => self.call(id, params),
            Some("notifications/cancelled") => self.cancelled += 1,
            Some(_) => {}
            None => {
                let Some(call) = self.asking.take() else { return };
                if self.mode == "ungrateful" {
                    let error = json!({"code": -32000, "message": "the seat is taken"});
                    send(&json!({"jsonrpc": "2.0", "id": call, "error": error}));
                } else {
                    text(&call, message.to_string());
                }
            }
        }
    }

    fn list(&mut self, id: &Value, params: &Value) {
        self.lists += 1;
        if self.mode == "flaky" && self.lists < 3 {
            send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "not yet"}}));
            return;
        }
        if self.mode == "endless" {
            let page = params["cursor"].as_str().and_then(|cursor| cursor.parse::<u32>().ok()).unwrap_or(0);
            let tools: Vec<_> = (0..100).map(|index| tool(&format!("tool_{page}_{index}"))).collect();
            answer(id, json!({"tools": tools, "nextCursor": (page + 1).to_string()}));
            return;
        }
        let names = [
            "echo",
            "environment",
            "picture",
            "hang",
            "cancellations",
            "slow",
            "die",
            "flood",
            "huge",
            "grow",
            "shrink",
            "fail",
            "ask",
            "complain",
        ];
        let mut tools: Vec<_> = names.into_iter().map(tool).collect();
        let mut lying = tool("lie");
        lying["outputSchema"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        tools.push(lying);
        let mut harmless = tool("look");
        harmless["annotations"] = json!({"readOnlyHint": true});
        tools.push(harmless);
        if self.has_grown {
            tools.push(tool("grown"));
        }
        if self.mode == "odd-tools" {
            let mut invalid = tool("invalid_schema");
            invalid["inputSchema"] = json!({"type": "objet"});
            tools.extend([tool("adk_request_confirmation"), tool("echo"), invalid, tool("drop\ntable")]);
            tools.extend(["two words", "notes_add", "notes.add", "files/read", &"long".repeat(20)].map(tool));
        }
        answer(id, json!({ "tools": tools }));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let args = &params["arguments"];
        match params["name"].as_str().unwrap() {
            "echo" | "grown" | "look" => text(id, args["text"].as_str().unwrap_or("nothing")),
            "environment" => {
                let mut names: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                names.retain(|entry| !entry.starts_with("PATH="));
                let folder = std::env::current_dir().unwrap();
                answer(id, json!({"content": [], "structuredContent": {"variables": names, "folder": folder}}));
            }
            "picture" => answer(
                id,
                json!({"content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                    {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
                ]}),
            ),
            "hang" => {}
            "cancellations" => text(id, self.cancelled.to_string()),
            "slow" => {
                for step in 0..args["steps"].as_u64().unwrap() {
                    std::thread::sleep(Duration::from_millis(args["millis"].as_u64().unwrap()));
                    let token = &params["_meta"]["progressToken"];
                    notify("notifications/progress", json!({"progressToken": token, "progress": step}));
                }
                text(id, "done");
            }
            "die" => std::process::exit(1),
            "flood" => {
                for _ in 0..args["count"].as_u64().unwrap() {
                    notify("notifications/message", json!({"level": "info", "data": "spam"}));
                }
                text(id, "flooded");
            }
            "huge" => text(id, "x".repeat(args["bytes"].as_u64().unwrap() as usize)),
            "grow" => {
                self.has_grown = true;
                notify("notifications/tools/list_changed", json!({}));
                text(id, "grown");
            }
            "shrink" => {
                self.has_grown = false;
                notify("notifications/tools/list_changed", json!({}));
                text(id, "shrunk");
            }
            "fail" => answer(id, json!({"content": [{"type": "text", "text": "no such city"}], "isError": true})),
            "lie" => answer(id, json!({"content": [], "structuredContent": {"n": "seven"}})),
            "ask" => {
                self.asking = Some(id.clone());
                send(&json!({"jsonrpc": "2.0", "id": "ask-1", "method": args["method"], "params": args["params"]}));
            }
            "complain" => {
                let mut errors = std::io::stderr().lock();
                let odd = [&[b'x'; 10_000][..], b"\xff"];
                for line in odd.into_iter().chain(std::iter::repeat_n(&b"short"[..], 20_000)) {
                    errors.write_all(&[line, b"\n"].concat()).unwrap();
                }
                text(id, "complained");
            }
            name if self.mode == "odd-tools" => answer(
                id,
                json!({"content": [
                    {"type": "text", "text": name}, {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                ]}),
            ),
            other => send(&json!({
                "jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": format!("unknown tool {other}")},
            })),
        }
    }
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}})
}
