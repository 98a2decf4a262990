//! Settings of `hatchery.yaml`: plugins, settings of apps, and grants of components.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::{self, text_at};
use hatchery_tests::host::{entry, message};
use hatchery_tests::{Folder, Host, paths, slow_components};
use serde_json::{Value, json};

use crate::cli::hatchery;

/// An app that greets. For the message `again`, its model calls a tool without end.
const GREETER: [(&str, &str); 2] = [
    ("hello/root_agent.yaml", "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n"),
    ("hello/answers.yaml", ANSWERS),
];

const ANSWERS: &str = "
turns:
  - when: { user: again }
    reply: [{ call: { name: again, args: {} } }]
  - when: { tool: again }
    reply: [{ call: { name: again, args: {} } }]
  - when: { system: like a pirate }
    reply: Ahoy
  - reply: Hello
";

fn folder(hatchery_yaml: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in GREETER {
        folder.write(name, text)?;
    }
    folder.write("hatchery.yaml", hatchery_yaml)?;
    Ok(folder)
}

/// Returns the error output of serving an invalid folder.
async fn serve_error(folder: &Folder) -> Result<String> {
    let output = hatchery(&folder.served(), &["serve", ".", "--memory", "--port", "0"]).await?;
    ensure!(!output.success, "{}", output.stdout);
    Ok(output.stderr)
}

/// Returns the error of a run that exceeds a limit.
async fn limit_error(host: &Host, app: &str, text: &str) -> Result<String> {
    host.create_session(app, "s").await?;
    host.post("/run", &message(app, "s", text)).await?.error(500, "LIMIT_REACHED")
}

#[tokio::test]
async fn plugins_act_on_every_run_of_a_served_app() -> Result<()> {
    let plugins = "plugins:\n  - logging\n  - name: global_instruction\n    args: {instruction: Talk like a pirate.}\n";
    let host = Host::serve(&folder(plugins)?).await?;
    assert_eq!(event::texts(&host.ask("hello", "s", "Hi").await?), ["Ahoy"]);
    host.wait_for_log("plugins of every run plugins=\"logging_plugin, global_instruction\"").await?;
    host.wait_for_log("hook=\"on_user_message\"").await
}

#[tokio::test]
async fn plugins_act_on_a_chat_in_the_terminal_too() -> Result<()> {
    let folder = folder("plugins: [{name: global_instruction, args: {instruction: Talk like a pirate.}}]")?;
    let output = hatchery(&folder.served(), &["run", ".", "hello", "-m", "Hi"]).await?;
    assert_eq!(output.stdout, "Ahoy\n", "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn an_unknown_plugin_is_named_and_nothing_is_served() -> Result<()> {
    let reply = serve_error(&folder("plugins: [logging, redact]")?).await?;
    let expected = "hatchery.yaml: plugins[1]: plugin `redact` not found; available: `logging`, `global_instruction`, \
                    `context_filter`, `reflect_and_retry`, `recorder`, `adk_replay`";
    assert!(reply.contains(expected), "{reply}");
    Ok(())
}

#[tokio::test]
async fn a_plugin_with_invalid_arguments_is_named_with_its_position() -> Result<()> {
    let reply = serve_error(&folder("plugins:\n  - name: context_filter\n    args: {turn: 3}\n")?).await?;
    let expected = "hatchery.yaml:2:5: plugins[0]: plugin `context_filter`: unknown field `turn`, expected `turns`";
    assert!(reply.contains(expected), "{reply}");
    Ok(())
}

#[tokio::test]
async fn the_limit_of_model_calls_is_in_the_log_with_the_key_that_raises_it() -> Result<()> {
    let folder = folder("app_defaults: {max_llm_calls: 1}\napps:\n  hello: {max_llm_calls: 2}\n")?;
    folder.put("dice.wasm", paths::component("dice")?)?;
    folder.write("dice/answers.yaml", std::fs::read(paths::repository().join("sample-agents/dice/answers.yaml"))?)?;
    let host = Host::serve(&folder).await?;
    let reached =
        |limit: u32, agent: &str| format!("Max number of llm calls limit of {limit} reached by agent `{agent}`");
    assert_eq!(limit_error(&host, "hello", "again").await?, reached(2, "hello"));
    host.wait_for_log(&format!("{}; raise `max_llm_calls` to allow more", reached(2, "hello"))).await?;
    assert_eq!(limit_error(&host, "dice", "Roll a die with 20 sides").await?, reached(1, "dice"));
    host.wait_for_log("default settings of all apps settings=max_llm_calls: 1").await?;
    host.wait_for_log("settings of an app app=\"hello\" settings=max_llm_calls: 2").await
}

#[tokio::test]
async fn a_client_cannot_choose_limits() -> Result<()> {
    let host = Host::serve(&folder("apps: {hello: {max_llm_calls: 2}}")?).await?;
    host.create_session("hello", "s").await?;
    let mut body = message("hello", "s", "again");
    body["maxLlmCalls"] = json!(100);
    body["runConfig"] = json!({"maxLlmCalls": 100});
    let detail = host.post("/run", &body).await?.error(500, "LIMIT_REACHED")?;
    assert!(detail.contains("limit of 2 "), "{detail}");
    Ok(())
}

#[tokio::test]
async fn a_served_session_is_compacted_as_its_app_is_configured() -> Result<()> {
    let folder = folder("apps: {hello: {compaction: {interval: 1, overlap: 0}}}")?;
    folder.write(
        "hello/answers.yaml",
        "turns:\n  - when: { user: <conversation> }\n    reply: They met.\n  - reply: Hello\n",
    )?;
    let host = Host::serve(&folder).await?;
    host.ask("hello", "s", "Hi").await?;
    // The summary is made after the run; a host that stops waits for it.
    ensure!(host.stop().await?, "it stops without violation");
    let session = Host::serve(&folder).await?.session("hello", "s").await?;
    let summary = text_at(&session, "/events/2/actions/compaction/compactedContent/parts/0/text");
    assert_eq!(summary, "They met.", "{session}");
    Ok(())
}

#[tokio::test]
async fn settings_of_an_unknown_app_are_reported() -> Result<()> {
    let folder = folder("apps: {helo: {resumable: true}}")?;
    folder.put("swap.wasm", paths::component("swap")?)?;
    let expected = "hatchery.yaml has settings for the app `helo`, which does not exist; available: hello, swap";
    let host = Host::serve(&folder).await?;
    host.wait_for_log(expected).await?;
    let inspected = hatchery(&folder.served(), &["inspect", "."]).await?;
    assert!(inspected.success && inspected.stderr.contains(expected), "{}", inspected.stderr);
    Ok(())
}

/// An agent with a long-running tool of a component.
const LATER: &str = "
name: later
model: scripted:later/answers.yaml
instruction: Ask.
tools:
  - name: LongRunningFunctionTool
    args: { func: gallery/configured }
";

const LATER_ANSWERS: &str = "
turns:
  - when: { tool: configured }
    reply: 'It is {tool.status}.'
  - reply: [{ call: { name: configured, args: { key: nothing } } }]
";

#[tokio::test]
async fn a_late_result_of_a_component_tool_continues_the_agent() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("gallery.wasm", paths::component("gallery")?)?;
    folder.write("later/root_agent.yaml", LATER)?;
    folder.write("later/answers.yaml", LATER_ANSWERS)?;
    let host = Host::serve(&folder).await?;
    let events = host.ask("later", "s", "Ask for it").await?;
    let [asked] = events.as_slice() else { anyhow::bail!("the run ends with the call: {events:?}") };
    let call = event::parts(asked).find_map(|part| part.get("functionCall")).context("a call")?;
    assert_eq!(asked["longRunningToolIds"], json!([call["id"]]));
    let mut body = message("later", "s", "");
    let answer = json!({"id": call["id"], "name": "configured", "response": {"status": "done"}});
    body["newMessage"] = json!({"role": "user", "parts": [{"functionResponse": answer}]});
    let events: Vec<Value> = serde_json::from_value(host.post("/run", &body).await?.json(200)?)?;
    assert_eq!(event::texts(&events), ["It is done."]);
    let stored = host.session("later", "s").await?;
    assert_eq!(text_at(&stored, "/events/2/content/parts/0/functionResponse/response/status"), "done");
    Ok(())
}

/// An agent that answers with the result of a tool that searches memory.
const SEEKER: [(&str, &str); 2] = [
    (
        "asker/root_agent.yaml",
        "name: asker\nmodel: scripted:asker/answers.yaml\ninstruction: Ask.\ntools:\n  - name: seeker/remember\n",
    ),
    (
        "asker/answers.yaml",
        "turns:\n  - when: {tool: remember}\n    reply: done\n  - reply: [{call: {name: remember, args: {name: bread}}}]\n",
    ),
];

fn seeker(hatchery_yaml: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in SEEKER {
        folder.write(name, text)?;
    }
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    folder.write("hatchery.yaml", hatchery_yaml)?;
    Ok(folder)
}

/// Returns the result of the tool in a new session.
async fn search_result(host: &Host, session: &str) -> Result<Value> {
    Ok(event::tool_response(&host.ask("asker", session, "Remember?").await?, "remember")?.clone())
}

#[tokio::test]
async fn a_grant_added_while_the_host_serves_allows_the_next_call() -> Result<()> {
    let folder = seeker("")?;
    let host = Host::serve(&folder).await?;
    let lines = "components:\n  seeker:\n    grants:\n      memory: read";
    let denied = "component `seeker` may not search the user's memory";
    assert_eq!(search_result(&host, "before").await?["error"], json!(denied));
    host.wait_for_log(&format!("{denied}; to allow it, add to hatchery.yaml:\n{lines}")).await?;
    host.wait_for_log("hatchery::audit: denied component=\"seeker\" session=\"before\"").await?;
    // The lines of the log are sufficient.
    folder.put("hatchery.yaml", lines)?;
    host.wait_for_log("hatchery.yaml: applied without a restart").await?;
    assert_eq!(search_result(&host, "after").await?, json!({"result": 0}));

    folder.put("hatchery.yaml", "components:\n  seeker:\n    grants:\n      memories: true\n")?;
    host.wait_for_log("hatchery.yaml:4:7: components.seeker.grants: unknown field `memories`").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    assert_eq!(search_result(&host, "still").await?, json!({"result": 0}));
    Ok(())
}

/// Returns the state of a file in `/components`.
fn state<'a>(components: &'a Value, file: &str) -> &'a str {
    entry(components, file).map(|entry| text_at(entry, "/state")).unwrap_or_default()
}

/// Waits until a process has ended and its parent has waited for it.
async fn wait_until_gone(process: &Path) {
    let mut look = tokio::time::interval(Duration::from_millis(20));
    while process.exists() {
        look.tick().await;
    }
}

/// Returns the process that compiles a component of this host.
async fn compiler_process(host: &Host) -> Result<PathBuf> {
    host.wait_until("it compiles", |components| state(components, "heavy.wasm") == "compiling").await?;
    let mut look = tokio::time::interval(Duration::from_millis(20));
    loop {
        let mut children = slow_components::children(host.process().context("it runs")?);
        if let Some(child) = children.pop() {
            ensure!(children.is_empty(), "{children:?} compile as well");
            return Ok(child);
        }
        look.tick().await;
    }
}

#[tokio::test]
async fn a_host_serves_and_revokes_grants_while_a_component_is_compiled() -> Result<()> {
    let folder = seeker("components: {seeker: {grants: {memory: read}}}\n")?;
    // The others are to be there first.
    ensure!(hatchery(&folder.served(), &["compile", "."]).await?.success, "the component compiles");
    folder.put("heavy.wasm", slow_components::nested_loops(6000)?)?;
    let host = Host::serve_while_loading(&folder, &[]).await?;
    let loading = host.get("/health").await?.json(200)?;
    assert!(loading["loading"].as_array().is_some_and(|names| names.contains(&json!("heavy"))), "{loading}");
    let not_ready = host.get("/ready").await?.error(503, "LOADING")?;
    assert!(not_ready.contains("`heavy`"), "{not_ready}");
    host.wait_for_app("asker").await?;
    assert_eq!(search_result(&host, "before").await?, json!({"result": 0}));

    let absent = host.post("/run", &message("nobody", "s", "Hi")).await?;
    assert_eq!(absent.headers["retry-after"], "1");
    let detail = absent.error(503, "APP_LOADING")?;
    assert_eq!(
        detail,
        "App not loaded yet: nobody; still loading `heavy`; try again, GET /components shows the progress"
    );

    let child = compiler_process(&host).await?;
    folder.put("hatchery.yaml", "components: {seeker: {grants: {}}}\n")?;
    host.wait_for_log("hatchery.yaml: applied without a restart").await?;
    host.wait_for_log("hatchery::audit: grants component=\"seeker\" added=\"\" removed=\"memory read\"").await?;
    let denied = search_result(&host, "after").await?;
    assert!(text_at(&denied, "/error").contains("component `seeker` may not search the user's memory"), "{denied}");
    let components = host.components().await?;
    assert_eq!(state(&components, "heavy.wasm"), "compiling", "all of this was while it compiled: {components}");
    assert!(child.exists());

    let number = child.file_name().and_then(|name| name.to_str()).context("a number")?.to_owned();
    let killed = std::process::Command::new("kill").args(["-9", &number]).status()?;
    ensure!(killed.success(), "cannot kill {number}");
    assert_eq!(
        host.wait_for_refusal("heavy.wasm").await?,
        "component `heavy` cannot be loaded: the compiler crashed (signal: 9 (SIGKILL)); change the file to try again"
    );
    wait_until_gone(&child).await;
    host.post("/run", &message("nobody", "s", "Hi")).await?.error(404, "APP_NOT_FOUND")?;
    assert_eq!(host.get("/health").await?.json(200)?, json!({"status": "ok"}));
    assert_eq!(host.get("/ready").await?.json(200)?, json!({"status": "ready"}));
    assert!(host.stop().await?, "it ends without violation");
    Ok(())
}

#[tokio::test]
async fn no_compiler_process_outlives_its_host() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("heavy.wasm", slow_components::nested_loops(6000)?)?;
    let host = Host::serve_while_loading(&folder, &[]).await?;
    let child = compiler_process(&host).await?;
    assert!(host.stop().await?, "it ends without violation");
    wait_until_gone(&child).await;
    let host = Host::serve_while_loading(&folder, &[]).await?;
    let child = compiler_process(&host).await?;
    host.kill().await?;
    wait_until_gone(&child).await;
    Ok(())
}

#[tokio::test]
async fn a_component_that_takes_too_long_to_compile_leaves_the_last_good_revision_serving() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hatchery.yaml", "compile: {time: 2s}\n")?;
    folder.put("swap.wasm", paths::component("swap")?)?;
    let host = Host::serve(&folder).await?;
    folder.put("swap.wasm", slow_components::nested_loops(6000)?)?;
    assert_eq!(
        host.wait_for_refusal("swap.wasm").await?,
        "component `swap` cannot be loaded: compiling it takes more than 2s of CPU time; split its largest functions, or raise \
         `compile.time` in hatchery.yaml"
    );
    assert_eq!(entry(&host.components().await?, "swap.wasm").context("the file")?["previousServes"], json!(true));
    host.ask("swap", "s", "Who are you?").await?;
    Ok(())
}

#[tokio::test]
async fn inspect_shows_what_is_requested_granted_missing_and_unused() -> Result<()> {
    let folder = seeker("components: {seeker: {grants: {memory: read, tools: ['search/*']}}}")?;
    let inspection = hatchery(&folder.served(), &["inspect", "seeker.wasm"]).await?;
    for line in [
        "  requests  models: seek-*  it asks around",
        "  granted   memory: read",
        "  missing   files: read /data",
        "  missing   state.read: app:theme",
        "  unused    tools: search/*",
    ] {
        ensure!(
            inspection.stdout.lines().any(|inspection| inspection == line),
            "{line:?} is not in {}",
            inspection.stdout
        );
    }
    let json = hatchery(&folder.served(), &["inspect", "seeker.wasm", "--json"]).await?.json()?;
    assert_eq!(json["grants"]["missing"]["models"], json!(["seek-*"]));
    assert_eq!(json["grants"]["unused"], json!({"tools": ["search/*"]}));
    Ok(())
}
