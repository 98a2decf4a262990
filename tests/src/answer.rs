//! Complete HTTP answers.

use anyhow::{Context, ensure};
use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// An answer of the host.
#[derive(Debug)]
pub struct Answer {
    /// The request, for messages.
    pub request: String,
    /// The HTTP status.
    pub status: u16,
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn read(request: impl Into<String>, response: Response) -> anyhow::Result<Self> {
        let request = request.into();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.with_context(|| request.clone())?;
        Ok(Self { request, status, headers, text })
    }

    /// Returns the JSON body of an answer with this status.
    ///
    /// # Errors
    /// If it has another status, or is not JSON.
    pub fn json(&self, status: u16) -> anyhow::Result<Value> {
        ensure!(self.status == status, "{}: {}, not {status}: {}", self.request, self.status, self.text);
        serde_json::from_str(&self.text).with_context(|| format!("{}: {}", self.request, self.text))
    }

    /// Returns the detail of an error with this status and code.
    ///
    /// # Errors
    /// If it has another status or code, or is not `application/problem+json`.
    pub fn error(&self, status: u16, code: &str) -> anyhow::Result<String> {
        let body = self.json(status)?;
        let content_type = self.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(content_type.starts_with("application/problem+json"), "{}: {content_type}", self.request);
        let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        ensure!(text("code") == code, "{}: {} is not {code}: {body}", self.request, text("code"));
        ensure!(body.get("status") == Some(&status.into()), "{}: {body}", self.request);
        ensure!(!text("detail").is_empty() && text("detail") == text("error"), "{}: {body}", self.request);
        Ok(text("detail"))
    }
}
