//! Attacks by descriptions of agents: they need the same grants as code.

use anyhow::Result;
use hatchery_tests::event::texts;
use hatchery_tests::host::{USER, entry, has_app, message};
use hatchery_tests::paths::{component, puppet};
use hatchery_tests::stage::new_session_id;
use hatchery_tests::{Folder, Stage};
use serde_json::{Value, json};

const SECRETS: [&str; 3] = ["the combination is 1234", "123-45-6789", "a secret artifact"];

/// Creates a folder with a `vault` that may read a note, and a `puppet` with this attack.
fn folder(attack: &str, puppet_grants: &str) -> Result<Folder> {
    let settings = format!(
        "components:\n  vault: {{grants: {{files: [{{host: vault-files, guest: /vault, access: read}}], state: {{write: ['user:*']}}}}}}\n  \
         puppet: {{grants: {{{puppet_grants}}}}}\n"
    );
    let folder = Stage::folder(&settings)?;
    folder.write("vault-files/note.txt", SECRETS[0])?;
    folder.put("vault.wasm", component("vault")?)?;
    folder.put("puppet.wasm", puppet(attack)?)?;
    Ok(folder)
}

#[tokio::test]
async fn an_agent_description_cannot_use_items_of_others() -> Result<()> {
    for attack in ["tool", "toolset", "callback", "placeholders", "output_key", "builtin", "model"] {
        let stage = Stage::serve(folder(attack, "")?).await?;
        let components = stage.host.components().await?;
        if has_app(&components, "puppet") {
            // If it is served, it must not have access to the described items.
            let user = format!("/apps/puppet/users/{USER}/sessions");
            stage
                .host
                .post(&user, &json!({ "sessionId": "first", "state": { "user:ssn": SECRETS[1], "ssn": SECRETS[1] } }))
                .await?
                .json(200)?;
            let artifact = json!({ "filename": "secret.txt", "artifact": { "text": SECRETS[2] } });
            stage.host.post(&format!("{user}/first/artifacts"), &artifact).await?;
            let answer = stage.host.post("/run", &message("puppet", "first", "Hello")).await?;
            for secret in SECRETS.iter().filter(|secret| **secret != SECRETS[1] || attack == "placeholders") {
                assert!(!answer.text.contains(secret), "{attack}: {}", answer.text);
            }
            let other = stage.host.post("/apps/puppet/users/another/sessions/s", &json!({})).await?;
            assert!(!other.text.contains("app:leaked"), "{attack}: {}", other.text);
        } else {
            let reasons = components.to_string();
            assert!(reasons.contains("puppet") && reasons.contains("grant"), "{attack}: {reasons}");
        }
        stage.check_neighbours().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_suggested_lines_grant_the_refused_access() -> Result<()> {
    let stage = Stage::serve(folder("tool", "tools: [vault/read_note]")?).await?;
    stage.host.wait_for_app("puppet").await?;
    let answer = texts(&stage.host.ask("puppet", &new_session_id(), "Hello").await?).concat();
    assert!(answer.contains(SECRETS[0]), "{answer}");
    Ok(())
}

#[tokio::test]
async fn an_invalid_description_does_not_affect_other_components() -> Result<()> {
    let stage = Stage::serve(folder("agent", "")?).await?;
    let components = stage.host.components().await?;
    let state = |file: &str| entry(&components, file).map(|entry| entry["state"].clone());
    assert_eq!(state("vault.wasm"), Some(Value::from("loaded")), "{components}");
    stage.check_neighbours().await
}
