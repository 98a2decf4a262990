//! Build and test chores: `cargo xtask demo`, `cargo xtask test`, `cargo xtask components`.
//!
//! Everything native is built in the dev profile and with the same features, so that the demo and the tests share one build. Where it
//! lands is cargo's business: `CARGO_TARGET_DIR` and `build.target-dir` are honoured.

mod components;
mod fuzz;
mod languages;
mod step;
mod toolchain;
mod workspace;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};

use components::Components;
use languages::Projects;
use step::{Failed, Steps};
use workspace::Workspace;

/// Build and test chores
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the sample components and the host, and serve sample-agents on this machine
    #[command(after_help = "Example:\n  cargo xtask demo --port 9000")]
    Demo {
        /// The port to listen on; 0 for any free one
        #[arg(long, env = "HATCHERY_PORT", default_value_t = 8080)]
        port: u16,
    },
    /// Build the components and the host, and run every test
    #[command(after_help = "Example:\n  cargo xtask test\n  cargo xtask test hot_loading -- --nocapture")]
    Test {
        /// Passed on to `cargo test --workspace`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Put the host under good, swapped and hostile components at once, and watch its memory and handles
    #[command(after_help = "Example:\n  cargo xtask soak --minutes 30")]
    Soak {
        /// How long it goes on
        #[arg(long, default_value_t = 5.0)]
        minutes: f64,
        /// Print every number as one JSON object at the end, instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Look for bytes that break the host where bytes of strangers come in, with libFuzzer
    #[command(after_help = "Example:\n  cargo xtask fuzz event --seconds 60")]
    Fuzz {
        /// The door, a folder of tests/fuzz/corpus; all of them when left out
        target: Option<String>,
        /// How long each is tried
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// Build the sample components, and those that only tests use
    #[command(after_help = "Example:\n  cargo xtask components")]
    Components,
}

const TOOLCHAIN: &str = "toolchain: a C compiler, the target wasm32-wasip2";
const HOST: &str = "host: the hatchery command";
const LANGUAGES: &str = "components in Python and JavaScript";

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            // A command that ran and failed has said why; its exit code is ours.
            error.downcast_ref::<Failed>().map_or(ExitCode::FAILURE, Failed::exit_code)
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    match verb {
        Verb::Demo { port } => demo(&workspace, port),
        Verb::Test { args } => test(&workspace, &args),
        Verb::Soak { minutes, json } => soak(&workspace, minutes, json),
        Verb::Fuzz { target, seconds } => fuzz(&workspace, target.as_deref(), seconds),
        Verb::Components => components(&workspace),
    }
}

fn demo(workspace: &Workspace, port: u16) -> anyhow::Result<()> {
    let samples = Components::of_samples(workspace)?;
    let projects = Projects::of_samples(workspace);
    let mut steps = Steps::new(5);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {samples}"), || samples.build(workspace))?;
    steps.run(HOST, || host(workspace))?;
    steps.run(&format!("{LANGUAGES}: {projects}"), || projects.build(workspace))?;
    steps.announce(&format!("hatchery serve sample-agents --port {port}, until Ctrl-C"));
    let mut serve = Command::new(workspace.host_binary()?);
    serve.args(["serve", "sample-agents", "--host", "127.0.0.1", "--port", &port.to_string()]);
    // The samples are the repository's own: what they ask for outside of their folder is given.
    serve.args(["--config", "sample-agents/hatchery.yaml"]);
    // The host takes the place of this process, so that signals reach it and its exit code is the demo's.
    Err(serve.current_dir(&workspace.root).exec()).context("cannot start the host")
}

fn test(workspace: &Workspace, args: &[OsString]) -> anyhow::Result<()> {
    let components = Components::all(workspace)?;
    let projects = Projects::all(workspace, components.folder());
    let mut steps = Steps::new(7);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    steps.run("tests of samples that are workspaces of their own", || components.test_apart(workspace))?;
    steps.run(HOST, || host(workspace))?;
    steps.run(&format!("{LANGUAGES}: {projects}"), || projects.build(workspace))?;
    steps.run("tests of the SDKs for Python and JavaScript", || languages::test_sdks(workspace))?;
    steps.run("tests: cargo test --workspace", || {
        let mut cargo = workspace.cargo(["test", "--workspace"]);
        step::succeed(cargo.args(args).env(components::FOLDER_VARIABLE, components.folder()))
    })?;
    steps.finish();
    Ok(())
}

fn soak(workspace: &Workspace, minutes: f64, is_json: bool) -> anyhow::Result<()> {
    let components = Components::all(workspace)?;
    let mut steps = Steps::new(4);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    // Built with the whole workspace, as tests are, so that nothing is built twice.
    steps.run(HOST, || {
        step::succeed(&mut workspace.cargo(["build", "--workspace", "--bin", "hatchery", "--example", "soak"]))
    })?;
    steps.run(&format!("soak: {minutes} minutes"), || {
        let mut soak = Command::new(workspace.host_binary()?.with_file_name("examples").join("soak"));
        soak.arg(minutes.to_string()).args(is_json.then_some("--json"));
        step::succeed(soak.env(components::FOLDER_VARIABLE, components.folder()))
    })?;
    steps.finish();
    Ok(())
}

fn fuzz(workspace: &Workspace, target: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    let targets = fuzz::choose(fuzz::targets(workspace)?, target)?;
    let mut steps = Steps::new(2 + targets.len());
    steps.run("cargo-fuzz", fuzz::prepare)?;
    steps.run("the doors for libFuzzer", || fuzz::build(workspace))?;
    for target in &targets {
        steps.run(&format!("{target}: {seconds} s"), || fuzz::run(workspace, target, seconds))?;
    }
    steps.finish();
    Ok(())
}

fn components(workspace: &Workspace) -> anyhow::Result<()> {
    let components = Components::all(workspace)?;
    let projects = Projects::all(workspace, components.folder());
    let mut steps = Steps::new(4);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    steps.run(HOST, || host(workspace))?;
    steps.run(&format!("{LANGUAGES}: {projects}"), || projects.build(workspace))?;
    steps.finish();
    Ok(())
}

/// Builds the host as `cargo test --workspace` does. Cargo chooses the features of dependencies for all that it builds at once, and those
/// that only tests ask for count as soon as one test is among it: with the smallest test beside the host, the tests find it built.
fn host(workspace: &Workspace) -> anyhow::Result<()> {
    step::succeed(&mut workspace.cargo(["build", "--workspace", "--bin", "hatchery", "--test", "crate_borders"]))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Verb {
        Cli::try_parse_from(std::iter::once("cargo xtask").chain(args.iter().copied())).unwrap().verb
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_test_goes_to_cargo() {
        let Verb::Test { args } = parse(&["test", "hot_loading", "--", "--nocapture"]) else { panic!("not `test`") };
        assert_eq!(args, ["hot_loading", "--", "--nocapture"]);
    }

    #[test]
    fn fuzzing_takes_ten_minutes_for_each_target_unless_told_otherwise() {
        assert!(matches!(parse(&["fuzz"]), Verb::Fuzz { target: None, seconds: 600 }));
        let Verb::Fuzz { target, seconds } = parse(&["fuzz", "event", "--seconds", "9"]) else { panic!("not `fuzz`") };
        assert_eq!((target.as_deref(), seconds), (Some("event"), 9));
    }

    #[test]
    fn the_demo_takes_a_port() {
        assert!(matches!(parse(&["demo", "--port", "9000"]), Verb::Demo { port: 9000 }));
    }
}
