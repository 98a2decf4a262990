//! A client of the routes `/stats` and `/events` of a running host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::terminal::escape_control;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes of an answer.
const MAX_BYTES: usize = 16 << 20;

/// Maximum number of events of a view.
const MAX_EVENTS: usize = 10;

/// A snapshot of the activity of a host.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Snapshot {
    pub(super) stats: Stats,
    /// The newest events of the host, oldest first.
    pub(super) events: Vec<Value>,
}

/// The answer of `/stats`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stats {
    pub(super) version: String,
    pub(super) uptime_seconds: f64,
    pub(super) memory: MemoryStats,
    pub(super) runs: RunStats,
    pub(super) apps: usize,
    pub(super) components: Vec<ComponentStats>,
    pub(super) failed: Vec<FailedFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resident_bytes: Option<u64>,
    pub(super) body_bytes: u64,
    pub(super) max_body_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunStats {
    pub(super) active: usize,
    pub(super) max: usize,
    pub(super) in_progress: Vec<RunEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunEntry {
    pub(super) id: String,
    pub(super) app_name: String,
    pub(super) user_id: String,
    pub(super) session_id: String,
    pub(super) seconds: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComponentStats {
    pub(super) name: String,
    pub(super) calls: usize,
    pub(super) waiting_instances: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FailedFile {
    pub(super) path: String,
    pub(super) reason: String,
}

/// A client of a running host.
pub(super) struct HostClient {
    client: Client,
    url: String,
    /// The path of the Unix socket of the host.
    socket: Option<PathBuf>,
    key: Option<String>,
}

impl HostClient {
    /// Creates a client for the host at a URL, or at the path of the URL on a Unix socket.
    pub(super) fn new(url: &str, socket: Option<&Path>, key: Option<String>) -> anyhow::Result<Self> {
        let builder = Client::builder().no_proxy().timeout(TIMEOUT);
        let (builder, url) = match socket {
            Some(socket) => {
                let url = Url::parse(url).with_context(|| url.to_owned())?;
                (builder.unix_socket(socket), format!("http://localhost{}", url.path()))
            }
            None => (builder, url.to_owned()),
        };
        let socket = socket.map(Path::to_owned);
        Ok(Self { client: builder.build()?, url: url.trim_end_matches('/').to_owned(), socket, key })
    }

    /// Returns a snapshot.
    pub(super) async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let body = read(self.get("/stats").await?).await?;
        let stats = serde_json::from_slice(&body).context("/stats: the response is not from a Hatchery host")?;
        Ok(Snapshot { stats, events: self.events().await? })
    }

    /// Returns the newest events. Reads only the stored ones of the endless stream.
    async fn events(&self) -> anyhow::Result<Vec<Value>> {
        let mut chunks = self.get("/events").await?;
        let mut body = Vec::new();
        while let Some(chunk) = chunks.chunk().await? {
            append(&mut body, &chunk)?;
            if body.ends_with(b"\n\n") {
                break;
            }
        }
        let text = String::from_utf8_lossy(&body);
        let data = text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
        let events: Vec<Value> = data.filter(|event: &Value| event.get("kind").is_some()).collect();
        Ok(events.get(events.len().saturating_sub(MAX_EVENTS)..).unwrap_or_default().to_vec())
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        let url = format!("{}{path}", self.url);
        let request = self.client.get(&url);
        let request = self.key.iter().fold(request, |request, key| request.bearer_auth(key));
        let response = request.send().await.with_context(|| match &self.socket {
            Some(socket) => {
                let socket = socket.display();
                format!(
                    "{socket}: no host answers on this socket; start one with `hatchery serve --listen unix:{socket}`"
                )
            }
            None => format!("{url}: no host answers there; start one with `hatchery serve`, or name its URL"),
        })?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => bail!(
                "{url}: the host wants an API key of the role `operate`; put it into the environment variable HATCHERY_KEY, or name \
                 another one with --key-from"
            ),
            status => {
                let problem = serde_json::from_slice(&read(response).await?).unwrap_or(Value::Null);
                let detail = problem.get("detail").and_then(Value::as_str);
                bail!(
                    "{url}: the host answered {status}{}",
                    detail.map(|text| format!(": {}", escape_control(text))).unwrap_or_default()
                )
            }
        }
    }
}

/// Reads a body.
///
/// # Errors
/// If it ends too early, or is too large.
async fn read(mut response: Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        append(&mut body, &chunk)?;
    }
    Ok(body)
}

fn append(body: &mut Vec<u8>, chunk: &[u8]) -> anyhow::Result<()> {
    if body.len() + chunk.len() > MAX_BYTES {
        bail!("the answer is larger than {MAX_BYTES} bytes");
    }
    body.extend_from_slice(chunk);
    Ok(())
}
