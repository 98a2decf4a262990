//! `hatchery doctor`: each finding with its mark and the suggested fix.

mod models;

use std::fs;

use anyhow::{Context, Result, ensure};
use hatchery_tests::Folder;
use hatchery_tests::paths::component;
use serde_json::Value;

use crate::cli::{Output, hatchery};

const DATA: [&str; 2] = ["--data-dir", "../data"];

async fn doctor(folder: &Folder, more: &[&str]) -> Result<Output> {
    hatchery(&folder.served(), &[&["doctor", "."][..], &DATA, more].concat()).await
}

/// Returns the output of a check that finds errors.
async fn check_with_errors(folder: &Folder) -> Result<String> {
    let output = doctor(folder, &[]).await?;
    ensure!(!output.success, "nothing is broken: {}{}", output.stdout, output.stderr);
    Ok(output.stdout)
}

/// Returns the output of a check without errors.
async fn check_without_errors(folder: &Folder) -> Result<String> {
    let output = doctor(folder, &[]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    Ok(output.stdout)
}

fn assert_contains(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "{part:?} is not in:\n{output}");
    }
}

fn yaml_agent(model: &str) -> String {
    format!("name: greeter\ndescription: Greets.\ninstruction: Greet.\nmodel: {model}\n")
}

#[tokio::test]
async fn the_command_that_grants_what_is_missing_names_the_folder() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("greeter.wasm", component("greeter")?)?;
    assert_contains(&check_without_errors(&folder).await?, &["      # or: hatchery grant greeter\n"]);
    let output = hatchery(&folder.served(), &[&["doctor", "../served"][..], &DATA].concat()).await?;
    assert_contains(&output.stdout, &["      # or: hatchery grant greeter --dir ../served\n"]);
    Ok(())
}

#[tokio::test]
async fn a_root_agent_with_another_extension_is_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("hello/root_agent.yml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.put("hello/answers.yaml", "turns:\n  - reply: Hi\n")?;
    let warning = "! hello/root_agent.yml: not loaded; the file of an agent is named root_agent.yaml\n";
    let fix = "mv ./hello/root_agent.yml ./hello/root_agent.yaml\n";
    assert_contains(&check_without_errors(&folder).await?, &[warning, fix]);
    folder.put("hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    let output = check_without_errors(&folder).await?;
    assert!(!output.contains("root_agent.yml"), "{output}");
    Ok(())
}

#[tokio::test]
async fn a_workflow_agent_without_sub_agents_is_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("flow/root_agent.yaml", "agent_class: SequentialAgent\nname: flow\n")?;
    let output = check_without_errors(&folder).await?;
    let problem = "! app `flow`: the agent `flow` is a sequential agent without sub-agents, so it does nothing";
    assert_contains(&output, &[problem]);
    assert_contains(&output, &["sub_agents: [{ config_path: FILE.yaml }]"]);
    Ok(())
}

#[tokio::test]
async fn a_global_instruction_that_has_no_effect_is_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    let root = "agent_class: SequentialAgent\nname: flow\nsub_agents: [{ config_path: step.yaml }]\n";
    folder.put("flow/root_agent.yaml", root)?;
    folder.put("flow/answers.yaml", "turns:\n  - reply: Hi\n")?;
    let step = "name: step\ninstruction: Go.\nglobal_instruction: Be brief.\nmodel: scripted:flow/answers.yaml\n";
    folder.put("flow/step.yaml", step)?;
    let output = check_without_errors(&folder).await?;
    let problem = "! app `flow`: the agent `step` has a `global_instruction`, which has an effect in a root agent only";
    assert_contains(&output, &[problem, "plugins: [{ name: global_instruction, args: { instruction: TEXT } }]"]);
    Ok(())
}

/// The operator's configuration for agents that use other programs, hosts and folders.
const CONNECTIONS: &str = "mcp: {servers: {files: {command: none-such}}}
a2a: {agents: {far: {card: 'http://127.0.0.1:1/card'}}}
openapi: {apis: {shop: {document: shop.json, base_url: 'http://127.0.0.1:1'}}}
retrieval: {handbook: {folder: handbook}}
code_executors: {python: {container: {socket: /none/such.sock, image: python}}}
";

#[tokio::test]
async fn agents_that_use_items_of_the_configuration_are_loaded() -> Result<()> {
    let folder = Folder::empty()?;
    let agent = |more: &str| format!("{}{more}\n", yaml_agent("scripted:answers.yaml"));
    folder.write("answers.yaml", "turns:\n  - reply: hi\n")?;
    folder.write("mcp/root_agent.yaml", agent("tools: [{name: McpToolset, args: {server: files}}]"))?;
    folder.write("api/root_agent.yaml", agent("tools: [{name: OpenAPIToolset, args: {api: shop}}]"))?;
    folder.write("search/root_agent.yaml", agent("tools: [{name: FilesRetrieval}]"))?;
    folder.write("code/root_agent.yaml", agent("code_executor: python"))?;
    folder.write("far/root_agent.yaml", "agent_class: A2aAgent\nname: far\nargs: {agent: far}\n")?;
    folder.write("other/root_agent.yaml", agent("tools: [{name: McpToolset, args: {server: other}}]"))?;
    folder.write("shop.json", r#"{"openapi": "3.1.0", "paths": {}}"#)?;
    folder.write("handbook/leave.md", "# Leave\n")?;
    folder.write("own.yaml", CONNECTIONS)?;
    let output = doctor(&folder, &["--config", "own.yaml"]).await?;
    for app in ["mcp", "api", "search", "code", "far"] {
        assert_contains(&output.stdout, &[&format!("  ✓ {app}/root_agent.yaml: app `{app}`\n")]);
    }
    assert_contains(
        &output.stdout,
        &[
            "  ✗ other/root_agent.yaml:5:10: ",
            "hatchery.yaml has no MCP server `other`",
            "  ! hatchery.yaml: mcp.servers.files: the program `none-such` was not found; install it, or name its path\n",
            "\n1 error, ",
        ],
    );

    folder.remove("other/root_agent.yaml")?;
    folder.write("own.yaml", CONNECTIONS.replace("folder: handbook", "folder: handbook, embedder: none-such"))?;
    let output = doctor(&folder, &["--config", "own.yaml"]).await?;
    assert_contains(&output.stdout, &["  ✗ hatchery.yaml: retrieval.handbook.embedder: ", "  ✓ mcp/root_agent.yaml: "]);
    Ok(())
}

#[tokio::test]
async fn keys_beside_an_agent_are_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.write("hello/answers.yaml", "turns:\n  - reply: hi\n")?;
    folder.write("hello/.env", "OPENAI_API_KEY=sk-1\n")?;
    let warning = "  ! hello/.env: only read by `hatchery run` and `hatchery test` of this folder; other commands read the \
                   `.env` of the served folder\n      cat ./hello/.env >> ./.env\n";
    assert_contains(&check_without_errors(&folder).await?, &[warning]);
    // The folder of the app is served itself.
    let output = hatchery(&folder.served(), &[&["doctor", "hello"][..], &DATA].concat()).await?;
    assert!(!output.stdout.contains("only read"), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_folder_without_problems_passes_and_no_files_are_left() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.write("hello/answers.yaml", "turns:\n  - reply: \"hi\"\n")?;
    folder.write("hatchery.yaml", "apps: {hello: {max_llm_calls: 9}}\ncomponents: {swap: {}}\n")?;
    let answer = check_without_errors(&folder).await?;
    assert_contains(
        &answer,
        &[
            "host\n  ✓ hatchery 0.1.0, contract hatchery:agent 0.2.",
            "  ✓ instance pool: available\n",
            "  ✓ code cache: ../data/code (1 file, ",
            "  ✓ data folder: ../data\n",
            "files\n  ✓ hello/root_agent.yaml: app `hello`\n",
            "  ✓ swap.wasm: requires hatchery:agent 0.2.",
            "; 1 agent\n",
            "  ✓ hatchery.yaml: valid, and every app, component and plugin in it exists\n",
            "  ✓ model `scripted:hello/answers.yaml` (used by `hello`)\n",
            "\nno errors, 0 warnings\n",
        ],
    );
    let left: Vec<_> = fs::read_dir(folder.data())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    assert_eq!(left, ["code"]);
    Ok(())
}

#[tokio::test]
async fn the_json_report_has_the_same_findings() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("broken.wasm", "not wasm")?;
    let output = doctor(&folder, &["--json"]).await?;
    assert!(!output.success);
    let report = output.json()?;
    assert_eq!(report["ok"], Value::Bool(false));
    let checks = report["checks"].as_array().context("checks")?;
    let names: Vec<_> = checks.iter().filter_map(|group| group["name"].as_str()).collect();
    assert_eq!(names, ["host", "files"]);
    let finding = &checks[1]["findings"][0];
    assert_eq!(finding["level"], "error");
    let message =
        "broken.wasm: component `broken` is not a WebAssembly file; it must be a component made by `hatchery build`";
    assert_eq!(finding["message"], message);
    Ok(())
}

#[tokio::test]
async fn an_empty_folder_is_a_warning() -> Result<()> {
    let answer = check_without_errors(&Folder::empty()?).await?;
    assert_contains(
        &answer,
        &[
            "! .: no component and no YAML agent found\n      hatchery new hello --kind yaml --path .\n",
            "no errors, 1 warning\n",
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_is_missing_is_an_error_once_the_configuration_is_trusted() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("hatchery.yaml", "server: { tls: { certificate: cert.pem, key: key.pem } }\n")?;
    let untrusted = check_with_errors(&folder).await?;
    assert!(!untrusted.contains("No such file"), "{untrusted}");
    let trusted = doctor(&folder, &["--config", "hatchery.yaml"]).await?;
    ensure!(!trusted.success, "{}", trusted.stdout);
    assert_contains(&trusted.stdout, &["✗ hatchery.yaml: server.tls: ", "cert.pem: No such file or directory"]);
    Ok(())
}

#[tokio::test]
async fn a_project_that_was_never_built_is_a_warning_with_the_command_that_builds_it() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("words/package.json", r#"{"name": "words", "hatchery": {"module": "index.js"}}"#)?;
    let finding = "! words: not built yet\n      hatchery build ./words\n";
    let answer = check_without_errors(&folder).await?;
    assert_contains(&answer, &[finding, "no errors, 1 warning\n"]);
    folder.write("hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.write("hello/answers.yaml", "turns:\n  - reply: \"hi\"\n")?;
    let answer = check_without_errors(&folder).await?;
    assert_contains(&answer, &["hello/root_agent.yaml: app `hello`", finding]);
    folder.write("words/words.wasm", component("swap")?)?;
    let answer = check_without_errors(&folder).await?;
    assert!(!answer.contains("not built yet"), "{answer}");
    Ok(())
}

/// Replaces the version of the contract in a component by another of the same length.
fn with_contract(mut component: Vec<u8>, version: &str) -> Vec<u8> {
    let prefix = b"hatchery:agent/";
    for start in 0..component.len() {
        let Some(interface) = component.get(start..).and_then(|bytes| bytes.strip_prefix(prefix)) else { continue };
        let length = interface.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'-').count();
        let place = start + prefix.len() + length + 1;
        if interface.get(length) == Some(&b'@')
            && let Some(old) = component.get_mut(place..place + version.len())
        {
            old.copy_from_slice(version.as_bytes());
        }
    }
    component
}

#[tokio::test]
async fn contract_versions_are_shown_and_another_one_suggests_a_rebuild() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("old.wasm", with_contract(component("swap")?, "0.1.0"))?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &[
            "✗ old.wasm: component `old` needs `hatchery:agent@0.1`, but this host offers 0.2; rebuild it with `hatchery build`\n",
            "\n      hatchery build CRATE --out ./old.wasm\n",
            "✓ swap.wasm: requires hatchery:agent 0.2.1, host has 0.2.",
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_component_without_the_contract_is_shown_with_its_functions() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("calendar.wasm", component("calendar")?)?;
    assert_contains(
        &check_without_errors(&folder).await?,
        &["✓ calendar.wasm: plain WIT component, its functions are tools; ", " tools\n"],
    );
    Ok(())
}

#[tokio::test]
async fn conflicting_names_of_files_and_of_apps_are_errors() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("a/swap.wasm", component("swap")?)?;
    folder.write("b/swap.wasm", component("swap")?)?;
    let answer = check_with_errors(&folder).await?;
    assert_contains(
        &answer,
        &[
            "✗ a/swap.wasm: `./a/swap.wasm` and `./b/swap.wasm` are components named `swap`; rename or remove one\n",
            "      mv ./b/swap.wasm ./b/swap.wasm.unused\n",
        ],
    );

    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("swap/root_agent.yaml", yaml_agent("scripted:x.yaml"))?;
    folder.write("x.yaml", "turns:\n  - reply: \"hi\"\n")?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &["`./swap/root_agent.yaml` and `./swap.wasm` are apps named `swap`; rename or remove one"],
    );
    Ok(())
}

#[tokio::test]
async fn an_ambiguous_item_name_is_a_warning_and_its_use_an_error() -> Result<()> {
    let folder = Folder::empty()?;
    // The tools of a component under two names, with no app that both would have.
    folder.write("one.wasm", component("trip_tools")?)?;
    folder.write("two.wasm", component("trip_tools")?)?;
    let output = doctor(&folder, &["--json"]).await?;
    let report = output.json()?;
    let names = report["checks"].as_array().context("checks")?.iter().find(|group| group["name"] == "names");
    let finding = &names.context("names")?["findings"][0];
    let fix = finding["fix"].as_str().context("a fix")?;
    let tool = fix.strip_prefix("name: one/").context("the first owner")?;
    let message = finding["message"].as_str().context("a message")?;
    let expected = format!("tool `{tool}` is exported by `one`, `two`; use the full name, such as `one/{tool}`");
    assert_eq!(message, expected);
    assert_eq!(finding["level"], "warning");

    folder.write("x/root_agent.yaml", format!("{}tools:\n  - name: {tool}\n", yaml_agent("scripted:x.yaml")))?;
    folder.write("x.yaml", "turns:\n  - reply: \"hi\"\n")?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &["✗ x/root_agent.yaml:6:", &format!("`one/{tool}`"), &format!("`two/{tool}`")],
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_with_unknown_references_is_an_error() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("x/root_agent.yaml", format!("{}tools:\n  - name: dice/roll\n", yaml_agent("scripted:x.yaml")))?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &["✗ x/root_agent.yaml:6:", ": tools: tool `dice/roll` not found"],
    );
    Ok(())
}

#[tokio::test]
async fn settings_of_unknown_names_are_warnings_and_invalid_ones_errors() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("hatchery.yaml", "apps: {dice: {}}\ncomponents: {web: {}}\n")?;
    assert_contains(
        &check_without_errors(&folder).await?,
        &[
            "! hatchery.yaml has settings for the app `dice`, which does not exist; available: swap\n",
            "! hatchery.yaml has settings for the component `web`, which does not exist; available: swap\n",
            "no errors, 2 warnings\n",
        ],
    );
    folder.write("hatchery.yaml", "plugins: [nobody]\n")?;
    assert_contains(&check_with_errors(&folder).await?, &["✗ hatchery.yaml: ", "`nobody`"]);
    folder.write("hatchery.yaml", "limit: {}\n")?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &["✓ swap.wasm: ", "configuration\n  ✗ ./hatchery.yaml:1:1: unknown field `limit`"],
    );
    Ok(())
}

#[tokio::test]
async fn tight_limits_are_reported_with_the_lines_that_raise_them() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    // It begins with 17 pages, 1088 KiB.
    let lines = |memory: &str| format!("components:\n  swap:\n    limits: {{memory: {memory}, instances: 50}}\n");
    folder.write("hatchery.yaml", lines("2MiB"))?;
    assert_contains(
        &check_without_errors(&folder).await?,
        &[
            "! `swap` uses more than half of `limits.memory`, 2MiB, when it is loaded\n",
            "      components:\n        swap:\n          limits:\n            memory: 4MiB\n",
        ],
    );
    folder.write("hatchery.yaml", lines("256KiB"))?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &[
            "✗ swap.wasm: `describe` of component `swap` failed: ",
            "raise `limits.memory` in hatchery.yaml",
            "✗ `swap` has ",
            " of initial memory, more than `limits.memory`, 256KiB\n",
            "      components:\n        swap:\n          limits:\n            memory: ",
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_read_only_data_folder_is_an_error_and_a_read_only_cache_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    fs::write(folder.data().join("file"), "")?;
    let output = hatchery(&folder.served(), &["doctor", ".", "--data-dir", "../data/file"]).await?;
    assert!(!output.success);
    assert_contains(
        &output.stdout,
        &[
            "! code cache: cannot use ../data/file/code: ",
            "; components are compiled at each start\n",
            "      mv ../data/file/code ../data/file/code.old\n",
            "✗ data folder: cannot write to ../data/file: ",
            "      hatchery serve DIR --data-dir /var/lib/hatchery\n",
            "! limits were not tested: without a code cache each test would compile the components again\n",
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_component_that_differs_from_the_lock_file_is_an_error() -> Result<()> {
    let folder = Folder::empty()?;
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let entry = |name: &str| {
        format!("  {name}:\n    reference: registry.example/{name}:1\n    manifest: {digest}\n    file: {digest}\n")
    };
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("hatchery.lock", format!("version: 1\ncomponents:\n{}{}", entry("gone"), entry("swap")))?;
    assert_contains(
        &check_with_errors(&folder).await?,
        &[
            "lock file\n  ✗ ./gone.wasm: it is locked, but the file does not exist; `hatchery pull .` restores it\n",
            "      hatchery pull .\n",
            &format!("  ✗ ./swap.wasm: expected {digest}, found sha256:"),
        ],
    );
    folder.write("hatchery.lock", "version: 7\n")?;
    assert_contains(&check_with_errors(&folder).await?, &["hatchery.lock:"]);
    Ok(())
}
