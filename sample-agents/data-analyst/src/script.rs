//! Runs Starlark code and tells what came of it.

use hatchery_guest::{CodeInput, CodeOutput};
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect, DialectTypes};

use crate::library::{World, library};

/// What models write when they write Python, as far as Starlark goes.
const DIALECT: Dialect =
    Dialect { enable_f_strings: true, enable_load: false, enable_types: DialectTypes::ParseOnly, ..Dialect::Extended };

const EXTENSIONS: [LibraryExtension; 5] = [
    LibraryExtension::Print,
    LibraryExtension::Json,
    LibraryExtension::Map,
    LibraryExtension::Filter,
    LibraryExtension::SetType,
];

/// Runs code to its end, or to its first error.
pub fn run(CodeInput { code, input_files, execution_id: _ }: CodeInput) -> CodeOutput {
    let world = World::new(input_files);
    let failure = evaluate(&code, &world).err().map(|error| describe(&error, &code));
    world.into_output(failure.unwrap_or_default())
}

fn evaluate(code: &str, world: &World) -> starlark::Result<()> {
    let ast = AstModule::parse("code", code.to_owned(), &DIALECT)?;
    Module::with_temp_heap(|module| {
        let mut evaluator = Evaluator::new(&module);
        evaluator.extra = Some(world);
        evaluator.set_print_handler(world);
        evaluator.eval_module(ast, &globals()).map(|_| ())
    })
}

fn globals() -> Globals {
    GlobalsBuilder::extended_by(&EXTENSIONS).with(library).build()
}

/// The error with its line, and the lines that led to it.
fn describe(error: &starlark::Error, code: &str) -> String {
    let message = error.without_diagnostic().to_string();
    let message = message.trim_end();
    let Some(span) = error.span() else { return format!("{message}\n") };
    let mut place = span.resolve_span().begin.line;
    let line = code.lines().nth(place).unwrap_or_default().trim();
    let mut text = format!("line {}: {message}\n    {line}\n", place + 1);
    let frames = error.call_stack().frames.iter().rev();
    for caller in frames.filter_map(|frame| Some(frame.location.as_ref()?.resolve_span().begin.line)) {
        // A function that is not code has no line of its own but its caller's.
        if caller != place {
            text.push_str(&format!("called from line {}\n", caller + 1));
        }
        place = caller;
    }
    text
}
