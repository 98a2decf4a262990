//! Functions for code besides Starlark's own: files, tables and arithmetic.

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

/// The environment of code: its input files, and its output so far.
#[derive(Debug, starlark::any::ProvidesStaticType)]
pub struct Environment {
    input_files: Vec<CodeFile>,
    /// The files of earlier code.
    kept: RefCell<BTreeMap<String, String>>,
    written: RefCell<BTreeMap<String, String>>,
    printed: RefCell<String>,
}

/// An error of code, as the model that wrote it reads it.
#[derive(Debug, thiserror::Error)]
enum LibraryError {
    #[error("there is no file `{name}`; available: {known}")]
    NoFile { name: String, known: String },
    #[error("`{0}` is not text in UTF-8")]
    NoText(String),
    #[error("`{0}` is not a valid file name: it must not be empty or contain `/` or `\\`")]
    BadName(String),
    #[error("`{name}` is not a table: {source}")]
    NoTable { name: String, source: csv::Error },
    #[error("`{0}` needs at least one number")]
    NoNumbers(&'static str),
    #[error("`{function}` takes numbers, not `{actual}`")]
    NoNumber { function: &'static str, actual: &'static str },
    #[error("files are out of reach")]
    NoEnvironment,
}

impl From<LibraryError> for starlark::Error {
    fn from(error: LibraryError) -> Self {
        Self::new_native(error)
    }
}

impl Environment {
    /// Creates an environment with these files.
    pub fn new(input_files: Vec<CodeFile>) -> Self {
        let (kept, written, printed) = Default::default();
        Self { input_files, kept, written, printed }
    }

    /// Returns the output. `stderr` is the error message, or empty.
    pub fn into_output(self, stderr: String) -> CodeOutput {
        let file = |(name, text): (String, String)| CodeFile {
            mime_type: mime_type(&name).into(),
            ..CodeFile::text(name, text)
        };
        let output_files = self.written.into_inner().into_iter().map(file).collect();
        CodeOutput { stdout: self.printed.into_inner(), stderr, output_files }
    }

    /// Marks all files so far as written by earlier code, and clears the output.
    pub fn forget_output(&self) {
        self.kept.borrow_mut().append(&mut self.written.borrow_mut());
        self.printed.borrow_mut().clear();
    }

    /// Returns the environment of an evaluation.
    fn from_evaluator<'a>(eval: &Evaluator<'_, 'a, '_>) -> Result<&'a Self, LibraryError> {
        eval.extra.and_then(|environment| environment.downcast_ref()).ok_or(LibraryError::NoEnvironment)
    }

    fn read(&self, name: &str) -> Result<String, LibraryError> {
        if let Some(text) = self.written.borrow().get(name).or(self.kept.borrow().get(name)) {
            return Ok(text.clone());
        }
        let file = self.input_files.iter().find(|file| file.name == name);
        let file = file.ok_or_else(|| LibraryError::NoFile { name: name.into(), known: self.list_files() })?;
        String::from_utf8(file.content.clone()).map_err(|_| LibraryError::NoText(name.into()))
    }

    fn list_files(&self) -> String {
        let (kept, written) = (self.kept.borrow(), self.written.borrow());
        let of_code = kept.keys().chain(written.keys().filter(|name| !kept.contains_key(*name))).map(String::as_str);
        let names = self.input_files.iter().map(|file| file.name.as_str()).chain(of_code);
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), LibraryError> {
        if name.is_empty() || name.contains(['/', '\\']) {
            return Err(LibraryError::BadName(name.into()));
        }
        self.written.borrow_mut().insert(name.into(), text.into());
        Ok(())
    }
}

impl PrintHandler for Environment {
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

/// The functions, under their names in Starlark.
#[starlark_module]
pub fn library(builder: &mut GlobalsBuilder) {
    /// Returns the text of a file.
    fn read_file(#[starlark(require = pos)] name: &str, eval: &mut Evaluator) -> starlark::Result<String> {
        Ok(Environment::from_evaluator(eval)?.read(name)?)
    }

    /// Returns the rows of a CSV file as a list of dicts.
    fn read_csv<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let text = Environment::from_evaluator(eval)?.read(name)?;
        Ok(table::read(&text, eval.heap()).map_err(|source| LibraryError::NoTable { name: name.into(), source })?)
    }

    /// Writes a file for the user.
    fn write_file(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] text: &str,
        eval: &mut Evaluator,
    ) -> starlark::Result<NoneType> {
        Environment::from_evaluator(eval)?.write(name, text)?;
        Ok(NoneType)
    }

    /// Returns the sum of numbers.
    fn sum<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let mut values = values.iterate(heap)?;
        values.try_fold(heap.alloc(0), |sum, value| sum.add(value, heap))
    }

    /// Returns the mean of numbers.
    fn mean<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<f64> {
        let numbers = numbers("mean", values, heap)?;
        #[allow(clippy::cast_precision_loss, reason = "no list is that long")]
        let count = numbers.len() as f64;
        Ok(numbers.iter().sum::<f64>() / count)
    }

    /// Returns the median of numbers.
    fn median<'v>(#[starlark(require = pos)] values: Value<'v>, heap: Heap<'v>) -> starlark::Result<f64> {
        let mut numbers = numbers("median", values, heap)?;
        numbers.sort_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
        Ok((at((numbers.len() - 1) / 2) + at(numbers.len() / 2)) / 2.0)
    }

    /// Rounds a number to `digits` decimal places, or to an integer without `digits`.
    fn round<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] digits: Option<usize>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let number = number("round", x)?;
        Ok(match digits {
            _ if x.unpack_i32().is_some() => x,
            #[allow(clippy::cast_possible_truncation, reason = "a number that is too large becomes `i64::MAX`")]
            None => heap.alloc(number.round_ties_even() as i64),
            Some(digits) => heap.alloc(format!("{number:.digits$}").parse().unwrap_or(number)),
        })
    }
}

/// Returns the numbers of an iterable, at least one.
fn numbers<'v>(function: &'static str, values: Value<'v>, heap: Heap<'v>) -> starlark::Result<Vec<f64>> {
    let numbers = values.iterate(heap)?.map(|value| number(function, value)).collect::<Result<Vec<_>, _>>()?;
    if numbers.is_empty() { Err(LibraryError::NoNumbers(function).into()) } else { Ok(numbers) }
}

fn number(function: &'static str, value: Value<'_>) -> Result<f64, LibraryError> {
    let number = UnpackFloat::unpack_value(value).ok().flatten();
    number
        .map(|UnpackFloat(number)| number)
        .ok_or_else(|| LibraryError::NoNumber { function, actual: value.get_type() })
}
