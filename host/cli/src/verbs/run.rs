//! `hatchery run`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hatchery::AppSource;
use hatchery_core::{CallerOrigin, Content, RunError, SessionKey, StreamingMode};
use hatchery_engine::{App, Run, RunRequest, Runner};
use hatchery_recordings::Recorder;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines};
use tokio_util::sync::CancellationToken;

use crate::chat::ChatPrinter;
use crate::host::{self, ConfigArgs, StorageArgs, served_folder};
use crate::interrupt::Interrupts;
use crate::open_calls::{self, Decision, OpenCalls, Question};
use crate::recordings;
use crate::terminal::{BOLD, DIM, plain_stdout, stdout};
use crate::verbs::Outcome;

/// Who chats with whom.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery run my-agents dice\n  hatchery run my-agents/dice --message 'Roll a d20'\n  \
                        echo 'Roll a d20' | hatchery run my-agents dice --json\n  \
                        hatchery run my-agents bank --message 'Pay the rent' --yes\n  \
                        hatchery run my-agents dice --record my-agents/dice/recorded/two-rolls\n\n\
    Agents and components of the folder run, with the grants of hatchery.yaml; those that reach outside of the folder need\n\
    `hatchery trust`."
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
    /// Record the session in this folder, for `hatchery test` to replay; what is recorded there already is replaced
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Write every event as a line of JSON
    #[arg(long)]
    json: bool,
    /// Approve every tool call that waits for approval; without it you are asked, if there is a terminal
    #[arg(long)]
    yes: bool,
    /// Reject every tool call that waits for approval
    #[arg(long, conflicts_with = "yes")]
    no: bool,
}

/// Who decides about tool calls that wait for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decider {
    /// The flags: all are approved, or all rejected.
    Flag(bool),
    /// The person at the terminal.
    Person,
    /// Nobody is there.
    Nobody,
}

const USER: &str = "user";

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, app) = place(&args.place, args.app)?;
    let builder = host::builder(args.config.source(&folder), &StorageArgs::in_memory());
    let host = host::open(if args.record.is_some() { builder.reproducible() } else { builder }).await?;
    let app = choose(host.apps().as_ref(), app)?;
    let key = host.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    let is_terminal = std::io::stdin().is_terminal() && !args.json;
    let (runner, app) = match &args.record {
        Some(folder) => (recorder(host.runner(), folder)?, recordings::without_compaction(&app)),
        None => (host.runner().clone(), app),
    };
    let mut talk = Talk {
        runner,
        app,
        key,
        json: args.json,
        decider: decider(args.yes, args.no, is_terminal),
        lines: BufReader::new(tokio::io::stdin()).lines(),
        interrupts: Interrupts::listen()?,
    };
    let outcome = match args.message {
        Some(message) => talk.turn(&message).await,
        None => talk.chat(is_terminal).await,
    };
    // With a recorder it is a runner of its own, which closes the host's plugins too.
    talk.runner.close().await;
    outcome
}

fn decider(yes: bool, no: bool, is_terminal: bool) -> Decider {
    match (yes, no, is_terminal) {
        (true, _, _) => Decider::Flag(true),
        (false, true, _) => Decider::Flag(false),
        (false, false, true) => Decider::Person,
        (false, false, false) => Decider::Nobody,
    }
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
        (None, []) => {
            bail!("no app is loaded; an app is a folder with a root_agent.yaml, or a component that exports an agent")
        }
        (None, _) => bail!("there are several apps, name one: {known}"),
    };
    source.app(&name).ok_or_else(|| match names.is_empty() {
        true => anyhow!("app `{name}` not found; no app is loaded"),
        false => anyhow!("app `{name}` not found; there is {known}"),
    })
}

/// The runner with a recorder.
fn recorder(runner: &Runner, folder: &Path) -> anyhow::Result<Runner> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let recorder = Arc::new(Recorder::single_session(folder));
    Ok(runner.with_prepended_plugin(runner.services().clone(), recorder))
}

/// A conversation under way.
struct Talk<R> {
    runner: Runner,
    app: Arc<App>,
    key: SessionKey,
    json: bool,
    decider: Decider,
    /// What the person types.
    lines: Lines<R>,
    interrupts: Interrupts,
}

impl<R: AsyncBufRead + Unpin> Talk<R> {
    /// A turn per line of stdin.
    async fn chat(&mut self, prompts: bool) -> anyhow::Result<Outcome> {
        if prompts {
            anstream::eprintln!("Talking to {}. Ctrl-C stops an answer, Ctrl-D ends.", self.app.name);
        }
        let mut outcome = Outcome::Success;
        while let Some(line) = self.read(if prompts { "> " } else { "" }).await? {
            if line.trim().is_empty() {
                continue;
            }
            match self.turn(&line).await? {
                Outcome::Undecided => return Ok(Outcome::Undecided),
                // Nobody is there to say something else.
                Outcome::Interrupted if !prompts => return Ok(Outcome::Interrupted),
                Outcome::Failure => outcome = Outcome::Failure,
                Outcome::Success | Outcome::Interrupted => {}
            }
        }
        Ok(outcome)
    }

    /// The next line; nothing when there is none, or the person leaves.
    async fn read(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        anstream::eprint!("{prompt}");
        let line = tokio::select! {
            line = self.lines.next_line() => line.context("reading stdin")?,
            () = self.interrupts.next() => None,
        };
        if line.is_none() && !prompt.is_empty() {
            // What the shell says next has a line of its own.
            anstream::eprintln!();
        }
        Ok(line)
    }

    /// Says something, and answers what the agent then wants to be approved, until it has no more questions.
    async fn turn(&mut self, message: &str) -> anyhow::Result<Outcome> {
        let mut request = RunRequest::new(&*self.key.user, &*self.key.id, Content::user(message));
        loop {
            let Said { outcome, open } = self.say(request).await?;
            for pending in &open.pending {
                anstream::eprintln!("{DIM}{pending}{DIM:#}");
            }
            if outcome != Outcome::Success || open.questions.is_empty() {
                return Ok(outcome);
            }
            let Some(decisions) = self.decide(&open.questions).await? else { return Ok(Outcome::Undecided) };
            let answers = open_calls::answers(open.questions.iter().zip(&decisions));
            request = RunRequest::new(&*self.key.user, &*self.key.id, answers);
        }
    }

    /// One run.
    async fn say(&mut self, mut request: RunRequest) -> anyhow::Result<Said> {
        let cancel = CancellationToken::new();
        request.config.streaming_mode = StreamingMode::On;
        request.cancel = cancel.clone();
        request.origin = CallerOrigin::Cli;
        let run = self.runner.run(self.app.clone(), request).await?;
        let several = self.app.agent_names().len() > 1;
        let show = show(run, self.json, several);
        tokio::pin!(show);
        loop {
            tokio::select! {
                said = &mut show => return said,
                () = self.interrupts.next() => cancel.cancel(),
            }
        }
    }

    /// A decision for each question; nothing when there is nobody to ask.
    async fn decide(&mut self, questions: &[Question]) -> anyhow::Result<Option<Vec<Decision>>> {
        let mut decisions = Vec::with_capacity(questions.len());
        for question in questions {
            anstream::eprintln!("{BOLD}?{BOLD:#} {question}");
            match self.decider {
                Decider::Flag(confirmed) => {
                    anstream::eprintln!("  {}", if confirmed { "approved by --yes" } else { "rejected by --no" });
                    decisions.push(Decision::of(confirmed));
                }
                Decider::Person => match self.ask().await? {
                    Some(decision) => decisions.push(decision),
                    None => return Ok(None),
                },
                Decider::Nobody => {}
            }
        }
        if self.decider == Decider::Nobody {
            anstream::eprintln!(
                "nobody is there to decide: pass --yes to approve, --no to reject, or run this in a terminal"
            );
            return Ok(None);
        }
        Ok(Some(decisions))
    }

    /// Asks until there is an answer; nothing when the person leaves.
    async fn ask(&mut self) -> anyhow::Result<Option<Decision>> {
        while let Some(line) = self.read("  approve? [y/n] ").await? {
            match Decision::read(&line) {
                Ok(decision) => return Ok(Some(decision)),
                Err(how) => anstream::eprintln!("  {how}"),
            }
        }
        Ok(None)
    }
}

/// How a run went.
struct Said {
    outcome: Outcome,
    open: OpenCalls,
}

async fn show(mut run: Run, as_json: bool, several_agents: bool) -> anyhow::Result<Said> {
    let mut chat = ChatPrinter::new(stdout(), anstream::stderr(), several_agents);
    let mut said = Said { outcome: Outcome::Success, open: OpenCalls::default() };
    let mut reported = false;
    while let Some(item) = run.next().await {
        match item {
            Ok(event) => {
                reported |= event.error_code.is_some();
                said.open.note(&event);
                if as_json {
                    let mut out = plain_stdout();
                    out.write_all(event.json())?;
                    out.write_all(b"\n")?;
                    out.flush()?;
                } else {
                    chat.print(&event)?;
                }
            }
            Err(error) => {
                // The event before it has said the same.
                if !reported || as_json {
                    chat.error(error.code(), &error.to_string())?;
                }
                said.outcome = outcome(&error);
                return Ok(said);
            }
        }
    }
    Ok(said)
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
    use async_trait::async_trait;
    use hatchery::services::Scripts;
    use hatchery::{Config, Storage, services};
    use hatchery_core::{
        Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, EventData, EventWindow, REQUEST_CONFIRMATION,
    };
    use serde_json::{Value, json};

    use super::*;

    /// Pays what a person has approved: it says what it has been answered.
    struct Bank;

    #[async_trait]
    impl CustomAgent for Bank {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            let said = cx.call.invocation.user_content();
            if let Some(answer) = said.function_responses().next() {
                cx.say(Value::from(answer.response.clone()).to_string()).await?;
                return Ok(());
            }
            let call = json!({"id": "q1", "name": REQUEST_CONFIRMATION, "args": {
                "originalFunctionCall": {"id": "c1", "name": "pay", "args": {}}, "toolConfirmation": {"hint": "Pay?"}}});
            let content = serde_json::from_value(json!({"role": "model", "parts": [{"functionCall": call}]})).unwrap();
            let long_running_tool_ids = vec!["q1".into()];
            let content = Some(Arc::new(content));
            cx.emit(EventData { content, long_running_tool_ids, ..EventData::default() }).await.map(|_| ())
        }
    }

    /// What the bank was answered when this is typed, and how the turn ended.
    async fn pay(decider: Decider, typed: &'static str) -> (Outcome, Option<String>) {
        let code = Arc::new(Bank);
        let bank = Agent::new("bank", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![] }));
        let services = services::open(&Config::default(), &Storage::InMemory, &Scripts::default()).await.unwrap();
        let key = services.sessions.create("bank", USER, None, Default::default()).await.unwrap().key;
        let mut talk = Talk {
            runner: Runner::new(services),
            app: Arc::new(App::new("bank", bank).unwrap()),
            key,
            json: false,
            decider,
            lines: typed.as_bytes().lines(),
            interrupts: Interrupts::listen().unwrap(),
        };
        let outcome = talk.turn("Pay the rent").await.unwrap();
        let session = talk.runner.services().sessions.get(&talk.key, EventWindow::All).await.unwrap().unwrap();
        let texts = session.events.iter().skip(1).filter_map(|event| event.content.as_ref().map(|it| it.text()));
        (outcome, texts.filter(|text| !text.is_empty()).last())
    }

    #[tokio::test]
    async fn a_person_is_asked_until_they_decide() {
        let paid = pay(Decider::Person, "what?\ny {\"amount\": 3}\n").await;
        assert_eq!(paid, (Outcome::Success, Some("{\"confirmed\":true,\"payload\":{\"amount\":3}}".into())));
    }

    #[tokio::test]
    async fn a_person_who_leaves_has_not_decided() {
        assert_eq!(pay(Decider::Person, "what?\n").await, (Outcome::Undecided, None));
    }

    #[tokio::test]
    async fn flags_decide_without_asking() {
        assert_eq!(pay(Decider::Flag(true), "").await, (Outcome::Success, Some("{\"confirmed\":true}".into())));
        assert_eq!(pay(Decider::Flag(false), "y\n").await, (Outcome::Success, Some("{\"confirmed\":false}".into())));
    }

    #[tokio::test]
    async fn what_nobody_decides_ends_the_talk() {
        assert_eq!(pay(Decider::Nobody, "y\n").await, (Outcome::Undecided, None));
    }

    #[test]
    fn flags_win_over_the_person_at_the_terminal() {
        assert_eq!(decider(true, false, true), Decider::Flag(true));
        assert_eq!(decider(false, true, false), Decider::Flag(false));
        assert_eq!(decider(false, false, true), Decider::Person);
        assert_eq!(decider(false, false, false), Decider::Nobody);
    }

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
