//! Tools that send HTTP requests.

use futures::future::join_all;
use hatchery_guest::http::{self, Request};
use hatchery_guest::prelude::*;

/// A request; the header is `x-one`.
#[derive(Deserialize, JsonSchema)]
pub struct Visit {
    url: String,
    #[serde(default = "get")]
    method: String,
    #[serde(default)]
    header: String,
    #[serde(default)]
    body: String,
}

fn get() -> String {
    "GET".into()
}

/// Sends a request. Returns what has arrived, or the error.
#[tool]
pub async fn visit(visit: Visit) -> Value {
    arrived(visit).await.unwrap_or_else(|error| json!({ "code": error.code, "error": error.message }))
}

async fn arrived(visit: Visit) -> Result<Value, Error> {
    let request = Request::new(visit.method, visit.url).body(visit.body);
    let request = if visit.header.is_empty() { request } else { request.header("x-one", visit.header) };
    let response = request.send().await?;
    let (status, url) = (response.status, response.url().to_owned());
    let kind = response.header("content-type").map(str::to_owned);
    Ok(json!({ "status": status, "url": url, "type": kind, "text": response.text().await? }))
}

/// Requests to send together.
#[derive(Deserialize, JsonSchema)]
pub struct VisitAll {
    urls: Vec<String>,
}

/// Sends requests together, and returns their statuses.
#[tool]
pub async fn visit_all(visits: VisitAll) -> Result<Vec<u16>, Error> {
    let responses = join_all(visits.urls.into_iter().map(http::get)).await;
    responses.into_iter().map(|response| Ok(response?.status)).collect()
}
