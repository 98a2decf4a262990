//! The `hatchery` command: one file per verb in `verbs/`. Results go to stdout, everything else to stderr.

#[cfg(not(target_env = "msvc"))]
mod allocator;
mod audit;
mod chat;
mod compiler;
mod conversation;
mod doctor;
mod files;
mod host;
mod interrupt;
mod languages;
mod logs;
mod open_calls;
mod progress;
mod recordings;
mod report;
mod template;
mod terminal;
mod verbs;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Parser;

use logs::LogFormat;
use verbs::{Outcome, Verb};

/// Serves AI agents, tools and callbacks that are WebAssembly components.
#[derive(Parser)]
#[command(name = "hatchery", version, max_term_width = 100)]
struct Cli {
    /// How log lines look; which ones are written is up to HATCHERY_LOG (such as `debug` or `hatchery_wasm=trace`)
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    if let Some(code) = compiler::run_worker() {
        return code;
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Failure) => ExitCode::FAILURE,
        Ok(Outcome::Undecided) => ExitCode::from(verbs::UNDECIDED_EXIT_CODE),
        Ok(Outcome::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) if terminal::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{}error:{:#} {}", terminal::ERROR, terminal::ERROR, terminal::explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Outcome> {
    logs::start(cli.log_format, cli.verb.default_log_level())?;
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(cli.verb.run());
    // Reading stdin blocks a thread that cannot be woken; waiting for it would hang.
    runtime.shutdown_background();
    outcome
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
    fn every_verb_has_a_help_text_with_an_example() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{} says nothing about itself", verb.get_name());
            let example = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains(&format!("hatchery {}", verb.get_name())), "{} has no example", verb.get_name());
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        assert!(error(&["fly"]).contains("unrecognized subcommand 'fly'"));
        assert!(error(&["serve"]).contains("<DIR>"));
        assert!(error(&["serve", ".", "--port", "99999"]).contains("99999"));
        assert!(error(&["serve", ".", "--log-format", "xml"]).contains("[possible values: text, json]"));
        assert!(error(&["serve", ".", "--memory", "--data-dir", "x"]).contains("cannot be used with"));
        assert!(error(&["new", "x", "--kind", "model"]).contains("[possible values: agent, tool, callback, yaml]"));
        assert!(error(&["run", "x", "--yes", "--no"]).contains("cannot be used with"));
        assert!(error(&["trust", ".", "--yes", "--list"]).contains("cannot be used with"));
        assert!(error(&["inspect"]).contains("<FILE_OR_DIR>"));
        assert!(error(&["test", ".", "--message", "x"]).contains("--message"));
        assert!(error(&["doctor", ".", "--fix"]).contains("--fix"));
        assert!(error(&["compile", ".", "x"]).contains("'x'"));
        assert!(error(&["push", "x.wasm"]).contains("<REFERENCE>"));
        assert!(error(&["push", "x.wasm", "team/x:1"]).contains("does not start with the host of a registry"));
        assert!(error(&["pull", ".", "--name", "x"]).contains("REFERENCE"));
        assert!(error(&["pull", ".", "--signatures", "on"]).contains("is not `off`, `warn` or `require`"));
        assert!(error(&["pull", ".", "--trust", "x"]).contains("not a minisign public key"));
    }
}
