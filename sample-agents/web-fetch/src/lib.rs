//! A tool that reads web pages.
//!
//! Which hosts it reaches is up to the operator: a request to any other is an error with the lines that would allow it, which goes on to
//! the model like all that a tool fails with.

mod page;

use hatchery_guest::prelude::*;

use page::Page;

/// How much of a page is read; titles and beginnings are not further down.
const MOST_BYTES: usize = 1 << 20;

/// A page to read.
#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// Its address, with `https://`.
    url: String,
    /// How many characters of its text to give.
    #[serde(default = "usual")]
    most: usize,
}

fn usual() -> usize {
    4000
}

/// Reads a web page and gives its title and the beginning of its text.
#[tool]
async fn read_page(wanted: Wanted) -> Result<Value, ToolError> {
    let mut response = http::get(wanted.url).await?.error_for_status()?;
    let is_html = response.header("content-type").is_none_or(|kind| kind.contains("html"));
    let mut bytes = Vec::new();
    while let Some(mut chunk) = response.chunk().await?
        && bytes.len() < MOST_BYTES
    {
        bytes.append(&mut chunk);
    }
    let source = String::from_utf8_lossy(&bytes);
    let Page { title, text } = if is_html { Page::of_html(&source) } else { Page::of_text(&source) };
    let beginning: String = text.chars().take(wanted.most).collect();
    let is_cut = beginning.len() < text.len();
    Ok(json!({ "url": response.url(), "title": title, "text": beginning, "is_cut": is_cut }))
}

hatchery_guest::export! { tools: [read_page] }
