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
async fn models_reads_the_keys_of_the_folder() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write(".env", "ANTHROPIC_API_KEY=sk-s3cret\n")?;
    let output = hatchery(&folder.served(), &["models"]).await?;
    ensure!(output.success && !output.stdout.contains("s3cret"), "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("✓ Anthropic "), "{}", output.stdout);
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
        "\nset variables in the environment; keys can also be lines NAME=… of the file .env\n",
    ] {
        assert!(output.stdout.contains(line), "{line:?} is not in:\n{}", output.stdout);
    }
    Ok(())
}

/// A line of the guide that serves a model: the variables that it sets, and the name.
struct GuideLine {
    variables: Vec<(String, String)>,
    model: String,
}

impl GuideLine {
    /// Parses `NAME=value hatchery serve my-agents  # model: NAME`. `None` for any other line.
    fn parse(line: &str) -> Option<Self> {
        let (command, model) = line.split_once("# model: ")?;
        let mut assignments = command.split_once("hatchery serve my-agents")?.0.trim();
        let mut variables = Vec::new();
        while let Some((name, rest)) = assignments.split_once('=') {
            let (value, rest) = match rest.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'')?,
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            variables.push((name.to_owned(), value.replace('…', "any")));
            assignments = rest.trim_start();
        }
        Some(Self { variables, model: model.trim().to_owned() })
    }
}

/// Returns the provider in a list of `hatchery models --json` with the longest pattern that matches a name.
fn provider_of<'a>(list: &'a Value, model: &str) -> Option<&'a Value> {
    let length = |provider: &Value| {
        let patterns = provider["models"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let matching = patterns.map(|pattern| pattern.trim_end_matches('*')).filter(|start| model.starts_with(start));
        matching.map(str::len).max()
    };
    let providers = list["providers"].as_array().into_iter().flatten();
    providers.filter(|provider| length(provider).is_some()).max_by_key(|provider| length(provider))
}

#[tokio::test]
async fn the_guide_has_a_line_for_every_provider_with_all_that_it_needs() -> Result<()> {
    let folder = Folder::empty()?;
    let list = hatchery(&folder.served(), &["models", ".", "--json"]).await?.json()?;
    let mut without_line: Vec<_> =
        list["providers"].as_array().into_iter().flatten().map(|provider| provider["provider"].clone()).collect();
    let guide = include_str!("../../../docs/models.md");
    let lines: Vec<_> = guide.lines().filter_map(GuideLine::parse).collect();
    ensure!(lines.len() > 15, "{} lines", lines.len());
    for GuideLine { variables, model } in lines {
        let is_of_library = model.starts_with("genai:") || model.starts_with("rig:");
        if is_of_library && provider_of(&list, &model).is_none() {
            continue;
        }
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let list = hatchery_with(&folder.served(), &["models", ".", "--json"], &variables).await?.json()?;
        let provider = provider_of(&list, &model).with_context(|| format!("no provider of {model}"))?;
        assert_eq!(provider["isUsable"], true, "{model} with {variables:?}: {provider}");
        without_line.retain(|label| *label != provider["provider"]);
    }
    assert_eq!(without_line, [] as [Value; 0], "providers without a line in docs/models.md");
    Ok(())
}
