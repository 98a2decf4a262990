//! Findings about models.

use super::*;
use crate::cli::hatchery_with;

#[tokio::test]
async fn the_models_of_agents_that_are_called_as_tools_are_checked() -> Result<()> {
    let folder = Folder::empty()?;
    let tool = "tools:\n  - name: AgentTool\n    args: { agent: { config_path: helper.yaml } }\n";
    folder.put("desk/root_agent.yaml", yaml_agent("scripted:desk/answers.yaml") + tool)?;
    folder.put("desk/answers.yaml", "turns:\n  - reply: Hi\n")?;
    let helper = "name: helper\ninstruction: Help.\n";
    folder.put("desk/helper.yaml", format!("{helper}model: nobody/none\n"))?;
    let output = check_with_errors(&folder).await?;
    assert_contains(&output, &["✗ model `nobody/none`: no provider serves this name", "(used by `desk`)"]);
    folder.put("desk/helper.yaml", helper)?;
    let output = check_without_errors(&folder).await?;
    assert_contains(&output, &["! app `desk`: the agent `helper` has no model and inherits none"]);
    Ok(())
}

#[tokio::test]
async fn a_tool_that_runs_inside_models_of_another_kind_is_an_error() -> Result<()> {
    let folder = Folder::empty()?;
    let tool = "tools: [{ name: google_search }]\n";
    folder.put("hello/root_agent.yaml", yaml_agent("claude-sonnet-4-5") + tool)?;
    let problem = "✗ app `hello`: the agent `greeter` has the tool `google_search`, which runs inside Gemini models from \
                   version 2 on, and not inside `claude-sonnet-4-5`";
    assert_contains(&check_with_errors(&folder).await?, &[problem]);
    folder.put("hello/root_agent.yaml", yaml_agent("gemini-2.5-flash") + tool)?;
    let output = doctor(&folder, &[]).await?.stdout;
    assert!(!output.contains("has the tool"), "{output}");
    Ok(())
}

#[tokio::test]
async fn models_that_the_configuration_names_are_checked() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.put("hello/answers.yaml", "turns:\n  - reply: Hi\n")?;
    let with = |summarizer: &str| {
        let yaml =
            format!("apps: {{hello: {{compaction: {{interval: 1, overlap: 0, summarizer: '{summarizer}'}}}}}}\n");
        folder.put("hatchery.yaml", yaml)
    };
    with("nobody/none")?;
    let output = check_with_errors(&folder).await?;
    let missing = "✗ model `nobody/none`: no provider serves this name";
    assert_contains(&output, &[missing, "(used by `apps.hello.compaction`)"]);
    with("scripted:hello/answers.yaml")?;
    let output = check_without_errors(&folder).await?;
    assert_contains(&output, &["✓ model `scripted:hello/answers.yaml` (used by `hello`, `apps.hello.compaction`)"]);
    folder.put("hatchery.yaml", "models: {fallback: {'scripted:hello/answers.yaml': [nobody/none]}}\n")?;
    assert_contains(&check_with_errors(&folder).await?, &[missing, "(used by `models.fallback`)"]);
    Ok(())
}

#[tokio::test]
async fn a_script_in_another_place_of_the_folder_is_found() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("team/hello/root_agent.yaml", yaml_agent("scripted:hello/answers.yaml"))?;
    folder.put("team/hello/answers.yaml", "turns:\n  - reply: Hi\n")?;
    let problem = "✗ model `scripted:hello/answers.yaml`: script ./hello/answers.yaml not found, but there is \
                   ./team/hello/answers.yaml (used by `hello`)\n      model: scripted:team/hello/answers.yaml\n      \
                   # or serve another folder: hatchery dev ./team\n";
    assert_contains(&check_with_errors(&folder).await?, &[problem]);
    folder.put("team/hello/root_agent.yaml", yaml_agent("scripted:team/hello/answers.yaml"))?;
    check_without_errors(&folder).await.map(drop)
}

#[tokio::test]
async fn models_without_a_key_a_script_or_a_provider_are_errors() -> Result<()> {
    let folder = Folder::empty()?;
    for (app, model) in [
        ("a", "gemini-2.5-flash"),
        ("b", "gpt-5"),
        ("c", "scripted:none.yaml"),
        ("d", "unheard-of"),
        ("e", "gpt-5"),
        ("f", "scripted:no/x.yaml"),
    ] {
        folder.write(&format!("{app}/root_agent.yaml"), yaml_agent(model))?;
    }
    assert_contains(
        &check_with_errors(&folder).await?,
        &[
            "no key: set GOOGLE_API_KEY or GEMINI_API_KEY",
            "(used by `a`)\n      export GOOGLE_API_KEY=\n      # or a line GOOGLE_API_KEY=… in ./.env\n",
            "no key: set OPENAI_API_KEY",
            "(used by `b`, `e`)\n      export OPENAI_API_KEY=\n",
            "✗ model `scripted:none.yaml`: script ./none.yaml not found (used by `c`)\n",
            "      printf 'turns:\\n  - reply: \"Hello\"\\n' > ./none.yaml\n",
            "      mkdir -p ./no && printf ",
            "no provider serves this name",
        ],
    );
    let keys = [("GOOGLE_API_KEY", "x"), ("OPENAI_API_KEY", "y")];
    let args = [&["doctor", "."][..], &DATA].concat();
    let output = hatchery_with(&folder.served(), &args, &keys).await?;
    assert_contains(
        &output.stdout,
        &["✓ model `gemini-2.5-flash` (used by `a`)\n", "✓ model `gpt-5` (used by `b`, `e`)\n"],
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_without_a_model_is_a_warning() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("x/root_agent.yaml", "name: greeter\ndescription: Greets.\ninstruction: Greet.\n")?;
    let answer = "! app `x`: the agent `greeter` has no model and inherits none\n      model: gemini-2.5-flash\n";
    assert_contains(&check_without_errors(&folder).await?, &[answer]);
    Ok(())
}
