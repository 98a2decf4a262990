//! The verbs, one file each. A new verb is a file and a line in each of the two places below.

mod build;
mod compile;
mod doctor;
mod inspect;
mod new;
mod pull;
mod push;
mod rollback;
mod run;
mod serve;
mod test;
mod trust;

use clap::Subcommand;

/// Exit code of a process that needed a person's decision, and had nobody to ask.
pub const UNDECIDED_EXIT_CODE: u8 = 3;

/// How a verb ended when nothing was wrong with how it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Success,
    /// Exit code 1; what failed has been said already.
    Failure,
    /// Exit code 3: a tool call waits for approval, and there was nobody to ask; what to do has been said already.
    Undecided,
    /// Exit code 130: a signal asked it to stop before it was done.
    Interrupted,
}

/// What to do.
#[derive(Subcommand)]
pub enum Verb {
    /// Serve the agents of a folder over HTTP
    Serve(serve::Args),
    /// Chat with an agent in the terminal
    Run(run::Args),
    /// Begin a component or a YAML agent from a template
    New(new::Args),
    /// Build a component from sources in Rust, Python or JavaScript
    Build(build::Args),
    /// Show what components export and want
    Inspect(inspect::Args),
    /// Put an earlier revision of a component back in its place
    Rollback(rollback::Args),
    /// Play scripted conversations and compare
    Test(test::Args),
    /// Say what works in a folder, what does not, and what to do
    Doctor(doctor::Args),
    /// Decide whether a folder's hatchery.yaml may access anything outside of the folder
    Trust(trust::Args),
    /// Compile components ahead into the cache of compiled code
    Compile(compile::Args),
    /// Put a component into a registry
    Push(push::Args),
    /// Get components from registries, and verify those that are there
    Pull(pull::Args),
}

impl Verb {
    /// What is logged when nobody says anything else.
    pub fn default_log_level(&self) -> &'static str {
        match self {
            Self::Serve(_) => "info,notify=warn",
            // They show failed runs themselves.
            Self::Run(_) | Self::Test(_) => "warn,hatchery_engine::runner=error",
            // It says itself what is wrong.
            Self::Doctor(_) => "error",
            Self::New(_)
            | Self::Build(_)
            | Self::Inspect(_)
            | Self::Rollback(_)
            | Self::Trust(_)
            | Self::Compile(_)
            | Self::Push(_)
            | Self::Pull(_) => "warn",
        }
    }

    /// Does it.
    pub async fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(args) => serve::run(args).await,
            Self::Run(args) => run::run(args).await,
            Self::New(args) => new::run(args),
            Self::Build(args) => build::run(args),
            Self::Inspect(args) => inspect::run(args).await,
            Self::Rollback(args) => rollback::run(args),
            Self::Test(args) => test::run(args).await,
            Self::Doctor(args) => doctor::run(args).await,
            Self::Trust(args) => trust::run(args),
            Self::Compile(args) => compile::run(args).await,
            Self::Push(args) => push::run(args).await,
            Self::Pull(args) => pull::run(args).await,
        }
    }
}
