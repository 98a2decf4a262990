//! HTTP requests, and attempts at forbidden operations: sockets, filling the host's memory, and imports during the
//! description.

mod hoard;

use std::hash::{BuildHasher, RandomState};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use hatchery_guest::http::{Request, Response};
use hatchery_guest::prelude::*;
use hoard::{chance, hoard_bodies, hoard_fields, hoard_responses, long_texts};

/// A request.
#[derive(Deserialize, JsonSchema)]
struct RequestArgs {
    /// The default is `GET`.
    method: Option<String>,
    url: String,
    /// Names and values.
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// The size of the body in bytes.
    #[serde(default)]
    body: usize,
    /// The component's own timeout.
    timeout_ms: Option<u64>,
}

impl RequestArgs {
    async fn send(self) -> Result<Response, Error> {
        let mut request = Request::new(self.method.unwrap_or_else(|| "GET".into()), self.url);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(millis) = self.timeout_ms {
            request = request.timeout(Duration::from_millis(millis));
        }
        request.body(vec![b'x'; self.body]).send().await
    }
}

/// Sends a request and returns the response, or the error with its code.
#[tool]
async fn fetch(args: RequestArgs) -> Result<Value, ToolError> {
    Ok(result(answer(args).await))
}

async fn answer(args: RequestArgs) -> Result<Value, Error> {
    let response = args.send().await?;
    let (status, url) = (response.status, response.url().to_owned());
    Ok(json!({ "status": status, "url": url, "text": response.text().await? }))
}

fn result(answer: Result<Value, Error>) -> Value {
    answer.unwrap_or_else(|error| json!({ "code": error.code, "error": error.message }))
}

/// A shop with its own OAuth server.
#[derive(Deserialize, JsonSchema)]
struct Shop {
    /// The URL of both.
    url: String,
}

/// Returns the user's orders, with a token that the user has granted.
#[tool]
async fn list_orders(shop: Shop, cx: ToolContext) -> Result<Value, ToolError> {
    let url = shop.url;
    let login = AuthConfig::oauth2(format!("{url}/authorize"), format!("{url}/token"), "hatchery").scope("orders.read");
    let Some(credential) = cx.credential(&login).await? else { return Ok(json!({ "pending": true })) };
    let bearer = format!("Bearer {}", credential.token().unwrap_or_default());
    let response = Request::get(format!("{url}/v1/orders")).header("authorization", bearer).send().await?;
    if response.status == 401 {
        cx.refuse_credential(&login, &credential).await?;
        return Err(ToolError::recoverable("the shop has refused the token"));
    }
    Ok(response.json().await?)
}

/// Requests.
#[derive(Deserialize, JsonSchema)]
struct Several {
    requests: Vec<RequestArgs>,
}

/// Sends requests at the same time.
#[tool]
async fn fetch_all(several: Several) -> Vec<Value> {
    join_all(several.requests.into_iter().map(answer)).await.into_iter().map(result).collect()
}

/// Sends requests, and reads the responses once all have begun.
#[tool]
async fn hold_all(several: Several) -> Vec<Value> {
    let responses = join_all(several.requests.into_iter().map(RequestArgs::send)).await;
    let texts = responses.iter().map(|response| match response {
        Ok(response) => json!(response.status),
        Err(error) => json!({ "code": error.code, "error": error.message }),
    });
    texts.collect()
}

/// Counts the bytes of a body as they come.
#[tool]
async fn measure(args: RequestArgs) -> Value {
    let (mut bytes, mut response) = match args.send().await {
        Ok(response) => (0, response),
        Err(error) => return result(Err(error)),
    };
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes += chunk.len(),
            Ok(None) => return json!({ "bytes": bytes }),
            Err(error) => return json!({ "bytes": bytes, "code": error.code, "error": error.message }),
        }
    }
}

/// An address.
#[derive(Deserialize, JsonSchema)]
struct Address {
    address: String,
}

/// Tries every kind of socket, and returns the result of each.
#[tool]
async fn sockets(Address { address }: Address) -> Value {
    let reply =
        |result: std::io::Result<()>| result.map_or_else(|error| format!("{:?}", error.kind()), |()| "it works".into());
    json!({
        "connect": reply(TcpStream::connect(&address).map(drop)),
        "listen": reply(TcpListener::bind("127.0.0.1:0").map(drop)),
        "udp": reply(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", &address).map(drop))),
        "lookup": reply("localhost:80".to_socket_addrs().map(drop)),
    })
}

/// Has the result of a request during `describe` as its description.
#[agent]
fn curious() -> LlmAgent {
    let answer = futures::executor::block_on(http::get("https://example.com/"));
    let report = answer.map_or_else(|error| error.message, |response| response.status.to_string());
    LlmAgent::new("curious").description(report).model("scripted:browser.yaml")
}

/// Has its environment as its description.
#[agent]
fn nosy() -> LlmAgent {
    let (variables, chance) = (std::env::vars().count(), RandomState::new().hash_one(0));
    let files = std::fs::read_dir("/data").map_or(0, Iterator::count);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let found = format!("{variables} variables, {files} files, {seconds} seconds since 1970, chance {chance}");
    LlmAgent::new("nosy").description(found).model("scripted:browser.yaml")
}

hatchery_guest::export! {
    agents: [curious, nosy],
    tools: [
        fetch, fetch_all, hold_all, list_orders, measure, sockets, hoard_bodies, hoard_responses, hoard_fields, long_texts, chance,
    ],
}
