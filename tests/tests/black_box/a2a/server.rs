//! Apps as A2A agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use hatchery_tests::Host;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Stream, VERSIONS, Version, artifact_texts, call, error, folder, result, text_of};

#[tokio::test]
async fn one_card_serves_clients_of_both_versions() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    for path in ["/a2a/echo/.well-known/agent-card.json", "/a2a/echo/.well-known/agent.json"] {
        let answer = host.get(path).await?;
        let card = answer.json(200)?;
        let url = format!("{}/a2a/echo", host.url);
        assert_eq!((text_of(&card, "/name"), text_of(&card, "/description")), ("echo".into(), "Repeats.".into()));
        let first = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        assert_eq!(card.pointer("/supportedInterfaces/0"), Some(&first));
        assert_eq!((text_of(&card, "/url"), text_of(&card, "/protocolVersion")), (url, "0.3.0".into()));
        assert_eq!(card.pointer("/capabilities/streaming"), Some(&json!(true)));
        assert_eq!(card.pointer("/capabilities/pushNotifications"), Some(&json!(false)));
        assert_eq!(text_of(&card, "/skills/0/id"), "echo");
        let etag = answer.headers.get("etag").context("a hash")?.clone();
        let again = host.send(host.request(Method::GET, path).header("if-none-match", etag)).await?;
        assert_eq!((again.status, again.text.as_str()), (304, ""));
    }
    let detail = host.get("/.well-known/agent-card.json").await?.error(404, "NO_DEFAULT_APP")?;
    ensure!(detail.contains("a2a.expose.default_app"), "{detail}");
    let refused = host.post("/a2a/remote/v1/message:send", &json!({})).await?.error(404, "NO_DEFAULT_APP")?;
    assert_eq!(refused, detail);
    Ok(())
}

#[tokio::test]
async fn only_exposed_apps_are_reached_and_one_can_be_the_default() -> Result<()> {
    let folder = folder()?;
    let expose = json!({"apps": ["e*"]});
    folder.write_operator_config(
        &json!({"a2a": {"expose": expose, "public_url": "https://agents.example/"}}).to_string(),
    )?;
    let host = Host::serve(&folder).await?;
    let card = host.get("/.well-known/agent-card.json").await?.json(200)?;
    assert_eq!(text_of(&card, "/url"), "https://agents.example/a2a/echo");
    let detail = host.get("/a2a/ticker/.well-known/agent-card.json").await?.error(404, "APP_NOT_EXPOSED")?;
    assert_eq!(
        detail,
        "A2A clients may not use the app `ticker`; `a2a.expose` in hatchery.yaml lists those that they may"
    );
    host.get("/a2a/nobody/.well-known/agent-card.json").await?.error(404, "APP_NOT_FOUND")?;
    let params = Version::Old.message(Version::Old.text("hi"), json!({}));
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "sendMessage", "params": params});
    let answer = host.post("/a2a/remote/v1/message:send", &body).await?.json(200)?;
    assert_eq!(artifact_texts(&answer["result"]), ["You said hi."], "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_message_becomes_a_task_that_is_found_again() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    for version in VERSIONS {
        let params = version.message(version.text("hi"), json!({}));
        let sent = result(&host, "echo", version.method("send"), &params).await?;
        let task = version.task(&sent)?;
        assert_eq!((version.state(&task), artifact_texts(&task)), ("completed".into(), vec!["You said hi.".into()]));
        assert_eq!(text_of(&task, "/history/0/messageId"), "m-1", "{task}");
        assert_eq!(text_of(&task, "/history/0/parts/0/text"), "hi");
        assert_eq!(text_of(&task, "/metadata/adk_app_name"), "echo");
        let context = text_of(&task, "/contextId");
        assert_eq!(text_of(&task, "/metadata/adk_user_id"), format!("A2A_USER_{context}"));
        let found = result(&host, "echo", version.method("get"), &json!({"id": task["id"]})).await?;
        assert_eq!(found, task);
        let short =
            result(&host, "echo", version.method("get"), &json!({"id": task["id"], "historyLength": 0})).await?;
        assert_eq!(short.get("history"), None);
        // The next message of the context is its own task in the same session.
        let params = version.message(version.text("ho"), json!({"contextId": context}));
        let next = version.task(&result(&host, "echo", version.method("send"), &params).await?)?;
        assert_eq!(
            (text_of(&next, "/contextId"), artifact_texts(&next)),
            (context.clone(), vec!["You said ho.".into()])
        );
        assert_ne!(next["id"], task["id"]);
        let session = format!("/apps/echo/users/A2A_USER_{context}/sessions/{context}");
        let events = host.get(&session).await?.json(200)?;
        assert_eq!(events["events"].as_array().map(Vec::len), Some(4));
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_has_the_task_then_chunks_then_the_end() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    for version in VERSIONS {
        let params = version.message(version.text("one two three"), json!({}));
        let items = Stream::open(&host, "echo", version.method("stream"), &params).await?.collect().await?;
        let updates = items.iter().map(|item| version.update(item)).collect::<Result<Vec<_>>>()?;
        let kinds: Vec<_> = updates.iter().map(|(kind, _)| kind.as_str()).collect();
        ensure!(kinds.first() == Some(&"task") && kinds.last() == Some(&"status-update"), "{kinds:?}");
        let chunks: Vec<_> = updates.iter().filter(|(kind, _)| kind == "artifact-update").map(|(_, it)| it).collect();
        let last = chunks.last().context("an artifact")?;
        assert_eq!(text_of(last, "/artifact/parts/0/text"), "You said one two three.");
        assert_eq!((&last["append"], &last["lastChunk"]), (&json!(false), &json!(true)));
        let ids: BTreeSet<_> = chunks.iter().map(|chunk| text_of(chunk, "/artifact/artifactId")).collect();
        assert_eq!(ids.len(), 1);
        let (_, end) = updates.last().context("an end")?;
        assert_eq!(version.state(end), "completed");
        if version == Version::Old {
            assert_eq!(end["final"], true);
        }
        let task = result(&host, "echo", version.method("get"), &json!({"id": end["taskId"]})).await?;
        assert_eq!(artifact_texts(&task), ["You said one two three."]);
    }
    Ok(())
}

#[tokio::test]
async fn a_task_is_followed_by_several_clients_and_canceled() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    for version in VERSIONS {
        let params = version.without_waiting(version.message(version.text("go"), json!({})));
        let task = version.task(&result(&host, "ticker", version.method("send"), &params).await?)?;
        let id = json!({"id": task["id"]});
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut stream = Stream::open(&host, "ticker", version.method("subscribe"), &id).await?;
            let (kind, snapshot) = version.update(&stream.next().await?.context("the task")?)?;
            assert_eq!((kind.as_str(), &snapshot["id"]), ("task", &task["id"]));
            let (kind, _) = version.update(&stream.next().await?.context("a tick")?)?;
            assert_eq!(kind, "artifact-update");
            streams.push(stream);
        }
        // A client that disconnects does not end the task.
        drop(streams.pop());
        let working = result(&host, "ticker", version.method("get"), &id).await?;
        assert_eq!(version.state(&working), "working");
        let canceled = result(&host, "ticker", version.method("cancel"), &id).await?;
        assert_eq!(version.state(&canceled), "canceled");
        let rest = streams.pop().context("a stream")?.collect().await?;
        let (kind, end) = version.update(rest.last().context("an end")?)?;
        assert_eq!((kind.as_str(), version.state(&end)), ("status-update", "canceled".into()));
        let (code, message) = error(&host, "ticker", version.method("cancel"), &id).await?;
        assert_eq!((code, message.as_str()), (-32002, "the task has ended as Canceled and cannot be canceled"));
        assert_eq!(error(&host, "ticker", version.method("subscribe"), &id).await?.0, -32004);
        let more = version.message(version.text("more"), json!({"taskId": task["id"]}));
        assert_eq!(error(&host, "ticker", version.method("send"), &more).await?.0, -32004);
    }
    Ok(())
}

#[tokio::test]
async fn a_person_is_asked_by_input_required() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    for (version, confirmed, answer) in [
        (Version::Old, true, "Rolled."),
        (Version::New, true, "Rolled."),
        (Version::Old, false, "Then not."),
        (Version::New, false, "Then not."),
    ] {
        let params = version.message(version.text("roll"), json!({}));
        let task = version.task(&result(&host, "gambler", version.method("send"), &params).await?)?;
        assert_eq!(version.state(&task), "input-required", "{task}");
        let question = task.pointer("/status/message/parts/0").context("a question")?;
        assert_eq!(text_of(question, "/metadata/adk_type"), "function_call");
        assert_eq!(question.pointer("/metadata/adk_is_long_running"), Some(&json!(true)));
        assert_eq!(text_of(question, "/data/name"), "adk_request_confirmation");
        let ids = json!({"taskId": task["id"]});
        let text = version.message(version.text("yes"), ids.clone());
        let (code, message) = error(&host, "gambler", version.method("send"), &text).await?;
        ensure!(
            code == -32602 && message.starts_with("the task waits for `adk_request_confirmation` (id `"),
            "{message}"
        );
        let other = json!({"id": "x", "name": "adk_request_confirmation", "response": {}});
        let other = version.message(version.data(other, json!({"adk_type": "function_response"})), ids.clone());
        let (code, message) = error(&host, "gambler", version.method("send"), &other).await?;
        ensure!(code == -32602 && message.starts_with("the task waits for no call `x`, but for"), "{message}");
        let decision = json!({"id": question["data"]["id"], "name": "adk_request_confirmation", "response": {"confirmed": confirmed}});
        let decision = version.message(version.data(decision, json!({"adk_type": "function_response"})), ids);
        let done = version.task(&result(&host, "gambler", version.method("send"), &decision).await?)?;
        assert_eq!((&done["id"], version.state(&done)), (&task["id"], "completed".into()), "{done}");
        assert_eq!(artifact_texts(&done).last().map(String::as_str), Some(answer), "{done}");
    }
    Ok(())
}

#[tokio::test]
async fn tasks_survive_their_host() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let version = Version::New;
    let params = version.message(version.text("hi"), json!({}));
    let done = version.task(&result(&host, "echo", "SendMessage", &params).await?)?;
    let params = version.message(version.text("roll"), json!({}));
    let asking = version.task(&result(&host, "gambler", "SendMessage", &params).await?)?;
    let params = version.without_waiting(version.message(version.text("go"), json!({})));
    let ticking = version.task(&result(&host, "ticker", "SendMessage", &params).await?)?;
    host.kill().await?;
    let host = Host::serve(&folder).await?;
    let get = async |app: &str, task: &Value| result(&host, app, "GetTask", &json!({"id": task["id"]})).await;
    assert_eq!(get("echo", &done).await?, done);
    assert_eq!(get("gambler", &asking).await?, asking);
    let question = asking.pointer("/status/message/parts/0/data/id").context("a question")?;
    let decision = json!({"id": question, "name": "adk_request_confirmation", "response": {"confirmed": true}});
    let decision = version.data(decision, json!({"adk_type": "function_response"}));
    let decision = version.message(decision, json!({"taskId": asking["id"]}));
    let decided = version.task(&result(&host, "gambler", "SendMessage", &decision).await?)?;
    assert_eq!(version.state(&decided), "completed");
    // A task in progress continues by itself.
    let mut stream = Stream::open(&host, "ticker", "SubscribeToTask", &json!({"id": ticking["id"]})).await?;
    stream.next().await?.context("the task")?;
    let (kind, _) = version.update(&stream.next().await?.context("a tick")?)?;
    assert_eq!(kind, "artifact-update");
    let canceled = result(&host, "ticker", "CancelTask", &json!({"id": ticking["id"]})).await?;
    assert_eq!(version.state(&canceled), "canceled");
    Ok(())
}

#[tokio::test]
async fn errors_have_the_codes_of_the_protocol() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let post = |body: &str, content_type: &str| {
        let request = host.request(Method::POST, "/a2a/echo").header("content-type", content_type);
        host.send(request.body(body.to_owned()))
    };
    let code = |answer: Value| answer.pointer("/error/code").and_then(Value::as_i64);
    assert_eq!(code(post("{\"jsonrpc\"", "application/json").await?.json(200)?), Some(-32700));
    assert_eq!(code(post("[]", "application/json").await?.json(200)?), Some(-32600));
    assert_eq!(code(post("{}", "text/plain").await?.json(200)?), Some(-32005));
    assert_eq!(error(&host, "echo", "tasks/nothing", &json!({})).await?.0, -32601);
    for version in VERSIONS {
        assert_eq!(
            error(&host, "echo", version.method("send"), &json!({})).await?,
            (-32602, "`message` is missing".into())
        );
        for id in ["x", "a4c9e5d2-1f5c-4c6b-9a43-9b8f6ad0b4f1.Yw"] {
            let (code, message) = error(&host, "echo", version.method("get"), &json!({ "id": id })).await?;
            assert_eq!((code, message), (-32001, format!("there is no task `{id}`")));
        }
        let failed = version.message(version.text("hi"), json!({}));
        let task = version.task(&result(&host, "failing", version.method("send"), &failed).await?)?;
        assert_eq!(version.state(&task), "failed", "{task}");
        ensure!(!text_of(&task, "/status/message/parts/0/text").is_empty(), "{task}");
        let context = version.message(version.text("hi"), json!({"contextId": "a\nb"}));
        assert_eq!(error(&host, "echo", version.method("send"), &context).await?.0, -32602);
        let old = version.method("get");
        let answer = call(&host, "echo", old, &json!({"id": "x"})).await?;
        assert_eq!(answer.pointer("/error/data/0/reason"), Some(&json!("TASK_NOT_FOUND")));
    }
    let request = host.request(Method::POST, "/a2a/echo").header("a2a-version", "7.0");
    let request = request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}));
    let answer = host.send(request).await?.json(200)?;
    assert_eq!(code(answer.clone()), Some(-32009), "{answer}");
    let file = json!([{"url": "https://a.example/x", "mediaType": "application/x-unknown"}]);
    assert_eq!(error(&host, "echo", "SendMessage", &Version::New.message(file, json!({}))).await?.0, -32005);
    assert_eq!(error(&host, "echo", "GetExtendedAgentCard", &json!({})).await?.0, -32004);
    let push = json!({"taskId": "x", "url": "https://hooks.example"});
    assert_eq!(error(&host, "echo", "CreateTaskPushNotificationConfig", &push).await?.0, -32003);
    Ok(())
}

#[tokio::test]
async fn the_guards_of_all_routes_apply() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let params = Version::New.message(Version::New.text("hi"), json!({}));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let foreign = host.request(Method::POST, "/a2a/echo").header("origin", "https://evil.example").json(&body);
    host.send(foreign).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    let rebound = host.request(Method::GET, "/a2a/echo/.well-known/agent-card.json").header("host", "evil.example");
    host.send(rebound).await?.error(403, "HOST_NOT_ALLOWED")?;
    Ok(())
}

#[tokio::test]
async fn the_http_binding_has_the_same_operations() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let version = Version::New;
    let params = version.message(version.text("hi"), json!({"contextId": "c 1"}));
    let task = version.task(&host.post("/a2a/echo/message:send", &params).await?.json(200)?)?;
    let id = text_of(&task, "/id");
    assert_eq!(host.get(&format!("/a2a/echo/tasks/{id}")).await?.json(200)?, task);
    let listed = host.get("/a2a/echo/tasks?contextId=c%201&includeArtifacts=true").await?.json(200)?;
    let expected = json!({"tasks": [task], "nextPageToken": "", "pageSize": 50, "totalSize": 1});
    assert_eq!(listed, expected);
    let missing = host.get("/a2a/echo/tasks/x").await?.json(404)?;
    assert_eq!(text_of(&missing, "/error/status"), "NOT_FOUND");
    assert_eq!(text_of(&missing, "/error/details/0/reason"), "TASK_NOT_FOUND");
    host.post(&format!("/a2a/echo/tasks/{id}:cancel"), &json!({})).await?.json(409)?;
    assert_eq!(host.get("/a2a/echo/nothing").await?.status, 404);
    let stream = host.post("/a2a/echo/message:stream", &params).await?;
    let items: Vec<Value> =
        stream.text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    ensure!(items.first().is_some_and(|item| item.get("task").is_some()), "{}", stream.text);
    let last = items.last().and_then(|item| item.get("statusUpdate")).context("an end")?;
    assert_eq!(version.state(last), "completed");
    Ok(())
}

#[tokio::test]
async fn the_tasks_of_a_context_are_listed_page_by_page() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        let params = Version::New.message(Version::New.text(text), json!({"contextId": "c"}));
        let sent = result(&host, "echo", "SendMessage", &params).await?;
        ids.insert(0, text_of(&sent, "/task/id"));
    }
    let list = async |params: Value| result(&host, "echo", "ListTasks", &params).await;
    let first = list(json!({"contextId": "c", "pageSize": 2})).await?;
    let listed = |page: &Value| -> Vec<String> {
        page["tasks"].as_array().into_iter().flatten().map(|task| text_of(task, "/id")).collect()
    };
    assert_eq!((listed(&first), &first["totalSize"]), (ids[..2].to_vec(), &json!(3)));
    assert_eq!(first.pointer("/tasks/0/artifacts"), None);
    let rest = list(json!({"contextId": "c", "pageSize": 2, "pageToken": first["nextPageToken"]})).await?;
    assert_eq!((listed(&rest), text_of(&rest, "/nextPageToken")), (ids[2..].to_vec(), String::new()));
    assert_eq!(listed(&list(json!({"contextId": "c", "status": "TASK_STATE_WORKING"})).await?), Vec::<String>::new());
    assert_eq!(listed(&list(json!({})).await?), Vec::<String>::new());
    for params in [json!({"contextId": "c", "pageSize": 101}), json!({"contextId": "c", "pageToken": "x"})] {
        assert_eq!(error(&host, "echo", "ListTasks", &params).await?.0, -32602, "{params}");
    }
    Ok(())
}

/// Starts a server that receives push notifications. Returns its port and what arrives.
async fn webhook() -> Result<(u16, Notifications)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    Ok((listener.local_addr()?.port(), receive(listener)))
}

/// The token, the authorization and the body of each notification.
pub(super) type Notifications = mpsc::UnboundedReceiver<(String, String, Value)>;

/// Receives push notifications at `/hook`.
pub(super) fn receive(listener: tokio::net::TcpListener) -> Notifications {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receive = async |State(sender): State<Arc<mpsc::UnboundedSender<_>>>, headers: HeaderMap, body: String| {
        let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        let body = serde_json::from_str(&body).unwrap_or_default();
        // The test may have ended.
        let _ = sender.send((header("x-a2a-notification-token"), header("authorization"), body));
    };
    let router = Router::new().route("/hook", post(receive)).with_state(Arc::new(sender));
    tokio::spawn(async move { axum::serve(listener, router).await });
    receiver
}

#[tokio::test]
async fn push_notifications_go_where_the_operator_allows_it() -> Result<()> {
    let folder = folder()?;
    let (port, mut received) = webhook().await?;
    let allowed = json!({"network": [format!("http://127.0.0.1:{port}"), "hooks.example"], "private_network": [format!("127.0.0.1:{port}")]});
    folder.write_operator_config(&json!({"a2a": {"push": allowed}}).to_string())?;
    let host = Host::serve(&folder).await?;
    let url = format!("http://127.0.0.1:{port}/hook");
    let with_push = |url: &str| {
        let mut params = Version::New.message(Version::New.text("hi"), json!({}));
        params["configuration"] = json!({"taskPushNotificationConfig": {
            "url": url, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "secret"},
        }});
        params
    };
    let task = Version::New.task(&result(&host, "echo", "SendMessage", &with_push(&url)).await?)?;
    let mut kinds = Vec::new();
    loop {
        let (token, authorization, body) = received.recv().await.context("a notification")?;
        assert_eq!((token.as_str(), authorization.as_str()), ("t", "Bearer secret"));
        let (kind, update) = Version::New.update(&body)?;
        assert_eq!(update["taskId"], task["id"]);
        kinds.push(kind);
        if Version::New.state(&update) == "completed" {
            break;
        }
    }
    assert_eq!(kinds, ["artifact-update", "status-update"]);
    let params = Version::New.message(Version::New.text("roll"), json!({}));
    let task = Version::New.task(&result(&host, "gambler", "SendMessage", &params).await?)?;
    let config = json!({"taskId": task["id"], "url": url});
    result(&host, "gambler", "CreateTaskPushNotificationConfig", &config).await?;
    let configs = result(&host, "gambler", "ListTaskPushNotificationConfigs", &json!({"taskId": task["id"]})).await?;
    let config = configs.pointer("/configs/0").context("a configuration")?;
    assert_eq!((&config["url"], &config["taskId"]), (&json!(url), &task["id"]));
    let ids = json!({"taskId": task["id"], "id": config["id"]});
    assert_eq!(&result(&host, "gambler", "GetTaskPushNotificationConfig", &ids).await?, config);
    result(&host, "gambler", "DeleteTaskPushNotificationConfig", &ids).await?;
    assert_eq!(error(&host, "gambler", "GetTaskPushNotificationConfig", &ids).await?.0, -32001);
    for (url, reason) in [
        ("http://127.0.0.1:1/x", "requests to `http://127.0.0.1:1` are not allowed; allow them by `a2a.push.network: "),
        ("https://other.example/x", "requests to `https://other.example` are not allowed"),
        ("ftp://hooks.example", "is neither http nor https"),
    ] {
        let (code, message) = error(&host, "echo", "SendMessage", &with_push(url)).await?;
        let expected = "this host may not send push notifications to that URL; its log has the reason";
        assert_eq!((code, message.as_str()), (-32602, expected));
        host.wait_for_log(reason).await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_setting_there_are_no_push_notifications() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let params = Version::New.message(Version::New.text("hi"), json!({}));
    let task = Version::New.task(&result(&host, "echo", "SendMessage", &params).await?)?;
    let push = json!({"taskId": task["id"], "url": "https://hooks.example"});
    let (code, message) = error(&host, "echo", "CreateTaskPushNotificationConfig", &push).await?;
    assert_eq!((code, message.as_str()), (-32003, "this host sends no push notifications"));
    Ok(())
}
