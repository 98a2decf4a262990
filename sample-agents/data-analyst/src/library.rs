//! What code finds beside Starlark's own functions: files, tables and a little arithmetic.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hatchery_guest::{CodeFile, CodeOutput};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::values::float::UnpackFloat;
use starlark::values::none::NoneType;
use starlark::values::{Heap, UnpackValue, Value};
use starlark::{PrintHandler, starlark_module};

use crate::table;

/// All that code can reach: its files, and what it has printed and written.
#[derive(Debug, starlark::any::ProvidesStaticType)]
pub struct World {
    given: Vec<CodeFile>,
    written: RefCell<BTreeMap<String, String>>,
    printed: RefCell<String>,
}

/// What code did wrong, in words for the model that wrote it.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("there is no file `{name}`; there is {known}")]
    NoFile { name: String, known: String },
    #[error("`{0}` is not text in UTF-8")]
    NoText(String),
    #[error("`{0}` is no name for a file: it must not be empty or hold `/` or `\\`")]
    BadName(String),
    #[error("`{name}` is not a table: {source}")]
    NoTable { name: String, source: csv::Error },
    #[error("`{0}` needs at least one number")]
    NoNumbers(&'static str),
    #[error("`{function}` takes numbers, not `{given}`")]
    NoNumber { function: &'static str, given: &'static str },
    #[error("files are out of reach")]
    NoWorld,
}

impl From<Fault> for starlark::Error {
    fn from(fault: Fault) -> Self {
        Self::new_native(fault)
    }
}

impl World {
    /// A world with these files.
    pub fn new(given: Vec<CodeFile>) -> Self {
        Self { given, written: RefCell::default(), printed: RefCell::default() }
    }

    /// What came of the code; `stderr` is what went wrong.
    pub fn into_output(self, stderr: String) -> CodeOutput {
        let file = |(name, text): (String, String)| CodeFile {
            mime_type: mime_type(&name).into(),
            ..CodeFile::text(name, text)
        };
        let output_files = self.written.into_inner().into_iter().map(file).collect();
        CodeOutput { stdout: self.printed.into_inner(), stderr, output_files }
    }

    /// The world of the code that runs.
    fn of<'a>(eval: &Evaluator<'_, 'a, '_>) -> Result<&'a Self, Fault> {
        eval.extra.and_then(|world| world.downcast_ref()).ok_or(Fault::NoWorld)
    }

    fn read(&self, name: &str) -> Result<String, Fault> {
        if let Some(text) = self.written.borrow().get(name) {
            return Ok(text.clone());
        }
        let given = self.given.iter().find(|file| file.name == name);
        let given = given.ok_or_else(|| Fault::NoFile { name: name.into(), known: self.known() })?;
        String::from_utf8(given.content.clone()).map_err(|_| Fault::NoText(name.into()))
    }

    fn known(&self) -> String {
        let written = self.written.borrow();
        let names = self.given.iter().map(|file| file.name.as_str()).chain(written.keys().map(String::as_str));
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Fault> {
        if name.is_empty() || name.contains(['/', '\\']) {
            return Err(Fault::BadName(name.into()));
        }
        self.written.borrow_mut().insert(name.into(), text.into());
        Ok(())
    }
}

impl PrintHandler for World {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let mut printed = self.printed.borrow_mut();
        printed.push_str(text);
        printed.push('\n');
        Ok(())
    }
}

fn mime_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => "text/csv",
        Some("html") => "text/html",
        Some("json") => "application/json",
        Some("md") => "text/markdown",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "text/plain",
    }
}

/// The functions by the names that code has for them.
#[starlark_module]
pub fn library(builder: &mut GlobalsBuilder) {
    /// The text of a file.
    fn read_file(#[starlark(require = pos)] name: &str, eval: &mut Evaluator) -> starlark::Result<String> {
        Ok(World::of(eval)?.read(name)?)
    }

    /// The rows of a CSV file, as a list of dicts.
    fn read_csv<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let text = World::of(eval)?.read(name)?;
        Ok(table::read(&text, eval.heap()).map_err(|source| Fault::NoTable { name: name.into(), source })?)
    }

    /// Gives a file to the user.
    fn write_file(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] text: &str,
        eval: &mut Evaluator,
    ) -> starlark::Result<NoneType> {
        World::of(eval)?.write(name, text)?;
        Ok(NoneType)
    }

    /// The sum of numbers.
    fn sum<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let mut values = values.iterate(heap)?;
        values.try_fold(heap.alloc(0), |sum, value| sum.add(value, heap))
    }

    /// The mean of numbers.
    fn mean<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<f64> {
        let numbers = numbers("mean", values, heap)?;
        #[allow(clippy::cast_precision_loss, reason = "no list is that long")]
        let count = numbers.len() as f64;
        Ok(numbers.iter().sum::<f64>() / count)
    }

    /// The number in the middle, or the mean of the two there.
    fn median<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<f64> {
        let mut numbers = numbers("median", values, heap)?;
        numbers.sort_by(f64::total_cmp);
        let at = |place: usize| numbers.get(place).copied().unwrap_or_default();
        Ok((at((numbers.len() - 1) / 2) + at(numbers.len() / 2)) / 2.0)
    }

    /// The number with so many digits behind the point; a whole one without them.
    fn round<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] digits: Option<usize>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let number = number("round", x)?;
        Ok(match digits {
            _ if x.unpack_i32().is_some() => x,
            #[allow(clippy::cast_possible_truncation, reason = "a number too large becomes the largest there is")]
            None => heap.alloc(number.round_ties_even() as i64),
            Some(digits) => heap.alloc(format!("{number:.digits$}").parse().unwrap_or(number)),
        })
    }
}

/// The numbers in something that can be gone through; at least one.
fn numbers<'v>(function: &'static str, values: Value<'v>, heap: Heap<'v>) -> starlark::Result<Vec<f64>> {
    let numbers = values.iterate(heap)?.map(|value| number(function, value)).collect::<Result<Vec<_>, _>>()?;
    if numbers.is_empty() { Err(Fault::NoNumbers(function).into()) } else { Ok(numbers) }
}

fn number(function: &'static str, value: Value<'_>) -> Result<f64, Fault> {
    let number = UnpackFloat::unpack_value(value).ok().flatten();
    number.map(|UnpackFloat(number)| number).ok_or_else(|| Fault::NoNumber { function, given: value.get_type() })
}
