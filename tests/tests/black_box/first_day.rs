//! An author's first day, outside of the repository and with nothing but the command: create a project, build it, send
//! it a message, serve it, change it, and see the new code answer.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};
use hatchery_tests::event::text;
use hatchery_tests::{Folder, Host, skip};
use tokio::net::TcpListener;
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
    let steps =
        ["cd words", "hatchery build", "hatchery run . -m 'count the words of this'", "hatchery test", "hatchery dev"];
    for step in steps {
        assert!(created.stdout.contains(&format!("  {step}")), "{step}: {}", created.stdout);
    }
    let Some(built) = with_tools(&project, &["build"]).await? else { return Ok(()) };
    assert!(built.stdout.contains("agents words; tools count_words"), "{}", built.stdout);
    let ran = hatchery(&project, &["run", ".", "-m", "count one two three"]).await?;
    assert!(ran.success && ran.stdout.contains("These are 3 words."), "{}{}", ran.stdout, ran.stderr);
    let tested = hatchery(&project, &["test"]).await?;
    assert!(tested.success && tested.stdout.contains("1 passed"), "{}{}", tested.stdout, tested.stderr);

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

/// A package for a language, and the code that uses it and sends a request.
struct Addition {
    language: Language,
    /// Replacements in the files of the template: file, old text, new text.
    changes: &'static [(&'static str, &'static str, &'static str)],
    /// New files.
    files: &'static [(&'static str, &'static str)],
    /// Arguments of npm.
    npm: &'static [&'static str],
}

/// Answers every request with a number.
async fn start_number_server() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let router = axum::Router::new().route("/number", axum::routing::get(|| async { "100" }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(port)
}

/// Creates a project, adds a package, a request and the grant for it, and asks the agent. The tool returns what the
/// package makes of the text, in letters, plus the number of the server.
async fn add_a_package_and_a_request(addition: Addition) -> Result<()> {
    let (folder, port) = (Folder::empty()?, start_number_server().await?);
    let created = hatchery(&folder.served(), &["new", "words", "--lang", addition.language.name]).await?;
    ensure!(created.success, "{}", created.stderr);
    let project = folder.file("words");
    for (file, old, new) in addition.changes {
        let text = std::fs::read_to_string(project.join(file))?;
        ensure!(text.contains(old), "{text}");
        folder.put(&format!("words/{file}"), text.replace(old, &new.replace("PORT", &port.to_string())))?;
    }
    for (file, text) in addition.files {
        folder.put(&format!("words/{file}"), text)?;
    }
    if !addition.npm.is_empty() {
        let npm = Command::new("npm").args(addition.npm).current_dir(&project).stdin(Stdio::null()).output().await;
        let failure = match npm {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(format!("npm was not found: {error}")),
        };
        if let Some(failure) = failure {
            ensure!(is_unreachable(&failure) || lacks_tools(&failure), "{failure}");
            skip("words", failure.trim());
            return Ok(());
        }
    }
    let grants = format!("{{network: [\"http://localhost:{port}\"], private_network: [\"localhost:{port}\"]}}");
    folder.put("words/hatchery.yaml", format!("components:\n  words:\n    grants: {grants}\n"))?;
    let trusted = hatchery(&project, &["trust", ".", "--yes"]).await?;
    ensure!(trusted.success, "{}", trusted.stderr);
    let host = Host::develop(&folder, &project).await?;
    if lacks_tools(&host.log()) || is_unreachable(&host.log()) {
        skip("words", host.log().trim());
        return Ok(());
    }
    let events = host.ask("words", "s", "count OneTwo").await?;
    assert_eq!(events.last().map(text).as_deref(), Some("These are 107 words."), "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn a_crate_and_a_request_are_added_to_an_agent_in_rust() -> Result<()> {
    add_a_package_and_a_request(Addition {
        language: RUST,
        changes: &[
            ("Cargo.toml", "schemars = \"1\"\n", "schemars = \"1\"\nheck = \"0.5\"\n"),
            (
                "src/lib.rs",
                "let words = args.text.split_whitespace().count();",
                "let request = hatchery_guest::http::get(\"http://localhost:PORT/number\");\n    \
                 let pause = hatchery_guest::time::sleep(std::time::Duration::from_millis(1));\n    \
                 let answer = hatchery_guest::join(request, pause).await.0?;\n    \
                 let number: usize = answer.text().await?.parse().unwrap_or_default();\n    \
                 let words = heck::ToSnakeCase::to_snake_case(&*args.text).len() + number;",
            ),
        ],
        files: &[],
        npm: &[],
    })
    .await
}

#[tokio::test]
async fn a_package_of_pypi_and_a_request_are_added_to_an_agent_in_python() -> Result<()> {
    add_a_package_and_a_request(Addition {
        language: PYTHON,
        changes: &[
            (
                "app.py",
                "from hatchery_guest import LlmAgent",
                "import inflection\nfrom hatchery_guest import http, LlmAgent",
            ),
            (
                "app.py",
                "len(text.split())",
                "len(inflection.underscore(text)) + int((await http.get(\"http://localhost:PORT/number\")).text)",
            ),
        ],
        files: &[("requirements.txt", "inflection\n")],
        npm: &[],
    })
    .await
}

#[tokio::test]
async fn a_package_of_npm_and_a_request_are_added_to_an_agent_in_javascript() -> Result<()> {
    add_a_package_and_a_request(Addition {
        language: JAVASCRIPT,
        changes: &[
            ("index.js", "import { component", "import decamelize from \"decamelize\";\nimport { component"),
            ("index.js", "  run({ text }, ctx)", "  async run({ text }, ctx)"),
            (
                "index.js",
                "text.split(/\\s+/).filter(Boolean).length",
                "decamelize(text).length + Number(await (await fetch(\"http://localhost:PORT/number\")).text())",
            ),
        ],
        files: &[],
        npm: &["install", "decamelize@6", "--no-audit", "--no-fund"],
    })
    .await
}

#[tokio::test]
async fn a_commonjs_package_json_and_a_request_are_added_to_an_agent_in_typescript() -> Result<()> {
    add_a_package_and_a_request(Addition {
        language: TYPESCRIPT,
        changes: &[
            (
                "index.ts",
                "import { component",
                "import snakeCase from \"lodash.snakecase\";\nimport server from \"./server.json\";\nimport { component",
            ),
            ("index.ts", "  run({ text }, ctx)", "  async run({ text }, ctx)"),
            (
                "index.ts",
                "text.split(/\\s+/).filter(Boolean).length",
                "snakeCase(text).length + Number(await (await fetch(`${server.url}:PORT/number`)).text())",
            ),
        ],
        files: &[("server.json", "{\"url\": \"http://localhost\"}\n")],
        npm: &["install", "lodash.snakecase@4", "--no-audit", "--no-fund"],
    })
    .await
}

#[tokio::test]
async fn the_types_of_new_projects_in_typescript_are_checked() -> Result<()> {
    let folder = Folder::empty()?;
    let created = hatchery(&folder.served(), &["new", "words", "--lang", "ts"]).await?;
    ensure!(created.success, "{}", created.stderr);
    // Their sources are checked with the sources of the agent in the folder above.
    for kind in ["tool", "callback"] {
        let name = format!("my-{kind}");
        let created = hatchery(&folder.file("words"), &["new", &name, "--lang", "ts", "--kind", kind]).await?;
        ensure!(created.success, "{}", created.stderr);
    }
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
