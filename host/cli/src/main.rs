//! The `hatchery` command line: one file per command in `commands/`. Results go to stdout, everything else to stderr.

#[cfg(all(feature = "jemalloc", not(target_env = "msvc")))]
mod allocator;
mod audit;
mod chat;
mod commands;
mod compiler;
mod config_edit;
mod conversation;
mod doctor;
mod dotenv;
mod eval_report;
mod files;
mod flags;
mod host;
mod inspection;
mod interrupts;
mod languages;
mod logs;
mod outcome;
mod progress;
mod projects;
mod recordings;
mod rejections;
mod service_args;
mod session_tests;
mod systemd;
mod template;
mod terminal;
mod test_report;
mod watchdog;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Parser;

use commands::Command;
use dotenv::DotEnv;
use logs::LogFormat;
use outcome::Outcome;

/// Serves AI agents, tools and callbacks that are YAML files or WebAssembly components.
#[derive(Parser)]
#[command(
    name = "hatchery",
    version,
    max_term_width = 100,
    after_help = "First steps:\n  hatchery new hello --kind yaml\n  cd hello\n  hatchery run . -m 'I am Ada'\n  \
                  hatchery dev --open   # chat with it in the browser\n\n`hatchery COMMAND --help` has examples."
)]
struct Cli {
    /// Format of log lines on stderr; the variable HATCHERY_LOG sets their filter, such as `debug` or
    /// `hatchery_wasm=trace`
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = LogFormat::Text,
        value_name = "FORMAT",
        help_heading = "Global options"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    if let Some(code) = compiler::run_worker() {
        return code;
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(outcome) => outcome.into(),
        Err(error) if terminal::is_stdout_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let message = terminal::format_error(&error);
            let message = terminal::escape_control(&message);
            anstream::eprintln!("{}error:{:#} {message}", terminal::ERROR, terminal::ERROR);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Outcome> {
    // Before any thread is started.
    let mut dotenv = cli.command.dotenv().as_ref().map(DotEnv::read).transpose()?.unwrap_or_default();
    dotenv.apply();
    disable_error_backtraces();
    logs::start(cli.log_format, cli.command.default_log_filter(), cli.command.is_for_authors())?;
    dotenv.log();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("cannot install the TLS provider: another one is already installed"))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")?;
    let outcome = runtime.block_on(cli.command.run());
    // A thread that reads stdin cannot be woken, so waiting for it could hang.
    runtime.shutdown_background();
    outcome
}

/// Keeps libraries from recording backtraces in errors, unless RUST_LIB_BACKTRACE asks for them. Wasmtime creates an
/// error for each call of a component, and RUST_BACKTRACE, which is meant for panics, would add a backtrace to it.
fn disable_error_backtraces() {
    const VARIABLE: &str = "RUST_LIB_BACKTRACE";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: the caller is the main thread, and no other thread has been started.
        unsafe { std::env::set_var(VARIABLE, "0") };
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn error(args: &[&str]) -> String {
        let args = std::iter::once("hatchery").chain(args.iter().copied());
        Cli::try_parse_from(args).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_help_text_with_an_example() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "`{name}` has no help text");
            let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains(&format!("hatchery {name}")), "`{name}` has no example");
        }
    }

    #[test]
    fn the_help_begins_with_new_and_ends_with_the_first_steps() {
        let names: Vec<_> = Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(names.first().map(String::as_str), Some("new"));
        let help = Cli::command().render_help().to_string();
        for step in ["hatchery new hello --kind yaml\n", "hatchery run . -m 'I am Ada'\n", "hatchery dev --open"] {
            assert!(help.contains(step), "{step}");
        }
        assert!(Cli::try_parse_from(["hatchery", "new", "hello", "--kind", "yaml"]).is_ok());
        assert!(Cli::try_parse_from(["hatchery", "run", ".", "-m", "I am Ada"]).is_ok());
        assert!(Cli::try_parse_from(["hatchery", "dev", "--open"]).is_ok());
        for language in ["rust", "python", "py", "js", "javascript", "ts", "typescript"] {
            assert!(Cli::try_parse_from(["hatchery", "new", "x", "--lang", language]).is_ok(), "{language}");
        }
    }

    #[test]
    fn the_folder_is_the_current_one_by_default() {
        for command in ["serve", "run", "dev", "test", "inspect", "doctor", "build", "compile"] {
            assert!(Cli::try_parse_from(["hatchery", command]).is_ok(), "{command}");
        }
    }

    #[test]
    fn invalid_arguments_are_named() {
        assert!(error(&["fly"]).contains("unrecognized subcommand 'fly'"));
        assert!(error(&["serve", ".", "--port", "99999"]).contains("99999"));
        assert!(error(&["serve", ".", "--log-format", "xml"]).contains("[possible values: text, json]"));
        assert!(error(&["serve", ".", "--memory", "--data-dir", "x"]).contains("cannot be used with"));
        assert!(error(&["new", "x", "--kind", "model"]).contains("[possible values: agent, tool, callback, yaml]"));
        assert!(error(&["run", "x", "--yes", "--no"]).contains("cannot be used with"));
        assert!(error(&["trust", ".", "--yes", "--list"]).contains("cannot be used with"));
        assert!(error(&["test", ".", "--message", "x"]).contains("--message"));
        assert!(error(&["dev", ".", "--no-watch"]).contains("--no-watch"));
        assert!(error(&["doctor", ".", "--fix"]).contains("--fix"));
        assert!(error(&["compile", ".", "x"]).contains("'x'"));
        let memory = ["memory", "delete", "--app", "a", "--user", "u"];
        assert!(error(&memory).contains("<--session <SESSION>|--all>"));
        assert!(error(&[&memory[..], &["--session", "s", "--all"]].concat()).contains("cannot be used with"));
        assert!(error(&["push", "x.wasm"]).contains("<REFERENCE>"));
        assert!(error(&["push", "x.wasm", "team/x:1"]).contains("does not start with the host of a registry"));
        assert!(error(&["pull", ".", "--name", "x"]).contains("REFERENCE"));
        assert!(error(&["pull", ".", "--signatures", "on"]).contains("is not `off`, `warn` or `require`"));
        assert!(error(&["pull", ".", "--trust", "x"]).contains("not a minisign public key"));
        assert!(error(&["pull", ".", "--trust", "Cargo.toml"]).contains("not a minisign public key"), "a file");
    }
}
