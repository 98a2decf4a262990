//! Components in Python and JavaScript: templates, builds, and messages about missing build tools.

use std::path::Path;

use anyhow::{Result, ensure};
use hatchery_tests::{Folder, paths, skip};
use serde_json::{Map, json};

use crate::cli::{Output, hatchery};

/// Returns true if build tools cannot be installed on this machine. A tool with another hash than expected is an error.
pub(crate) fn lacks_tools(stderr: &str) -> bool {
    let reasons =
        ["was not found", "is too old", "could not install componentize-", "cannot create a virtual environment"];
    let errors = ["DO NOT MATCH THE HASHES", "EINTEGRITY", "can only install packages when"];
    reasons.iter().any(|reason| stderr.contains(reason)) && !errors.iter().any(|error| stderr.contains(error))
}

/// Builds a project of the served folder. `None`, with a message on stderr, if the build tools cannot be installed
/// here.
async fn build(folder: &Folder, project: &str) -> Result<Option<Output>> {
    let output = hatchery(&folder.served(), &["build", project]).await?;
    if !output.success && lacks_tools(&output.stderr) {
        skip(project, output.stderr.trim());
        return Ok(None);
    }
    Ok(Some(output))
}

async fn a_new_agent_counts_words(language: &str) -> Result<()> {
    let folder = Folder::empty()?;
    let made = hatchery(&folder.served(), &["new", "word-counter", "--lang", language]).await?;
    ensure!(made.success, "{}", made.stderr);
    ensure!(folder.file("word-counter/README.md").is_file(), "{}", made.stdout);
    let Some(built) = build(&folder, "word-counter").await? else { return Ok(()) };
    ensure!(built.success, "{}", built.stderr);
    let again = hatchery(&folder.served(), &["build", "word-counter"]).await?;
    ensure!(again.success && !again.stderr.contains("building"), "nothing is built twice: {}", again.stderr);
    // `run` has no start timeout: compiling a large component on a busy machine is slow.
    let run = hatchery(&folder.served(), &["run", ".", "word-counter", "-m", "Count a rose is a rose"]).await?;
    assert!(run.success && run.stdout.contains("These are 5 words."), "{}{}", run.stdout, run.stderr);
    Ok(())
}

#[tokio::test]
async fn a_new_agent_in_python_builds_and_is_served() -> Result<()> {
    a_new_agent_counts_words("python").await
}

#[tokio::test]
async fn a_new_agent_in_javascript_builds_and_is_served() -> Result<()> {
    a_new_agent_counts_words("js").await
}

/// Adds modules with names that build tools import to a project. They create a file in `trace` if they run natively.
fn add_conflicting_modules(folder: &Folder, project: &str, trace: &Path) -> Result<()> {
    for module in ["argparse", "ensurepip", "json", "pip", "sitecustomize", "subprocess", "tomllib", "venv"] {
        let mark = trace.join(module);
        let code =
            format!("try:\n    open({:?}, 'w').close()\nexcept OSError:\n    pass\n", mark.display().to_string());
        folder.write(&format!("{project}/{module}.py"), code)?;
    }
    Ok(())
}

fn traces(trace: &Path) -> Result<Vec<std::ffi::OsString>> {
    std::fs::read_dir(trace)?.map(|entry| Ok(entry?.file_name())).collect()
}

#[tokio::test]
async fn modules_of_a_project_do_not_replace_modules_of_build_tools() -> Result<()> {
    let (folder, trace, cache) = (Folder::empty()?, tempfile::tempdir()?, tempfile::tempdir()?);
    folder.write("py/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write(
        "py/app.py",
        "from hatchery_guest import export, tool\n\n@tool\nasync def f() -> int:\n    return 1\n\nexport(f)\n",
    )?;
    add_conflicting_modules(&folder, "py", trace.path())?;
    // First with an empty cache, where installing the tools fails after the virtual environment was created; then with
    // the shared cache.
    let mut fresh = paths::command()?;
    fresh.args(["build", "."]).current_dir(folder.file("py")).env("HATCHERY_BUILD_CACHE", cache.path());
    fresh.envs([
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("PIP_RETRIES", "0"),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ]);
    fresh.env("PIP_NO_CACHE_DIR", "1");
    let fresh = fresh.output().await?;
    let stderr = String::from_utf8_lossy(&fresh.stderr);
    ensure!(lacks_tools(&stderr), "{stderr}");
    assert!(traces(trace.path())?.is_empty(), "{:?}", traces(trace.path())?);
    let installed = hatchery(&folder.file("py"), &["build", "."]).await?;
    if lacks_tools(&installed.stderr) {
        skip("py", installed.stderr.trim());
    }
    assert!(traces(trace.path())?.is_empty(), "{:?}: {}", traces(trace.path())?, installed.stderr);
    Ok(())
}

#[tokio::test]
async fn scripts_of_packages_do_not_run() -> Result<()> {
    let (folder, trace) = (Folder::empty()?, tempfile::tempdir()?);
    let mark = |name: &str| format!("touch '{}'", trace.path().join(name).display());
    let scripts = |package: &str| {
        let names = ["preinstall", "install", "postinstall", "prepare", "prepublish"];
        names
            .map(|name| (name.to_owned(), json!(mark(&format!("{package}-{name}")))))
            .into_iter()
            .collect::<Map<_, _>>()
    };
    let own = json!({
        "name": "js", "type": "module", "hatchery": {}, "scripts": scripts("own"), "dependencies": {"helper": "file:./helper"},
    });
    let lock = json!({
        "name": "js", "lockfileVersion": 3, "requires": true, "packages": {
            "": {"name": "js", "dependencies": {"helper": "file:./helper"}},
            "helper": {"version": "1.0.0", "hasInstallScript": true},
            "node_modules/helper": {"resolved": "helper", "link": true},
        },
    });
    folder.write("js/package.json", own.to_string())?;
    folder.write("js/package-lock.json", lock.to_string())?;
    let helper = json!({"name": "helper", "version": "1.0.0", "type": "module", "scripts": scripts("helper")});
    folder.write("js/helper/package.json", helper.to_string())?;
    folder.write("js/helper/index.js", "export const one = 1;\n")?;
    folder.write("js/.npmrc", "ignore-scripts=false\n")?;
    folder.write(
        "js/index.js",
        "import { component, s, tool } from \"hatchery-guest\";\nimport { one } from \"helper\";\n\
         const f = tool({ name: \"f\", description: \"One.\", parameters: s.object({}), run: () => one });\n\
         export default component({ tools: [f] });\n",
    )?;
    let Some(built) = build(&folder, "js").await? else { return Ok(()) };
    assert!(traces(trace.path())?.is_empty(), "{:?}", traces(trace.path())?);
    ensure!(built.success, "{}", built.stderr);
    Ok(())
}

#[tokio::test]
async fn the_help_warns_that_a_build_runs_code() -> Result<()> {
    let help = hatchery(&Folder::empty()?.served(), &["build", "--help"]).await?.stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "A build runs code of the project and of its dependencies on this machine",
        "build.rs",
        "Build only code that you trust",
    ] {
        assert!(help.contains(part), "{help}");
    }
    Ok(())
}

#[tokio::test]
async fn a_program_without_exports_is_an_error_with_the_next_step() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("py/app.py", "print('hello')\n")?;
    folder.write("js/package.json", r#"{"type": "module", "hatchery": {}}"#)?;
    folder.write("js/index.js", "export default 1;\n")?;
    for (project, advice) in [
        ("py", "`app` exports nothing; end it with `export(…)` of its agents, tools and callbacks"),
        ("js", "`index.js` exports nothing; end it with `export default component("),
    ] {
        let Some(built) = build(&folder, project).await? else { continue };
        assert!(!built.success, "{project}");
        assert!(built.stderr.contains(advice), "{}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_module_is_named_with_the_next_step() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\nmodule = \"main\"\n")?;
    folder.write("lib/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("lib/app.py", "import no_such_package\n")?;
    for (project, advice) in [
        ("py", "there is no module `main`; set the module in pyproject.toml"),
        ("lib", "`app` imports `no_such_package`, which is not installed; add it to requirements.txt"),
    ] {
        let Some(built) = build(&folder, project).await? else { continue };
        assert!(!built.success && built.stderr.contains(advice), "{}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn errors_in_javascript_are_named_with_their_position() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("js/package.json", r#"{"type": "module", "hatchery": {}}"#)?;
    for (source, message) in [
        ("const a = 1;\nconst 1b = 2;\n", "index.js:2:8: Syntax error \"b\"\n    const 1b = 2;\n"),
        ("\n\nmissing.method();\n", "(index.js:3:1)"),
        ("import './lib/x.js';\n", "index.js:1:8: Could not resolve \"./lib/x.js\"\n"),
        (
            "import _ from 'no-such-package';\n",
            "Could not resolve \"no-such-package\"; add the package to package.json and package-lock.json with `npm install \
             no-such-package`",
        ),
        (
            "import fs from 'node:fs';\n",
            "Could not resolve \"node:fs\"; it is a part of Node, which components do not have",
        ),
        // What Node has and a component lacks.
        (
            "import { component, s, tool } from \"hatchery-guest\";\n\nconst home = process.env.HOME;\n\
             const f = tool({ name: \"f\", run: () => home });\nexport default component({ tools: [f] });\n",
            "process is not defined\n    at <anonymous> (index.js:3)\n",
        ),
        // The lines of a text are no statements.
        (
            "import { component, s, tool } from \"hatchery-guest\";\nconst text = `\nvar a = 1;\nconst b = 2;`;\n\
             if (text !== \"\\nvar a = 1;\\nconst b = 2;\") throw new Error(text);\n\
             const f = tool({ name: \"f\", run: () => text });\nif (process.argv === 0) f();\n\
             export default component({ tools: [f] });\n",
            "process is not defined\n    at <anonymous> (index.js:7)\n",
        ),
    ] {
        folder.write("js/index.js", source)?;
        let Some(built) = build(&folder, "js").await? else { return Ok(()) };
        assert!(!built.success && built.stderr.contains(message), "{message}: {}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_component_that_a_host_would_reject_is_not_written() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("js/package.json", r#"{"type": "module", "name": "bad", "hatchery": {}}"#)?;
    for (agent, reason) in [
        ("{ name: \"bad\", model: \"m\", tools: [\"b\", 5] }", "agent `bad`"),
        (
            "{ name: \"my agent!\", model: \"m\" }",
            "agent name `my agent!` may hold only letters, digits, `_`, `-` and spaces",
        ),
    ] {
        let module = format!(
            "import {{ component, llmAgent }} from \"hatchery-guest\";\nexport default component({{ agents: [llmAgent({agent})] }});\n"
        );
        folder.write("js/index.js", module)?;
        let Some(built) = build(&folder, "js").await? else { return Ok(()) };
        assert!(!built.success && built.stderr.contains(reason), "{}{}", built.stdout, built.stderr);
        assert!(!folder.file("js/bad.wasm").exists(), "{}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn missing_tools_are_named_with_the_next_step() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("js/package.json", r#"{"hatchery": {}}"#)?;
    for (project, variable, advice) in [
        ("py", "HATCHERY_PYTHON", "/no/such/program was not found; install Python 3.11 or newer"),
        ("js", "HATCHERY_NODE", "/no/such/program was not found; install Node 20 or newer"),
    ] {
        let mut command = paths::command()?;
        command.args(["build", project]).current_dir(folder.served()).env(variable, "/no/such/program");
        let output = command.output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(advice), "{stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn tools_that_cannot_be_downloaded_are_named_with_the_next_step() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("py/app.py", "")?;
    folder.write("js/package.json", r#"{"hatchery": {}}"#)?;
    let cache = tempfile::tempdir()?;
    // Nothing listens on this port.
    let (index, registry) = ("http://127.0.0.1:9/simple", "http://127.0.0.1:9/");
    for (project, reason) in [
        ("py", "pip could not install componentize-py; the first build needs network access"),
        ("js", "npm could not install componentize-qjs and esbuild; the first build needs network access"),
    ] {
        let mut command = paths::command()?;
        command.args(["build", project]).current_dir(folder.served()).env("HATCHERY_BUILD_CACHE", cache.path());
        command.envs([
            ("PIP_INDEX_URL", index),
            ("PIP_RETRIES", "0"),
            ("PIP_NO_CACHE_DIR", "1"),
            ("PIP_CONFIG_FILE", "/dev/null"),
        ]);
        command.envs([("npm_config_registry", registry), ("npm_config_fetch_retries", "0")]);
        command.env("npm_config_cache", cache.path().join("npm"));
        let output = command.output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if ["was not found", "is too old", "cannot create a virtual environment"]
            .iter()
            .any(|reason| stderr.contains(reason))
        {
            skip(project, stderr.trim());
            continue;
        }
        assert!(!output.status.success() && stderr.contains(reason), "{stderr}");
    }
    Ok(())
}

/// Returns true if a registry of packages cannot be reached from this machine.
pub(crate) fn is_unreachable(stderr: &str) -> bool {
    let reasons = [
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "Connection refused",
        "Read timed out",
        "ENOTFOUND",
        "EAI_AGAIN",
        "ECONNREFUSED",
        "ETIMEDOUT",
    ];
    reasons.iter().any(|reason| stderr.contains(reason))
}

/// Writes an agent in YAML that calls a tool of the component `project` with the user's message, and its conversation.
fn add_agent(folder: &Folder, project: &str, tool: &str, user: &str, answer: &str) -> Result<()> {
    let script = format!(
        "turns:\n  - when: {{ tool: {tool} }}\n    reply: \"{{tool.result}}\"\n  - reply: [{{ call: {{ name: {tool}, args: {{ text: \"{{user}}\" }} }} }}]\n"
    );
    folder.write("agent/answers.yaml", script)?;
    let agent = format!(
        "name: agent\nmodel: scripted:agent/answers.yaml\ninstruction: Help.\ntools:\n  - name: {project}/{tool}\n"
    );
    folder.write("agent/root_agent.yaml", agent)?;
    let turn = json!({"app": "agent", "turns": [{"user": user, "expect": [{"call": tool}, {"text": answer}]}]});
    folder.write("agent/conversation.yaml", turn.to_string())?;
    Ok(())
}

/// Builds a project with a package, and plays the conversation of an agent that uses its tool.
async fn build_and_converse(folder: &Folder, project: &str) -> Result<()> {
    let output = hatchery(&folder.served(), &["build", project]).await?;
    if !output.success && (lacks_tools(&output.stderr) || is_unreachable(&output.stderr)) {
        skip(project, output.stderr.trim());
        return Ok(());
    }
    ensure!(output.success, "{}", output.stderr);
    let tested = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(tested.success && tested.stdout.contains("1 passed"), "{}{}", tested.stdout, tested.stderr);
    Ok(())
}

#[tokio::test]
async fn a_package_of_pypi_is_part_of_a_component() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("words/pyproject.toml", "[project]\nname = \"words\"\n\n[tool.hatchery]\n")?;
    folder.write("words/requirements.txt", "inflection==0.5.1\n")?;
    folder.write(
        "words/app.py",
        r#"import inflection
from hatchery_guest import export, tool

@tool
async def plural(text: str) -> str:
    """Returns the plural of a word."""
    return inflection.pluralize(text)

export(plural)
"#,
    )?;
    add_agent(&folder, "words", "plural", "octopus", "octopi")?;
    build_and_converse(&folder, "words").await?;
    if folder.file("words/words.wasm").is_file() {
        let lock = std::fs::read_to_string(folder.file("words/requirements.lock"))?;
        assert!(lock.contains("\ninflection==0.5.1 --hash=sha256:"), "{lock}");
        let wrong = lock.replace("--hash=sha256:", "--hash=sha256:00");
        std::fs::write(folder.file("words/requirements.lock"), wrong)?;
        let refused = hatchery(&folder.served(), &["build", "words"]).await?;
        assert!(!refused.success && refused.stderr.contains("delete the file to resolve requirements.txt again"));
    }
    Ok(())
}

#[tokio::test]
async fn commonjs_json_and_typescript_are_parts_of_a_component() -> Result<()> {
    let folder = Folder::empty()?;
    let manifest =
        json!({"name": "shout", "type": "module", "hatchery": {}, "dependencies": {"helper": "file:./helper"}});
    let lock = json!({
        "name": "shout", "lockfileVersion": 3, "requires": true, "packages": {
            "": {"name": "shout", "dependencies": {"helper": "file:./helper"}},
            "helper": {"version": "1.0.0"},
            "node_modules/helper": {"resolved": "helper", "link": true},
        },
    });
    folder.write("shout/package.json", manifest.to_string())?;
    folder.write("shout/package-lock.json", lock.to_string())?;
    folder.write("shout/helper/package.json", r#"{"name": "helper", "version": "1.0.0", "main": "lib/main.js"}"#)?;
    folder.write(
        "shout/helper/lib/main.js",
        "const { upper } = require('./upper');\nmodule.exports = (text) => upper(text);\n",
    )?;
    folder.write("shout/helper/lib/upper.js", "exports.upper = (text) => text.toUpperCase();\n")?;
    folder.write("shout/settings.json", r#"{"end": "!"}"#)?;
    folder.write(
        "shout/lib/mark.ts",
        "export function mark(text: string, end: string): string {\n  return `${text}${end}`;\n}\n",
    )?;
    folder.write(
        "shout/index.ts",
        "import { component, s, tool } from \"hatchery-guest\";\nimport upper from \"helper\";\n\
         import { mark } from \"./lib/mark\";\nimport settings from \"./settings.json\";\n\n\
         interface Args { text: string }\n\n\
         const shout = tool({ name: \"shout\", parameters: s.object({ text: s.string() }),\n  \
         run: ({ text }: Args) => mark(upper(text), settings.end) });\nexport default component({ tools: [shout] });\n",
    )?;
    add_agent(&folder, "shout", "shout", "hello", "HELLO!")?;
    build_and_converse(&folder, "shout").await
}

#[tokio::test]
async fn a_package_of_npm_is_part_of_a_component() -> Result<()> {
    let folder = Folder::empty()?;
    let manifest = json!({
        "name": "escaping", "type": "module", "hatchery": {}, "dependencies": {"escape-string-regexp": "5.0.0"},
    });
    folder.write("escaping/package.json", manifest.to_string())?;
    folder.write(
        "escaping/index.js",
        "import escapeStringRegexp from \"escape-string-regexp\";\nimport { component, s, tool } from \"hatchery-guest\";\n         const escape = tool({ name: \"escape\", parameters: s.object({ text: s.string() }),          run: ({ text }) => escapeStringRegexp(text) });\nexport default component({ tools: [escape] });\n",
    )?;
    let mut npm = tokio::process::Command::new("npm");
    npm.args(["install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"]);
    let locked = match npm.current_dir(folder.file("escaping")).output().await {
        Ok(locked) => locked,
        Err(error) => {
            skip("escaping", &format!("npm: {error}"));
            return Ok(());
        }
    };
    let stderr = String::from_utf8_lossy(&locked.stderr);
    if is_unreachable(&stderr) {
        skip("escaping", stderr.trim());
        return Ok(());
    }
    ensure!(locked.status.success(), "{stderr}");
    add_agent(&folder, "escaping", "escape", "how?", "how\\?")?;
    build_and_converse(&folder, "escaping").await
}
