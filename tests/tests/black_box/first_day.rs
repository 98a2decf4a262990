//! An author's first day, outside of the repository and with nothing but the command: create a project, build it, send
//! it a message, serve it, change it, and see the new code answer.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};
use hatchery_tests::event::text;
use hatchery_tests::{Folder, Host, skip};
use tokio::process::Command;

use crate::cli::{Output, hatchery};
use crate::languages::{is_unreachable, lacks_tools};

/// A language, and a change of the source of its template.
struct Language {
    name: &'static str,
    source: &'static str,
    /// The expression of the template that counts words.
    old: &'static str,
    /// An expression that counts letters instead.
    new: &'static str,
    /// A line with an error, and the message of the build.
    mistake: (&'static str, &'static [&'static str]),
}

const RUST: Language = Language {
    name: "rust",
    source: "src/lib.rs",
    old: "args.text.split_whitespace().count()",
    new: "args.text.len()",
    mistake: ("fn broken() -> u8 { missing }\n", &["cannot find value `missing`", "src/lib.rs:"]),
};

const PYTHON: Language = Language {
    name: "python",
    source: "app.py",
    old: "len(text.split())",
    new: "len(text)",
    mistake: ("import no_such_module\n", &["`app` imports `no_such_module`, which is not installed"]),
};

const JAVASCRIPT: Language = Language {
    name: "js",
    source: "index.js",
    old: "text.split(/\\s+/).filter(Boolean).length",
    new: "text.length",
    mistake: ("missing.method();\n", &["missing is not defined", "index.js:"]),
};

const TYPESCRIPT: Language = Language {
    name: "typescript",
    source: "index.ts",
    mistake: ("missing.method();\n", &["missing is not defined", "index.ts:"]),
    ..JAVASCRIPT
};

/// Runs a command that needs build tools. `None`, with a message on stderr, if they cannot be installed here.
async fn with_tools(folder: &Path, args: &[&str]) -> Result<Option<Output>> {
    let output = hatchery(folder, args).await?;
    if !output.success && lacks_tools(&output.stderr) {
        skip(&args.join(" "), output.stderr.trim());
        return Ok(None);
    }
    ensure!(output.success, "{args:?}: {}{}", output.stdout, output.stderr);
    Ok(Some(output))
}

async fn spend_a_day(language: Language) -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "words", "--lang", language.name]).await?;
    ensure!(created.success, "{}", created.stderr);
    let project = folder.file("words");
    // The commands that `new` names, in the folder that it names.
    for step in ["cd words", "hatchery build", "hatchery run . -m 'count the words of this'", "hatchery dev"] {
        assert!(created.stdout.contains(&format!("  {step}")), "{step}: {}", created.stdout);
    }
    let Some(built) = with_tools(&project, &["build"]).await? else { return Ok(()) };
    assert!(built.stdout.contains("agents words; tools count_words"), "{}", built.stdout);
    let ran = hatchery(&project, &["run", ".", "-m", "count one two three"]).await?;
    assert!(ran.success && ran.stdout.contains("These are 3 words."), "{}{}", ran.stdout, ran.stderr);

    let host = Host::develop(&folder, &project).await?;
    assert_eq!(host.apps().await?, ["words"]);
    let events = host.ask("words", "before", "count one two three").await?;
    assert_eq!(events.last().map(text).as_deref(), Some("These are 3 words."));

    let source = std::fs::read_to_string(project.join(language.source))?;
    let sha256 = |components: &serde_json::Value| components.pointer("/components/0/sha256").cloned();
    let before = sha256(&host.components().await?);
    ensure!(source.contains(language.old), "{source}");
    // A mistake is shown with its place, and changes nothing.
    folder.put(&format!("words/{}", language.source), format!("{source}\n{}", language.mistake.0))?;
    for part in language.mistake.1 {
        host.wait_for_log(part).await?;
    }
    assert_eq!(sha256(&host.components().await?), before, "the previous version serves");
    folder.put(&format!("words/{}", language.source), source.replace(language.old, language.new))?;
    let is_new = |components: &serde_json::Value| sha256(components).is_some() && sha256(components) != before;
    host.wait_until_built("the new code serves", is_new).await?;
    let events = host.ask("words", "after", "count one two three").await?;
    assert_eq!(events.last().map(text).as_deref(), Some("These are 13 words."));
    Ok(())
}

#[tokio::test]
async fn an_agent_in_rust_is_created_built_served_and_changed() -> Result<()> {
    spend_a_day(RUST).await
}

#[tokio::test]
async fn an_agent_in_python_is_created_built_served_and_changed() -> Result<()> {
    spend_a_day(PYTHON).await
}

#[tokio::test]
async fn an_agent_in_javascript_is_created_built_served_and_changed() -> Result<()> {
    spend_a_day(JAVASCRIPT).await
}

#[tokio::test]
async fn an_agent_in_typescript_is_created_built_served_and_changed() -> Result<()> {
    spend_a_day(TYPESCRIPT).await
}

#[tokio::test]
async fn the_types_of_a_new_agent_in_typescript_are_checked() -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "words", "--lang", "ts"]).await?;
    ensure!(created.success, "{}", created.stderr);
    let npm = async |args: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(args).current_dir(folder.file("words")).stdin(Stdio::null()).output().await
    };
    match npm(&["install", "--no-audit", "--no-fund"]).await {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            // The packages come from a registry.
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(is_unreachable(&stderr), "{stderr}");
            skip("words", stderr.trim());
            return Ok(());
        }
        Err(error) => {
            skip("words", &format!("npm: {error}"));
            return Ok(());
        }
    }
    let checked = npm(&["run", "check"]).await?;
    ensure!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let source = std::fs::read_to_string(folder.file("words/index.ts"))?;
    folder.put("words/index.ts", source.replace("text.split(", "text.toFixed("))?;
    let checked = npm(&["run", "check"]).await?;
    let errors = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success() && errors.contains("'toFixed' does not exist on type 'string'"), "{errors}");
    Ok(())
}

#[tokio::test]
async fn the_folder_of_a_yaml_agent_is_served_and_run_from_inside() -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "hello", "--kind", "yaml"]).await?;
    ensure!(created.success, "{}", created.stderr);
    let project = folder.file("hello");
    let ran = hatchery(&project, &["run", ".", "-m", "I am Ada"]).await?;
    assert!(ran.success && ran.stdout.contains("Hello, Ada!"), "{}{}", ran.stdout, ran.stderr);
    let host = Host::develop(&folder, &project).await?;
    let events = host.ask("hello", "s", "I am Ada").await?;
    assert_eq!(events.last().map(text).as_deref(), Some("Hello, Ada!"));
    let checked = hatchery(&project, &["doctor", "."]).await?;
    assert!(checked.success, "{}{}", checked.stdout, checked.stderr);
    Ok(())
}
