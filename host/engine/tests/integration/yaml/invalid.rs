//! Invalid files.

use hatchery_engine::Extensions;

use super::*;

#[test]
fn the_error_of_an_unknown_key_has_its_location() {
    let error = error_of("name: root\ninstruction: x\ninstrution: y\n");
    assert_eq!(error, "root_agent.yaml:3:1: unknown field `instrution`; did you mean `instruction`?");
    let error = error_of("name: root\ninstruction: x\nwhatever: y\n");
    assert!(error.starts_with("root_agent.yaml:3:1: unknown field `whatever`, expected one of"), "{error}");
    assert!(error.contains("`output_key`") && !error.contains("`outputKey`"), "each key once: {error}");
}

#[test]
fn the_error_of_a_key_that_only_adk_has_names_the_key_to_use() {
    let code = "names code of Python, which the host cannot load; name a model with `model`, such as `openai/gpt-5`";
    for key in ["model_code", "modelCode"] {
        let error = error_of(&format!("name: root\ninstruction: x\n{key}: {{ name: lib.Model }}\n"));
        assert_eq!(error, format!("root_agent.yaml:3:1: `{key}` {code}"));
    }
}

#[test]
fn the_error_of_a_wrong_type_has_its_location() {
    let error = error_of("agent_class: LoopAgent\nname: root\nmax_iterations: lots\n");
    assert_eq!(
        error,
        "root_agent.yaml:3:17: max_iterations: invalid type: string \"lots\", expected a whole number from 0 on"
    );
}

#[test]
fn the_error_of_a_bare_name_shows_the_mapping_that_is_expected() {
    let with = |entry: &str| error_of(&format!("name: root\ninstruction: x\n{entry}\n"));
    assert_eq!(
        with("tools: [exit_loop]"),
        "root_agent.yaml:3:9: tools[0]: invalid type: string \"exit_loop\", expected a mapping: write `- name: TOOL`"
    );
    assert_eq!(
        with("before_tool_callbacks: [guard]"),
        "root_agent.yaml:3:25: before_tool_callbacks[0]: invalid type: string \"guard\", expected a mapping: write \
         `- name: CALLBACK`"
    );
    assert_eq!(
        with("sub_agents: [b.yaml]"),
        "root_agent.yaml:3:14: sub_agents[0]: invalid type: string \"b.yaml\", expected a mapping: write `config_path: FILE` \
         or `code: AGENT`"
    );
    assert_eq!(
        with("tools:\n  - name: AgentTool\n    args: { agent: b.yaml }"),
        "root_agent.yaml:4:5: AgentTool: `agent`: invalid type: string \"b.yaml\", expected a mapping: write \
         `config_path: FILE` or `code: AGENT`"
    );
}

#[test]
fn limits_of_zero_are_refused() {
    assert_eq!(
        error_of("agent_class: LoopAgent\nname: root\nmax_iterations: 0\n"),
        "root_agent.yaml:3:1: `max_iterations` is 0, so the agent could do nothing; raise it, or leave it out for no limit"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nmaxSteps: 0\n"),
        "root_agent.yaml:3:1: `max_steps` is 0, so the agent could do nothing; raise it, or leave it out for no limit"
    );
}

#[test]
fn the_error_of_a_key_of_another_class_names_the_class() {
    assert_eq!(
        error_of("agent_class: SequentialAgent\nname: root\nmodel: x\n"),
        "root_agent.yaml:3:1: `model` is a key of LlmAgent, but this is a SequentialAgent"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nmax_iterations: 3\n"),
        "root_agent.yaml:3:1: `max_iterations` is a key of LoopAgent, but this is a LlmAgent"
    );
}

#[test]
fn errors_of_missing_keys_name_the_key() {
    assert_eq!(error_of("instruction: x\n"), "root_agent.yaml: Agent name is required: add `name: …`");
    assert_eq!(error_of("name: root\n"), "root_agent.yaml: Agent instruction is required: add `instruction: …`");
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: ''\n"),
        "root_agent.yaml:3:1: Tool name cannot be empty"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nsub_agents:\n  - {}\n"),
        "root_agent.yaml:3:1: a sub-agent needs either `config_path` (a YAML file) or `code` (an agent of a component)"
    );
}

#[test]
fn errors_of_unknown_names_have_the_location_and_the_known_names() {
    let builtin: String = hatchery_engine::builtin::tools().names().map(|name| format!("`{name}`, ")).collect();
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: exit_loop\n  - name: ad\n"),
        format!(
            "root_agent.yaml:5:5: tools: tool `ad` not found; available: {builtin}`add`, `AgentTool`, `ExampleTool`, \
             `LongRunningFunctionTool`, `vertex_ai_search`, `vertex_ai_rag_retrieval`, `Toolset`; did you mean `add`?"
        )
    );
    for (misspelt, meant) in [("AgentTol", "AgentTool"), ("Tolset", "Toolset"), ("ShopTolset", "ShopToolset")] {
        let mut extensions = Extensions::builtin();
        extensions.toolsets.register("ShopToolset", |_args| Err("it is only named".into()));
        let text = format!("name: root\ninstruction: x\ntools:\n  - name: {misspelt}\n");
        let folder = folder(&[("root_agent.yaml", text.as_str())]);
        let error = load_agent(&folder.path().join("root_agent.yaml"), &extensions).err().unwrap();
        assert!(error.message().ends_with(&format!("; did you mean `{meant}`?")), "{error}");
    }
    let func = "name: root\ninstruction: x\ntools:\n  - name: LongRunningFunctionTool\n    args: { func: AgentTol }\n";
    assert!(!error_of(func).contains("AgentTool"), "{}", error_of(func));
    assert_eq!(
        error_of("name: root\ninstruction: x\nbefore_tool_callbacks:\n  - name: gard\n"),
        "root_agent.yaml:4:5: before_tool_callbacks: callback `gard` not found; available: `guard`"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nsub_agents:\n  - code: helpr\n"),
        "root_agent.yaml:4:5: sub_agents: agent `helpr` not found; available: `helper`"
    );
}

#[test]
fn the_error_of_a_name_from_a_python_package_says_where_code_belongs() {
    for (key, entry) in [
        ("tools", "name: shop.tools.buy"),
        ("before_model_callbacks", "name: shop.callbacks.buy"),
        ("sub_agents", "code: shop.agents.buy"),
    ] {
        let error = error_of(&format!("name: root\ninstruction: x\n{key}:\n  - {entry}\n"));
        assert!(error.starts_with(&format!("root_agent.yaml:4:5: {key}: ")), "{error}");
        let advice =
            "; code of a Python or Java package is not loaded: put it into a component, and name it `COMPONENT/buy`";
        assert!(error.ends_with(advice), "{error}");
    }
}

#[test]
fn locations_are_found_in_braces_and_before_comments() {
    let with = |tools: &str| error_of(&format!("name: root\ninstruction: |\n  tools: {{name: ad}}\n{tools}\n"));
    for (tools, place) in [
        ("tools: [{name: exit_loop}, {name: add, args: {}}]", "4:29"),
        ("tools: # these\n  - {name: 'add', args: {}} # takes none", "5:6"),
        ("tools:\n  - name: add # no\n    args: {}", "5:5"),
        ("tools:\n  - \"name\": add\n    args: {}", "5:5"),
    ] {
        assert_eq!(with(tools), format!("root_agent.yaml:{place}: tool `add` takes no `args`"), "{tools}");
    }
}

#[test]
fn the_error_of_an_invalid_schema_has_its_location() {
    for (key, schema, reason) in [
        (
            "output_schema",
            "{ type: text }",
            "`type` can be null, boolean, object, array, number, integer, string, not \"text\"",
        ),
        ("input_schema", "{ items: { pattern: '(' } }", "at `/items/pattern`: \"(\" is not a \"regex\""),
    ] {
        assert_eq!(
            error_of(&format!("name: root\ninstruction: x\n{key}: {schema}\n")),
            format!("root_agent.yaml:3:1: `{key}` is not a JSON Schema: {reason}")
        );
    }
}

#[test]
fn a_class_of_python_in_place_of_a_schema_is_an_error() {
    for (key, reference, class) in [
        ("output_schema", "{ name: report.Answer }", "report.Answer"),
        ("input_schema", "{ name: report.ask, args: [{ name: strict, value: true }] }", "report.ask"),
    ] {
        assert_eq!(
            error_of(&format!("name: root\ninstruction: x\n{key}: {reference}\n")),
            format!(
                "root_agent.yaml:3:1: `{key}` names the class `{class}`, which the host cannot load; write its JSON Schema"
            )
        );
    }
}

#[test]
fn a_setting_of_model_calls_in_the_wrong_place_is_an_error_with_the_right_one() {
    for key in ["temperature", "max_output_tokens", "topP", "safety_settings"] {
        assert_eq!(
            error_of(&format!("name: root\ninstruction: x\n{key}: 1\n")),
            format!(
                "root_agent.yaml:3:1: `{key}` is a setting of model calls: write it below `generate_content_config`"
            )
        );
    }
}

#[test]
fn unknown_and_reserved_settings_of_model_calls_are_errors() {
    let with = |settings: &str| error_of(&format!("name: root\ninstruction: x\ngenerate_content_config: {settings}\n"));
    for (settings, reason) in [
        ("{ temprature: 1 }", "unknown setting `temprature`; did you mean `temperature`?"),
        (
            "{ reasoning_depth: 1 }",
            "unknown setting `reasoningDepth`; settings are those of Gemini's `GenerateContentConfig`, and keys of another \
             provider's body go below `httpOptions.extraBody`",
        ),
        ("{ tools: [] }", "`tools` is not a setting of a model call; the agent and the host set it"),
        (
            "{ system_instruction: x }",
            "`systemInstruction` is not a setting of a model call; the agent and the host set it",
        ),
        (
            "{ http_options: { base_url: x } }",
            "`httpOptions`: unknown field `baseUrl`, expected one of `timeout`, `headers`, `retryOptions`, `extraBody`",
        ),
        (
            "{ http_options: { headers: { Authorization: x } } }",
            "`httpOptions.headers` cannot set `Authorization`, which the host sets",
        ),
        (
            "{ http_options: { headers: { X-Api-Key: x } } }",
            "`httpOptions.headers` cannot set `X-Api-Key`, which the host sets",
        ),
        (
            "{ http_options: { retry_options: { attempts: 11 } } }",
            "`httpOptions.retryOptions.attempts` is between 1 and 10",
        ),
        (
            "{ http_options: { retry_options: { max_delay: -1 } } }",
            "the numbers of `httpOptions.retryOptions` are between 0 and 3600",
        ),
    ] {
        assert_eq!(with(settings), format!("root_agent.yaml:3:1: {reason}"));
    }
}

#[test]
fn a_tool_cannot_have_the_name_of_a_tool_of_the_engine() {
    let folder = folder(&[("root_agent.yaml", "name: root\ninstruction: x\ntools:\n  - name: transfer_to_agent\n")]);
    let registry = StaticCatalog::default().with_tool(tool("transfer_to_agent", |_, _| Ok(json!(1))));
    let error = load_agent(&folder.path().join("root_agent.yaml"), &registry).err().unwrap();
    assert_eq!(error.location(), Some((4, 5)));
    assert_eq!(error.message(), "`transfer_to_agent` is a built-in tool; give this tool another name");
}

#[test]
fn errors_of_invalid_values_name_the_key() {
    assert_eq!(
        error_of("name: root\ninstruction: x\ninclude_contents: some\n"),
        "root_agent.yaml:3:1: `include_contents` can be `default` or `none`, not `some`"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: add\n    args: { a: 1 }\n"),
        "root_agent.yaml:4:5: tool `add` takes no `args`"
    );
    let error = error_of("name: root\ninstruction: x\ngenerate_content_config: { temperature: hot }\n");
    assert!(error.starts_with("root_agent.yaml:3:1: `temperature`: invalid type: string \"hot\""), "{error}");
    assert_eq!(
        error_of("agent_class: Robot\nname: root\n"),
        "root_agent.yaml:1:1: agent class `Robot` not found; available: `LlmAgent`, `SequentialAgent`, `ParallelAgent`, \
         `LoopAgent`"
    );
    for (class, meant) in [("Loop", "LoopAgent"), ("SequentialAgnet", "SequentialAgent")] {
        // A key of another class is no problem of its own.
        let error = error_of(&format!("agent_class: {class}\nname: root\nmodel: x\n"));
        let start = format!("root_agent.yaml:1:1: agent class `{class}` not found; ");
        assert!(error.starts_with(&start) && error.ends_with(&format!("; did you mean `{meant}`?")), "{error}");
    }
    assert_eq!(
        error_of("name: root\ninstruction: x\nfallback: [b]\n"),
        "root_agent.yaml:3:1: `fallback` needs a `model` in the same file; the model of another agent has its own"
    );
    assert_eq!(
        error_of("name: root\nmodel: a\ninstruction: x\nfallback: ['']\n"),
        "root_agent.yaml:4:1: `fallback` has an empty name; name models"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nargs: { a: 1 }\n"),
        "root_agent.yaml:3:1: `args` is a key of registered agent classes, but this is a LlmAgent"
    );
}

#[test]
fn files_outside_of_the_folder_are_refused() {
    let with = |path: &str| error_of(&format!("name: root\ninstruction: x\nsub_agents:\n  - config_path: {path}\n"));
    assert_eq!(with("../x.yaml"), "root_agent.yaml:4:5: `../x.yaml` leaves the agent's folder; move the file there");
    assert_eq!(with("/x.yaml"), "root_agent.yaml:4:5: `/x.yaml` leaves the agent's folder; move the file there");
    assert_eq!(with("x.yaml"), "root_agent.yaml:4:5: there is no file `x.yaml`");
    assert_eq!(
        with("root_agnt.yaml"),
        "root_agent.yaml:4:5: there is no file `root_agnt.yaml`; did you mean `root_agent.yaml`?"
    );
    assert_eq!(
        with("root_agent.yaml"),
        "root_agent.yaml:4:5: `root_agent.yaml` is used already; an agent has one parent, and cannot be below itself"
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_file() {
    let text = "\u{feff}name: root\ninstruction: x\n";
    assert_eq!(load(folder(&[("root_agent.yaml", text)]).path()).unwrap().agent.name, "root");
    let error = error_of("\u{feff}name: a.b\ninstruction: x\n");
    assert!(error.starts_with("root_agent.yaml:1:1: agent name `a.b` may not hold a dot"), "{error}");
}

#[test]
fn a_missing_file_and_a_huge_file_are_refused() {
    let missing = load(TempDir::new().unwrap().path()).err().unwrap();
    assert_eq!(missing, "root_agent.yaml: there is no such file");
    let huge = error_of(&format!("# {}\n", "x".repeat(1 << 20)));
    assert_eq!(huge, "root_agent.yaml: is 1048579 bytes long; an agent config may be 1048576 bytes long at most");
}

#[test]
fn hostile_yaml_is_refused_quickly() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
    assert!(error_of(bomb).contains("unknown field `a`"));
    let deep = format!("generate_content_config: {}", "{a: ".repeat(100_000));
    assert_eq!(error_of(&deep), "root_agent.yaml: more than 256 brackets are open at once");
}

#[test]
fn references_that_double_at_each_level_are_refused_at_once() {
    let both = |next: usize| {
        format!(
            "name: a{next}\nagent_class: SequentialAgent\nsub_agents: [{{config_path: {next}.yaml}}, {{config_path: {next}.yaml}}]\n"
        )
    };
    let files: Vec<_> = (1..30).map(|level| (format!("{level}.yaml"), both(level + 1))).collect();
    let mut files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (root, last) = (both(1), "name: last\nagent_class: SequentialAgent\n");
    files.extend([("root_agent.yaml", root.as_str()), ("30.yaml", last)]);
    let error = load(folder(&files).path()).err().unwrap();
    assert!(
        error.ends_with("`30.yaml` is used already; an agent has one parent, and cannot be below itself"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_refused_without_reading() {
    let outside = folder(&[("secret.yaml", "hunter2")]);
    let folder = folder(&[("root_agent.yaml", "name: root\ninstruction: x\nsub_agents:\n  - config_path: s.yaml\n")]);
    std::os::unix::fs::symlink(outside.path().join("secret.yaml"), folder.path().join("s.yaml")).unwrap();
    let error = load(folder.path()).err().unwrap();
    assert_eq!(error, "root_agent.yaml:4:5: `s.yaml` leads out of the agent's folder; move the file there");
}

#[test]
fn errors_of_duplicate_and_invalid_names_have_their_location() {
    assert_eq!(
        error_of("name: a.b\ninstruction: x\n"),
        "root_agent.yaml:1:1: agent name `a.b` may not hold a dot, which joins the names of parallel branches"
    );
    let twins = folder(&[
        ("root_agent.yaml", "name: twin\ninstruction: x\nsub_agents:\n  - config_path: b.yaml\n"),
        ("b.yaml", "name: twin\ninstruction: x\n"),
    ]);
    let error = load(twins.path()).err().unwrap();
    assert_eq!(error, "b.yaml:1:1: two agents are named `twin`; the other is in root_agent.yaml");
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools: [{ name: add }, { name: add }]\n"),
        "root_agent.yaml:3:11: two tools are named `add` to the model; leave one of them out"
    );
}
