//! `code_executor`.

use hatchery_core::{CodeExecution, CodeExecutor, CodeInput, CodeOutput, Delimiters, ToolError};

use super::*;

/// A registered executor.
struct Executor(&'static str);

#[async_trait]
impl CodeExecutor for Executor {
    fn name(&self) -> &str {
        self.0
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        Ok(CodeOutput::default())
    }
}

fn code_execution(text: &str) -> Result<CodeExecution, String> {
    code_execution_with(text, "python")
}

/// Loads an agent where `executor` is the only one.
fn code_execution_with(text: &str, executor: &'static str) -> Result<CodeExecution, String> {
    let folder = folder(&[("root_agent.yaml", &format!("name: root\ninstruction: x\n{text}\n"))]);
    let registry = StaticCatalog::default().with_code_executor(Arc::new(Executor(executor)));
    let loaded = load_agent(&folder.path().join("root_agent.yaml"), &registry)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))?;
    Ok(as_llm(&loaded.agent.kind).code_execution.clone().unwrap())
}

fn code_error(text: &str) -> String {
    code_execution(text).err().unwrap()
}

#[test]
fn a_code_executor_is_a_name_or_a_map() {
    let runner = |text: &str| match code_execution(text) {
        Ok(CodeExecution::Host(runner)) => *runner,
        Ok(CodeExecution::BuiltIn) => panic!("built in"),
        Err(error) => panic!("{error}"),
    };
    let usual = runner("code_executor: python");
    assert_eq!(usual.executor.name(), "python");
    assert_eq!((usual.stateful, usual.optimize_data_file, usual.error_retries), (false, false, 2));
    assert_eq!(usual.code_delimiters[0], Delimiters::new("```tool_code\n", "\n```"));
    for text in [
        "code_executor: { name: python, stateful: true, optimize_data_file: true, error_retries: 0, code_delimiters: [['<a>', '</a>']], \
         result_delimiters: ['<b>', '</b>'] }",
        "codeExecutor: { name: python, stateful: true, optimizeDataFile: true, errorRetries: 0, codeDelimiters: [['<a>', '</a>']], \
         resultDelimiters: ['<b>', '</b>'] }",
        // The names of ADK's executors.
        "code_executor: { name: python, stateful: true, optimize_data_file: true, error_retry_attempts: 0, \
         code_block_delimiters: [['<a>', '</a>']], execution_result_delimiters: ['<b>', '</b>'] }",
        "codeExecutor: { name: python, stateful: true, optimizeDataFile: true, errorRetryAttempts: 0, \
         codeBlockDelimiters: [['<a>', '</a>']], executionResultDelimiters: ['<b>', '</b>'] }",
    ] {
        let chosen = runner(text);
        assert_eq!((chosen.stateful, chosen.optimize_data_file, chosen.error_retries), (true, true, 0));
        assert_eq!(chosen.code_delimiters, [Delimiters::new("<a>", "</a>")]);
        assert_eq!(chosen.result_delimiters, Delimiters::new("<b>", "</b>"));
    }
    assert!(matches!(code_execution("code_executor: built_in"), Ok(CodeExecution::BuiltIn)));
    assert!(matches!(code_execution("code_executor: { name: built_in }"), Ok(CodeExecution::BuiltIn)));
}

#[test]
fn settings_without_a_name_configure_the_sandbox() {
    for (text, stateful) in [("code_executor: {}", false), ("code_executor: { stateful: true }", true)] {
        let Ok(CodeExecution::Host(runner)) = code_execution_with(text, "sandbox") else { panic!("{text}") };
        assert_eq!((runner.executor.name(), runner.stateful), ("sandbox", stateful));
    }
}

#[test]
fn the_error_of_an_invalid_code_executor_has_its_location() {
    assert_eq!(
        code_error("code_executor: pyton"),
        "root_agent.yaml:3:1: code_executor: code executor `pyton` not found; available: `python`"
    );
    assert_eq!(
        code_error("code_executor:\n  name: pyton"),
        "root_agent.yaml:4:3: code_executor: code executor `pyton` not found; available: `python`"
    );
    assert_eq!(
        code_error("code_executor: [python]"),
        "root_agent.yaml:3:1: `code_executor` is a name, or a map of settings"
    );
    assert_eq!(
        code_error("code_executor: {}"),
        "root_agent.yaml:3:1: code_executor: code executor `sandbox` not found; available: `python`"
    );
    let unknown = code_error("code_executor: { name: python, retries: 1 }");
    assert!(
        unknown.starts_with("root_agent.yaml:3:1: code_executor: unknown field `retries`, expected one of"),
        "{unknown}"
    );
    assert_eq!(
        code_error("code_executor: { name: built_in, stateful: true }"),
        "root_agent.yaml:3:1: code_executor: `built_in` has no settings: the model runs its code itself"
    );
    for delimiters in ["[]", "[['', x]]"] {
        assert_eq!(
            code_error(&format!("code_executor: {{ name: python, code_delimiters: {delimiters} }}")),
            "root_agent.yaml:3:1: code_executor: `code_delimiters` needs pairs of non-empty strings"
        );
    }
    assert_eq!(
        error_of("agent_class: LoopAgent\nname: root\ncode_executor: python\n"),
        "root_agent.yaml:3:1: `code_executor` is a key of LlmAgent, but this is a LoopAgent"
    );
}
