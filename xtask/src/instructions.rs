//! `cargo xtask instructions`: counts the instructions of hot paths with valgrind and compares them with
//! `tests/instructions.txt`.
//!
//! Counts do not depend on the speed or the load of the machine. They are counted in the dev build, which the tests
//! need anyway: they show added work before optimisation. A path is taken twice with different counts, and the
//! difference is what it costs; starting the program is not included.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::workspace::Workspace;
use crate::{step, toolchain};

/// The recorded counts, a line for each path.
const RECORDED: &str = "tests/instructions.txt";

/// Allowed growth. Other C libraries and processors change the counts by some per cent.
const MARGIN: f64 = 1.20;

const FEW: u64 = 20;
const MANY: u64 = 60;

/// Compares all paths, or records them.
pub fn run(workspace: &Workspace, is_update: bool) -> anyhow::Result<()> {
    if !has_valgrind() {
        eprintln!(
            "skipped: valgrind is not installed and `apt-get install valgrind` failed, so no instructions were counted"
        );
        return Ok(());
    }
    step::run_command(&mut workspace.cargo(["build", "--workspace", "--example", "hot_paths"]))?;
    let program = workspace.target.join("debug/examples/hot_paths");
    let names = String::from_utf8(Command::new(&program).output()?.stdout)?;
    let file = workspace.root.join(RECORDED);
    let recorded = parse(&fs::read_to_string(&file).unwrap_or_default())?;
    let mut counts = BTreeMap::new();
    println!("{:<24}{:>14}{:>14}{:>8}", "path", "instructions", "recorded", "ratio");
    for name in names.lines() {
        // Fills the cache of compiled components.
        count(&program, name, 0)?;
        let cost = count(&program, name, MANY)?.saturating_sub(count(&program, name, FEW)?) / (MANY - FEW);
        let before = recorded.get(name).copied();
        let ratio = before.map_or(f64::NAN, |before| cost as f64 / before as f64);
        println!("{name:<24}{cost:>14}{:>14}{ratio:>8.2}", before.unwrap_or_default());
        counts.insert(name.to_owned(), cost);
    }
    if is_update {
        let lines: String = counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
        return fs::write(&file, lines).with_context(|| file.display().to_string());
    }
    let growth = growth(&recorded, &counts);
    ensure!(
        growth.is_empty(),
        "{}\nif that is intended, run `cargo xtask instructions --update` and commit {RECORDED}",
        growth.join("\n")
    );
    Ok(())
}

/// Returns a sentence for each path that costs much more than recorded, or has no recorded cost.
fn growth(recorded: &BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) -> Vec<String> {
    let sentence = |(name, count): (&String, &u64)| match recorded.get(name) {
        None => Some(format!("{name} is not in {RECORDED}")),
        Some(before) if *count as f64 > *before as f64 * MARGIN => {
            Some(format!("{name} takes {count} instructions, {before} before"))
        }
        Some(_) => None,
    };
    counts.iter().filter_map(sentence).collect()
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let parse = |line: &str| {
        let (name, count) = line.split_once(' ').with_context(|| format!("{RECORDED}: `{line}` is not NAME COUNT"))?;
        Ok((name.to_owned(), count.parse().with_context(|| format!("{RECORDED}: {line}"))?))
    };
    text.lines().map(parse).collect()
}

/// Returns true if valgrind can be started, after installing it on Debian if necessary.
fn has_valgrind() -> bool {
    let starts = || Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !starts() {
        eprintln!("installing Debian's valgrind to count instructions");
        toolchain::install_debian_package("valgrind");
    }
    starts()
}

/// Returns the number of instructions of the program when it takes a path `times` times.
fn count(program: &Path, name: &str, times: u64) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]).arg(program);
    // Wasmtime makes errors in ordinary calls, whose backtraces would count.
    command.env_remove("RUST_BACKTRACE");
    let output = command.args([name, &times.to_string()]).stdout(Stdio::null()).output()?;
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {report}");
    let Some((_, count)) = report.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")))
    else {
        bail!("valgrind printed no count: {report}");
    };
    Ok(count.trim().replace(',', "").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_grew_or_is_new_is_reported() {
        let recorded = parse("turn 1000\nevent 50\n").unwrap();
        assert!(growth(&recorded, &parse("turn 1190\nevent 20\n").unwrap()).is_empty());
        assert_eq!(
            growth(&recorded, &parse("turn 1201\nsearch 5\n").unwrap()),
            ["search is not in tests/instructions.txt", "turn takes 1201 instructions, 1000 before"]
        );
        assert!(parse("turn").unwrap_err().to_string().ends_with("`turn` is not NAME COUNT"));
    }
}
