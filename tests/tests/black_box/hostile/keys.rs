//! Attacks on API keys of the environment: each is only sent to its provider, and nothing displays it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hatchery_tests::host::message;
use hatchery_tests::{Host, Stage};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const KEY: &str = "sk-of-the-operator";

/// Starts a server that records what it receives.
async fn listener() -> Result<(u16, Arc<Mutex<String>>)> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    let received = Arc::new(Mutex::new(String::new()));
    let sink = received.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let read = connection.read(&mut head).await.unwrap_or(0);
            let text = String::from_utf8_lossy(head.get(..read).unwrap_or_default()).into_owned();
            sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
    Ok((port, received))
}

#[tokio::test]
async fn a_folder_cannot_choose_the_destination_of_a_key() -> Result<()> {
    let (port, received) = listener().await?;
    for (key, model) in [("openai_base_url", "gpt-5"), ("gemini_base_url", "gemini-2.5-flash")] {
        for address in ["127.0.0.1", "0.0.0.0"] {
            let folder = Stage::folder(&format!("models: {{{key}: \"http://{address}:{port}\"}}\n"))?;
            folder.write("talker/root_agent.yaml", format!("name: talker\nmodel: {model}\ninstruction: Talk.\n"))?;
            let variables = [("OPENAI_API_KEY", KEY), ("GOOGLE_API_KEY", KEY)];
            let reply = match Host::serve_with_args(&folder, &variables, &[] as &[&str]).await {
                Err(error) => format!("{error:#}"),
                Ok(host) => {
                    host.create_session("talker", "s").await?;
                    let answer = host.post("/run", &message("talker", "s", "Hello")).await?;
                    assert!(answer.status >= 400, "{}", answer.text);
                    format!("{}{}", answer.text, host.log())
                }
            };
            assert!(!reply.contains(KEY), "{reply}");
        }
    }
    let received = received.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(!received.contains(KEY), "the key was sent: {received}");
    Ok(())
}

#[tokio::test]
async fn no_component_and_no_client_sees_a_key() -> Result<()> {
    let folder = Stage::folder("")?;
    let variables = [("OPENAI_API_KEY", KEY), ("HATCHERY_LOG", "trace")];
    let host = Host::serve_with_environment(&folder, &variables).await?;
    host.wait_for_app("greeter").await?;
    let message = hatchery_tests::stage::call_message("surroundings", json!({}));
    let events = host.ask("attacker", "s", &message).await?;
    let visible = json!([events, host.components().await?, host.session("attacker", "s").await?]).to_string();
    assert!(!visible.contains(KEY), "{visible}");
    assert!(!host.log().contains(KEY), "the log shows the key");
    Ok(())
}
