//! A server with the interface of Vertex AI Agent Engine: sessions, events and Memory Bank, in memory. It answers as
//! Google's does where services depend on it: it rejects unknown fields, sorts the keys of objects, and stores numbers
//! as floats.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use hatchery_core::{StoreError, Timestamp};
use hatchery_stores::firestore::AccessTokens;
use hatchery_stores::{AgentEngineMemory, AgentEngineSessions};
use serde_json::{Map, Value, json};

/// The engine that exists.
pub const ENGINE: &str = "projects/p/locations/l/reasoningEngines/7";
pub const TOKEN: &str = "granted";

/// A running server.
#[derive(Clone, Default)]
pub struct FakeEngine {
    pub url: String,
    state: Arc<Mutex<Stored>>,
}

#[derive(Default)]
struct Stored {
    sessions: BTreeMap<String, StoredSession>,
    facts: Vec<(Value, String)>,
    /// Method, path and body of each request.
    requests: Vec<(String, Value)>,
    /// The next answers, instead of the real ones.
    failures: Vec<(StatusCode, Value)>,
    /// The next answers to questions for an operation.
    operation_failures: Vec<StatusCode>,
}

struct StoredSession {
    json: Map<String, Value>,
    events: Vec<Value>,
}

type Answer = Result<Value, (StatusCode, Value)>;

impl FakeEngine {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { url: format!("http://{}", listener.local_addr().unwrap()), ..Self::default() };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Returns the variable of this name with which the server is used.
    pub fn variable(&self, name: &str) -> Option<String> {
        (name == "GOOGLE_VERTEX_BASE_URL").then(|| self.url.clone())
    }

    pub fn sessions(&self) -> AgentEngineSessions {
        AgentEngineSessions::open("agentengine://p/l/7", tokens(), |name| self.variable(name)).unwrap()
    }

    pub fn memory(&self) -> AgentEngineMemory {
        AgentEngineMemory::open("agentengine://p/l/7", tokens(), |name| self.variable(name)).unwrap()
    }

    /// Answers the next request with a failure.
    pub fn fail(&self, status: u16, answer: Value) {
        self.state.lock().unwrap().failures.push((StatusCode::from_u16(status).unwrap(), answer));
    }

    /// Answers the next question for an operation with a failure.
    pub fn fail_operation(&self, status: u16) {
        self.state.lock().unwrap().operation_failures.push(StatusCode::from_u16(status).unwrap());
    }

    /// Returns method, path and body of the requests.
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Returns the stored events of a session.
    pub fn events(&self, session: &str) -> Vec<Value> {
        self.state.lock().unwrap().sessions[session].events.clone()
    }

    /// Sets the time of the last change of a session.
    pub fn set_update_time(&self, session: &str, time: &str) {
        let mut stored = self.state.lock().unwrap();
        stored.sessions.get_mut(session).unwrap().json.insert("updateTime".into(), time.into());
    }

    /// Stores a session with events as another program would have.
    pub fn add(&self, id: &str, user: &str, state: Value, events: Vec<Value>) {
        let json = new_session(id, json!({ "userId": user, "sessionState": state }));
        let named = events.into_iter().enumerate().map(|(number, mut event)| {
            event["name"] = format!("{ENGINE}/sessions/{id}/events/{number}").into();
            event
        });
        self.state.lock().unwrap().sessions.insert(id.into(), StoredSession { json, events: named.collect() });
    }
}

struct Tokens;

#[async_trait]
impl AccessTokens for Tokens {
    async fn token(&self) -> Result<String, StoreError> {
        Ok(TOKEN.into())
    }
}

/// Returns the tokens that the server accepts.
pub fn tokens() -> Arc<dyn AccessTokens> {
    Arc::new(Tokens)
}

async fn answer(
    State(server): State<FakeEngine>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Response {
    let is_granted = request.headers().get("authorization").is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    let mut stored = server.state.lock().unwrap();
    stored.requests.push((format!("{method} {uri}"), body.clone()));
    let failed = if uri.path().contains("/operations/") {
        stored.operation_failures.pop().map(|status| (status, Value::Null))
    } else {
        None
    };
    let answer = match failed.or_else(|| stored.failures.pop()) {
        Some(failure) => Err(failure),
        None if !is_granted => Err(failure(401, "Request had invalid authentication credentials.")),
        None => match uri.path().strip_prefix(&format!("/v1beta1/{ENGINE}/")) {
            Some(path) => stored.answer(&method, path, &query, to_struct(body)),
            None => Err(failure(404, "The ReasoningEngine does not exist.")),
        },
    };
    match answer {
        Ok(json) => Json(json).into_response(),
        Err((status, json)) => (status, Json(json)).into_response(),
    }
}

fn failure(status: u16, message: &str) -> (StatusCode, Value) {
    let json = json!({ "error": { "code": status, "message": message } });
    (StatusCode::from_u16(status).unwrap(), json)
}

impl Stored {
    fn answer(&mut self, method: &Method, path: &str, query: &HashMap<String, String>, body: Value) -> Answer {
        let segments: Vec<&str> = path.split('/').collect();
        match (method.as_str(), &segments[..]) {
            ("POST", ["sessions"]) => self.create(&query["sessionId"], body),
            ("GET", ["sessions"]) => Ok(self.list(query)),
            ("GET", ["sessions", id]) => Ok(self.session(id)?.json.clone().into()),
            ("DELETE", ["sessions", id]) => {
                self.session(id)?;
                self.sessions.remove(*id);
                Ok(json!({ "name": format!("{ENGINE}/sessions/{id}/operations/1"), "done": true, "response": {} }))
            }
            ("GET", ["sessions", id, "operations", _]) => {
                let session = self.session(id)?.json.clone();
                Ok(json!({ "name": path, "done": true, "response": session }))
            }
            ("GET", ["sessions", id, "events"]) => {
                let events = self.session(id)?.events.clone();
                Ok(page("sessionEvents", events, query))
            }
            ("POST", ["sessions", appended]) => {
                let id = appended.strip_suffix(":appendEvent").ok_or_else(|| failure(404, "no such method"))?;
                self.append(id, body)
            }
            ("POST", ["memories:generate"]) => self.generate(&body),
            ("POST", ["memories:retrieve"]) => Ok(self.retrieve(&body)),
            _ => Err(failure(404, "no such method")),
        }
    }

    fn session(&mut self, id: &str) -> Result<&mut StoredSession, (StatusCode, Value)> {
        self.sessions.get_mut(id).ok_or_else(|| failure(404, "Session not found."))
    }

    fn create(&mut self, id: &str, body: Value) -> Answer {
        check_fields(&body, &["userId", "displayName", "sessionState"])?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !id.bytes().all(is_plain) || !id.starts_with(|c: char| c.is_ascii_lowercase()) || id.len() > 63 {
            return Err(failure(400, "Invalid session id."));
        }
        if self.sessions.contains_key(id) {
            return Err(failure(409, "Session already exists."));
        }
        self.sessions.insert(id.into(), StoredSession { json: new_session(id, body), events: Vec::new() });
        Ok(json!({ "name": format!("{ENGINE}/sessions/{id}/operations/1") }))
    }

    fn list(&self, query: &HashMap<String, String>) -> Value {
        let user = query.get("filter").map(|filter| {
            let user = filter.strip_prefix("user_id=\"").unwrap().strip_suffix('"').unwrap();
            user.replace("\\\"", "\"").replace("\\\\", "\\")
        });
        let is_listed = |session: &&StoredSession| user.as_ref().is_none_or(|user| session.json["userId"] == **user);
        let own = self.sessions.values().filter(is_listed);
        page("sessions", own.map(|session| session.json.clone().into()).collect(), query)
    }

    fn append(&mut self, id: &str, mut event: Value) -> Answer {
        let metadata = [
            "partial",
            "turnComplete",
            "interrupted",
            "longRunningToolIds",
            "branch",
            "groundingMetadata",
            "customMetadata",
        ];
        let actions =
            ["skipSummarization", "stateDelta", "artifactDelta", "escalate", "requestedAuthConfigs", "transferAgent"];
        let fields = [
            "author",
            "content",
            "invocationId",
            "actions",
            "timestamp",
            "errorCode",
            "errorMessage",
            "eventMetadata",
            "rawEvent",
        ];
        check_fields(&event, &fields)?;
        check_fields(&event["eventMetadata"], &metadata)?;
        check_fields(&event["actions"], &actions)?;
        for required in ["author", "invocationId", "timestamp"] {
            if !event[required].is_string() {
                return Err(failure(400, &format!("{required} is required.")));
            }
        }
        let session = self.session(id)?;
        let number = session.events.len();
        event["name"] = format!("{ENGINE}/sessions/{id}/events/{number}").into();
        let mut state = session.json["sessionState"].as_object().cloned().unwrap_or_default();
        for (key, value) in event["actions"]["stateDelta"].as_object().into_iter().flatten() {
            if value.is_null() {
                state.remove(key);
            } else {
                state.insert(key.clone(), value.clone());
            }
        }
        session.json.insert("sessionState".into(), state.into());
        session.json.insert("updateTime".into(), now().into());
        session.events.push(event);
        Ok(json!({}))
    }

    /// Stores one fact per text.
    fn generate(&mut self, body: &Value) -> Answer {
        check_fields(body, &["scope", "directContentsSource"])?;
        for event in body["directContentsSource"]["events"].as_array().unwrap() {
            for part in event["content"]["parts"].as_array().unwrap() {
                if let Some(text) = part["text"].as_str() {
                    self.facts.push((body["scope"].clone(), text.to_owned()));
                }
            }
        }
        Ok(json!({ "name": format!("{ENGINE}/memories/operations/1") }))
    }

    /// Returns the facts with words of the query, those with most first, and then all others.
    fn retrieve(&self, body: &Value) -> Value {
        let query = body["similaritySearchParams"]["searchQuery"].as_str().unwrap();
        let limit = body["similaritySearchParams"]["topK"].as_u64().unwrap_or(3);
        let mut facts: Vec<&String> =
            self.facts.iter().filter(|(scope, _)| *scope == body["scope"]).map(|(_, fact)| fact).collect();
        facts.sort_by_key(|fact| std::cmp::Reverse(query.split(' ').filter(|word| fact.contains(word)).count()));
        let found = facts.into_iter().take(limit as usize).map(|fact| {
            json!({ "memory": { "name": "m", "fact": fact, "updateTime": "2026-01-02T03:04:05.5Z" }, "distance": 0.5 })
        });
        json!({ "retrievedMemories": found.collect::<Vec<_>>() })
    }
}

fn new_session(id: &str, body: Value) -> Map<String, Value> {
    let mut json = body.as_object().unwrap().clone();
    json.insert("name".into(), format!("{ENGINE}/sessions/{id}").into());
    json.insert("createTime".into(), now().into());
    json.insert("updateTime".into(), now().into());
    json
}

/// Returns the current time as Google writes it.
fn now() -> String {
    let micros = Timestamp::now().as_micros();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_micros(micros.unsigned_abs());
    let date = httpdate::HttpDate::from(time).to_string();
    let words: Vec<&str> = date.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let [_, day, month, year, clock, _] = words[..] else { panic!("{date}") };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month).unwrap() + 1;
    format!("{year}-{month:02}-{day}T{clock}.{:06}Z", micros % 1_000_000)
}

/// Google rejects fields that it does not know.
fn check_fields(json: &Value, known: &[&str]) -> Result<(), (StatusCode, Value)> {
    let fields = json.as_object().into_iter().flatten().map(|(field, _)| field);
    match fields.into_iter().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => Err(failure(400, &format!("Unknown name \"{unknown}\": Cannot find field."))),
        None => Ok(()),
    }
}

/// Returns a page of at most two thirds of the requested size, which servers are free to do.
fn page(name: &str, items: Vec<Value>, query: &HashMap<String, String>) -> Value {
    let size = query["pageSize"].parse::<usize>().unwrap() * 2 / 3;
    let first = query.get("pageToken").map_or(0, |token| token.parse::<usize>().unwrap());
    let total = items.len();
    let mut answer = json!({ name: items.into_iter().skip(first).take(size).collect::<Vec<_>>() });
    if first + size < total {
        answer["nextPageToken"] = (first + size).to_string().into();
    }
    answer
}

/// Returns a value as it is after it was stored: keys are sorted, and numbers are floats.
fn to_struct(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<String, Value> = map.into_iter().map(|(key, value)| (key, to_struct(value))).collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(values) => values.into_iter().map(to_struct).collect(),
        Value::Number(number) => {
            let float = number.as_f64().unwrap();
            if float.fract() == 0.0 && float.abs() < 9e15 { (float as i64).into() } else { float.into() }
        }
        value => value,
    }
}
