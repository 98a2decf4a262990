//! An agent whose model answers by writing code, and the code executor that runs it: Starlark, a small dialect of
//! Python. Code has access to its input files only, not to a network or a disk.

mod history;
mod library;
mod script;
mod table;

use hatchery_guest::prelude::*;

use history::History;

/// Runs Starlark, a subset of Python without unbounded loops. An agent that is stateful sees what its earlier code has
/// left.
#[code_executor]
async fn starlark(input: CodeInput, cx: Context) -> Result<CodeOutput, ToolError> {
    let Some(id) = input.execution_id.clone() else { return Ok(script::run(input, &[])) };
    let mut history = History::load(&cx, &id)?;
    let code = input.code.clone();
    let output = script::run(input, history.pieces());
    if output.stderr.is_empty() {
        history.add(code)?;
        history.store(&cx)?;
    }
    Ok(output)
}

/// Answers questions about numbers and tables by writing code.
#[agent]
fn data_analyst() -> LlmAgent {
    LlmAgent::new("data-analyst")
        .model("scripted:data-analyst/answers.yaml")
        .instruction(INSTRUCTION)
        .run_code(CodeRunner::new(starlark).optimize_data_file())
}

const INSTRUCTION: &str = "\
Answer questions about numbers and data by writing code in a ```python block; never compute in your head. You are shown what the code prints \
and answer from that.

The code is Starlark, a part of Python: functions, `for` at the top level and in functions, `if`, comprehensions, f-strings, strings, lists, \
dicts, `sorted`, `zip`, `enumerate` and the like. There is no `import`, `while`, `class`, `try`, `with`, `**` and no format after a colon in \
an f-string; use `round(x, 2)`.

Beside the usual functions there are `sum(values)`, `mean(values)`, `median(values)`, `round(x, digits)`, `read_file(name)`, `read_csv(name)`, \
which gives a list of dicts, and `write_file(name, text)`, which gives a file to the user.";

hatchery_guest::export! { agents: [data_analyst], code_executors: [starlark] }

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use hatchery_guest::testing::Host;

    use super::*;

    fn run(code: &str) -> CodeOutput {
        let sales = CodeFile {
            mime_type: "text/csv".into(),
            ..CodeFile::text("sales.csv", "city,euros\nOslo,12\nRome,30.5\n")
        };
        let input = CodeInput { input_files: vec![sales], ..CodeInput::new(code) };
        block_on(starlark().execute(input)).unwrap()
    }

    fn printed(code: &str) -> String {
        let output = run(code);
        assert_eq!(output.stderr, "", "{code}");
        output.stdout
    }

    fn stateful(host: &Host, id: &str, code: &str) -> CodeOutput {
        let input = CodeInput { execution_id: Some(id.into()), ..CodeInput::new(code) };
        host.execute(starlark, input).unwrap()
    }

    #[test]
    fn earlier_code_of_the_same_execution_leaves_its_variables_functions_and_files() {
        let host = Host::new();
        stateful(&host, "a", "x = 20\ndef twice(n):\n    return 2 * n\nprint('once')");
        stateful(&host, "a", "write_file('kept.txt', 'yes')\nx = x + 1");
        let output = stateful(&host, "a", "print(twice(x), read_file('kept.txt'))");
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("42 yes\n", ""));
        assert_eq!(output.output_files, [], "the file is not given to the user again");
        let other = stateful(&host, "b", "print(x)");
        assert!(other.stderr.starts_with("line 1: Variable `x` not found"), "{}", other.stderr);
    }

    #[test]
    fn code_that_fails_leaves_nothing() {
        let host = Host::new();
        stateful(&host, "a", "x = 1");
        assert!(!stateful(&host, "a", "x = 2\nfail('no')").stderr.is_empty());
        assert_eq!(stateful(&host, "a", "print(x)").stdout, "1\n");
    }

    #[test]
    fn the_code_that_is_kept_is_bounded() {
        let host = Host::new();
        let large = format!("x = '{}'", "x".repeat(30_000));
        stateful(&host, "a", &large);
        let input = CodeInput { execution_id: Some("a".into()), ..CodeInput::new(large) };
        let ToolError::Recoverable(message) = host.execute(starlark, input).unwrap_err() else { panic!("fatal") };
        assert!(message.starts_with("the code of this session is longer than 32768 bytes"), "{message}");
    }

    #[test]
    fn printed_text_is_the_output_of_code() {
        assert_eq!(
            printed("x = [n * n for n in range(4)]\nprint('squares', x)\nprint(f'{len(x)} of them')"),
            "squares [0, 1, 4, 9]\n4 of them\n"
        );
        assert_eq!(printed("for n in [1, 2]:\n    if n > 1:\n        print(n)"), "2\n");
    }

    #[test]
    fn an_error_has_its_line() {
        let output = run("x = 1\nprint(x)\ny = x / 0\nprint(y)");
        assert_eq!(output.stdout, "1\n");
        assert_eq!(output.stderr, "line 3: float division by zero: 1 / 0\n    y = x / 0\n");
    }

    #[test]
    fn an_error_in_a_function_has_the_line_of_its_caller() {
        let output = run("def half(x):\n    return x / 2\n\nhalf('a')");
        assert!(output.stderr.starts_with("line 2: Operation `/` not supported"), "{}", output.stderr);
        assert!(output.stderr.ends_with("    return x / 2\ncalled from line 4\n"), "{}", output.stderr);
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let output = run("print(1)\nimport os\n");
        assert!(output.stderr.starts_with("line 2: "), "{}", output.stderr);
        assert_eq!(output.stdout, "");
        assert!(run("while True:\n    pass").stderr.starts_with("line 1: "));
        assert!(run("print(nothing)").stderr.starts_with("line 1: Variable `nothing` not found"));
        assert!(run("load('x.star', 'y')").stderr.starts_with("line 1: "));
    }

    #[test]
    fn files_are_read_by_name() {
        assert_eq!(printed("print(read_file('sales.csv').splitlines()[1])"), "Oslo,12\n");
        let stderr = run("read_file('costs.csv')").stderr;
        assert_eq!(
            stderr,
            "line 1: there is no file `costs.csv`; available: `sales.csv`\n    read_file('costs.csv')\n"
        );
    }

    #[test]
    fn a_table_is_a_list_of_dicts() {
        assert_eq!(
            printed("print(read_csv('sales.csv'))"),
            "[{\"city\": \"Oslo\", \"euros\": 12}, {\"city\": \"Rome\", \"euros\": 30.5}]\n"
        );
        assert_eq!(printed("print(sum([row['euros'] for row in read_csv('sales.csv')]))"), "42.5\n");
    }

    #[test]
    fn a_written_file_is_returned_and_can_be_read_again() {
        let output = run(
            "write_file('a.txt', 'one')\nwrite_file('a.txt', 'two')\nwrite_file('t.csv', 'n\\n1')\nprint(read_file('a.txt'), read_csv('t.csv'))",
        );
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("two [{\"n\": 1}]\n", ""));
        let files: Vec<_> =
            output.output_files.iter().map(|file| (file.name.as_str(), file.mime_type.as_str())).collect();
        assert_eq!(files, [("a.txt", "text/plain"), ("t.csv", "text/csv")]);
        let stderr = run("write_file('../x', '')").stderr;
        assert!(stderr.starts_with("line 1: `../x` is not a valid file name"), "{stderr}");
    }

    #[test]
    fn files_written_before_an_error_are_kept() {
        let output = run("write_file('a.txt', 'one')\nfail('that is all')");
        assert_eq!(output.output_files.len(), 1);
        assert!(output.stderr.contains("that is all"), "{}", output.stderr);
    }

    #[test]
    fn numbers_are_added_averaged_and_rounded() {
        assert_eq!(printed("print(sum([1, 2, 3]), sum((1, 0.5)), sum([]))"), "6 1.5 0\n");
        assert_eq!(printed("print(mean([1, 2]), median([5, 1, 3]), median([4, 1, 3, 2]))"), "1.5 3.0 2.5\n");
        assert_eq!(printed("print(round(2.5), round(3.5), round(2.345, 2), round(7))"), "2 4 2.35 7\n");
        assert!(run("mean([])").stderr.starts_with("line 1: `mean` needs at least one number"));
        assert!(run("mean(['a'])").stderr.starts_with("line 1: `mean` takes numbers, not `string`"));
    }
}
