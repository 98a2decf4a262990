//! `hatchery run`: a chat in the terminal, or a single message.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hatchery::AppSource;
use hatchery::shell::quote_path;
use hatchery_core::Plugin;
use hatchery_engine::App;
use hatchery_recordings::{Recorder, without_compaction};

use crate::chat::{ApprovalMode, ChatSession, CredentialMode};
use crate::dotenv::DotEnvSource;
use crate::files::require_folder;
use crate::host::{self, ConfigArgs, StorageArgs, find_app, find_served_folder};
use crate::outcome::Outcome;
use crate::projects::explain_unbuilt;
use crate::rejections::print_rejections;
use crate::terminal::list_names;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery run my-agents dice\n  hatchery run my-agents/dice --message 'Roll a die with 20 sides'\n  \
                        echo 'Roll a die with 20 sides' | hatchery run my-agents dice --json\n  \
                        hatchery run my-agents bank --message 'Pay the rent' --yes\n  \
                        hatchery run my-agents dice --record my-agents/dice/recorded/two-rolls\n\n\
    Runs agents and components of the folder with the grants of hatchery.yaml. Grants for access outside of the folder need \
    `hatchery trust`. The session is not stored.\n\n\
    If a tool needs a credential, the terminal asks for it; with --message it can also be piped, one line per question.\n\n\
    Exit codes: 1 if a run fails, 3 if a tool call needs approval or a credential and nobody can be asked, 130 after Ctrl-C."
)]
pub struct Args {
    /// The folder with the apps, the folder of one app, or the name of an app in the current folder
    #[arg(value_name = "DIR_OR_APP", default_value = ".")]
    target: PathBuf,
    /// The name of the app; optional if there is only one
    app: Option<String>,
    /// Send this message and exit; otherwise messages are read from stdin, one per line
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Record the session in this folder, so that `hatchery test` can replay it; replaces an existing recording
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print every event as a line of JSON
    #[arg(long)]
    json: bool,
    /// Approve every tool call that needs approval; by default the terminal asks
    #[arg(long)]
    yes: bool,
    /// Reject every tool call that needs approval
    #[arg(long, conflicts_with = "yes")]
    no: bool,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        let target = if self.target.is_dir() { self.target.as_path() } else { Path::new(".") };
        DotEnvSource::for_app_folder(target, &self.config)
    }
}

const USER: &str = "user";

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, app_name) = resolve_target(&args.target, args.app)?;
    let builder = host::builder(args.config.source(&folder), &StorageArgs::in_memory());
    let host = host::open(if args.record.is_some() { builder.reproducible() } else { builder }).await?;
    let app = select_app(host.apps().as_ref(), app_name, &folder);
    print_rejections(host.apps().as_ref(), &folder, app.as_ref().err());
    let app = app?;
    let key = host.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    let has_terminal = std::io::stdin().is_terminal() && !args.json;
    let recorder = args.record.as_deref().map(create_recorder).transpose()?;
    let (runner, app) = match &recorder {
        Some(recorder) => {
            let runner = host.runner().with_prepended_plugin(host.services().clone(), recorder.clone());
            (runner, without_compaction(&app))
        }
        None => (host.runner().clone(), app),
    };
    let approval_mode = approval_mode(args.yes, args.no, has_terminal);
    let credential_mode = credential_mode(args.message.is_some(), has_terminal);
    let mut chat = ChatSession::new(runner, app, key, approval_mode, credential_mode, args.json)?;
    let outcome = match args.message {
        Some(message) => chat.run_turn(&message).await,
        None => chat.run(has_terminal).await,
    };
    chat.end().await;
    if let Some(recorder) = recorder {
        recorder.close().await;
    }
    host.close().await;
    outcome
}

fn approval_mode(yes: bool, no: bool, has_terminal: bool) -> ApprovalMode {
    match (yes, no, has_terminal) {
        (true, _, _) => ApprovalMode::ApproveAll,
        (false, true, _) => ApprovalMode::RejectAll,
        (false, false, true) => ApprovalMode::Prompt,
        (false, false, false) => ApprovalMode::Unavailable,
    }
}

fn credential_mode(has_message: bool, has_terminal: bool) -> CredentialMode {
    if has_message || has_terminal { CredentialMode::Prompt } else { CredentialMode::Unavailable }
}

/// Returns the folder to load and the name of the app, if the arguments determine it.
fn resolve_target(target: &Path, app: Option<String>) -> anyhow::Result<(PathBuf, Option<String>)> {
    if target.is_dir() {
        return match app {
            Some(app) => Ok((target.to_owned(), Some(app))),
            None => find_served_folder(target),
        };
    }
    match (target.to_str(), app) {
        (Some(name), None) if !name.contains(['/', '.']) => Ok((PathBuf::from("."), Some(name.to_owned()))),
        _ => {
            // The error about a file names its folder.
            if target.is_file() {
                require_folder(target)?;
            }
            bail!(
                "{} is not a folder; name the folder with the apps, or an app of the current folder",
                target.display()
            )
        }
    }
}

fn select_app(source: &dyn AppSource, name: Option<String>, folder: &Path) -> anyhow::Result<Arc<App>> {
    let names = source.app_names();
    let name = match (name, names.as_slice()) {
        (Some(name), _) if names.contains(&name) => name,
        (Some(name), _) => only_app_of(source, folder, &name).unwrap_or(name),
        (None, [only]) => only.clone(),
        (None, []) => match explain_unbuilt(folder, None) {
            Some(unbuilt) => bail!("no app is loaded; {unbuilt}"),
            None => bail!(
                "no app is loaded; add a folder with root_agent.yaml or a component that exports an agent, or run \
                 `hatchery doctor {}` to see what is wrong",
                quote_path(folder)
            ),
        },
        (None, _) => bail!("there are several apps; name one of them: {}", list_names(&names)),
    };
    find_app(source, folder, &name)
}

/// Returns the only app of the components in the folder with this name, which is below the served folder or the served
/// folder itself: an agent need not have the name of its project.
fn only_app_of(source: &dyn AppSource, served: &Path, name: &str) -> Option<String> {
    let is_served = served.canonicalize().is_ok_and(|served| served.file_name() == Some(OsStr::new(name)));
    let is_inside = |file: &str| Path::new(file).starts_with(name) || is_served && !file.contains('/');
    let (apps, components) = (source.app_names(), source.report().components);
    let inside = components.iter().filter(|component| is_inside(&component.file));
    let mut found = inside.flat_map(|component| &component.agents).filter(|agent| apps.contains(*agent));
    let only = found.next()?;
    found.next().is_none().then(|| only.clone())
}

/// Returns a plugin that records the session in a folder, which is created.
fn create_recorder(folder: &Path) -> anyhow::Result<Arc<Recorder>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(Arc::new(Recorder::single_session(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_precedence_over_the_terminal() {
        assert_eq!(approval_mode(true, false, true), ApprovalMode::ApproveAll);
        assert_eq!(approval_mode(false, true, false), ApprovalMode::RejectAll);
        assert_eq!(approval_mode(false, false, true), ApprovalMode::Prompt);
        assert_eq!(approval_mode(false, false, false), ApprovalMode::Unavailable);
    }

    #[test]
    fn piped_messages_are_not_taken_for_credentials() {
        let modes = [(true, true), (true, false), (false, true), (false, false)]
            .map(|(message, terminal)| credential_mode(message, terminal));
        use CredentialMode::{Prompt, Unavailable};
        assert_eq!(modes, [Prompt, Prompt, Prompt, Unavailable]);
    }

    #[test]
    fn the_target_is_a_folder_the_folder_of_an_app_or_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let dice = folder.path().join("dice");
        std::fs::create_dir(&dice).unwrap();
        std::fs::write(dice.join("root_agent.yaml"), "").unwrap();
        let named = resolve_target(folder.path(), Some("x".into())).unwrap();
        assert_eq!(named, (folder.path().to_owned(), Some("x".into())));
        let (parent, app) = resolve_target(&dice, None).unwrap();
        assert_eq!((parent.canonicalize().unwrap(), app), (folder.path().canonicalize().unwrap(), Some("dice".into())));
        assert_eq!(resolve_target(Path::new("dice"), None).unwrap(), (".".into(), Some("dice".into())));
        let error = resolve_target(Path::new("no/folder"), None).unwrap_err().to_string();
        assert_eq!(error, "no/folder is not a folder; name the folder with the apps, or an app of the current folder");
    }
}
