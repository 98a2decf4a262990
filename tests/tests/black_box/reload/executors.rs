//! Code executors, and the end of a host after a change of them.

use anyhow::{Result, ensure};
use hatchery_tests::{Folder, Host, StuckEngine, event};

use super::apply;

#[tokio::test]
async fn neither_a_change_nor_a_stop_waits_for_an_engine_that_does_not_answer() -> Result<()> {
    let engine = StuckEngine::start("41")?;
    let folder = Folder::empty()?;
    let agent = "name: analyst\nmodel: scripted:analyst/answers.yaml\ninstruction: Compute.\n\
                 code_executor: { name: python, stateful: true }\n";
    folder.write("analyst/root_agent.yaml", agent)?;
    folder.write(
        "analyst/answers.yaml",
        "turns:\n  - when: { user: tool_output }\n    reply: 'It is {number}.'\n  - reply: \"```python\\nprint(41)\\n```\"\n",
    )?;
    let socket = engine.socket();
    folder.write_operator_config(&format!(
        "code_executors: {{ python: {{ container: {{ socket: {}, image: 'python:3' }} }} }}\n",
        socket.display()
    ))?;
    let host = Host::serve(&folder).await?;
    let texts = event::texts(&host.ask("analyst", "s", "begin").await?);
    ensure!(texts.last().is_some_and(|text| text == "It is 41."), "{texts:?}; {}", host.log());
    apply(&host, &folder, "", &["code_executors"]).await?;
    engine.wait_for_removal().await;
    host.wait_for_log("a code executor was removed or is no longer trusted; it is not used any more").await?;
    host.signal("-TERM").await?;
    host.wait_for_log("stopping: waiting for code executors, at most 11 seconds").await?;
    host.wait_for_log("containers were not removed yet; they stop at their timeouts").await?;
    host.wait_for_log("stopped").await?;
    ensure!(host.wait_for_end().await?);
    Ok(())
}
