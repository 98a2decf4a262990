//! The developer page at `/dev-ui`: apps with example commands, components and files. It uses no script and no network.

use std::fmt::Write;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;

use crate::state::AppState;
use hatchery::shell::session_commands;
use hatchery::{CatalogReport, ComponentReport};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/", get(root)).route("/dev-ui", get(page)).route("/dev-ui/", get(page))
}

async fn root() -> Redirect {
    Redirect::temporary("/dev-ui")
}

async fn page(State(state): State<AppState>, headers: HeaderMap) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:8080");
    let source = state.source();
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let html = render(host, &nonce, &source.app_names(), &source.report());
    ([(header::CONTENT_SECURITY_POLICY, policy(&nonce))], Html(html)).into_response()
}

/// Returns the content security policy: only the style of the page is allowed.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3rem .6rem;text-align:left;\
    vertical-align:top}pre{background:#8881;padding:1rem;overflow-x:auto}.failed{color:#b00}:root{color-scheme:light dark}";

fn render(host: &str, nonce: &str, apps: &[String], report: &CatalogReport) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Hatchery</title><style nonce=\"{nonce}\">{STYLE}</style></head>\
         <body><h1>Hatchery</h1><h2>Apps</h2>"
    );
    if apps.is_empty() {
        html.push_str("<p>No app is loaded.</p>");
    }
    for app in apps {
        push(
            &mut html,
            format_args!(
                "<h3>{}</h3><pre>{}</pre>",
                escape(app),
                escape(&session_commands(&format!("http://{host}"), app))
            ),
        );
    }
    html.push_str("<h2>Components</h2>");
    table(
        &mut html,
        ["Name", "File", "Agents", "Tools", "Callbacks", "Other items"],
        report.components.iter().map(|component| {
            let names = [&component.agents, &component.tools, &component.callbacks].map(|names| names.join(", "));
            let [agents, tools, callbacks] = names;
            ("", [component.name.clone(), component.file.clone(), agents, tools, callbacks, other_items(component)])
        }),
    );
    html.push_str("<h2>Files</h2>");
    table(
        &mut html,
        ["File", "State", "Reason"],
        report.files.iter().map(|file| {
            let class = if file.reason.is_some() { "failed" } else { "" };
            (class, [file.path.clone(), file.state.clone(), file.reason.clone().unwrap_or_default()])
        }),
    );
    push(&mut html, format_args!("<p>Generation {}</p></body></html>\n", report.generation));
    html
}

/// Returns the items of a component other than agents, tools and callbacks: `plugin censor, model echo`.
fn other_items(component: &ComponentReport) -> String {
    let kinds = [
        ("plugin", &component.plugins),
        ("code executor", &component.code_executors),
        ("summarizer", &component.summarizers),
        ("example provider", &component.examples),
        ("model", &component.models),
    ];
    let items = kinds.iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")));
    items.collect::<Vec<_>>().join(", ")
}

fn table<const N: usize>(html: &mut String, heads: [&str; N], rows: impl Iterator<Item = (&'static str, [String; N])>) {
    let cells = |tag: &str, texts: &[&str]| {
        texts.iter().map(|text| format!("<{tag}>{}</{tag}>", escape(text))).collect::<String>()
    };
    push(html, format_args!("<table><tr>{}</tr>", cells("th", &heads)));
    for (class, row) in rows {
        push(html, format_args!("<tr class=\"{class}\">{}</tr>", cells("td", &row.each_ref().map(String::as_str))));
    }
    html.push_str("</table>");
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn push(html: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = html.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::FileReport;

    #[test]
    fn names_and_reasons_are_escaped() {
        let evil = "<script>alert('x')</script>\"&".to_owned();
        let report = CatalogReport {
            generation: 7,
            components: vec![ComponentReport { name: evil.clone(), file: evil.clone(), ..Default::default() }],
            files: vec![FileReport {
                path: evil.clone(),
                state: evil.clone(),
                reason: Some(evil.clone()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let html = render(&evil, "n", std::slice::from_ref(&evil), &report);
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("alert('"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;alert(&#39;x&#39;)").count(), 6, "{html}");
        assert!(html.contains("Generation 7"));
    }

    #[test]
    fn a_page_without_apps_says_so() {
        assert!(render("h", "n", &[], &CatalogReport::default()).contains("No app is loaded."));
    }
}
