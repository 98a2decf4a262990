//! `hatchery run`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hatchery_core::{Content, Delivery, RunError, SessionKey};
use hatchery_engine::{App, Run, RunRequest, Runner};
use hatchery_server::AppSource;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio_util::sync::CancellationToken;

use crate::chat::Chat;
use crate::host::{Host, StorageArgs, Watch, served_folder};
use crate::interrupt::Interrupts;
use crate::terminal::{plain_stdout, stdout};
use crate::verbs::Outcome;

/// Who chats with whom.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery run my-agents dice\n  hatchery run my-agents/dice --message 'Roll a d20'\n  \
                        echo 'Roll a d20' | hatchery run my-agents dice --json"
)]
pub struct Args {
    /// The folder, an app's folder in it, or the name of an app in the current folder
    #[arg(value_name = "DIR_OR_APP")]
    place: PathBuf,
    /// The app; not needed when there is one only
    app: Option<String>,
    /// Say this and end; without it, messages are read from stdin, one per line
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Write every event as a line of JSON
    #[arg(long)]
    json: bool,
}

const USER: &str = "user";

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, app) = place(&args.place, args.app)?;
    let host = Host::open(&folder, &StorageArgs::in_memory(), Watch::No).await?;
    let app = choose(host.source.as_ref(), app)?;
    let key = host.runner.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    let mut talk = Talk { runner: host.runner.clone(), app, key, json: args.json, interrupts: Interrupts::listen()? };
    let outcome = match args.message {
        Some(message) => talk.turn(&message).await,
        None => talk.chat().await,
    };
    host.close().await;
    outcome
}

/// The folder to load and the app in it.
fn place(place: &Path, app: Option<String>) -> anyhow::Result<(PathBuf, Option<String>)> {
    if place.is_dir() {
        return match app {
            Some(app) => Ok((place.to_owned(), Some(app))),
            None => served_folder(place),
        };
    }
    match (place.to_str(), app) {
        (Some(name), None) if !name.contains(['/', '.']) => Ok((PathBuf::from("."), Some(name.to_owned()))),
        _ => bail!("{} is not a folder", place.display()),
    }
}

fn choose(source: &dyn AppSource, name: Option<String>) -> anyhow::Result<Arc<App>> {
    let names = source.app_names();
    let known = names.join(", ");
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only.clone(),
        (None, []) => bail!("no app is loaded; `hatchery inspect` says what there is"),
        (None, _) => bail!("there are several apps, name one: {known}"),
    };
    source.app(&name).ok_or_else(|| match names.is_empty() {
        true => anyhow!("app `{name}` not found; no app is loaded"),
        false => anyhow!("app `{name}` not found; there is {known}"),
    })
}

/// A conversation under way.
struct Talk {
    runner: Runner,
    app: Arc<App>,
    key: SessionKey,
    json: bool,
    interrupts: Interrupts,
}

impl Talk {
    /// A turn per line of stdin.
    async fn chat(&mut self) -> anyhow::Result<Outcome> {
        let prompts = std::io::stdin().is_terminal() && !self.json;
        if prompts {
            anstream::eprintln!("Talking to {}. Ctrl-C stops an answer, Ctrl-D ends.", self.app.name);
        }
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut outcome = Outcome::Success;
        while let Some(line) = self.read(&mut lines, prompts).await? {
            if !line.trim().is_empty() && self.turn(&line).await? == Outcome::Failure {
                outcome = Outcome::Failure;
            }
        }
        Ok(outcome)
    }

    async fn read(&mut self, lines: &mut Lines<BufReader<Stdin>>, prompts: bool) -> anyhow::Result<Option<String>> {
        if prompts {
            anstream::eprint!("> ");
        }
        tokio::select! {
            line = lines.next_line() => line.context("reading stdin"),
            () = self.interrupts.next() => Ok(None),
        }
    }

    async fn turn(&mut self, message: &str) -> anyhow::Result<Outcome> {
        let cancel = CancellationToken::new();
        let mut request = RunRequest::new(&*self.key.user, &*self.key.id, Content::user(message));
        request.config.delivery = Delivery::Streamed;
        request.cancel = cancel.clone();
        let run = self.runner.run(self.app.clone(), request).await?;
        let several = self.app.agent_names().len() > 1;
        let show = show(run, self.json, several);
        tokio::pin!(show);
        loop {
            tokio::select! {
                outcome = &mut show => return outcome,
                () = self.interrupts.next() => cancel.cancel(),
            }
        }
    }
}

async fn show(mut run: Run, as_json: bool, several_agents: bool) -> anyhow::Result<Outcome> {
    let mut chat = Chat::new(stdout(), anstream::stderr(), several_agents);
    let mut reported = false;
    while let Some(item) = run.next().await {
        match item {
            Ok(event) => {
                reported |= event.error_code.is_some();
                if as_json {
                    let mut out = plain_stdout();
                    out.write_all(event.json())?;
                    out.write_all(b"\n")?;
                    out.flush()?;
                } else {
                    chat.show(&event)?;
                }
            }
            Err(error) => {
                // The event before it has said the same.
                if !reported || as_json {
                    chat.error(error.code(), &error.to_string())?;
                }
                return Ok(outcome(&error));
            }
        }
    }
    Ok(Outcome::Success)
}

/// Only an interrupt cancels a run here.
fn outcome(error: &RunError) -> Outcome {
    match error {
        RunError::Cancelled => Outcome::Interrupted,
        _ => Outcome::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_run_was_interrupted_and_any_other_error_is_a_failure() {
        assert_eq!(outcome(&RunError::Cancelled), Outcome::Interrupted);
        assert_eq!(outcome(&RunError::Internal("x".into())), Outcome::Failure);
    }

    #[test]
    fn the_place_is_a_folder_an_app_s_folder_or_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let dice = folder.path().join("dice");
        std::fs::create_dir(&dice).unwrap();
        std::fs::write(dice.join("root_agent.yaml"), "").unwrap();
        assert_eq!(place(folder.path(), Some("x".into())).unwrap(), (folder.path().to_owned(), Some("x".into())));
        let (parent, app) = place(&dice, None).unwrap();
        assert_eq!((parent.canonicalize().unwrap(), app), (folder.path().canonicalize().unwrap(), Some("dice".into())));
        assert_eq!(place(Path::new("dice"), None).unwrap(), (".".into(), Some("dice".into())));
        assert!(place(Path::new("no/folder"), None).unwrap_err().to_string().contains("no/folder is not a folder"));
    }
}
