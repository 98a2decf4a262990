//! `hatchery serve`: serves the agents of a folder over HTTP.

mod announcement;
mod exposure;
mod listen;
mod reload;
mod telemetry;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hatchery::services::{ServicesError, create_data_folder};
use hatchery::trust::LoadedConfig;
use hatchery::{
    A2aService, BasePath, Config, ConfigChange, DevUi, Host, ServerConfig, Setting, SettingsReport, Storage,
};
use hatchery_core::CallerOrigin;
use hatchery_server::{AppState, AppStateBuilder, Server};
use hatchery_telemetry::Metrics;

use crate::audit;
use crate::dotenv::DotEnvSource;
use crate::host::{self, ConfigArgs, StorageArgs, explain_trust};
use crate::interrupts::Interrupts;
use crate::outcome::Outcome;
use crate::systemd::{Notification, notify};
use crate::watchdog::Watchdog;
use announcement::Announcement;
use exposure::allowed_hosts;
use listen::{ListenAddress, parse_socket, resolve};
use reload::{HangupListener, ServedConfig};
use telemetry::Telemetry;

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 8080;

/// How long a stop may take in addition to `server.drain_timeout`. Longer than the sum of the waits during a stop.
const MAX_STOP: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery serve my-agents --port 9000\n  \
                        hatchery serve my-agents --session-service sqlite:///var/lib/agents.db")]
pub struct Args {
    /// The folder with components (*.wasm) and YAML agents (NAME/root_agent.yaml), or the folder of one app
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Do not watch the folder for changes
    #[arg(long)]
    no_watch: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of a server.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Address to listen on; an address other than loopback needs server.auth in hatchery.yaml
    #[arg(long, default_value = DEFAULT_HOST)]
    host: String,
    /// Port to listen on; 0 for any free port
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Listen on a Unix socket, `unix:PATH`, instead of a TCP address; the user and the group of the process can
    /// connect
    #[arg(long, value_name = "SOCKET", value_parser = parse_socket, conflicts_with_all = ["host", "port"])]
    listen: Option<PathBuf>,
    /// Prefix of all routes, such as /agents; overrides server.base_path of hatchery.yaml
    #[arg(long, value_name = "PATH")]
    base_path: Option<BasePath>,
    /// Listen on an address other than loopback without server.auth; every client that can connect has full access
    #[arg(long)]
    allow_unauthenticated: bool,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Require a configuration file, so that deleting it cannot disable signature checks and limits: the server does
    /// not start without it, and keeps its settings if the file is deleted later
    #[arg(long)]
    config_required: bool,
    /// Serve the built web UI in this folder at /dev-ui instead of the embedded one
    #[arg(long, value_name = "DIR")]
    dev_ui_dir: Option<PathBuf>,
    /// Print the address, the apps, and the components that are still loading as a line of JSON; if "loading" is not
    /// empty, a second line follows when everything is loaded
    #[arg(long)]
    json: bool,
}

impl ServerArgs {
    fn listen(&self) -> anyhow::Result<ListenAddress> {
        match &self.listen {
            Some(path) => Ok(ListenAddress::Unix(path.clone())),
            None => Ok(ListenAddress::Tcp(resolve(&self.host, self.port)?)),
        }
    }

    /// Returns the settings of these arguments.
    fn settings(&self, dir: &Path) -> Vec<Setting> {
        let port = self.port.to_string();
        let listening = [
            ("host", "--host", self.host.as_str(), self.host == DEFAULT_HOST),
            ("port", "--port", port.as_str(), self.port == DEFAULT_PORT),
        ];
        let listening = listening.into_iter().map(|(key, flag, value, is_default)| {
            if is_default { Setting::from_default(key, value) } else { Setting::from_flag(key, flag, value) }
        });
        let page = self.dev_ui_dir.as_ref().map(|folder| folder.display().to_string());
        let page = page.map(|folder| Setting::from_flag("dev_ui_dir", "--dev-ui-dir", &folder));
        let base_path = self.base_path.as_ref().map(BasePath::as_str);
        let base_path = base_path.map(|path| Setting::from_flag("server.base_path", "--base-path", path));
        listening.chain(base_path).chain(page).chain(self.storage.settings(dir)).collect()
    }
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.server.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    serve(&args.dir, args.server, !args.no_watch, |_| {}).await
}

/// Checks that a server with these arguments can listen.
pub async fn check_address(args: &ServerArgs) -> anyhow::Result<()> {
    args.listen()?.check().await
}

/// Serves a folder until a signal arrives. Calls `on_listening` with the URL when the server accepts connections.
pub async fn serve(
    dir: &Path,
    args: ServerArgs,
    watch: bool,
    on_listening: impl FnOnce(&str),
) -> anyhow::Result<Outcome> {
    if dir.is_file() {
        bail!("{} is a file; serve the folder that contains it", dir.display());
    }
    let (args, mut interrupts) = (Arc::new(args), Interrupts::listen()?);
    let listen = args.listen()?;
    let hangup = HangupListener::listen()?;
    let Some(started) = start_host(dir, &args, &listen, watch, &mut interrupts).await? else {
        tracing::info!("stopped before it served");
        return Ok(Outcome::Success);
    };
    let StartedHost { host, config_file, telemetry, is_loading } = started;
    let OpenServer { server, listen, url, a2a, has_auth, has_dev_ui } =
        open_server(dir, &args, listen, &host, &config_file, &telemetry.metrics).await?;
    // A second announcement follows exactly if the first one lists something as loading.
    let loading = if is_loading { host.apps().loading() } else { Vec::new() };
    let apps = host.apps().clone();
    let announcement =
        Announcement { folder: dir, listen: &listen, url: &url, source: apps.as_ref(), is_json: args.json, has_auth };
    announce(&announcement, &loading, has_dev_ui, on_listening)?;
    let (mut load_result, mut watchdog) = (Ok(()), None);
    let stop = async {
        let load = async {
            if is_loading {
                finish_loading(&host).await?;
            }
            if !loading.is_empty() {
                announcement.write_loaded()?;
            }
            a2a.resume_push_notifications();
            anyhow::Ok(())
        };
        load_result = load_until_interrupted(load, wait_until_stopped(&host, interrupts, hangup)).await;
        watchdog = start_watchdog(&host);
        notify(Notification::Stopping);
    };
    server.serve(stop).await;
    shut_down(host, telemetry, watchdog).await?;
    load_result.map(|()| Outcome::Success)
}

/// A running host, with its configuration file and its telemetry.
struct StartedHost {
    host: Host,
    config_file: PathBuf,
    telemetry: Telemetry,
    is_loading: bool,
}

/// Starts the host of a folder, with its audit log and the receivers of its spans. `None` if a signal arrives first.
async fn start_host(
    dir: &Path,
    args: &ServerArgs,
    listen: &ListenAddress,
    watch: bool,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Option<StartedHost>> {
    let source = args.config.source(dir).required(args.config_required);
    let mut builder = host::builder(source, &args.storage).watch(watch);
    let loaded = builder.read_config()?;
    allowed_hosts(listen, args, &loaded.config, &loaded.file)?;
    start_audit(dir, args, loaded)?;
    let config_file = loaded.file.clone();
    let telemetry = Telemetry::from_environment()?;
    let builder = telemetry.export_from(builder.trace(true));
    let started = interrupts.race(host::start(builder)).await;
    let Some(host) = started.transpose()? else { return Ok(None) };
    let is_loading = host.is_loading();
    if !is_loading {
        finish_loading(&host).await?;
    }
    Ok(Some(StartedHost { host, config_file, telemetry, is_loading }))
}

/// Tells the terminal, the caller and systemd that the server accepts connections.
fn announce(
    announcement: &Announcement<'_>,
    loading: &[String],
    has_dev_ui: bool,
    on_listening: impl FnOnce(&str),
) -> anyhow::Result<()> {
    announcement.write_first(loading, has_dev_ui)?;
    on_listening(announcement.url);
    notify(Notification::Ready);
    Ok(())
}

/// Waits for a signal that stops the host. On a hangup the host reloads its configuration instead.
async fn wait_until_stopped(host: &Host, interrupts: Interrupts, hangup: HangupListener) {
    tokio::select! {
        () = interrupts.wait_for_first() => {}
        () = hangup.follow(host.config_reloader()) => {}
    }
}

fn start_watchdog(host: &Host) -> Option<Watchdog> {
    let limit = host.config().server.drain_timeout.saturating_add(MAX_STOP);
    Watchdog::start(limit, "active runs and connections")
        .inspect_err(|error| tracing::warn!(%error, "cannot start the shutdown watchdog"))
        .ok()
}

/// Stops the host, and then sends its last spans.
async fn shut_down(host: Host, telemetry: Telemetry, watchdog: Option<Watchdog>) -> anyhow::Result<()> {
    let enter = |step| watchdog.iter().for_each(|watchdog| watchdog.enter(step));
    enter("plugins, toolsets, MCP servers, code executors and stores");
    host.stop().await;
    enter("the receiver of spans");
    telemetry.shut_down().await?;
    enter("the end of the process");
    tracing::info!("stopped");
    Ok(())
}

/// A server that listens, and the settings that the announcement and the log mention.
struct OpenServer {
    server: Server,
    listen: ListenAddress,
    /// With the base path.
    url: String,
    a2a: A2aService,
    has_auth: bool,
    has_dev_ui: bool,
}

/// Binds the server of a host. From then on it follows the configuration.
async fn open_server(
    dir: &Path,
    args: &Arc<ServerArgs>,
    listen: ListenAddress,
    host: &Host,
    config_file: &Path,
    metrics: &Metrics,
) -> anyhow::Result<OpenServer> {
    let used = host.config();
    let change = ConfigChange { before: &used, config: &used, file: config_file, pending: &[], is_requested: false };
    let config = ServedConfig::server(args, &listen, &change)?;
    let (root, has_dev_ui) = (config.path_of(""), config.dev_ui() != DevUi::Off);
    let (has_auth, is_tls) = (config.auth.is_some(), config.tls.is_some());
    // Spans contain prompts, which only the operator may read.
    host.traces().set_enabled(config.dev_ui() == DevUi::Full);
    let in_force = Config { server: config, ..Config::clone(&used) };
    let settings = SettingsReport::new(&in_force, config_file, args.settings(dir), |name| std::env::var_os(name));
    let a2a = host.a2a_service();
    let state = state_builder(host, in_force)
        .a2a(a2a.clone(), host.a2a_agents().clone())
        .settings(settings)
        .metrics(metrics.clone())
        .build();
    let (server, listen) = listen.bind(state.clone()).await?;
    let traces = host.traces().clone();
    let served = ServedConfig { dir: dir.to_owned(), args: args.clone(), listen: listen.clone(), state, traces };
    if let Err(problem) = host.follow_config(Arc::new(served), &used).await {
        tracing::error!("{}: {problem}; the server keeps the settings that it was started with", config_file.display());
    }
    if !listen.is_local() && !has_auth {
        tracing::warn!(address = %listen, "the server has no authentication: every client that can reach this address can run every agent");
    }
    let url = format!("{}{root}", listen.url(is_tls));
    Ok(OpenServer { server, listen, url, a2a, has_auth, has_dev_ui })
}

/// Waits for the interrupt, which may come before everything is loaded. Returns early if loading fails.
async fn load_until_interrupted(
    load: impl Future<Output = anyhow::Result<()>>,
    interrupt: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut interrupt = pin!(interrupt);
    tokio::select! {
        biased;
        result = load => result?,
        () = &mut interrupt => return Ok(()),
    }
    interrupt.await;
    Ok(())
}

/// Returns the settings of the server, with the overrides of the arguments.
fn server_config(
    args: &ServerArgs,
    config: ServerConfig,
    allowed_hosts: Vec<String>,
    dev_ui: DevUi,
) -> anyhow::Result<ServerConfig> {
    let dev_ui_folder = args.dev_ui_dir.as_deref().map(ui_folder).transpose()?;
    let base_path = args.base_path.clone().or(config.base_path);
    Ok(ServerConfig { allowed_hosts, base_path, dev_ui: Some(dev_ui), dev_ui_folder, ..config })
}

/// Returns the state of a server, with the parts of the host that all servers share.
fn state_builder(host: &Host, config: Config) -> AppStateBuilder {
    AppState::builder(host.runner().clone(), host.apps().clone(), config.server)
        .mcp(host.mcp_service(CallerOrigin::Http, Vec::new()), host.mcp_servers().clone())
        .apis(host.openapi().clone())
        .evaluations(host.evaluations().clone())
        .traces(host.traces().clone())
        .host_events(host.host_events().clone())
        .retention(config.retention)
}

/// Waits until all components are loaded, then logs the settings and warns of unknown ones.
async fn finish_loading(host: &Host) -> anyhow::Result<()> {
    host.finish_loading().await?;
    host.log_settings();
    Ok(())
}

/// Opens the audit log and records the grants of the configuration.
fn start_audit(dir: &Path, args: &ServerArgs, loaded: &LoadedConfig) -> anyhow::Result<()> {
    let storage = args.storage.storage(dir);
    if let Some(path) = loaded.config.audit.path(&storage) {
        if let Storage::Directory(folder) = &storage {
            create_data_folder(folder).map_err(|source| ServicesError::Folder { folder: folder.clone(), source })?;
        }
        audit::open(&path, &loaded.config.audit)?;
    }
    if let Some(explanation) = explain_trust(loaded) {
        tracing::warn!("{explanation}");
    }
    hatchery::audit::record_start(loaded);
    Ok(())
}

/// Checks that the folder holds a built web UI.
fn ui_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if !folder.join("index.html").is_file() {
        bail!("--dev-ui-dir {}: there is no index.html; name the folder that the UI was built into", folder.display());
    }
    Ok(folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_built_ui_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = ui_folder(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("there is no index.html; name the folder that the UI was built into"), "{error}");
        std::fs::write(folder.path().join("index.html"), "").unwrap();
        assert_eq!(ui_folder(folder.path()).unwrap(), folder.path());
    }
}
