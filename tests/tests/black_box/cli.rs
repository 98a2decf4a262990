//! The command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::{text, text_at};
use hatchery_tests::{Folder, Host, event, paths};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The output of a command.
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("{}{}", self.stdout, self.stderr))
    }

    pub(crate) fn lines(&self) -> Result<Vec<Value>> {
        self.stdout.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }
}

/// Runs `hatchery` in a folder.
pub(crate) async fn hatchery(folder: &Path, args: &[&str]) -> Result<Output> {
    hatchery_with(folder, args, &[]).await
}

/// Like [`hatchery`], with environment variables.
pub(crate) async fn hatchery_with(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Result<Output> {
    let mut command = paths::command()?;
    command.args(args).envs(variables.iter().copied()).current_dir(folder).stdin(Stdio::null());
    let output = command.output().await?;
    let text = |bytes| String::from_utf8(bytes).map(|text: String| text);
    Ok(Output { success: output.status.success(), stdout: text(output.stdout)?, stderr: text(output.stderr)? })
}

#[tokio::test]
async fn run_sends_one_message_and_prints_the_answer() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["run", ".", "greeter", "--message", "My name is Ada."]).await?;
    ensure!(output.success, "{}", output.stderr);
    assert_eq!(output.stdout, "Nice to meet you, Ada.\nI will know you the next time.\n");
    Ok(())
}

#[tokio::test]
async fn run_writes_events_as_json_when_asked_to() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output =
        hatchery(&folder.served(), &["run", "trip-planner", "--json", "-m", "Plan 3 nights in Lisbon."]).await?;
    ensure!(output.success, "{}", output.stderr);
    let events = output.lines()?;
    events.iter().try_for_each(event::check)?;
    event::check_partial_events(&events)?;
    let last = events.last().map(text).unwrap_or_default();
    assert!(last.starts_with("Your trip to Lisbon is planned"), "{last}");
    Ok(())
}

#[tokio::test]
async fn run_reads_one_message_per_line() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("lines.txt", "My name is Ada.\nHello\n")?;
    let mut command = paths::command()?;
    command.args(["run", ".", "greeter"]).current_dir(folder.served());
    let output = command.stdin(std::fs::File::open(folder.file("lines.txt"))?).output().await?;
    let stdout = String::from_utf8(output.stdout)?;
    assert!(stdout.contains("Nice to meet you, Ada.") && stdout.contains("Hello again, Ada!"), "{stdout}");
    assert!(output.status.success());
    Ok(())
}

#[tokio::test]
async fn an_interrupt_ends_a_chat_over_a_pipe_although_more_lines_follow() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("slow/root_agent.yaml", "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Talk.\n")?;
    folder
        .write("slow/answers.yaml", "turns:\n  - chunk_delay_ms: 600000\n    reply: [{text: [\"one \", \"two\"]}]\n")?;
    folder.write("lines.txt", "Hello\nHello\n")?;
    let mut command = paths::command()?;
    command.args(["run", "slow"]).current_dir(folder.served()).stdin(std::fs::File::open(folder.file("lines.txt"))?);
    let mut talk = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = talk.stdout.take().context("a pipe")?;
    stdout.read_exact(&mut [0; 4]).await?;
    let id = talk.id().context("it runs")?.to_string();
    ensure!(Command::new("kill").args(["-INT", &id]).status().await?.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await?;
    assert_eq!((talk.wait().await?.code(), rest.trim()), (Some(130), ""), "it says nothing more");
    Ok(())
}

#[tokio::test]
async fn the_agents_of_a_parallel_agent_are_shown_once() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["run", ".", "trip-planner", "-m", "Plan 3 nights in Lisbon."]).await?;
    ensure!(output.success, "{}", output.stderr);
    for text in ["Expect sunny weather", "From Casa do Rio", "Fly with Atlantic Air"] {
        assert_eq!(output.stdout.matches(text).count(), 1, "{text} in {}", output.stdout);
    }
    Ok(())
}

#[tokio::test]
async fn run_lists_the_apps_if_the_name_is_unknown() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output =
        hatchery(&folder.served(), &["run", ".", "nobody", "-m", "Hello", "--config", "hatchery.yaml"]).await?;
    assert!(!output.success);
    assert!(
        output.stderr.contains(
            "app `nobody` not found; available: concierge, data-analyst, dice, greeter, help-desk, trip-planner, web-fetch"
        ),
        "{}",
        output.stderr
    );
    Ok(())
}

/// Runs a chat with one message in a terminal of its own. Returns what the terminal received, or `None` if there is no
/// program that makes terminals.
async fn chat_in_terminal(
    folder: &Folder,
    app: &str,
    message: &str,
    environment: &[(&str, &str)],
) -> Result<Option<String>> {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("'{}' run . {app}", paths::hatchery()?.display()), "/dev/null"]);
    command.env("TERM", "xterm").env("XDG_CACHE_HOME", paths::cache_folder("cache")?).env_remove("HATCHERY_LOG");
    command.env_remove("NO_COLOR").envs(environment.iter().copied());
    command.current_dir(folder.served()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut chat = match command.spawn() {
        Ok(chat) => chat,
        Err(error) => {
            hatchery_tests::skip("a chat in a terminal", &format!("script: {error}"));
            return Ok(None);
        }
    };
    chat.stdin.take().context("a pipe")?.write_all(format!("{message}\n\x04").as_bytes()).await?;
    let output = tokio::time::timeout(hatchery_tests::host::TIMEOUT, chat.wait_with_output()).await;
    Ok(Some(String::from_utf8(output.context("the chat does not end")??.stdout)?))
}

#[tokio::test]
async fn the_progress_bar_is_gone_before_a_chat_begins_in_a_terminal() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", paths::component("swap")?)?;
    ensure!(hatchery(&folder.served(), &["new", "hello", "--kind", "yaml"]).await?.success);
    // A bar that goes by itself is often gone in time.
    for _ in 0..6 {
        let Some(output) = chat_in_terminal(&folder, "hello", "I am Ada", &[]).await? else { return Ok(()) };
        let (before, after) = output.split_once("Chat with hello.").with_context(|| output.clone())?;
        assert!(before.contains("loading ") && after.contains("Hello, Ada!"), "{output:?}");
        assert!(!after.contains("\u{1b}[2K"), "it clears no line: {output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_no_color_keeps_the_colours_of_answers_and_of_log_lines() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("down/root_agent.yaml", "name: down\nmodel: scripted:answers.yaml\ninstruction: Talk.\n")?;
    folder.write("answers.yaml", "turns: [{ error: { code: server, message: out of order } }]\n")?;
    for (value, has_colours) in [("", true), ("1", false)] {
        let environment = [("NO_COLOR", value), ("HATCHERY_LOG", "warn")];
        let Some(output) = chat_in_terminal(&folder, "down", "Hello", &environment).await? else { return Ok(()) };
        for text in ["run failed", "MODEL_SERVER_ERROR:"] {
            let line = output.lines().find(|line| line.contains(text)).with_context(|| output.clone())?;
            assert_eq!(line.contains("\u{1b}["), has_colours, "NO_COLOR={value:?}: {line:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn run_without_an_app_names_the_folder_to_check() -> Result<()> {
    let folder = Folder::empty()?;
    let output = hatchery(&folder.served(), &["run", "../served", "-m", "Hello"]).await?;
    assert!(!output.success && output.stderr.contains("run `hatchery doctor ../served`"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn run_finds_the_only_app_of_a_project_that_has_another_name() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("games/pyproject.toml", "[tool.hatchery]\n")?;
    folder.put("games/dice.wasm", paths::component("dice")?)?;
    folder.write("dice/answers.yaml", "turns: [{reply: Hi}]\n")?;
    let output = hatchery(&folder.served(), &["run", "games", "-m", "Hello"]).await?;
    assert_eq!(output.stdout, "Hi\n", "{}", output.stderr);
    folder.write("games/hatchery.yaml", "limits: {cpu: 5s}\n")?;
    folder.write("games/dice/answers.yaml", "turns: [{reply: Alone}]\n")?;
    let output = hatchery(&folder.file("games"), &["run", ".", "-m", "Hello"]).await?;
    assert_eq!(output.stdout, "Alone\n", "{}", output.stderr);
    let unknown = hatchery(&folder.served(), &["run", "game", "-m", "Hello"]).await?;
    assert!(unknown.stderr.contains("app `game` not found; available: dice"), "{}", unknown.stderr);
    Ok(())
}

#[tokio::test]
async fn run_prints_a_failed_model_call_once_with_its_cause() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("local/root_agent.yaml", "name: local\nmodel: ollama/any\ninstruction: Talk.\n")?;
    let output = hatchery(&folder.served(), &["run", "local", "-m", "Hello"]).await?;
    assert!(!output.success && output.stdout.is_empty(), "{}", output.stdout);
    assert!(
        output.stderr.starts_with("MODEL_AUTH: model `ollama/any`: no URL: set OLLAMA_BASE_URL"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    folder.write("local/root_agent.yaml", "name: local\nmodel: scripted:none.yaml\ninstruction: Talk.\n")?;
    let output = hatchery(&folder.served(), &["run", "local", "-m", "Hello"]).await?;
    let expected = "MODEL_BAD_REQUEST: model `scripted:none.yaml`: cannot read the script none.yaml: the served \
                    folder has no such file; ";
    assert!(output.stderr.starts_with(expected), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn inspect_shows_what_a_component_exports() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["inspect", "dice/dice.wasm"]).await?;
    ensure!(output.success, "{}", output.stderr);
    for word in ["dice", "roll_die", "check_prime", "check_sides"] {
        assert!(output.stdout.contains(word), "{word} is not in {}", output.stdout);
    }
    let json = hatchery(&folder.served(), &["inspect", "dice/dice.wasm", "--json"]).await?.json()?;
    let json = json.to_string();
    for word in ["\"dice\"", "\"roll_die\"", "\"check_prime\"", "\"check_sides\"", "0.2.1"] {
        assert!(json.contains(word), "{word} is not in {json}");
    }
    Ok(())
}

#[tokio::test]
async fn inspect_reports_the_problem_of_a_file() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("bad.wasm", "nonsense")?;
    let output = hatchery(&folder.served(), &["inspect", "bad.wasm"]).await?;
    assert!(!output.success);
    let answer = output.stdout + &output.stderr;
    assert!(answer.contains("`bad` is not a WebAssembly file"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn test_runs_the_conversations_of_the_samples() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.ends_with("8 passed, 0 failed\n"), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn test_fails_if_an_answer_differs_from_the_expected_one() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder
        .write("greeter/conversation.yaml", "app: greeter\nturns:\n  - user: Hello\n    expect: [{text: Goodbye}]\n")?;
    let output = hatchery(&folder.served(), &["test", ".", "--json"]).await?;
    assert!(!output.success, "its exit code says so");
    let report = output.json()?;
    assert_eq!((&report["passed"], &report["failed"]), (&7.into(), &1.into()), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_conversation_with_an_app_that_cannot_be_used_fails_with_the_reason() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("dice.wasm", "nonsense")?;
    folder.write("conversation.yaml", "app: dice\nturns: [{user: Hello}]\n")?;
    let recorded = "app: dice\nuser_messages: [{text: Hello}]\n";
    folder.write("recorded/generated-recordings.yaml", recorded)?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    let reason = "    app `dice` cannot be used: component `dice` is not a WebAssembly file";
    assert!(!output.success && output.stdout.ends_with("0 passed, 2 failed\n"), "{}", output.stdout);
    assert_eq!(output.stdout.matches(reason).count(), 2, "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_new_component_builds_and_is_served() -> Result<()> {
    let folder = Folder::empty()?;
    let sdk = paths::repository().join("guest-sdk/rust");
    let sdk = sdk.to_str().context("a path in UTF-8")?;
    let made = hatchery(&folder.served(), &["new", "word-counter", "--kind", "agent", "--sdk", sdk]).await?;
    ensure!(made.success, "{}", made.stderr);
    let host = Host::serve(&folder).await?;
    // With the versions of the repository's own lock file nothing is fetched, and what came out today may not fail the
    // test.
    std::fs::copy(paths::repository().join("Cargo.lock"), folder.file("word-counter/Cargo.lock"))?;
    let target = paths::cache_folder("new-components")?;
    let mut build = paths::command()?;
    build.args(["build", "word-counter"]).current_dir(folder.served()).env("CARGO_TARGET_DIR", &target);
    let built = build.output().await?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert!(folder.file("word-counter/word-counter.wasm").is_file(), "it lies beside its manifest");

    host.wait_for_app("word-counter").await?;
    let events = host.ask("word-counter", "s", "Count the words: a rose is a rose").await?;
    assert!(!event::texts(&events).is_empty(), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn a_new_agent_in_yaml_passes_its_own_conversation() -> Result<()> {
    let folder = Folder::empty()?;
    let made = hatchery(&folder.served(), &["new", "welcome", "--kind", "yaml"]).await?;
    ensure!(made.success, "{}", made.stderr);
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.ends_with("1 passed, 0 failed\n"), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_path_as_the_name_of_a_new_agent_is_answered_with_the_option_for_it() -> Result<()> {
    let folder = Folder::empty()?;
    let output = hatchery(&folder.served(), &["new", "my-agents/welcome", "--kind", "yaml"]).await?;
    assert!(!output.success, "{}", output.stdout);
    assert!(output.stderr.contains("a name has no folder; write `welcome --path my-agents`"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn a_new_agent_in_yaml_has_no_language() -> Result<()> {
    let folder = Folder::empty()?;
    for option in [["--lang", "python"], ["--sdk", "."]] {
        let args = [&["new", "welcome", "--kind", "yaml"][..], &option].concat();
        let output = hatchery(&folder.served(), &args).await?;
        assert!(!output.success && output.stderr.contains("--lang and --sdk are for components"), "{}", output.stderr);
    }
    assert!(!folder.file("welcome").exists());
    Ok(())
}

#[tokio::test]
async fn an_app_whose_project_is_not_built_is_answered_with_the_command_that_builds_it() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("words/package.json", r#"{"name": "words", "hatchery": {"module": "index.js"}}"#)?;
    folder.write("words/conversation.yaml", "app: words\nturns: []\n")?;
    let hint = "not built yet: ./words; run `hatchery build ./words`\n";
    let ran = hatchery(&folder.served(), &["run", ".", "-m", "hi"]).await?;
    assert_eq!(ran.stderr, format!("error: no app is loaded; {hint}"));
    let ran = hatchery(&folder.served(), &["run", ".", "words", "-m", "hi"]).await?;
    assert_eq!(ran.stderr, format!("error: app `words` not found; available: none; {hint}"));
    let tested = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(tested.stdout.contains(&format!("app `words` not found; available: none; {hint}")), "{}", tested.stdout);
    let ran = hatchery(&folder.file("words"), &["run", ".", "-m", "hi"]).await?;
    assert!(ran.stderr.contains("/words; run `hatchery build /"), "{}", ran.stderr);
    Ok(())
}

#[tokio::test]
async fn an_app_with_its_own_configuration_uses_it_from_inside() -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "hello", "--kind", "yaml"]).await?;
    ensure!(created.success, "{}", created.stderr);
    folder.write("hello/hatchery.yaml", "sesion_service: 'memory:'\n")?;
    for args in [&["run", ".", "-m", "I am Ada"][..], &["test"]] {
        let output = hatchery(&folder.file("hello"), args).await?;
        assert!(!output.success && output.stderr.contains("./hatchery.yaml:1:1: "), "{args:?}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_path_of_the_wrong_kind_is_named() -> Result<()> {
    let folder = Folder::empty()?;
    for verb in ["serve", "run", "test", "inspect", "pull", "compile", "doctor"] {
        let output = hatchery(&folder.served(), &[verb, "./no-such-folder"]).await?;
        assert!(!output.success, "{verb}");
        assert!(output.stderr.starts_with("error: "), "{verb}: {}", output.stderr);
        assert_eq!(output.stderr.matches("no-such-folder").count(), 1, "{verb}: {}", output.stderr);
    }
    let push = hatchery(&folder.served(), &["push", ".", "localhost:1/x:1"]).await?;
    assert_eq!(push.stderr, "error: . is a folder; name the component in it\n");
    for args in [&["login", "tickets", "no-such-folder"][..], &["build", "no-such-folder"]] {
        let output = hatchery(&folder.served(), args).await?;
        assert_eq!(output.stderr, "error: no-such-folder is not a folder\n", "{args:?}");
    }
    assert!(!folder.file("no-such-folder").exists(), "its data needs no folder");
    folder.write("hello/root_agent.yaml", "name: hello\ninstruction: Talk.\n")?;
    for verb in ["run", "test", "dev", "doctor", "build"] {
        let output = hatchery(&folder.served(), &[verb, "hello/root_agent.yaml"]).await?;
        let expected = "error: hello/root_agent.yaml is a file; name the folder that contains it: hello\n";
        assert_eq!(output.stderr, expected, "{verb}");
    }
    Ok(())
}

#[tokio::test]
async fn names_in_a_folder_and_arguments_cannot_control_the_terminal() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("a\u{1b}[2Jb.wasm", "nonsense")?;
    folder.write("a\u{1b}[2Jb/conversation.yaml", "app: nobody\nturns: []\n")?;
    for args in [&["inspect", "."][..], &["compile", "."], &["test", "."], &["run", ".", "a\u{1b}[2Jb", "-m", "Hello"]]
    {
        let output = hatchery(&folder.served(), args).await?;
        let text = output.stdout + &output.stderr;
        assert!(!output.success && text.contains("a\\u{1b}[2Jb"), "{args:?}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn json_has_names_that_are_not_utf8() -> Result<()> {
    let folder = Folder::empty()?;
    let name = |bytes: &[u8]| folder.served().join(OsStr::from_bytes(bytes));
    std::fs::write(name(b"a\xff.wasm"), "nonsense")?;
    std::fs::create_dir(name(b"b\xff"))?;
    std::fs::write(name(b"b\xff/conversation.yaml"), "app: nobody\nturns: []\n")?;
    for (verb, pointer, expected) in [
        ("inspect", "/file", "./a\u{fffd}.wasm"),
        ("compile", "/file", "./a\u{fffd}.wasm"),
        ("test", "/conversations/0/file", "./b\u{fffd}/conversation.yaml"),
    ] {
        let output = hatchery(&folder.served(), &[verb, ".", "--json"]).await?;
        assert!(!output.success, "{verb}");
        assert_eq!(text_at(&output.json()?, pointer), expected, "{verb}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_key_of_hatchery_yaml_is_named_with_its_line() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hatchery.yaml", "server:\n  body_limits: 3\n")?;
    let output = hatchery(&folder.served(), &["serve", ".", "--port", "0"]).await?;
    assert!(!output.success);
    assert!(
        output.stderr.contains("hatchery.yaml:2:3: ") && output.stderr.contains("`body_limits`"),
        "{}",
        output.stderr
    );
    Ok(())
}

#[tokio::test]
async fn a_port_in_use_is_named() -> Result<()> {
    let folder = Folder::with_samples()?;
    let host = Host::serve(&folder).await?;
    let port = text_at(&host.announcement, "/address").rsplit(':').next().unwrap_or_default().to_owned();
    let output = hatchery(&folder.served(), &["serve", ".", "--memory", "--port", &port]).await?;
    assert!(!output.success);
    assert!(output.stderr.contains(&port), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn every_command_has_help() -> Result<()> {
    let folder = Folder::empty()?;
    let help = hatchery(&folder.served(), &["--help"]).await?;
    ensure!(help.success, "{}", help.stderr);
    for verb in ["serve", "run", "new", "build", "inspect", "test", "push", "pull", "compile", "doctor"] {
        assert!(help.stdout.contains(&format!("  {verb}")), "{verb} is not in {}", help.stdout);
        let own = hatchery(&folder.served(), &[verb, "--help"]).await?;
        assert!(own.success && own.stdout.contains(&format!("hatchery {verb} ")), "{}", own.stdout);
    }
    Ok(())
}

#[tokio::test]
async fn serve_listens_beyond_loopback_only_with_authentication() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["serve", ".", "--host", "0.0.0.0", "--port", "0"]).await?;
    assert!(!output.success);
    for text in ["the server has no authentication", "- { name: operator, from:", "--allow-unauthenticated"] {
        assert!(output.stderr.contains(text), "{}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn schemas_completions_and_man_pages_are_generated() -> Result<()> {
    let folder = Folder::empty()?;
    let schema = hatchery(&folder.served(), &["schema"]).await?.json()?;
    assert_eq!(text_at(&schema, "/title"), "hatchery.yaml");
    let agent = hatchery(&folder.served(), &["schema", "agent"]).await?.json()?;
    assert!(agent.pointer("/properties/instruction").is_some(), "{agent}");
    for shell in ["bash", "zsh", "fish"] {
        let script = hatchery(&folder.served(), &["completions", shell]).await?;
        assert!(script.success && script.stdout.contains("doctor"), "{shell}: {}", script.stderr);
    }
    let man = hatchery(&folder.served(), &["completions", "--man", "man"]).await?;
    assert!(man.success, "{}", man.stderr);
    assert!(folder.file("man/hatchery.1").is_file() && folder.file("man/hatchery-dev.1").is_file());
    Ok(())
}
