//! A chat session with an app: sends messages, prints events, and asks for approval of tool calls and for credentials.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use anyhow::Context;
use hatchery_core::{CallerOrigin, Content, FunctionResponse, PartData, RunError, SessionKey, StreamingMode};
use hatchery_engine::{App, Run, RunRequest, Runner};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio_util::sync::CancellationToken;

use super::credential_request::{CredentialRequest, Question};
use super::pending_calls::{ApprovalRequest, Decision, PendingCalls};
use super::printer::ChatPrinter;
use crate::interrupts::Interrupts;
use crate::outcome::Outcome;
use crate::terminal::{BOLD, DIM, TerminalMode, plain_stdout, stdout};

/// The way of approving tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalMode {
    /// All calls, by `--yes`.
    ApproveAll,
    /// No call, by `--no`.
    RejectAll,
    /// The user is asked in the terminal.
    Prompt,
    /// There is no terminal to ask: the chat ends with [`Outcome::AnswerRequired`].
    Unavailable,
}

/// The way of asking the user for credentials of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialMode {
    /// Stdin has the answers, one per line. A terminal does not show those that are secret.
    Prompt,
    /// Stdin has messages, which must not be taken for secrets: the chat ends with [`Outcome::AnswerRequired`].
    Unavailable,
}

/// A chat of the user with an app, in one session.
pub struct ChatSession<R> {
    runner: Runner,
    app: Arc<App>,
    key: SessionKey,
    approval_mode: ApprovalMode,
    credential_mode: CredentialMode,
    is_json: bool,
    input: Lines<R>,
    interrupts: Interrupts,
}

struct RunResult {
    outcome: Outcome,
    pending: PendingCalls,
}

impl ChatSession<BufReader<Stdin>> {
    /// Creates a chat that reads from stdin. Prints events as JSON if `is_json` is set.
    pub fn new(
        runner: Runner,
        app: Arc<App>,
        key: SessionKey,
        approval_mode: ApprovalMode,
        credential_mode: CredentialMode,
        is_json: bool,
    ) -> anyhow::Result<Self> {
        let input = BufReader::new(tokio::io::stdin()).lines();
        let interrupts = Interrupts::listen()?;
        Ok(Self { runner, app, key, approval_mode, credential_mode, is_json, input, interrupts })
    }
}

impl<R: AsyncBufRead + Unpin> ChatSession<R> {
    /// Runs one turn for each line of the input. Prints prompts if `has_prompt` is set.
    pub async fn run(&mut self, has_prompt: bool) -> anyhow::Result<Outcome> {
        if has_prompt {
            anstream::eprintln!("Chat with {}. Ctrl-C stops an answer, Ctrl-D quits.", self.app.name);
        }
        let mut outcome = Outcome::Success;
        while let Some(line) = self.read_line(if has_prompt { "> " } else { "" }).await? {
            if line.trim().is_empty() {
                continue;
            }
            match self.run_turn(&line).await? {
                Outcome::AnswerRequired => return Ok(Outcome::AnswerRequired),
                // Only a person can continue after an interrupt.
                Outcome::Interrupted if !has_prompt => return Ok(Outcome::Interrupted),
                Outcome::Failure => outcome = Outcome::Failure,
                Outcome::Success | Outcome::Interrupted => {}
            }
        }
        Ok(outcome)
    }

    /// Sends a message, then the user's answers about tool calls, until no call needs one.
    pub async fn run_turn(&mut self, message: &str) -> anyhow::Result<Outcome> {
        let mut request = RunRequest::new(&*self.key.user, &*self.key.id, Content::user(message));
        loop {
            let RunResult { outcome, pending } = self.run_once(request).await?;
            for call in &pending.long_running {
                anstream::eprintln!("{DIM}{call}{DIM:#}");
            }
            if outcome != Outcome::Success || !pending.has_requests() {
                return Ok(outcome);
            }
            let Some(answer) = self.answer(&pending).await? else { return Ok(Outcome::AnswerRequired) };
            request = RunRequest::new(&*self.key.user, &*self.key.id, answer);
        }
    }

    /// Returns the message with the user's answers. `None` if there is no terminal to ask, or the user quits.
    async fn answer(&mut self, pending: &PendingCalls) -> anyhow::Result<Option<Content>> {
        let Some(decisions) = self.decide(&pending.approvals).await? else { return Ok(None) };
        let Some(credentials) = self.request_credentials(&pending.credentials).await? else { return Ok(None) };
        let decisions =
            pending.approvals.iter().zip(&decisions).map(|(request, decision)| request.to_response(decision));
        let parts = decisions.chain(credentials).map(|response| PartData::FunctionResponse(response).into());
        Ok(Some(Content::new("user", parts.collect())))
    }

    /// Waits until no run and no compaction is in progress.
    pub async fn end(self) {
        self.runner.drain().await;
    }

    /// Prompts for a line. `None` at the end of the input or after an interrupt.
    async fn read_line(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        anstream::eprint!("{prompt}");
        let line = tokio::select! {
            line = self.input.next_line() => line.context("cannot read stdin")?,
            () = self.interrupts.next() => None,
        };
        if line.is_none() && !prompt.is_empty() {
            // The prompt of the shell starts on a new line.
            anstream::eprintln!();
        }
        Ok(line)
    }

    /// Runs the app and prints its events. An interrupt cancels the run.
    async fn run_once(&mut self, mut request: RunRequest) -> anyhow::Result<RunResult> {
        let cancel = CancellationToken::new();
        request.config.streaming_mode = StreamingMode::On;
        request.cancel = cancel.clone();
        request.origin = CallerOrigin::Cli;
        let run = self.runner.run(self.app.clone(), request).await?;
        let has_several_agents = self.app.agent_names().len() > 1;
        let print = print_events(run, self.is_json, has_several_agents);
        tokio::pin!(print);
        loop {
            tokio::select! {
                result = &mut print => return result,
                () = self.interrupts.next() => cancel.cancel(),
            }
        }
    }

    /// Returns a decision for each request. `None` if there is no terminal to ask, or the user quits.
    async fn decide(&mut self, requests: &[ApprovalRequest]) -> anyhow::Result<Option<Vec<Decision>>> {
        let mut decisions = Vec::with_capacity(requests.len());
        for request in requests {
            anstream::eprintln!("{BOLD}?{BOLD:#} {request}");
            match self.approval_mode {
                ApprovalMode::ApproveAll => {
                    anstream::eprintln!("  approved by --yes");
                    decisions.push(Decision::approved());
                }
                ApprovalMode::RejectAll => {
                    anstream::eprintln!("  rejected by --no");
                    decisions.push(Decision::rejected());
                }
                ApprovalMode::Prompt => match self.prompt_decision().await? {
                    Some(decision) => decisions.push(decision),
                    None => return Ok(None),
                },
                ApprovalMode::Unavailable => {}
            }
        }
        if self.approval_mode == ApprovalMode::Unavailable && !requests.is_empty() {
            anstream::eprintln!(
                "cannot ask for approval without a terminal; pass --yes to approve or --no to reject, or run this \
                 command in a terminal"
            );
            return Ok(None);
        }
        Ok(Some(decisions))
    }

    /// Prompts until the answer is valid. `None` if the user quits.
    async fn prompt_decision(&mut self) -> anyhow::Result<Option<Decision>> {
        while let Some(line) = self.read_line("  approve? [y/n] ").await? {
            match Decision::parse(&line) {
                Ok(decision) => return Ok(Some(decision)),
                Err(message) => anstream::eprintln!("  {message}"),
            }
        }
        Ok(None)
    }

    /// Returns a response to each request. `None` if there is no terminal to ask, or the user quits.
    async fn request_credentials(
        &mut self,
        requests: &[CredentialRequest],
    ) -> anyhow::Result<Option<Vec<FunctionResponse>>> {
        let mut responses = Vec::with_capacity(requests.len());
        for request in requests {
            anstream::eprintln!("{BOLD}?{BOLD:#} {request}");
            let answers = match self.credential_mode {
                CredentialMode::Prompt => self.prompt_credential(request).await?,
                CredentialMode::Unavailable => None,
            };
            let Some(answers) = answers else {
                // In a terminal, the user has quit.
                if !io::stdin().is_terminal() {
                    anstream::eprintln!(
                        "no credential was given; run this command in a terminal, or pass --message and give stdin one \
                         line for each question"
                    );
                }
                return Ok(None);
            };
            responses.push(request.to_response(&answers));
        }
        Ok(Some(responses))
    }

    /// Returns the answers to the questions of a request, none if the user declines. `None` if the user quits.
    async fn prompt_credential(&mut self, request: &CredentialRequest) -> anyhow::Result<Option<Vec<String>>> {
        let mut answers = Vec::new();
        for question in request.questions() {
            let Some(answer) = self.prompt_question(question, answers.is_empty()).await? else { return Ok(None) };
            if answer.is_empty() && answers.is_empty() {
                break;
            }
            answers.push(answer);
        }
        Ok(Some(answers))
    }

    /// Prompts for a part of a credential. The terminal does not show a secret one. `None` if the user quits.
    async fn prompt_question(&mut self, question: &Question, is_first: bool) -> anyhow::Result<Option<String>> {
        let hint = if is_first { ", or nothing to decline" } else { "" };
        let prompt = format!("  {}{hint}: ", question.prompt);
        let hidden = question.is_secret.then(|| TerminalMode::change(&["-echo"]));
        let line = self.read_line(&prompt).await?;
        if line.is_some() && hidden.is_some_and(|hidden| hidden.is_changed()) {
            // The terminal has not shown the line break either.
            anstream::eprintln!();
        }
        // A password may end with a space.
        Ok(line.map(|line| if is_first { line.trim().to_owned() } else { line }))
    }
}

/// Prints the events of a run until it ends.
async fn print_events(mut run: Run, is_json: bool, has_several_agents: bool) -> anyhow::Result<RunResult> {
    let printer = ChatPrinter::new(stdout(), anstream::stderr(), has_several_agents);
    let mut printer = printer.with_progress(io::stdout().is_terminal());
    let mut result = RunResult { outcome: Outcome::Success, pending: PendingCalls::default() };
    while let Some(item) = run.next().await {
        match item {
            Ok(event) => {
                result.pending.add_event(&event);
                if is_json {
                    let mut out = plain_stdout();
                    out.write_all(event.json())?;
                    out.write_all(b"\n")?;
                    out.flush()?;
                } else {
                    printer.print(&event)?;
                }
            }
            Err(error) => {
                printer.print_error(&error)?;
                result.outcome = outcome_of(&error);
                break;
            }
        }
    }
    printer.finish()?;
    Ok(result)
}

/// Returns the outcome of a failed run. Only an interrupt cancels a run here.
fn outcome_of(error: &RunError) -> Outcome {
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

    const USER: &str = "user";

    /// An agent that requests a confirmation, then answers with the confirmation response.
    struct Bank;

    #[async_trait]
    impl CustomAgent for Bank {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            let message = cx.call.invocation.user_content();
            if let Some(response) = message.function_responses().next() {
                cx.say(Value::from(response.response.clone()).to_string()).await?;
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

    /// Runs a turn with `input` as the user's answers. Returns the outcome and the confirmation response.
    async fn run_payment(approval_mode: ApprovalMode, input: &'static str) -> (Outcome, Option<String>) {
        let code = Arc::new(Bank);
        let bank = Agent::new("bank", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![] }));
        let services = services::open(&Config::default(), &Storage::InMemory, &Scripts::default()).await.unwrap();
        let key = services.sessions.create("bank", USER, None, Default::default()).await.unwrap().key;
        let mut chat = ChatSession {
            runner: Runner::new(services),
            app: Arc::new(App::new("bank", bank).unwrap()),
            key,
            approval_mode,
            credential_mode: CredentialMode::Unavailable,
            is_json: false,
            input: input.as_bytes().lines(),
            interrupts: Interrupts::listen().unwrap(),
        };
        let outcome = chat.run_turn("Pay the rent").await.unwrap();
        let session = chat.runner.services().sessions.get(&chat.key, EventWindow::All).await.unwrap().unwrap();
        let texts = session.events.iter().skip(1).filter_map(|event| event.content.as_ref().map(|it| it.text()));
        (outcome, texts.filter(|text| !text.is_empty()).last())
    }

    #[tokio::test]
    async fn the_user_is_asked_until_the_answer_is_valid() {
        let result = run_payment(ApprovalMode::Prompt, "what?\ny {\"amount\": 3}\n").await;
        assert_eq!(result, (Outcome::Success, Some("{\"confirmed\":true,\"payload\":{\"amount\":3}}".into())));
    }

    #[tokio::test]
    async fn quitting_at_the_question_is_no_decision() {
        assert_eq!(run_payment(ApprovalMode::Prompt, "what?\n").await, (Outcome::AnswerRequired, None));
    }

    #[tokio::test]
    async fn flags_decide_without_asking() {
        let response = |text: &str| (Outcome::Success, Some(text.to_owned()));
        assert_eq!(run_payment(ApprovalMode::ApproveAll, "").await, response("{\"confirmed\":true}"));
        assert_eq!(run_payment(ApprovalMode::RejectAll, "y\n").await, response("{\"confirmed\":false}"));
    }

    #[tokio::test]
    async fn without_a_terminal_the_chat_ends_at_the_question() {
        assert_eq!(run_payment(ApprovalMode::Unavailable, "y\n").await, (Outcome::AnswerRequired, None));
    }

    #[test]
    fn only_a_cancelled_run_was_interrupted() {
        assert_eq!(outcome_of(&RunError::Cancelled), Outcome::Interrupted);
        assert_eq!(outcome_of(&RunError::Internal("x".into())), Outcome::Failure);
    }
}
