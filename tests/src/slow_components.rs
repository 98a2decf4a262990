//! Components that are slow to compile, and the processes that compile them.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;

/// Returns a component with one function of nested loops that share their variables. Its compile time grows faster than
/// the square of its size: with a depth of 6000 it has about 90 KB and takes minutes.
///
/// # Errors
/// If its text is invalid.
pub fn nested_loops(depth: usize) -> Result<Vec<u8>> {
    /// The number of local variables.
    const VARIABLES: usize = 100;

    let variable = |number: usize, factor: usize| number.wrapping_mul(factor) % VARIABLES;
    let mut body = String::new();
    for number in 1..=depth {
        let (target, left, right) = (variable(number, 7919), variable(number, 104_729), variable(number, 1_299_709));
        writeln!(body, "loop local.get {left} local.get {right} i32.add local.set {target}")?;
    }
    for number in 1..=depth {
        writeln!(body, "local.get {} br_if 0 end", variable(number, 7919))?;
    }
    component(VARIABLES, &body)
}

/// Returns a component with one function of `count` conditional additions, whose compilation takes much memory.
///
/// # Errors
/// If its text is invalid.
pub fn branches(count: usize) -> Result<Vec<u8>> {
    /// The number of local variables.
    const VARIABLES: usize = 1000;

    let variable = |number: usize, factor: usize| number.wrapping_mul(factor) % VARIABLES;
    let mut body = String::new();
    for number in 1..=count {
        let (target, left, right) = (variable(number, 7919), variable(number, 104_729), variable(number, 1_299_709));
        writeln!(body, "local.get {target} if local.get {left} local.get {right} i32.add local.set {target} end")?;
    }
    component(VARIABLES, &body)
}

/// Returns a component whose exported function `f` has this body.
fn component(variables: usize, body: &str) -> Result<Vec<u8>> {
    let locals = "i32 ".repeat(variables);
    let text = format!(
        "(component (core module $m (func (export \"f\") (result i32) (local {locals}) {body} local.get 0)) \
         (core instance $i (instantiate $m)) (func (export \"f\") (result s32) (canon lift (core func $i \"f\"))))"
    );
    Ok(wat::parse_str(text)?)
}

/// Returns the child processes of a process, as folders in `/proc`.
pub fn children(parent: u32) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    // The fields after the name in brackets are the state and the parent.
    let is_child = |process: &PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1).and_then(|number| number.parse().ok()) == Some(parent)
    };
    processes.filter(is_child).collect()
}
