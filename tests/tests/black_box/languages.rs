//! Components in Python and JavaScript, from the template to an answer, and what is said when their tools are missing.

use anyhow::{Result, ensure};
use hatchery_tests::{Folder, paths, skip};

use crate::cli::{Output, hatchery};

/// True when the machine is at fault: a tool that could be had but is not the one that it must be is a defect.
fn lacks_tools(said: &str) -> bool {
    let lacks = ["was not found", "is too old", "could not install componentize-", "cannot make a virtual environment"];
    let faults = ["DO NOT MATCH THE HASHES", "EINTEGRITY", "can only install packages when"];
    lacks.iter().any(|it| said.contains(it)) && !faults.iter().any(|it| said.contains(it))
}

/// Builds a project of the served folder. Nothing, and that loudly, when the build tools cannot be had here.
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
    // Unlike a test's host, this takes the time that it takes: compiling a large component on a busy machine is slow.
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

#[tokio::test]
async fn a_program_that_offers_nothing_is_told_how() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("py/app.py", "print('hello')\n")?;
    folder.write("js/package.json", r#"{"type": "module", "hatchery": {}}"#)?;
    folder.write("js/index.js", "export default 1;\n")?;
    for (project, advice) in [
        ("py", "`app` exports nothing; end it with `export(…)` of its agents, tools and callbacks"),
        ("js", "`index.js` offers nothing; end it with `export default component("),
    ] {
        let Some(built) = build(&folder, project).await? else { continue };
        assert!(!built.success, "{project}");
        assert!(built.stderr.contains(advice), "{}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_module_that_is_missing_is_named_with_what_to_do() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("py/pyproject.toml", "[tool.hatchery]\nmodule = \"main\"\n")?;
    folder.write("lib/pyproject.toml", "[tool.hatchery]\n")?;
    folder.write("lib/app.py", "import no_such_package\n")?;
    for (project, advice) in [
        ("py", "there is no module `main`; say which it is in pyproject.toml"),
        ("lib", "`app` imports `no_such_package`, which is not there; list it in requirements.txt"),
    ] {
        let Some(built) = build(&folder, project).await? else { continue };
        assert!(!built.success && built.stderr.contains(advice), "{}", built.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn tools_that_are_not_installed_are_named_with_the_next_step() -> Result<()> {
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
        ("py", "pip could not install componentize-py; this once it needs the network"),
        ("js", "npm could not install componentize-qjs; this once it needs the network"),
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
        if ["was not found", "is too old", "cannot make a virtual environment"].iter().any(|it| stderr.contains(it)) {
            skip(project, stderr.trim());
            continue;
        }
        assert!(!output.status.success() && stderr.contains(reason), "{stderr}");
    }
    Ok(())
}
