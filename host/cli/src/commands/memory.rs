//! `hatchery memory`: searches, lists, adds to and deletes from the memory of users. The server may be running.

use anyhow::{Context, bail};
use hatchery::audit::TARGET;
use hatchery_core::{EventWindow, MemoryEntry, RememberedSession, SessionKey, StoreError, pluralize};
use serde_json::{Value, json};

use crate::audit;
use crate::commands::Outcome;
use crate::service_args::{OwnerArgs, ServiceArgs, unknown_session};
use crate::terminal::{BOLD, DIM, escape_control, http_date};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery memory search 'red lamp' --app reception --user ada\n  hatchery memory list\n  \
                        hatchery memory list --app reception --user ada --session first\n  \
                        hatchery memory add --app reception --user ada --session first\n  \
                        hatchery memory delete --app reception --user ada --all\n\n\
    Uses the memory of the folder's server, which may be running."
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Search a user's memory
    Search(SearchArgs),
    /// List the sessions in the memory, or the entries of one
    List(ListArgs),
    /// Add a stored session to its user's memory; replaces its earlier entries
    Add(AddArgs),
    /// Delete entries of a user's memory; sessions are kept
    Delete(DeleteArgs),
}

#[derive(clap::Args)]
struct SearchArgs {
    /// The words to search for
    #[arg(required = true, value_name = "QUERY")]
    query: Vec<String>,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    folder: ServiceArgs,
}

#[derive(clap::Args)]
struct ListArgs {
    /// List only this app
    #[arg(long)]
    app: Option<String>,
    /// List only this user
    #[arg(long)]
    user: Option<String>,
    /// List the entries of this session
    #[arg(long, requires = "app", requires = "user")]
    session: Option<String>,
    #[command(flatten)]
    folder: ServiceArgs,
}

#[derive(clap::Args)]
struct AddArgs {
    /// The session
    #[arg(long)]
    session: String,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    folder: ServiceArgs,
}

/// The entries to delete.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct DeletionArgs {
    /// Delete the entries of this session
    #[arg(long)]
    session: Option<String>,
    /// Delete all entries of the user in the app
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    entries: DeletionArgs,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    folder: ServiceArgs,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.action {
        Action::Search(args) => search(&args).await,
        Action::List(args) => list(&args).await,
        Action::Add(args) => add(&args).await,
        Action::Delete(args) => delete(&args).await,
    }
}

async fn search(args: &SearchArgs) -> anyhow::Result<Outcome> {
    let memory = args.folder.stored_services().await?.memory;
    let found = memory.search(&args.owner.app, &args.owner.user, &args.query.join(" ")).await?;
    print_entries(&args.folder, &found, "no entry has one of these words")
}

async fn list(args: &ListArgs) -> anyhow::Result<Outcome> {
    let memory = args.folder.stored_services().await?.memory;
    if let (Some(app), Some(user), Some(session)) = (&args.app, &args.user, &args.session) {
        let key = SessionKey::new(app.as_str(), user.as_str(), session.as_str());
        return print_entries(&args.folder, &memory.entries(&key).await?, "the session has no entries");
    }
    let sessions = memory.sessions(args.app.as_deref(), args.user.as_deref()).await?;
    let value = json!({ "sessions": sessions.iter().map(to_json).collect::<Vec<_>>() });
    let mut lines: Vec<_> = sessions.iter().map(to_line).collect();
    if lines.is_empty() {
        lines.push("the memory has no sessions".into());
    }
    args.folder.print(&value, lines)
}

async fn add(args: &AddArgs) -> anyhow::Result<Outcome> {
    let services = args.folder.services().await?;
    let key = args.owner.session(&args.session);
    let Some(session) = services.sessions.get(&key, EventWindow::All).await? else {
        return Err(unknown_session(&services, &key).await);
    };
    services.memory.add_session(&session).await?;
    let id = escape_control(&key.id);
    let (entries, line) = match services.memory.entries(&key).await {
        Ok(entries) => {
            let count = pluralize(entries.len(), "entry", "entries");
            (Some(entries.len()), format!("added {count} of session {id}"))
        }
        // The service cannot list them.
        Err(StoreError::InvalidRequest(_)) => (None, format!("added session {id}")),
        Err(error) => return Err(error.into()),
    };
    args.folder.print(&json!({ "sessionId": &*key.id, "entries": entries }), [line])
}

async fn delete(args: &DeleteArgs) -> anyhow::Result<Outcome> {
    let memory = args.folder.stored_services().await?.memory;
    let (config, storage) = args.folder.storage()?;
    audit::open_beside_server(&config.audit, &storage)?;
    let mut sessions = memory.sessions(Some(&args.owner.app), Some(&args.owner.user)).await?;
    if let Some(id) = &args.entries.session {
        sessions.retain(|session| *session.key.id == **id);
        if sessions.is_empty() {
            bail!("the memory has no session `{id}` of user `{}` in app `{}`", args.owner.user, args.owner.app);
        }
    }
    for session in &sessions {
        memory.delete_session(&session.key).await.with_context(|| session.key.to_string())?;
        let (SessionKey { app, user, id }, action) = (&session.key, "hatchery memory delete");
        tracing::info!(target: TARGET, %app, %user, session = %id, action, decision = "deleted", "deletion");
    }
    let value = json!({ "deleted": sessions.iter().map(to_json).collect::<Vec<_>>() });
    let entries = sessions.iter().map(|session| session.entries).sum::<u64>();
    let count = pluralize(entries, "entry", "entries");
    args.folder.print(&value, [format!("deleted {count} of {}", pluralize(sessions.len(), "session", "sessions"))])
}

fn print_entries(folder: &ServiceArgs, entries: &[MemoryEntry], none: &str) -> anyhow::Result<Outcome> {
    let lines = entries.iter().map(|entry| {
        let author = entry.author.as_deref().unwrap_or("unknown");
        let (author, text) = (escape_control(author), entry.content.text());
        format!("{DIM}{}{DIM:#}  {BOLD}{author}{BOLD:#}: {}", http_date(entry.timestamp), escape_control(&text))
    });
    let none = entries.is_empty().then(|| none.to_owned());
    folder.print(&json!({ "memories": entries }), lines.chain(none))
}

fn to_json(session: &RememberedSession) -> Value {
    let SessionKey { app, user, id } = &session.key;
    json!({
        "appName": &**app, "userId": &**user, "sessionId": &**id, "entries": session.entries, "newest": session.newest,
    })
}

fn to_line(session: &RememberedSession) -> String {
    let SessionKey { app, user, id } = &session.key;
    let count = pluralize(session.entries, "entry", "entries");
    let name = format!("app {app}  user {user}  session {id}");
    format!("{BOLD}{}{BOLD:#}  {count}  {DIM}newest {}{DIM:#}", escape_control(&name), http_date(session.newest))
}
