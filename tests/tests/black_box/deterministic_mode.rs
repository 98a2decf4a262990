//! The environment of components in `hatchery test`: fixed time and random numbers, and recorded responses instead of
//! the network.

use anyhow::{Result, ensure};
use hatchery_tests::{Folder, paths};

use crate::cli::hatchery;

/// Creates an app whose model calls a tool and answers with its response.
fn app(folder: &Folder, tool: &str, args: &str) -> Result<()> {
    let name = tool.split('/').next_back().unwrap_or_default();
    folder.write(
        "app/root_agent.yaml",
        format!("name: app\nmodel: scripted:app/answers.yaml\ninstruction: Call.\ntools:\n  - name: {tool}\n"),
    )?;
    folder.write(
        "app/answers.yaml",
        format!(
            "turns:\n  - when: {{ tool: {name} }}\n    reply: \"{{tool}}\"\n  - when: {{ user: \"ask \" }}\n    \
             reply: [{{ call: {{ name: {name}, args: {args} }} }}]\n"
        ),
    )
}

#[tokio::test]
async fn recorded_responses_replace_the_network() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("web-fetch.wasm", paths::component("web_fetch")?)?;
    // The secret's variable is not there: tests need none.
    folder.write(
        "hatchery.yaml",
        "components:\n  web-fetch:\n    grants:\n      network: [example.com]\n      \
         secrets: [{name: key, from: HATCHERY_TESTS_NO_SUCH, host: example.com, header: X-Key}]\n",
    )?;
    app(&folder, "web-fetch/read_page", "{ url: \"{rest}\" }")?;
    folder.write(
        "app/conversation.yaml",
        "app: app\n\
         http:\n  \
           - url: https://example.com/\n    body: {greeting: hi}\n  \
           - {url: 'https://example.com/gone', status: 404}\n  \
           - {url: 'https://example.com/page', headers: {content-type: text/html}, body: '<title>Recorded</title>'}\n\
         turns:\n  \
           - {user: 'ask https://example.com/', expect: [{text: greeting}]}\n  \
           - {user: 'ask https://example.com/page', expect: [{text: Recorded}]}\n  \
           - {user: 'ask https://example.com/gone', expect: [{text: '404'}]}\n  \
           - {user: 'ask https://example.com/other', expect: [{text: 'no response to `GET https://example.com/other` is recorded'}]}\n  \
           - {user: 'ask https://example.org/', expect: [{text: 'may not send requests to `https://example.org`'}]}\n",
    )?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    Ok(())
}

#[tokio::test]
async fn time_and_random_numbers_are_the_same_in_each_test() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    app(&folder, "seeker/time_and_chance", "{}")?;
    let conversation = |expected: &str| {
        format!("app: app\nturns:\n  - user: ask now\n    expect: [{{text: {}}}]\n", serde_json::json!(expected))
    };
    // The answer is read from the report of a test that expects another one.
    folder.write("app/conversation.yaml", conversation("nothing like it"))?;
    let first = hatchery(&folder.served(), &["test", ".", "--json"]).await?;
    let again = hatchery(&folder.served(), &["test", ".", "--json"]).await?;
    ensure!(!first.success && first.json()?["conversations"][0]["turns"] == again.json()?["conversations"][0]["turns"]);
    ensure!(first.stdout.contains("1767225600"), "the time is the time of tests: {}", first.stdout);
    Ok(())
}
