//! Build, test and release chores: `cargo xtask demo`, `cargo xtask test`, `cargo xtask dist` and so on.
//!
//! The demo and the tests build everything native in the dev profile and with the same features, so that they share one
//! build. The target folder is cargo's: `CARGO_TARGET_DIR` and `build.target-dir` are honoured.

mod components;
mod conformance;
mod demo;
mod dist;
mod fuzz;
mod instructions;
mod languages;
mod load;
mod pgo;
mod step;
mod toolchain;
mod ui;
mod workspace;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use components::Components;
use languages::Projects;
use step::{CommandFailed, Steps};
use workspace::Workspace;

/// Build, test and release chores
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the host and the samples, and serve sample-agents on this machine
    #[command(after_help = "Example:\n  cargo xtask demo --port 9000")]
    Demo {
        /// The port to listen on; 0 for any free one
        #[arg(long, env = "HATCHERY_PORT", default_value_t = 8080)]
        port: u16,
    },
    /// Build the samples that the demo does not wait for
    #[command(hide = true)]
    SlowSamples {
        /// Return at once and build in the background
        #[arg(long)]
        detach: bool,
    },
    /// Build the components and the host, and run every test
    #[command(after_help = "Example:\n  cargo xtask test\n  cargo xtask test hot_loading -- --nocapture")]
    Test {
        /// Arguments for `cargo test --workspace`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Load the host with well-behaved, swapped and hostile components at once, and watch its memory and file
    /// descriptors
    #[command(after_help = "Example:\n  cargo xtask soak --minutes 30")]
    Soak {
        /// Duration
        #[arg(long, default_value_t = 5.0)]
        minutes: f64,
        /// Print the measurements as one JSON object at the end instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Measure the release build over HTTP, beside a bare axum server: throughput, CPU time, latency, starts, long
    /// sessions
    #[command(
        after_help = "Examples:\n  cargo xtask load\n  cargo xtask load --rivals\n  cargo xtask load --seconds 10 --filter SQLite --json"
    )]
    Load(load::Arguments),
    /// Count the instructions of twelve hot paths with valgrind, and compare them with tests/instructions.txt
    #[command(after_help = "Example:\n  cargo xtask instructions --update")]
    Instructions {
        /// Record the counts instead of comparing them
        #[arg(long)]
        update: bool,
    },
    /// Fuzz the parsers of untrusted input with libFuzzer
    #[command(after_help = "Example:\n  cargo xtask fuzz event --seconds 60")]
    Fuzz {
        /// A fuzz target, named like a folder of tests/fuzz/corpus; all if omitted
        target: Option<String>,
        /// Duration for each target
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// Run a public conformance suite; needs a network the first time
    #[command(
        after_help = "Examples:\n  cargo xtask conformance mcp\n  cargo xtask conformance a2a\n  cargo xtask conformance http"
    )]
    Conformance(conformance::Arguments),
    /// Build the components of sample-agents and of tests/components
    #[command(after_help = "Example:\n  cargo xtask components")]
    Components,
    /// Check, test and build the developer UI, host/ui
    #[command(after_help = "Example:\n  cargo xtask ui --check")]
    Ui {
        /// Compare with the committed host/ui/dist instead of replacing it
        #[arg(long)]
        check: bool,
    },
    /// Build a release: a stripped binary in an archive, with its checksum and a folder for a container image
    #[command(after_help = "Example:\n  cargo xtask dist")]
    Dist,
}

const TOOLCHAIN: &str = "toolchain: a C compiler, the target wasm32-wasip2";
const HOST: &str = "host: the hatchery command";

/// The feature that sets the allocator of distributions and benches.
const ALLOCATOR: &str = "hatchery-cli/jemalloc";

/// The features with the models of third-party libraries.
const MODEL_LIBRARIES: &str = "hatchery-models/genai,hatchery-models/rig";
const LANGUAGES: &str = "components in Python and JavaScript";

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            // A command that failed has printed its own error; its exit code becomes ours.
            error.downcast_ref::<CommandFailed>().map_or(ExitCode::FAILURE, CommandFailed::exit_code)
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    match task {
        Task::Demo { port } => demo::serve(&workspace, port),
        Task::SlowSamples { detach: true } => demo::detach_slow_samples(),
        Task::SlowSamples { detach: false } => demo::build_slow_samples(&workspace),
        Task::Test { args } => test(&workspace, &args),
        Task::Soak { minutes, json } => soak(&workspace, minutes, json),
        Task::Load(arguments) => load::run(&workspace, &arguments),
        Task::Instructions { update } => instructions::run(&workspace, update),
        Task::Fuzz { target, seconds } => fuzz(&workspace, target.as_deref(), seconds),
        Task::Conformance(arguments) => conformance::run(&workspace, &arguments),
        Task::Components => components(&workspace),
        Task::Ui { check } => ui::build(&workspace, check),
        Task::Dist => dist::build(&workspace),
    }
}

fn test(workspace: &Workspace, args: &[OsString]) -> anyhow::Result<()> {
    let components = Components::all(workspace)?;
    let projects = Projects::all(workspace, components.folder());
    // Arguments choose some of cargo's tests.
    let is_complete = args.is_empty();
    let mut steps = Steps::new(if is_complete { 10 } else { 7 });
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    steps.run("tests of samples with a workspace of their own", || components.test_standalone(workspace))?;
    steps.run(HOST, || build_host(workspace))?;
    steps.run(&format!("{LANGUAGES}: {projects}"), || projects.build(workspace))?;
    steps.run("tests of the SDKs for Python and JavaScript", || languages::test_sdks(workspace))?;
    steps.run("tests: cargo test --workspace", || {
        let mut cargo = workspace.cargo(["test", "--workspace"]);
        step::run_command(cargo.args(args).env(components::FOLDER_VARIABLE, components.folder()))
    })?;
    if is_complete {
        // Apart, so that everything else is built without these libraries.
        steps.run("tests of the models of libraries", || {
            let test = ["test", "--workspace", "--test", "models", "--features", MODEL_LIBRARIES];
            step::run_command(workspace.cargo(test).args(["--", "conformance", "secrets"]))
        })?;
        steps.run("the developer UI: its checks, and whether dist is built from it", || {
            ui::check_if_possible(workspace)
        })?;
        steps.run("tests of the developer UI in a browser", || ui::test_in_browser(workspace, components.folder()))?;
    }
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
        let build = ["build", "--workspace", "--bin", "hatchery", "--example", "soak", "--features", ALLOCATOR];
        step::run_command(&mut workspace.cargo(build))
    })?;
    steps.run(&format!("soak: {minutes} minutes"), || {
        let mut soak = Command::new(workspace.host_binary()?.with_file_name("examples").join("soak"));
        soak.arg(minutes.to_string()).args(is_json.then_some("--json"));
        step::run_command(soak.env(components::FOLDER_VARIABLE, components.folder()))
    })?;
    steps.finish();
    Ok(())
}

fn fuzz(workspace: &Workspace, target: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    let targets = fuzz::select(fuzz::targets(workspace)?, target)?;
    let mut steps = Steps::new(2 + targets.len());
    steps.run("cargo-fuzz", fuzz::install)?;
    steps.run("the fuzz targets with libFuzzer", || fuzz::build(workspace))?;
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
    steps.run(HOST, || build_host(workspace))?;
    steps.run(&format!("{LANGUAGES}: {projects}"), || projects.build(workspace))?;
    steps.finish();
    Ok(())
}

/// Builds the host as `cargo test --workspace` does. Cargo unifies the features of everything that one command builds,
/// and features that only tests need count as soon as one test is among it; with the smallest test beside the host, the
/// tests find the host built.
fn build_host(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_command(&mut workspace.cargo(["build", "--workspace", "--bin", "hatchery", "--test", "crate_borders"]))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Task {
        Cli::try_parse_from(std::iter::once("cargo xtask").chain(args.iter().copied())).unwrap().task
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_test_go_to_cargo() {
        let Task::Test { args } = parse(&["test", "hot_loading", "--", "--nocapture"]) else { panic!("not `test`") };
        assert_eq!(args, ["hot_loading", "--", "--nocapture"]);
    }

    #[test]
    fn fuzzing_takes_ten_minutes_for_each_target_by_default() {
        assert!(matches!(parse(&["fuzz"]), Task::Fuzz { target: None, seconds: 600 }));
        let Task::Fuzz { target, seconds } = parse(&["fuzz", "event", "--seconds", "9"]) else { panic!("not `fuzz`") };
        assert_eq!((target.as_deref(), seconds), (Some("event"), 9));
    }

    #[test]
    fn the_demo_takes_a_port() {
        assert!(matches!(parse(&["demo", "--port", "9000"]), Task::Demo { port: 9000 }));
    }
}
