//! 10,000 requests that are generated from the routes: each has an answer that blames the client, and nothing is left
//! of them.

use futures::StreamExt;
use hatchery::{DevUi, ServerConfig, TriggerSource};
use serde_json::{Value, json};

use crate::support::{Host, run_body};

const REQUESTS: usize = 10_000;

/// How many requests are in progress at a time.
const CONCURRENCY: usize = 8;

/// Routes that are not in the document.
const OTHER_PATHS: [&str; 12] = [
    "/run-sse",
    "/run_live?app_name=says&user_id=u&session_id=s",
    "/a2a/says",
    "/a2a/says/v1/message:send",
    "/mcp",
    "/dev-ui/",
    "/login",
    "/apps/{app}/eval_sets/{id}/add_session",
    "/builder/save",
    "/",
    "*",
    "//apps/../run",
];

/// Routes that begin runs, which more requests are for.
const RUNS: [&str; 3] = ["/run", "/run_sse", "/run-sse"];

/// How many of the bodies are of runs.
const RUN_BODIES: usize = 5;

/// Names in paths. Names of agents that wait or fail are omitted.
const NAMES: [&str; 20] = [
    "u",
    "s",
    "says",
    "streams",
    "nothing",
    "r",
    "",
    "..",
    "%2e%2e",
    "a%2Fb",
    "..%2f..%2fetc%2fpasswd",
    "%ff",
    "%00",
    "%0d%0aX-Injected:%201",
    "%F0%9F%8E%B2",
    "A2A_PUSH",
    "%7Bapp%7D",
    "-1",
    "18446744073709551616",
    "'--",
];

const QUERIES: [&str; 16] = [
    "",
    "?limit=0",
    "?limit=-1",
    "?limit=1000",
    "?after=x",
    "?after=18446744073709551615",
    "?pageToken=9",
    "?numRecentEvents=-1",
    "?afterTimestamp=NaN",
    "?query=%ff",
    "?dark_mode=maybe",
    "?from=c0ffee&to=c0ffee",
    "?file_path=../../etc/passwd",
    "?version=99999999999999999999",
    "?detailed=true&detailed=false",
    "?&&=&%",
];

const HEADERS: [&str; 12] = [
    "",
    "",
    "",
    "Last-Event-ID: x\r\n",
    "Last-Event-ID: 1\r\n",
    "Idempotency-Key: \"r\"\r\n",
    "Idempotency-Key: \u{fc}\r\n",
    "traceparent: 00-0-0-0\r\n",
    "Origin: https://evil.example\r\n",
    "Sec-Fetch-Site: cross-site\r\n",
    "Accept: ;;;\r\n",
    "Cookie: hatchery_login=x; ;=;\r\n",
];

const CONTENT_TYPES: [&str; 7] = [
    "application/json",
    "application/json",
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
];

const METHODS: [&str; 8] = ["GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "BREW"];

/// Random numbers that are the same in each run of the test (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Returns a path of this pattern, with names in place of its parameters.
    fn path(&mut self, pattern: &str) -> String {
        let mut path = String::new();
        for (index, part) in pattern.split('{').enumerate() {
            let (name, rest) = part.split_once('}').unwrap_or(("", part));
            if index > 0 {
                // Mostly what exists, so that requests get further than the first check.
                let known = match name {
                    "app" => "says",
                    "user" => "u",
                    _ => "s",
                };
                path.push_str(if self.below(3) == 0 { self.pick(&NAMES) } else { known });
            }
            path.push_str(rest);
        }
        path
    }

    /// Returns a body: one of these, half of the times with up to three changes.
    fn body(&mut self, bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut body = bodies[self.below(bodies.len())].clone();
        for _ in 0..self.below(8).saturating_sub(4) {
            let at = self.below(body.len() + 1);
            match self.below(4) {
                0 => body.truncate(at),
                1 => body.insert(at, self.below(256) as u8),
                2 => {
                    let piece = self.pick(&["null", "[]", "{", "1e999", "\\ud800", "\"", "-0", "true", ",", "\u{0}"]);
                    body.splice(at..at, piece.bytes());
                }
                _ if at < body.len() => body[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        body
    }

    fn request(&mut self, patterns: &[String], bodies: &[Vec<u8>]) -> Vec<u8> {
        let is_run = self.below(4) == 0;
        let pattern = if is_run { self.pick(&RUNS).to_owned() } else { patterns[self.below(patterns.len())].clone() };
        let (path, query) = (self.path(&pattern), if pattern.contains('?') { "" } else { self.pick(&QUERIES) });
        let method = self.pick(&METHODS);
        let (header, content_type) = (self.pick(&HEADERS), self.pick(&CONTENT_TYPES));
        let bodies = if is_run { &bodies[..RUN_BODIES] } else { bodies };
        let body = if method == "GET" { Vec::new() } else { self.body(bodies) };
        let head = format!(
            "{method} {path}{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}Content-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    }
}

fn bodies() -> Vec<Vec<u8>> {
    let mut streamed = run_body("streams", "hi");
    streamed["streaming"] = json!(true);
    let mut background = run_body("says", "hi");
    background["background"] = json!(true);
    let json = [
        json!({"appName": "says", "userId": "u", "sessionId": "s", "invocationId": "e-1"}),
        run_body("says", "hi"),
        streamed,
        background,
        json!({}),
        json!([]),
        Value::Null,
        json!({"sessionId": "s", "state": {"a": 1, "user:b": [], "app:c": {}}}),
        json!({"stateDelta": {"a": null}}),
        json!({"filename": "a/b.txt", "artifact": {"text": "x"}}),
        json!({"filename": "../x", "artifact": {"inlineData": {"mimeType": "text/html", "data": "AQID"}}}),
        json!({"eventId": "x", "revision": 1}),
        json!({"evalSet": {"evalSetId": "set", "evalCases": []}}),
        json!({"evalId": "c", "sessionId": "s", "userId": "u"}),
        json!({"args": {"a": [[[[]]]]}, "state": {}}),
        json!({"files": {"root_agent.yaml": "name: says"}, "known": {}}),
        json!({"message": {"data": "aGk=", "messageId": "7"}, "subscription": "s"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}),
    ];
    let raw = [format!("{}1{}", "[".repeat(5000), "]".repeat(5000)), "--x\r\n\r\n".to_owned(), "key=x".to_owned()];
    json.iter().map(|body| body.to_string().into_bytes()).chain(raw.map(String::into_bytes)).collect()
}

/// Returns what is wrong with a response.
fn problem_of(request: &[u8], response: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let line = String::from_utf8_lossy(request).lines().next().unwrap_or_default().to_owned();
    let wrong = |what: &str| Some(format!("{line}: {what}: {text:.600}"));
    let Some(status) = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok()) else {
        return wrong("no status");
    };
    let head = head.to_lowercase();
    // A run in the background holds the session that another request rewinds.
    let is_busy = status == 503 && head.contains("\r\nretry-after: ") && body.contains("\"code\":\"STORE_BUSY\"");
    if is_busy {
        return None;
    }
    if status >= 500 || head.contains("\r\nx-injected") {
        return wrong("a failure of the server");
    }
    // A request that is no HTTP reaches no route. Other protocols have their own errors.
    let path = line.split(' ').nth(1).unwrap_or_default();
    let is_other = ["/mcp", "/a2a", "/login", "/dev-ui", "/.well-known"].iter().any(|prefix| path.starts_with(prefix));
    if status < 400 || is_other || (body.is_empty() && !head.contains("x-request-id")) {
        return None;
    }
    if !head.contains("content-type: application/problem+json") {
        return wrong("no problem");
    }
    let problem: Value = match serde_json::from_str(body) {
        Ok(problem) => problem,
        Err(_) => return wrong("no JSON"),
    };
    let has = |key: &str| problem[key].as_str().is_some_and(|text| !text.is_empty());
    if problem["status"] != status || !has("code") || !has("detail") { wrong("an incomplete problem") } else { None }
}

#[tokio::test]
async fn ten_thousand_generated_requests_find_no_failure_and_leave_nothing() {
    let triggers = vec![TriggerSource::Pubsub, TriggerSource::Eventarc];
    let config = ServerConfig { dev_ui: Some(DevUi::Full), allow_import: true, triggers, ..ServerConfig::default() };
    let host = Host::with(config).await;
    for app in ["says", "streams"] {
        host.session(app).await;
    }
    let document = host.get_json("/openapi.json").await;
    // This stream does not end.
    let documented = document["paths"].as_object().unwrap().keys().filter(|path| *path != "/events");
    let patterns: Vec<_> = documented.cloned().chain(OTHER_PATHS.map(str::to_owned)).collect();
    let (whole, bodies) = (host.state.available_body_memory(), bodies());
    let mut random = Random(17);
    let requests: Vec<_> = (0..REQUESTS).map(|_| random.request(&patterns, &bodies)).collect();
    let server = &host;
    let answers = futures::stream::iter(&requests).map(|request| async move {
        let response = server.exchange(request).await;
        (problem_of(request, &response), response.get(9..12).map(<[u8]>::to_vec))
    });
    let answers: Vec<_> = answers.buffer_unordered(CONCURRENCY).collect().await;
    let problems: Vec<_> = answers.iter().filter_map(|(problem, _)| problem.as_deref()).collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems[..problems.len().min(5)].join("\n\n"));
    // They got further than the first check.
    for status in ["200", "400", "403", "404", "405", "415", "422", "426"] {
        let count = answers.iter().filter(|(_, it)| it.as_deref() == Some(status.as_bytes())).count();
        assert!(count > 0, "no request was answered with {status}");
    }
    host.state.runner().drain().await;
    assert_eq!(host.state.available_body_memory(), whole);
    assert_eq!(host.get_json("/stats").await["runs"]["active"], 0);
}
