//! `hatchery models`: which providers can be used, and what is missing for the others.

use anyhow::{Context, Result, ensure};
use hatchery_tests::Folder;
use serde_json::{Value, json};

use crate::cli::{hatchery, hatchery_with};

#[tokio::test]
async fn models_lists_usable_providers_and_what_the_others_need() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hatchery.yaml", "models: {fallback: {gpt-5: [gemini-2.5-flash]}}\n")?;
    let variables = [("ANTHROPIC_API_KEY", "sk-s3cret"), ("OLLAMA_BASE_URL", "http://localhost:11434/v1")];
    let output = hatchery_with(&folder.served(), &["models", ".", "--json"], &variables).await?;
    ensure!(output.success && !output.stdout.contains("s3cret"), "{}{}", output.stdout, output.stderr);
    let list = output.json()?;
    let provider = |label: &str| {
        let mut providers = list["providers"].as_array().into_iter().flatten();
        providers.find(|provider| provider["provider"] == label).cloned().context(label.to_owned())
    };
    assert_eq!(
        provider("Anthropic")?,
        json!({
            "provider": "Anthropic", "models": ["claude-*", "anthropic/*"], "embedders": [],
            "baseUrl": "https://api.anthropic.com", "isUsable": true, "missing": null,
        })
    );
    assert_eq!(provider("Ollama")?["isUsable"], true);
    assert_eq!(provider("Gemini")?["missing"], "GOOGLE_API_KEY or GEMINI_API_KEY");
    assert_eq!(provider("scripted")?["baseUrl"], Value::Null);
    assert_eq!(list["fallback"], json!({ "gpt-5": ["gemini-2.5-flash"] }));
    assert_eq!(list["embedders"], json!(["local:hashed-ngrams"]));
    Ok(())
}

#[tokio::test]
async fn models_prints_a_table() -> Result<()> {
    let folder = Folder::empty()?;
    let output = hatchery(&folder.served(), &["models"]).await?;
    ensure!(output.success, "{}", output.stderr);
    for line in [
        "✓ scripted          scripted:*, scripted-live:*\n",
        "✗ Gemini            gemini-*, gemma-*, models/*  set GOOGLE_API_KEY or GEMINI_API_KEY\n",
        "                    embeddings: gemini-embedding-*, models/*\n",
        "✗ Apigee            apigee/*  set APIGEE_PROXY_URL, such as https://gateway.example/path\n",
        "✓ embeddings without a provider: local:hashed-ngrams\n",
    ] {
        assert!(output.stdout.contains(line), "{line:?} is not in:\n{}", output.stdout);
    }
    Ok(())
}
