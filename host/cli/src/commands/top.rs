//! `hatchery top`: the activity of a running host, read over HTTP.

mod host_client;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::interrupts::Interrupts;
use crate::outcome::Outcome;
use crate::terminal::{plain_stdout, stdout, terminal_height};
use host_client::{HostClient, Snapshot};
use screen::{RawTerminal, clip, render};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery top\n  hatchery top https://agents.example --key-from OPERATOR_KEY\n  \
                        hatchery top --socket /run/hatchery/http.sock\n  hatchery top http://localhost/agents   # server.base_path\n  hatchery top --once --json\n\n\
                        `q` or Ctrl-C ends it.")]
pub struct Args {
    /// The URL of the host, including its base path
    #[arg(default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Connect to this Unix socket; only the path of the URL is used
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Environment variable with an API key for the role `operate`, if the host has authentication
    #[arg(long, value_name = "VARIABLE", default_value = "HATCHERY_KEY")]
    key_from: String,
    /// Refresh interval in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print one view and exit
    #[arg(long)]
    once: bool,
    /// Print each view as a line of JSON
    #[arg(long)]
    json: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write a number of seconds from 0.1 to 3600".to_owned())
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let key = std::env::var(&args.key_from).ok().filter(|key| !key.is_empty());
    let client = HostClient::new(&args.url, args.socket.as_deref(), key)?;
    let mut interrupts = Interrupts::listen()?;
    if args.once {
        return match interrupts.race(client.snapshot()).await {
            Some(snapshot) => print(&snapshot?, args.json).map(|()| Outcome::Success),
            None => Ok(Outcome::Interrupted),
        };
    }
    let is_screen = !args.json && io::stdout().is_terminal();
    let terminal = is_screen.then(RawTerminal::enter);
    let watched = interrupts.race(watch(&client, &args, terminal.is_some())).await;
    drop(terminal);
    watched.unwrap_or(Ok(Outcome::Success))
}

/// Prints views until `q` is pressed, or one fails.
async fn watch(client: &HostClient, args: &Args, is_screen: bool) -> anyhow::Result<Outcome> {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(args.interval));
    let mut keys = tokio::io::stdin();
    let mut reads_keys = is_screen && io::stdin().is_terminal();
    loop {
        let mut key = [0];
        tokio::select! {
            _ = ticks.tick() => {
                let snapshot = client.snapshot().await?;
                if is_screen {
                    // In one write, so that it does not flicker.
                    let view = clip(&render(&snapshot), terminal_height()).replace('\n', "\r\n");
                    let view = format!("\x1b[H\x1b[J{view}");
                    stdout().write_all(view.as_bytes())?;
                    stdout().flush()?;
                } else {
                    print(&snapshot, args.json)?;
                }
            }
            read = keys.read(&mut key), if reads_keys => match read? {
                0 => reads_keys = false,
                _ if key == *b"q" => return Ok(Outcome::Success),
                _ => {}
            },
        }
    }
}

fn print(snapshot: &Snapshot, is_json: bool) -> anyhow::Result<()> {
    if is_json {
        let mut out = plain_stdout();
        serde_json::to_writer(&mut out, snapshot)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let mut out = stdout();
    writeln!(out, "{}", render(snapshot))?;
    Ok(out.flush()?)
}
