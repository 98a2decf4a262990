//! Components that `hatchery dev` builds: an interpreter and a program, or a snapshot where a program needs one.

use anyhow::{Context, Result};
use hatchery_tests::event::text_at;
use hatchery_tests::{Folder, Host, skip};
use serde_json::{Value, json};

use crate::cli::hatchery;
use crate::languages::lacks_tools;

/// The interface by which an interpreter reads its program.
const PROGRAM: &str = "hatchery:development/program@0.1.0";

/// A project with a tool `fail` that raises an error in its own module.
struct Failing {
    language: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The places of the error in the log.
    places: &'static [&'static str],
}

const JAVASCRIPT: Failing = Failing {
    language: "js",
    files: &[
        ("project/package.json", r#"{"name": "soup", "type": "module", "hatchery": {}}"#),
        (
            "project/index.js",
            "import { component, s, tool } from \"hatchery-guest\";\nimport { cook } from \"./lib/cook.js\";\n\n\
             const fail = tool({\n  name: \"fail\",\n  parameters: s.object({}),\n  run() {\n    return cook(1);\n  },\n});\n\
             export default component({ tools: [fail] });\n",
        ),
        (
            "project/lib/cook.js",
            "export function cook(pots) {\n  const all = pots + 1;\n  throw new Error(`no soup in ${all} pots`);\n}\n",
        ),
    ],
    places: &["(lib/cook.js:3)", "(index.js:8)"],
};

const PYTHON: Failing = Failing {
    language: "python",
    files: &[
        ("project/pyproject.toml", "[project]\nname = \"soup\"\n\n[tool.hatchery]\n"),
        (
            "project/app.py",
            "from hatchery_guest import export, tool\n\nfrom lib.cook import cook\n\n\n@tool\nasync def fail() -> int:\n    \
             \"\"\"Fails.\"\"\"\n    import statistics\n\n    return cook(statistics.mean([1, 1]))\n\n\nexport(fail)\n",
        ),
        (
            "project/lib/cook.py",
            "def cook(pots):\n    every = pots + 1\n    raise ValueError(f\"no soup in {every} pots\")\n",
        ),
    ],
    places: &["lib/cook.py", "line 3, in cook", "line 11, in fail"],
};

/// Serves a folder with a project and an agent that calls the project's tool at once. `None`, with a message on stderr,
/// if build tools are missing.
async fn develop(folder: &Folder, files: &[(&str, &str)], tool: &str) -> Result<Option<Host>> {
    for (file, text) in files {
        folder.write(file, *text)?;
    }
    let script = format!(
        "turns:\n  - when: {{ tool: {tool} }}\n    reply: done\n  - reply: [{{ call: {{ name: {tool}, args: {{}} }} }}]\n"
    );
    folder.write("agent/answers.yaml", script)?;
    let agent =
        format!("name: agent\nmodel: scripted:agent/answers.yaml\ninstruction: Help.\ntools:\n  - name: soup/{tool}\n");
    folder.write("agent/root_agent.yaml", agent)?;
    let host = Host::develop(folder, &folder.served()).await?;
    if lacks_tools(&host.log()) {
        skip("project", host.log().trim());
        return Ok(None);
    }
    Ok(Some(host))
}

/// Returns the imports of the component that serves.
async fn imports(folder: &Folder) -> Result<Vec<String>> {
    let inspected = hatchery(&folder.served(), &["inspect", "project/soup.wasm", "--json"]).await?;
    let inspection: Value = serde_json::from_str(&inspected.stdout).context(inspected.stderr)?;
    let inspection = inspection.get(0).unwrap_or(&inspection);
    let imports = inspection["imports"].as_array().context("imports")?;
    Ok(imports.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

async fn an_error_has_the_lines_of_the_sources(failing: Failing) -> Result<()> {
    let folder = Folder::empty()?;
    let Some(host) = develop(&folder, failing.files, "fail").await? else { return Ok(()) };
    assert!(imports(&folder).await?.iter().any(|import| import == PROGRAM), "{}", failing.language);
    let events = host.ask("agent", "s", "go").await?;
    let response = events.iter().find_map(|event| event.pointer("/content/parts/0/functionResponse/response"));
    assert_eq!(response, Some(&json!({"error": "no soup in 2 pots"})));
    for place in failing.places {
        host.wait_for_log(place).await?;
    }
    host.wait_for_log("ERROR soup: ").await?;
    assert!(!host.log().contains("hatchery-interpreter"), "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn an_error_of_a_program_in_javascript_has_the_lines_of_the_sources() -> Result<()> {
    an_error_has_the_lines_of_the_sources(JAVASCRIPT).await
}

#[tokio::test]
async fn an_error_of_a_program_in_python_has_the_lines_of_the_sources() -> Result<()> {
    an_error_has_the_lines_of_the_sources(PYTHON).await
}

/// Serves a program that the interpreter cannot run.
async fn a_snapshot_serves(files: &[(&str, &str)], result: &str) -> Result<()> {
    let folder = Folder::empty()?;
    let Some(host) = develop(&folder, files, "size").await? else { return Ok(()) };
    assert!(imports(&folder).await?.iter().all(|import| import != PROGRAM));
    let events = host.ask("agent", "s", "go").await?;
    let response = events.iter().find_map(|event| event.pointer("/content/parts/0/functionResponse/response"));
    assert_eq!(response.map(|it| text_at(it, "/result")), Some(result));
    Ok(())
}

#[tokio::test]
async fn a_module_that_awaits_is_built_as_for_a_release() -> Result<()> {
    let module = "import { component, s, tool } from \"hatchery-guest\";\nconst pots = await Promise.resolve(\"three\");\n\
                  const size = tool({ name: \"size\", parameters: s.object({}), run: () => pots });\n\
                  export default component({ tools: [size] });\n";
    a_snapshot_serves(&[JAVASCRIPT.files[0], ("project/index.js", module)], "three").await
}

#[tokio::test]
async fn a_module_that_reads_a_file_is_built_as_for_a_release() -> Result<()> {
    let module = "from pathlib import Path\n\nfrom hatchery_guest import export, tool\n\n\
                  POTS = (Path(__file__).parent / \"pots.txt\").read_text()\n\n\n@tool\nasync def size() -> str:\n    \
                  \"\"\"Returns how many pots there are.\"\"\"\n    return POTS\n\n\nexport(size)\n";
    a_snapshot_serves(&[PYTHON.files[0], ("project/app.py", module), ("project/pots.txt", "three")], "three").await
}

#[tokio::test]
async fn a_port_in_use_is_an_error_before_the_first_build() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("project/package.json", JAVASCRIPT.files[0].1)?;
    let other_program = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = other_program.local_addr()?.port().to_string();
    let output = hatchery(&folder.served(), &["dev", "--port", &port]).await?;
    assert!(!output.success && output.stderr.contains("another program uses this port"), "{}", output.stderr);
    assert!(!output.stderr.contains("building"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn an_error_in_webassembly_alone_is_shown_once_with_its_line() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("project/pyproject.toml", "[tool.hatchery]\n")?;
    let module = "import sys\n\nfrom hatchery_guest import export, tool\n\nif sys.platform == \"wasi\":\n    \
                  import no_such_module\n\n\n@tool\nasync def one() -> int:\n    \"\"\"Returns 1.\"\"\"\n    return 1\n\n\n\
                  export(one)\n";
    folder.write("project/app.py", module)?;
    let built = hatchery(&folder.served(), &["build", "project"]).await?;
    if lacks_tools(&built.stderr) {
        skip("project", built.stderr.trim());
        return Ok(());
    }
    let shown = "  File \"app.py\", line 6, in <module>\n    import no_such_module\n\
                 ModuleNotFoundError: No module named 'no_such_module'\nerror: the program cannot be run in WebAssembly\n";
    assert!(!built.success && built.stderr.ends_with(shown), "{}", built.stderr);
    assert_eq!(built.stderr.matches("Traceback").count(), 1, "{}", built.stderr);
    Ok(())
}
