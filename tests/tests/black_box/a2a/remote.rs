//! Agents of one host as agents of another.

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host, code_blocks, event, paths};
use serde_json::{Value, json};

use super::folder;

/// A host whose agents `remote` and `asker` are the agents `echo` and `gambler` of another host; the agent `caller`
/// calls `remote` as its tool, and `root` has it as a sub agent.
struct Pair {
    inner: Host,
    outer: Host,
}

/// How the outer host reaches the inner one.
#[derive(Debug, Clone, Copy)]
enum Card {
    /// By the card of the inner host, which offers both versions.
    Url,
    /// By a card of version 0.3 in a file.
    Old { streaming: bool },
}

const CARDS: [Card; 3] = [Card::Url, Card::Old { streaming: true }, Card::Old { streaming: false }];

impl Pair {
    async fn start(card: Card) -> Result<Self> {
        let inner = Host::serve(&folder()?).await?;
        let folder = Folder::empty()?;
        let mut agents = serde_json::Map::new();
        for app in ["echo", "gambler", "ticker", "failing"] {
            let agent = match card {
                Card::Url => json!({"card": format!("{}/a2a/{app}/.well-known/agent-card.json", inner.url)}),
                Card::Old { streaming } => {
                    let url = format!("{}/a2a/{app}", inner.url);
                    let card = json!({
                        "name": app, "url": url, "protocolVersion": "0.3.0", "capabilities": {"streaming": streaming},
                    });
                    folder.write(&format!("{app}.card.json"), card.to_string())?;
                    let private = inner.url.trim_start_matches("http://");
                    let file = folder.file(&format!("{app}.card.json"));
                    json!({"card": file, "network": [inner.url], "private_network": [private]})
                }
            };
            agents.insert(app.into(), agent);
            let yaml =
                format!("agent_class: A2aAgent\nname: remote_{app}\ndescription: Is far.\nargs: {{agent: {app}}}\n");
            folder.write(&format!("remote_{app}/root_agent.yaml"), &yaml)?;
        }
        let server = json!({"drain_timeout": "100ms"});
        folder.write_operator_config(&json!({"a2a": {"agents": agents}, "server": server}).to_string())?;
        folder.write(
            "caller/root_agent.yaml",
            "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Call.\ntools:\n  - name: AgentTool\n    args: {agent: {config_path: far.yaml}}\n",
        )?;
        folder.write(
            "caller/far.yaml",
            "agent_class: RemoteA2aAgent\nname: far\ndescription: Is far.\nargs: {agent: echo}\n",
        )?;
        folder.write(
            "caller/answers.yaml",
            "turns:\n  - when: {tool: far}\n    reply: 'It said: {tool.result}'\n  - reply: [{call: {name: far, args: {request: '{user}'}}}]\n",
        )?;
        folder.write(
            "root/root_agent.yaml",
            "name: root\nmodel: scripted:root/answers.yaml\ninstruction: Transfer.\nsub_agents:\n  - config_path: far.yaml\n",
        )?;
        folder
            .write("root/far.yaml", "agent_class: A2aAgent\nname: far\ndescription: Is far.\nargs: {agent: echo}\n")?;
        folder.write(
            "root/answers.yaml",
            "turns:\n  - reply: [{call: {name: transfer_to_agent, args: {agent_name: far}}}]\n",
        )?;
        Ok(Self { outer: Host::serve(&folder).await?, inner })
    }
}

#[tokio::test]
async fn a_remote_agent_answers_in_both_versions_with_and_without_streaming() -> Result<()> {
    for card in CARDS {
        let Pair { inner, outer } = Pair::start(card).await?;
        let events = outer.ask("remote_echo", "s", "hi").await?;
        assert_eq!(event::texts(&events), ["You said hi."], "{card:?}");
        let metadata = events.last().and_then(|event| event.get("customMetadata")).context("metadata")?;
        let context = metadata.get("a2a:context_id").and_then(Value::as_str).context("a context")?;
        ensure!(metadata.get("a2a:task_id").is_some(), "{metadata}");
        // The next message is one of the same context.
        let events = outer.run("remote_echo", "s", "ho").await?;
        assert_eq!(event::texts(&events), ["You said ho."], "{card:?}");
        let session = format!("/apps/echo/users/A2A_USER_{context}/sessions/{context}");
        let session = inner.get(&session).await?.json(200)?;
        assert_eq!(session["events"].as_array().map(Vec::len), Some(4));
    }
    Ok(())
}

#[tokio::test]
async fn a_streamed_answer_comes_in_chunks() -> Result<()> {
    let Pair { outer, inner: _inner } = Pair::start(Card::Url).await?;
    outer.create_session("remote_echo", "s").await?;
    let events = outer.stream("remote_echo", "s", "one two three", true).await?.collect().await?;
    let is_partial = |event: &&Value| event.get("partial") == Some(&json!(true));
    let chunks: String = events.iter().filter(is_partial).map(event::text).collect();
    assert_eq!(chunks, "You said one two three.");
    let last = events.iter().rfind(|event| !is_partial(event)).context("a final event")?;
    assert_eq!(event::text(last), "You said one two three.");
    assert_eq!(events.iter().find(is_partial).and_then(|event| event.get("id")), last.get("id"));
    Ok(())
}

#[tokio::test]
async fn a_remote_agent_is_a_tool_and_a_sub_agent() -> Result<()> {
    let Pair { outer, inner: _inner } = Pair::start(Card::Url).await?;
    let events = outer.ask("caller", "s", "hi").await?;
    assert_eq!(event::text(events.last().context("an answer")?), "It said: You said hi.");
    let events = outer.ask("root", "s", "hi").await?;
    let last = events.last().context("an answer")?;
    assert_eq!((event::text_at(last, "/author"), event::text(last)), ("far", "You said hi.".into()), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn the_question_of_a_remote_agent_reaches_the_client_and_its_answer_goes_back() -> Result<()> {
    for card in CARDS {
        let Pair { outer, inner: _inner } = Pair::start(card).await?;
        let events = outer.ask("remote_gambler", "s", "roll").await?;
        let asking = events.iter().find(|event| event.get("longRunningToolIds").is_some()).context("a question")?;
        let id = event::text_at(asking, "/longRunningToolIds/0");
        let call = asking.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten();
        let mut names = call.filter_map(|part| part.pointer("/functionCall/name"));
        assert_eq!(names.next(), Some(&json!("adk_request_confirmation")), "{asking}");
        let answer = json!({"functionResponse": {"id": id, "name": "adk_request_confirmation", "response": {"confirmed": true}}});
        let body = json!({
            "appName": "remote_gambler", "userId": hatchery_tests::host::USER, "sessionId": "s",
            "newMessage": {"role": "user", "parts": [answer]},
        });
        let events = outer.post("/run", &body).await?.json(200)?;
        let events = events.as_array().context("events")?;
        assert_eq!(event::text(events.last().context("an answer")?), "Rolled.", "{card:?}: {events:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_cancelled_run_cancels_the_task_of_the_remote_agent() -> Result<()> {
    let Pair { outer, inner } = Pair::start(Card::Url).await?;
    outer.create_session("remote_ticker", "s").await?;
    let mut stream = outer.stream("remote_ticker", "s", "go", false).await?;
    let tick = stream.next().await?.context("a tick")?;
    let task = event::text_at(&tick, "/customMetadata/a2a:task_id");
    let run = event::text_at(&tick, "/invocationId");
    let path = format!("{}/runs/{run}/cancel", hatchery_tests::host::session_path("remote_ticker", "s"));
    outer.post(&path, &json!({})).await?.json(200)?;
    let mut subscription = super::Stream::open(&inner, "ticker", "SubscribeToTask", &json!({"id": task})).await;
    if let Ok(subscription) = &mut subscription {
        while subscription.next().await?.is_some() {}
    }
    let task = super::result(&inner, "ticker", "GetTask", &json!({"id": task})).await?;
    assert_eq!(super::Version::New.state(&task), "canceled");
    Ok(())
}

#[tokio::test]
async fn a_failed_task_fails_the_run_with_its_reason() -> Result<()> {
    let Pair { outer, inner: _inner } = Pair::start(Card::Url).await?;
    outer.create_session("remote_failing", "s").await?;
    let answer = outer.post("/run", &hatchery_tests::host::message("remote_failing", "s", "hi")).await?;
    let detail = answer.error(answer.status, "A2A_TASK_FAILED")?;
    ensure!(detail.starts_with("agent `remote_failing`: the remote agent: its task has failed: "), "{detail}");
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_host_cancels_no_task_of_a_remote_agent() -> Result<()> {
    let Pair { outer, inner } = Pair::start(Card::Url).await?;
    outer.create_session("remote_ticker", "s").await?;
    let mut stream = outer.stream("remote_ticker", "s", "go", false).await?;
    let tick = stream.next().await?.context("a tick")?;
    let task = json!({"id": event::text_at(&tick, "/customMetadata/a2a:task_id")});
    outer.stop().await?;
    let mut subscription = super::Stream::open(&inner, "ticker", "SubscribeToTask", &task).await?;
    for _ in 0..5 {
        let (kind, _) = super::Version::New.update(&subscription.next().await?.context("an update")?)?;
        ensure!(kind != "status-update", "the task has ended");
    }
    super::result(&inner, "ticker", "CancelTask", &task).await?;
    Ok(())
}

#[tokio::test]
async fn the_example_of_the_documentation_works() -> Result<()> {
    let inner = Folder::empty()?;
    inner.write("dice/root_agent.yaml", "name: dice\nmodel: scripted:dice/answers.yaml\ninstruction: Roll.\n")?;
    inner.write("dice/answers.yaml", "turns:\n  - reply: 'Rolled for {user}.'\n")?;
    let inner = Host::serve(&inner).await?;
    let (guide, folder) = (std::fs::read_to_string(paths::repository().join("docs/a2a.md"))?, Folder::empty()?);
    for block in code_blocks::parse(&guide).filter(|block| block.info.starts_with("yaml")) {
        let Some(path) = block.text.lines().next().and_then(|line| line.strip_prefix("# far/")) else { continue };
        let text = block.text.replace("http://127.0.0.1:8080", &inner.url);
        match path {
            "hatchery.yaml" => folder.write_operator_config(&text)?,
            path => folder.write(path, text)?,
        }
    }
    let outer = Host::serve(&folder).await?;
    let events = outer.ask("player", "s1", "roll a d20").await?;
    assert_eq!(event::texts(&events), ["Rolled for roll a d20."]);
    Ok(())
}
