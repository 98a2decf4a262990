//! `hatchery sessions import`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::adk_sessions::AdkSessions;
use hatchery::audit::TARGET;
use hatchery_core::{
    EventData, ImportError, JsonMap, SessionImport, SessionKey, SessionService, StoreError, pluralize,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit;
use crate::outcome::Outcome;
use crate::service_args::ServiceArgs;
use crate::terminal::escape_control;

#[derive(clap::Args)]
pub struct Args {
    /// The file: JSON of `hatchery sessions export`, or an SQLite database of ADK for Python
    file: PathBuf,
    /// The app of the new session; for a database, the app whose sessions are imported
    #[arg(long)]
    app: Option<String>,
    /// The user of the new session; for a database, the user whose sessions are imported
    #[arg(long)]
    user: Option<String>,
    /// The id of the new session; only for JSON
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Also set `user:` and `app:` state, which is shared with other sessions
    #[arg(long)]
    shared_state: bool,
    #[command(flatten)]
    folder: ServiceArgs,
}

/// The parts of an exported session that are imported.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Export {
    id: String,
    app_name: String,
    user_id: String,
    #[serde(default)]
    state: JsonMap,
    #[serde(default)]
    events: Vec<EventData>,
}

/// The outcome of importing a session.
enum ImportOutcome {
    Imported {
        events: u64,
    },
    /// A session with its id exists.
    Exists,
}

pub async fn run(args: &Args) -> anyhow::Result<Outcome> {
    let file = args.file.display();
    let is_database = is_sqlite(&args.file).with_context(|| format!("cannot read {file}"))?;
    let sessions = args.folder.services().await?.sessions;
    let (config, storage) = args.folder.storage()?;
    audit::open_beside_server(&config.audit, &storage)?;
    let stored = if is_database {
        import_database(args, &*sessions).await?
    } else {
        vec![import_export(args, &*sessions).await?]
    };
    let json: Vec<Value> = stored.iter().map(|(key, stored)| to_json(key, stored)).collect();
    let mut lines: Vec<String> = stored.iter().map(|(key, stored)| to_line(key, stored)).collect();
    if lines.is_empty() {
        lines.push(format!("{file} has no such sessions"));
    }
    args.folder.print(&json!({ "sessions": json }), lines)
}

fn is_sqlite(file: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(16).read_to_end(&mut head)?;
    Ok(head == b"SQLite format 3\0")
}

async fn import_export(args: &Args, sessions: &dyn SessionService) -> anyhow::Result<(SessionKey, ImportOutcome)> {
    let file = args.file.display();
    let json = tokio::fs::read(&args.file).await.with_context(|| format!("cannot read {file}"))?;
    let export: Export = serde_json::from_slice(&json)
        .with_context(|| format!("{file} is neither an export of a session nor a SQLite database"))?;
    let name = |argument: &Option<String>, own: String| argument.clone().unwrap_or(own);
    let key = SessionKey::new(
        name(&args.app, export.app_name),
        name(&args.user, export.user_id),
        name(&args.session, export.id),
    );
    let stored = store(args, sessions, &key, SessionImport::ending_with(export.state, export.events)?).await?;
    if matches!(stored, ImportOutcome::Exists) {
        bail!(
            "there is a session `{}` of user `{}` in app `{}`: name another id with --session",
            key.id,
            key.user,
            key.app
        );
    }
    Ok((key, stored))
}

/// Imports the sessions of a database. Existing sessions are skipped, so an import can be repeated.
async fn import_database(
    args: &Args,
    sessions: &dyn SessionService,
) -> anyhow::Result<Vec<(SessionKey, ImportOutcome)>> {
    if args.session.is_some() {
        bail!("--session is for an export: the sessions of a database keep their ids");
    }
    let database = AdkSessions::open(&args.file).await?;
    let mut all = Vec::new();
    for key in database.keys(args.app.as_deref(), args.user.as_deref()).await? {
        let found = database.read(&key).await?;
        let import = SessionImport::ending_with(found.state, found.events)?;
        let stored = store(args, sessions, &key, import).await.with_context(|| format!("cannot import {key}"))?;
        all.push((key, stored));
    }
    Ok(all)
}

async fn store(
    args: &Args,
    sessions: &dyn SessionService,
    key: &SessionKey,
    import: SessionImport,
) -> anyhow::Result<ImportOutcome> {
    let import = if args.shared_state { import } else { import.without_shared_state() };
    match import.store(sessions, &key.app, &key.user, Some(&key.id)).await {
        Ok(session) => {
            record(args, key, session.revision);
            Ok(ImportOutcome::Imported { events: session.revision })
        }
        Err(ImportError::Store(StoreError::SessionExists(_))) => Ok(ImportOutcome::Exists),
        Err(error) => Err(error.into()),
    }
}

fn record(args: &Args, SessionKey { app, user, id }: &SessionKey, events: u64) {
    let state = if args.shared_state { ", with shared state" } else { "" };
    let (action, detail) = ("hatchery sessions import", format!("{}{state}", pluralize(events, "event", "events")));
    tracing::info!(target: TARGET, %app, %user, session = %id, action, decision = "allowed", detail, "import");
}

fn to_json(key: &SessionKey, stored: &ImportOutcome) -> Value {
    let events = match stored {
        ImportOutcome::Imported { events } => Some(events),
        ImportOutcome::Exists => None,
    };
    json!({ "appName": &*key.app, "userId": &*key.user, "sessionId": &*key.id, "events": events })
}

fn to_line(key: &SessionKey, stored: &ImportOutcome) -> String {
    let [app, user, id] = [&key.app, &key.user, &key.id].map(|name| escape_control(name));
    let place = format!("session {id} of user {user} in app {app}");
    match stored {
        ImportOutcome::Imported { events } => {
            format!("imported {place} with {}", pluralize(*events, "event", "events"))
        }
        ImportOutcome::Exists => format!("skipped {place}, which exists"),
    }
}
