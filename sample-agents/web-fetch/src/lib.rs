//! A tool that reads web pages.
//!
//! The operator grants hosts. A request to another host is an error with the lines that would grant it; like every
//! error of a tool, it is sent to the model.

mod page;

use hatchery_guest::prelude::*;

use page::Page;

/// Maximum number of bytes that are read of a page.
const MAX_BYTES: usize = 1 << 20;

/// The arguments of `read_page`.
#[derive(Deserialize, JsonSchema)]
struct PageRequest {
    /// The URL of the page, with `https://`.
    url: String,
    /// Maximum number of characters of its text.
    #[serde(default = "default_max_chars")]
    max_chars: usize,
}

fn default_max_chars() -> usize {
    4000
}

/// Reads a web page and returns its title and the beginning of its text.
#[tool]
async fn read_page(request: PageRequest) -> Result<Value, ToolError> {
    let mut response = http::get(request.url).await?.error_for_status()?;
    let is_html = response.header("content-type").is_none_or(|kind| kind.contains("html"));
    let mut bytes = Vec::new();
    while let Some(mut chunk) = response.chunk().await?
        && bytes.len() < MAX_BYTES
    {
        bytes.append(&mut chunk);
    }
    let source = String::from_utf8_lossy(&bytes);
    let Page { title, text } = if is_html { Page::from_html(&source) } else { Page::from_text(&source) };
    let beginning: String = text.chars().take(request.max_chars).collect();
    let is_cut = beginning.len() < text.len();
    Ok(json!({ "url": response.url(), "title": title, "text": beginning, "is_cut": is_cut }))
}

hatchery_guest::export! { tools: [read_page] }
