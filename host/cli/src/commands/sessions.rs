//! `hatchery sessions`: lists, shows, exports, imports, forks, rewinds and deletes stored sessions. Works beside a running
//! server.

mod import;

use std::io::Write;

use hatchery::audit::TARGET;
use hatchery_core::{Event, EventWindow, PartData, Services, Session, SessionKey, SessionPoint};
use serde_json::{Value, json};

use crate::audit;
use crate::commands::Outcome;
use crate::service_args::{OwnerArgs, ServiceArgs, unknown_session};
use crate::terminal::{BOLD, DIM, escape_control, http_date, plain_stdout, pluralize};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery sessions list --app reception --user ada\n  \
                        hatchery sessions show first --app reception --user ada\n  \
                        hatchery sessions export first --app reception --user ada > first.json\n  \
                        hatchery sessions import first.json\n  \
                        hatchery sessions import adk.db --app reception\n  \
                        hatchery sessions fork first --app reception --user ada --revision 4 --as second\n  \
                        hatchery sessions rewind first --app reception --user ada --event 5f0c\n  \
                        hatchery sessions delete first --app reception --user ada\n\n\
    Uses the sessions of the folder's server, which may be running.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the sessions of a user in an app, most recently updated first
    List(ListArgs),
    /// Show the messages and the state of a session
    Show(SessionArgs),
    /// Print a session with all events and its state as JSON
    Export(SessionArgs),
    /// Store the session of an export, or the sessions of a SQLite database that ADK for Python has written
    Import(import::Args),
    /// Create a session with the events of another one, all of them or up to one
    Fork(ForkArgs),
    /// Remove the events of a session after one, and restore its state; artifacts and `user:` and `app:` state stay
    Rewind(RewindArgs),
    /// Delete a session with its artifacts; what memory has of it stays
    Delete(SessionArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    folder: ServiceArgs,
}

#[derive(clap::Args)]
struct SessionArgs {
    /// The session
    session: String,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    folder: ServiceArgs,
}

/// The last event to keep.
#[derive(clap::Args)]
#[group(multiple = false)]
struct PointArgs {
    /// The id of the last event to keep
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// The number of the last event to keep, from 1 on; 0 keeps none
    #[arg(long, value_name = "NUMBER")]
    revision: Option<u64>,
}

impl PointArgs {
    fn point(&self) -> Option<SessionPoint> {
        let event = self.event.clone().map(SessionPoint::EventId);
        event.or_else(|| self.revision.map(SessionPoint::Revision))
    }
}

#[derive(clap::Args)]
struct ForkArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    point: PointArgs,
    /// The id of the new session; a new one by default
    #[arg(long = "as", value_name = "SESSION")]
    fork: Option<String>,
}

#[derive(clap::Args)]
struct RewindArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    point: PointArgs,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.action {
        Action::List(args) => list(&args).await,
        Action::Show(args) => show(&args).await,
        Action::Export(args) => export(&args).await,
        Action::Import(args) => import::run(&args).await,
        Action::Fork(args) => fork(&args).await,
        Action::Rewind(args) => rewind(&args).await,
        Action::Delete(args) => delete(&args).await,
    }
}

async fn list(args: &ListArgs) -> anyhow::Result<Outcome> {
    let OwnerArgs { app, user } = &args.owner;
    let sessions = args.folder.services().await?.sessions.list(app, user).await?;
    let mut lines: Vec<_> = sessions.iter().map(to_line).collect();
    if lines.is_empty() {
        lines.push(format!("user {} has no sessions in app {}", escape_control(user), escape_control(app)));
    }
    args.folder.print(&json!({ "sessions": sessions }), lines)
}

async fn show(args: &SessionArgs) -> anyhow::Result<Outcome> {
    let services = args.folder.services().await?;
    let session = find(&services, &args.owner.session(&args.session)).await?;
    let state = session.state.iter().map(|(name, value)| {
        format!("{DIM}state{DIM:#} {BOLD}{}{BOLD:#} = {}", escape_control(name), escape_control(&value.to_string()))
    });
    let messages = session.events.iter().filter_map(|event| to_message(event));
    let lines: Vec<_> = std::iter::once(to_line(&session)).chain(state).chain(messages).collect();
    args.folder.print(&serde_json::to_value(&session)?, lines)
}

async fn export(args: &SessionArgs) -> anyhow::Result<Outcome> {
    let services = args.folder.services().await?;
    let session = find(&services, &args.owner.session(&args.session)).await?;
    writeln!(plain_stdout(), "{}", serde_json::to_string(&session)?)?;
    Ok(Outcome::Success)
}

async fn fork(args: &ForkArgs) -> anyhow::Result<Outcome> {
    let SessionArgs { session, owner, folder } = &args.session;
    let services = folder.services().await?;
    let key = owner.session(session);
    ensure_exists(&services, &key).await?;
    let point = args.point.point();
    let fork = SessionPoint::fork(point.as_ref(), &*services.sessions, &key, args.fork.as_deref()).await?;
    let events = pluralize(usize::try_from(fork.revision)?, "event", "events");
    let line = format!("created session {} with {events}", escape_control(&fork.key.id));
    folder.print(&json!({ "sessionId": &*fork.key.id, "revision": fork.revision }), [line])
}

async fn rewind(args: &RewindArgs) -> anyhow::Result<Outcome> {
    let SessionArgs { session, owner, folder } = &args.session;
    let Some(point) = args.point.point() else {
        anyhow::bail!("name the last event to keep with --event or --revision");
    };
    let services = folder.services().await?;
    let key = owner.session(session);
    ensure_exists(&services, &key).await?;
    let revision = point.revision(&*services.sessions, &key).await?;
    let (config, storage) = folder.storage()?;
    audit::open_beside_server(&config.audit, &storage)?;
    let rewound = services.sessions.rewind(&key, revision).await?;
    record_deletion(&key, &format!("hatchery sessions rewind to revision {}", rewound.revision));
    let events = pluralize(usize::try_from(rewound.revision)?, "event", "events");
    let line = format!("session {} has {events} now", escape_control(&key.id));
    folder.print(&json!({ "sessionId": &*key.id, "revision": rewound.revision }), [line])
}

async fn delete(args: &SessionArgs) -> anyhow::Result<Outcome> {
    let services = args.folder.services().await?;
    let key = args.owner.session(&args.session);
    if services.sessions.get(&key, EventWindow::Recent(0)).await?.is_none() {
        return Err(unknown_session(&services, &key).await);
    }
    let (config, storage) = args.folder.storage()?;
    audit::open_beside_server(&config.audit, &storage)?;
    // First, because a session that is not there cannot be deleted again.
    let artifacts =
        if config.retention.keep_artifacts { Vec::new() } else { services.artifacts.delete_all(&key).await? };
    services.sessions.delete(&key).await?;
    record_deletion(&key, "hatchery sessions delete");
    let count = pluralize(artifacts.len(), "artifact", "artifacts");
    let line = format!("deleted session {} with {count}", escape_control(&key.id));
    args.folder.print(&json!({ "sessionId": &*key.id, "artifacts": artifacts }), [line])
}

fn record_deletion(SessionKey { app, user, id }: &SessionKey, action: &str) {
    tracing::info!(target: TARGET, %app, %user, session = %id, action, decision = "deleted", "deletion");
}

async fn find(services: &Services, key: &SessionKey) -> anyhow::Result<Session> {
    match services.sessions.get(key, EventWindow::All).await? {
        Some(session) => Ok(session),
        None => Err(unknown_session(services, key).await),
    }
}

/// Returns an error that lists the sessions that exist if this one does not.
async fn ensure_exists(services: &Services, key: &SessionKey) -> anyhow::Result<()> {
    match services.sessions.get(key, EventWindow::Recent(0)).await? {
        Some(_) => Ok(()),
        None => Err(unknown_session(services, key).await),
    }
}

fn to_line(session: &Session) -> String {
    let id = escape_control(&session.key.id);
    format!("{BOLD}{id}{BOLD:#}  {DIM}updated {}{DIM:#}", http_date(session.last_update_time))
}

/// Returns the author and the content of an event in one line; `None` if it has no message.
fn to_message(event: &Event) -> Option<String> {
    let content = event.content.as_deref()?;
    let parts: Vec<String> =
        content.parts.iter().filter(|part| !part.thought).filter_map(|part| describe(&part.data)).collect();
    let author = escape_control(&event.author);
    let text = parts.join(" ");
    let time = http_date(event.timestamp);
    (!text.is_empty()).then(|| format!("{DIM}{time}{DIM:#}  {BOLD}{author}{BOLD:#}: {}", escape_control(&text)))
}

fn describe(data: &PartData) -> Option<String> {
    match data {
        PartData::Text(text) => Some(text.clone()),
        PartData::FunctionCall(call) => Some(format!("[calls {} {}]", call.name, Value::Object(call.args.clone()))),
        PartData::FunctionResponse(response) => Some(format!("[{} returned]", response.name)),
        PartData::InlineData(blob) => Some(format!("[{} bytes of {}]", blob.data.len(), blob.mime_type)),
        PartData::FileData(file) => Some(format!("[file {}]", file.file_uri)),
        PartData::ExecutableCode(_) => Some("[code]".into()),
        PartData::CodeExecutionResult(_) => Some("[result of code]".into()),
        PartData::Other => None,
    }
}
