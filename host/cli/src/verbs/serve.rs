//! `hatchery serve`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::pin;

use anyhow::{Context, anyhow, bail};
use hatchery::config::ServerConfig;
use hatchery::shell::session_commands;
use hatchery::{AppSource, CatalogReport, Config, LoadedConfig, Storage, services};
use hatchery_server::{AppState, Server};
use serde_json::json;

use crate::audit::{self, changes};
use crate::host::{ConfigArgs, Host, ReadConfig, StorageArgs, Watch};
use crate::interrupt::Interrupts;
use crate::terminal::{BOLD, DIM, ERROR, harmless, stdout};
use crate::verbs::Outcome;
use crate::{progress, settings};

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
    #[command(flatten)]
    config: ConfigArgs,
    /// Do not start without a configuration, and keep the one that is in force when its file goes away: with it would go the signatures
    /// and limits that it asks for
    #[arg(long)]
    config_required: bool,
    /// Load what is there and look no more
    #[arg(long)]
    no_watch: bool,
    /// Write where it listens, and what is loaded and loading, as a line of JSON; a second line follows when all is loaded, if the first
    /// one has names in "loading"
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut interrupts = Interrupts::listen()?;
    let address = resolve(&args.host, args.port)?;
    let watch = if args.no_watch { Watch::No } else { Watch::Yes };
    let read = ReadConfig::read(args.config.source(&args.dir).required(args.config_required), watch)?;
    let allowed_hosts = allowed_hosts(address, &args, read.loaded())?;
    begin_audit(&args, read.loaded())?;
    let opened = interrupts.race(Host::start(read, &args.storage)).await;
    let Some(mut host) = opened.transpose()? else { return Ok(Outcome::Interrupted) };
    let is_loading = host.is_loading();
    if !is_loading {
        finish_loading(&mut host).await?;
    }
    let config = ServerConfig { allowed_hosts, ..host.config.server.clone() };
    let state = AppState::new(host.runner.clone(), host.source.clone(), config);
    let server = Server::bind(address, state).await?;
    let address = server.local_addr();
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "there is no authentication: whoever can reach this address can run every agent");
    }
    // A second announcement follows exactly when the first one names something.
    let loading = if is_loading { host.source.loading() } else { Vec::new() };
    announce(address, host.source.as_ref(), &loading, args.json)?;
    let mut loaded = Ok(());
    let stop = async {
        let mut interrupted = pin!(interrupts.first());
        if is_loading {
            let finish = async {
                finish_loading(&mut host).await?;
                match loading.is_empty() {
                    true => Ok(()),
                    false => announce_loaded(address, host.source.as_ref(), args.json),
                }
            };
            tokio::select! {
                () = &mut interrupted => return,
                finished = finish => loaded = finished,
            }
        }
        if loaded.is_ok() {
            interrupted.await;
        }
    };
    server.serve(stop).await;
    host.close().await;
    loaded.map(|()| Outcome::Success)
}

/// Waits until all components are loaded, then logs what the configuration has chosen and what of it is unknown.
async fn finish_loading(host: &mut Host) -> anyhow::Result<()> {
    host.finish_loading().await?;
    let report = host.source.report();
    settings::log_choices(&host.config, &host.plugins);
    settings::warn_of_unknown_apps(&host.config, host.source.app_names(), &report);
    settings::warn_of_unknown_components(&host.config, &report);
    Ok(())
}

/// Opens the audit log, and records with which rights the host starts.
fn begin_audit(args: &Args, loaded: &LoadedConfig) -> anyhow::Result<()> {
    let storage = args.storage.storage(&args.dir);
    if let Some(path) = audit::place(&loaded.config.audit, &storage) {
        if let Storage::Directory(folder) = &storage {
            services::make_data_folder(folder).with_context(|| folder.display().to_string())?;
        }
        audit::open(&path, &loaded.config.audit)?;
    }
    if let Some(explanation) = loaded.explanation() {
        tracing::warn!("{explanation}");
    }
    changes::record_trust(loaded);
    changes::record_grants(&Config::default(), &loaded.config);
    Ok(())
}

/// The names that requests may come under. Beyond loopback somebody must have said them, or that they do not matter.
fn allowed_hosts(address: SocketAddr, args: &Args, loaded: &LoadedConfig) -> anyhow::Result<Vec<String>> {
    let listed = loaded.config.server.allowed_hosts.clone();
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
        loaded.file.display()
    )
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("--host {host}"))?;
    addresses.next().ok_or_else(|| anyhow!("--host {host}: the name has no address"))
}

/// Writes where the server listens, and what is loaded or still loading.
fn announce(address: SocketAddr, source: &dyn AppSource, loading: &[String], as_json: bool) -> anyhow::Result<()> {
    let url = url(address);
    if as_json {
        return write_json(address, source, loading);
    }
    progress::suspend(|| writeln!(stdout(), "{BOLD}Serving {url}{BOLD:#}  {DIM}page {url}/dev-ui{DIM:#}"))?;
    if loading.is_empty() {
        return write_apps(&url, source);
    }
    progress::suspend(|| writeln!(stdout(), "loading: {}", loading.join(", ")))?;
    Ok(stdout().flush()?)
}

/// Writes what is loaded by now, when [`announce`] could not.
fn announce_loaded(address: SocketAddr, source: &dyn AppSource, as_json: bool) -> anyhow::Result<()> {
    if as_json { write_json(address, source, &[]) } else { write_apps(&url(address), source) }
}

fn url(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

fn write_json(address: SocketAddr, source: &dyn AppSource, loading: &[String]) -> anyhow::Result<()> {
    let report = source.report();
    let failed: Vec<_> = report.files.iter().filter(|file| file.reason.is_some()).collect();
    let line = json!({
        "address": address.to_string(), "url": url(address), "apps": source.app_names(), "loading": loading,
        "failed": failed,
    });
    let mut out = stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// What does not serve under its name because another has it, a sentence each.
fn conflicts(report: &CatalogReport) -> impl Iterator<Item = &str> {
    let files = report.files.iter().filter(|file| file.state == "conflict");
    let files = files.filter_map(|file| file.reason.as_deref());
    files.chain(report.components.iter().flat_map(|component| &component.conflicts).map(String::as_str))
}

/// Writes the apps, how to talk to the first one, and which names are in conflict.
fn write_apps(url: &str, source: &dyn AppSource) -> anyhow::Result<()> {
    let apps = source.app_names();
    let mut text = match apps.first() {
        Some(first) => {
            let commands = indented(&harmless(&session_commands(url, first)));
            format!("apps: {}\ntry:\n{commands}", harmless(&apps.join(", ")))
        }
        None => "no app is loaded yet: put a component or a folder with root_agent.yaml there".into(),
    };
    for conflict in conflicts(&source.report()) {
        text.push_str(&format!("\n{ERROR}conflict:{ERROR:#} {}", harmless(conflict)));
    }
    progress::suspend(|| writeln!(stdout(), "{text}"))?;
    Ok(stdout().flush()?)
}

/// An address that a client on this machine can use.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => ([127, 0, 0, 1], address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hatchery::{ComponentReport, ConfigSource, FileReport};

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
            // The names are the operator's word: here as by `hatchery trust`.
            let file = Some(folder.path().join("hatchery.yaml")).filter(|file| file.exists());
            let loaded = ConfigSource::of_folder(&args.dir).named(file).load().unwrap();
            allowed_hosts(resolve(host, 80).unwrap(), &args, &loaded).map_err(|error| error.to_string())
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
    fn every_conflict_of_names_is_told() {
        let file = |state: &str| FileReport {
            state: state.into(),
            reason: Some(format!("{state}!")),
            ..FileReport::default()
        };
        let component = ComponentReport { conflicts: vec!["the tool is taken".into()], ..ComponentReport::default() };
        let (files, components) = (vec![file("rejected"), file("conflict")], vec![component]);
        let report = CatalogReport { files, components, ..CatalogReport::default() };
        assert_eq!(conflicts(&report).collect::<Vec<_>>(), ["conflict!", "the tool is taken"]);
    }

    #[test]
    fn what_listens_everywhere_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()), "10.0.0.1:80".parse().unwrap());
    }
}
