//! A host in a Rust program: components and YAML agents of a folder, beside a native agent.
//!
//!     cargo run -p hatchery --example embed_host -- my-agents greeter "Hello"
//!
//! Without arguments it runs its native agent, without a folder.

use std::error::Error;
use std::io::{Write, stdout};

use hatchery::{Host, HostBuilder};
use hatchery_core::{Agent, Content, Event, RunConfig, StreamingMode};
use hatchery_engine::RunRequest;
use hatchery_engine::build::{BuildError, custom};

/// An agent in Rust: it repeats the user's message.
fn parrot() -> Result<Agent, BuildError> {
    let agent = custom("parrot", |cx| async move {
        let text = cx.call.invocation.user_content().text();
        cx.say(text).await?;
        Ok(())
    });
    agent.build()
}

/// Opens the host, sends `text` to `app` and prints the events.
pub async fn run_turn(builder: HostBuilder, app: &str, text: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let host = builder.agent(parrot()?).open().await?;
    writeln!(out, "apps: {}", host.apps().app_names().join(", "))?;
    let config = RunConfig { streaming_mode: StreamingMode::On, auto_create_session: true, ..RunConfig::default() };
    let request = RunRequest { config, ..RunRequest::new("ada", "session-1", Content::user(text)) };
    let mut run = host.run_request(app, request).await?;
    while let Some(event) = run.next().await {
        print(event?.as_ref(), out)?;
    }
    host.close().await;
    Ok(())
}

fn print(event: &Event, out: &mut impl Write) -> std::io::Result<()> {
    // Partial events are streamed parts of the complete event that follows.
    if event.partial {
        return Ok(());
    }
    for call in event.function_calls() {
        writeln!(out, "→ {}", call.name)?;
    }
    let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
    if !text.is_empty() {
        writeln!(out, "{}: {text}", event.author)?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [folder, app, text] => run_turn(Host::builder().folder(folder), app, text, &mut stdout()).await,
        [] => run_turn(Host::builder(), "parrot", "Hello", &mut stdout()).await,
        _ => Err("usage: embed_host [FOLDER APP TEXT]".into()),
    }
}
