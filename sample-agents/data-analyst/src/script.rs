//! Runs Starlark code and describes its errors.

use hatchery_guest::{CodeInput, CodeOutput};
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect, DialectTypes};

use crate::library::{Environment, library};

/// The syntax of Python that models write, as far as Starlark supports it.
const DIALECT: Dialect =
    Dialect { enable_f_strings: true, enable_load: false, enable_types: DialectTypes::ParseOnly, ..Dialect::Extended };

const EXTENSIONS: [LibraryExtension; 5] = [
    LibraryExtension::Print,
    LibraryExtension::Json,
    LibraryExtension::Map,
    LibraryExtension::Filter,
    LibraryExtension::SetType,
];

/// Runs code to the end, or to its first error. It sees what the code in `earlier` has left, which has run before.
pub fn run(CodeInput { code, input_files, execution_id: _ }: CodeInput, earlier: &[String]) -> CodeOutput {
    let environment = Environment::new(input_files);
    let failure = evaluate(&code, earlier, &environment).err().map(|error| describe(&error, &code));
    environment.into_output(failure.unwrap_or_default())
}

fn evaluate(code: &str, earlier: &[String], environment: &Environment) -> starlark::Result<()> {
    let globals = globals();
    Module::with_temp_heap(|module| {
        let evaluate = |code: &str| {
            let ast = AstModule::parse("code", code.to_owned(), &DIALECT)?;
            let mut evaluator = Evaluator::new(&module);
            evaluator.extra = Some(environment);
            evaluator.set_print_handler(environment);
            evaluator.eval_module(ast, &globals).map(|_| ())
        };
        for code in earlier {
            // Its input files may be gone: what needs them is missing then.
            let _ = evaluate(code);
        }
        environment.forget_output();
        evaluate(code)
    })
}

fn globals() -> Globals {
    GlobalsBuilder::extended_by(&EXTENSIONS).with(library).build()
}

/// Returns the error with its line and the lines of its callers.
fn describe(error: &starlark::Error, code: &str) -> String {
    let message = error.without_diagnostic().to_string();
    let message = message.trim_end();
    let Some(span) = error.span() else { return format!("{message}\n") };
    let mut position = span.resolve_span().begin.line;
    let line = code.lines().nth(position).unwrap_or_default().trim();
    let mut text = format!("line {}: {message}\n    {line}\n", position + 1);
    let frames = error.call_stack().frames.iter().rev();
    for caller in frames.filter_map(|frame| Some(frame.location.as_ref()?.resolve_span().begin.line)) {
        // A native function has the line of its caller.
        if caller != position {
            text.push_str(&format!("called from line {}\n", caller + 1));
        }
        position = caller;
    }
    text
}
