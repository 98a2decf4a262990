//! Files that cannot be served: each is reported with the reason, the position and the next step, and all others are
//! served.

use anyhow::{Context, Result};
use hatchery_tests::{Folder, Host, paths};

const ANSWERS: &str = "turns:\n  - reply: \"hi\"\n";

/// Serves the samples and a broken agent. Checks that the samples work, and returns the reason why the other is not
/// served.
async fn rejection_of_agent(files: &[(&str, &str)]) -> Result<String> {
    let folder = Folder::with_samples()?;
    folder.write("broken/answers.yaml", ANSWERS)?;
    for (name, text) in files {
        folder.write(name, text)?;
    }
    rejection_of(&folder, "broken/root_agent.yaml").await
}

async fn rejection_of(folder: &Folder, file: &str) -> Result<String> {
    let host = Host::serve(folder).await?;
    let reason = host.wait_for_refusal(file).await?;
    assert_eq!(
        host.apps().await?,
        ["concierge", "data-analyst", "dice", "greeter", "help-desk", "trip-planner", "web-fetch"],
        "the others are served"
    );
    host.ask("greeter", "s", "Hello").await?;
    Ok(reason)
}

#[tokio::test]
async fn an_unknown_key_is_named_with_file_and_line() -> Result<()> {
    let agent = "name: broken\ninstruction: Answer.\nmodel: scripted:broken/answers.yaml\ntemprature: 1\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", agent)]).await?;
    assert!(reason.contains("broken/root_agent.yaml:4:") && reason.contains("`temprature`"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_key_of_another_kind_of_agent_is_named_with_its_kind() -> Result<()> {
    let agent = "agent_class: SequentialAgent\nname: broken\nmodel: scripted:broken/answers.yaml\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", agent)]).await?;
    assert!(reason.contains("broken/root_agent.yaml:3:"), "{reason}");
    assert!(reason.contains("`model` is a key of LlmAgent, but this is a SequentialAgent"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_value_of_a_wrong_type_is_named_with_file_line_and_key() -> Result<()> {
    let agent = "name: broken\ninstruction: Answer.\nmodel: scripted:broken/answers.yaml\nmax_steps: many\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", agent)]).await?;
    assert!(reason.contains("broken/root_agent.yaml:4:") && reason.contains("max_steps"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_tool_that_does_not_exist_is_named_with_file_and_line() -> Result<()> {
    let agent =
        "name: broken\ninstruction: Answer.\nmodel: scripted:broken/answers.yaml\ntools:\n  - name: dice/roll_cube\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", agent)]).await?;
    assert!(reason.contains("broken/root_agent.yaml:5:"), "{reason}");
    assert!(reason.contains("tools: tool `dice/roll_cube` not found") && reason.contains("roll_die"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn an_agent_whose_tool_is_not_exported_is_reported_and_logged() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("puppet.wasm", paths::puppet("unexported")?)?;
    let host = Host::serve(&folder).await?;
    let reason = host.wait_for_refusal("puppet.wasm").await?;
    let expected = "agent `puppet/puppet` cannot be used: tool `forgotten` not found; available: ";
    assert!(reason.starts_with(expected), "{reason}");
    assert!(reason.ends_with("; if it is an item of `puppet`, add it to its exports"), "{reason}");
    host.wait_for_log(&format!("puppet.wasm: loaded, but {expected}")).await
}

#[tokio::test]
async fn an_error_in_a_referenced_file_is_located_there() -> Result<()> {
    let root = "agent_class: SequentialAgent\nname: broken\nsub_agents:\n  - config_path: first.yaml\n";
    let first = "name: first\nmodel: scripted:broken/answers.yaml\ninstruction: [1, 2]\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", root), ("broken/first.yaml", first)]).await?;
    assert!(reason.contains("broken/first.yaml:3:") && reason.contains("instruction"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_missing_file_is_named_with_the_line_that_refers_to_it() -> Result<()> {
    let root = "agent_class: SequentialAgent\nname: broken\nsub_agents:\n  - config_path: nowhere.yaml\n";
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", root)]).await?;
    assert!(reason.contains("broken/root_agent.yaml:4:") && reason.contains("nowhere.yaml"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn invalid_yaml_is_named_with_its_position() -> Result<()> {
    let reason = rejection_of_agent(&[("broken/root_agent.yaml", "name: broken\n  - what: is this\n")]).await?;
    assert!(reason.contains("broken/root_agent.yaml:2:"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_truncated_component_is_distinguished_from_an_invalid_one() -> Result<()> {
    let folder = Folder::with_samples()?;
    let whole = paths::component("swap")?;
    folder.write("swap.wasm", &whole[..whole.len() - 100])?;
    let reason = rejection_of(&folder, "swap.wasm").await?;
    assert!(reason.contains("component `swap` ends in the middle"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn the_error_of_a_core_module_names_the_target_of_components() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("core.wasm", b"\0asm\x01\0\0\0")?;
    let reason = rejection_of(&folder, "core.wasm").await?;
    assert!(reason.contains("component `core` is a core module") && reason.contains("hatchery build"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn the_error_of_another_contract_names_both_versions() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("swap.wasm", component_for_contract("9.1.0")?)?;
    let reason = rejection_of(&folder, "swap.wasm").await?;
    assert!(reason.contains("needs `hatchery:agent@9`, but this host offers 0.2"), "{reason}");
    assert!(reason.contains("rebuild it with `hatchery build`"), "{reason}");
    Ok(())
}

/// Returns the component `swap` as if it had been built for another version of the contract. Both versions must have
/// the same length.
fn component_for_contract(version: &str) -> Result<Vec<u8>> {
    let mut component = paths::component("swap")?;
    let (package, current) = (b"hatchery:agent/", b"@0.2.1");
    let mut changed = 0;
    let mut rest = component.as_mut_slice();
    while let Some(found) = rest.windows(package.len()).position(|window| window == package) {
        rest = rest.split_at_mut(found + package.len()).1;
        let interface = rest.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'-').count();
        rest = rest.split_at_mut(interface).1;
        if let Some(name) = rest.get_mut(..current.len()).filter(|name| *name == current) {
            name.copy_from_slice(format!("@{version}").as_bytes());
            changed += 1;
        }
    }
    (changed > 0).then_some(component).context("the component names the contract that it is built for")
}
