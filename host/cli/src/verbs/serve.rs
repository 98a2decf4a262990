//! `hatchery serve`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use hatchery_server::config::{Config, FILE_NAME, ServerConfig};
use hatchery_server::{AppSource, AppState, Server};
use serde_json::json;

use crate::host::{Host, StorageArgs, Watch};
use crate::interrupt::Interrupts;
use crate::settings;
use crate::terminal::{BOLD, DIM, stdout};
use crate::verbs::Outcome;

/// What to serve, where.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hatchery serve my-agents --port 9000\n  \
                        hatchery serve my-agents --session-service sqlite:///var/lib/agents.db")]
pub struct Args {
    /// The folder with components (*.wasm) and YAML agents (NAME/root_agent.yaml)
    dir: PathBuf,
    /// The address to listen on; anything but loopback is open to whoever can reach it, and needs server.allowed_hosts in hatchery.yaml
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 for any free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Listen on an address that is not loopback without server.allowed_hosts: requests may come under any name
    #[arg(long)]
    allow_unauthenticated: bool,
    #[command(flatten)]
    storage: StorageArgs,
    /// Load what is there and look no more
    #[arg(long)]
    no_watch: bool,
    /// Write where it listens, and what is loaded, as one line of JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut interrupts = Interrupts::listen()?;
    let address = resolve(&args.host, args.port)?;
    let allowed_hosts = allowed_hosts(address, &args)?;
    let watch = if args.no_watch { Watch::No } else { Watch::Yes };
    let opened = interrupts.race(Host::open(&args.dir, &args.storage, watch)).await;
    let Some(host) = opened.transpose()? else { return Ok(Outcome::Interrupted) };
    let report = host.source.report();
    settings::log_choices(&host.config, &host.plugins);
    settings::warn_of_unknown_apps(&host.config, host.source.app_names(), &report);
    settings::warn_of_unknown_components(&host.config, &report);
    let config = ServerConfig { allowed_hosts, ..host.config.server.clone() };
    let state = AppState::new(host.runner.clone(), host.source.clone(), config);
    let server = Server::bind(address, state).await?;
    let address = server.local_addr();
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "there is no authentication: whoever can reach this address can run every agent");
    }
    announce(address, host.source.as_ref(), args.json)?;
    server.serve(interrupts.first()).await;
    host.close().await;
    Ok(Outcome::Success)
}

/// The names that requests may come under. Beyond loopback somebody must have said them, or that they do not matter.
fn allowed_hosts(address: SocketAddr, args: &Args) -> anyhow::Result<Vec<String>> {
    let listed = Config::load(&args.dir)?.server.allowed_hosts;
    if address.ip().is_loopback() || !listed.is_empty() {
        return Ok(listed);
    }
    if args.allow_unauthenticated {
        return Ok(vec!["*".into()]);
    }
    bail!(
        "--host {}: whoever can reach this address could run every agent, there is no authentication. Name the hosts that clients \
         ask for in {}:\n\n  server:\n    allowed_hosts: [agents.example]\n\nor pass --allow-unauthenticated, which lets requests \
         in under any name",
        args.host,
        args.dir.join(FILE_NAME).display()
    )
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("--host {host}"))?;
    addresses.next().ok_or_else(|| anyhow!("--host {host}: the name has no address"))
}

fn announce(address: SocketAddr, source: &dyn AppSource, as_json: bool) -> anyhow::Result<()> {
    let mut out = stdout();
    let url = format!("http://{}", reachable(address));
    let apps = source.app_names();
    let report = source.report();
    let failed: Vec<_> = report.files.iter().filter(|file| file.reason.is_some()).collect();
    if as_json {
        writeln!(out, "{}", json!({"address": address.to_string(), "url": url, "apps": apps, "failed": failed}))?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{BOLD}Serving {url}{BOLD:#}  {DIM}page {url}/dev-ui{DIM:#}")?;
    match apps.first() {
        Some(first) => {
            writeln!(out, "apps: {}", apps.join(", "))?;
            writeln!(out, "try:\n{}", indented(&curl(&url, first)))?;
        }
        None => writeln!(out, "no app is loaded yet: put a component or a folder with root_agent.yaml there")?,
    }
    Ok(out.flush()?)
}

/// An address that a client on this machine can use.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => ([127, 0, 0, 1], address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

fn curl(url: &str, app: &str) -> String {
    format!(
        "curl -s -X POST {url}/apps/{app}/users/me/sessions/first\n\
         curl -N {url}/run_sse -H 'Content-Type: application/json' -d '{{\"appName\":\"{app}\",\"userId\":\"me\",\
         \"sessionId\":\"first\",\"newMessage\":{{\"parts\":[{{\"text\":\"Hello\"}}]}},\"streaming\":true}}'"
    )
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn hosts_are_addresses_or_names() {
        assert_eq!(resolve("::1", 80).unwrap(), "[::1]:80".parse().unwrap());
        assert!(resolve("localhost", 80).unwrap().ip().is_loopback());
        let error = format!("{:#}", resolve("no such host", 80).unwrap_err());
        assert!(error.starts_with("--host no such host: "), "{error}");
    }

    #[test]
    fn who_listens_on_the_network_says_under_which_names() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let folder = tempfile::tempdir().unwrap();
        let names = |host: &str, more: &[&str]| {
            let words = ["serve", folder.path().to_str().unwrap(), "--host", host];
            let args = Command::parse_from(words.iter().chain(more)).args;
            allowed_hosts(resolve(host, 80).unwrap(), &args).map_err(|error| error.to_string())
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(names("127.0.0.1", &[]), Ok(none));
        let file = folder.path().join("hatchery.yaml");
        assert_eq!(
            names("0.0.0.0", &[]).unwrap_err(),
            format!(
                "--host 0.0.0.0: whoever can reach this address could run every agent, there is no authentication. Name the hosts \
                 that clients ask for in {}:\n\n  server:\n    allowed_hosts: [agents.example]\n\nor pass \
                 --allow-unauthenticated, which lets requests in under any name",
                file.display()
            )
        );
        assert_eq!(names("0.0.0.0", &["--allow-unauthenticated"]), Ok(vec!["*".into()]));
        std::fs::write(file, "server:\n  allowed_hosts: [agents.example]\n").unwrap();
        assert_eq!(names("0.0.0.0", &[]), Ok(vec!["agents.example".into()]));
        assert_eq!(names("0.0.0.0", &["--allow-unauthenticated"]), Ok(vec!["agents.example".into()]));
    }

    #[test]
    fn what_listens_everywhere_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()), "10.0.0.1:80".parse().unwrap());
    }
}
