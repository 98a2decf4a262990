//! Tables in CSV.

use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::{Heap, Value};

/// Returns the rows as a list of dicts with the names of the first row as keys. Numbers are parsed, and empty cells are
/// `None`.
pub fn read<'v>(text: &str, heap: Heap<'v>) -> Result<Value<'v>, csv::Error> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let cells: Vec<_> = names.iter().zip(&record).map(|(name, text)| (name, cell(text, heap))).collect();
        rows.push(heap.alloc(AllocDict(cells)));
    }
    Ok(heap.alloc(AllocList(rows)))
}

fn cell<'v>(text: &str, heap: Heap<'v>) -> Value<'v> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Value::new_none();
    }
    if let Ok(whole) = trimmed.parse::<i64>() {
        return heap.alloc(whole);
    }
    match trimmed.parse::<f64>() {
        // `nan` and `inf` are more likely words than numbers.
        Ok(number) if number.is_finite() => heap.alloc(number),
        Ok(_) | Err(_) => heap.alloc(text),
    }
}
