//! The commands, one file each. A new command is a file here and a line in each of the three lists below.

mod backup;
pub mod build;
mod compile;
mod completions;
mod dev;
mod doctor;
mod eval;
mod grant;
mod inspect;
mod login;
mod mcp;
mod memory;
mod models;
mod new;
mod pull;
mod push;
mod rollback;
mod run;
mod schema;
mod serve;
mod sessions;
mod test;
mod top;
mod trust;

use clap::Subcommand;

use crate::dotenv::DotEnvSource;
use crate::outcome::Outcome;

// In the order of the help text: writing agents, serving them, access, components, data, and the rest.
#[derive(Subcommand)]
pub enum Command {
    /// Create a component or a YAML agent from a template
    New(new::Args),
    /// Serve a folder, and rebuild its components when their sources change
    Dev(dev::Args),
    /// Chat with an agent in the terminal
    Run(run::Args),
    /// Run scripted conversations and compare the results
    Test(test::Args),
    /// Evaluate an app on sets of conversations, and score its tool calls and responses
    Eval(eval::Args),
    /// Build a component from Rust, Python, JavaScript or TypeScript sources
    Build(build::Args),
    /// Serve the agents of a folder over HTTP
    Serve(serve::Args),
    /// Serve the agents and tools of a folder to one MCP client over standard input and output
    Mcp(mcp::Args),
    /// Check a folder and suggest fixes
    Doctor(doctor::Args),
    /// Show what components export, import and are granted
    Inspect(inspect::Args),
    /// List the model providers and their missing settings
    Models(models::Args),
    /// Add the grants that a component requests to hatchery.yaml
    Grant(grant::Args),
    /// Allow or deny a folder's hatchery.yaml access to resources outside of the folder
    Trust(trust::Args),
    /// Authorize the host at an MCP server by OAuth, in a browser
    Login(login::Args),
    /// Upload a component to a registry
    Push(push::Args),
    /// Download components from registries and verify them
    Pull(pull::Args),
    /// Restore an earlier revision of a component
    Rollback(rollback::Args),
    /// Compile components into the cache ahead of time
    Compile(compile::Args),
    /// List, show, export, import and delete stored sessions
    Sessions(sessions::Args),
    /// Search, list, add and delete memory entries of users
    Memory(memory::Args),
    /// Back up the data of a host, even while it runs
    Backup(backup::Args),
    /// Show the runs, components and memory of a running host
    Top(top::Args),
    /// Print the JSON Schema of hatchery.yaml or of agents, for editors
    Schema(schema::Args),
    /// Print the completion script of a shell, or write the man pages
    Completions(completions::Args),
}

impl Command {
    /// Returns the log filter that is used if `HATCHERY_LOG` is not set.
    pub fn default_log_filter(&self) -> &'static str {
        match self {
            // `notify` warns of folders that were removed while it watched them.
            Self::Serve(_) => "info,notify=error,rmcp=warn",
            // The command prints its builds itself, and each change of the apps is a line of the host.
            Self::Dev(_) => "info,notify=error,rmcp=warn,hatchery_wasm::catalog=warn",
            // These commands print failed runs and files that are not loaded themselves. Log lines of components are
            // shown to their author.
            Self::Run(_) => {
                "warn,hatchery_engine::runner=error,hatchery_models::scripted=error,hatchery_wasm::catalog=error,\
                 hatchery::component=info"
            }
            Self::Test(_) | Self::Eval(_) => {
                "warn,hatchery_engine::runner=error,hatchery_models::scripted=error,hatchery_wasm::catalog=error"
            }
            // The report contains the warnings.
            Self::Doctor(_) => "error",
            _ => "warn",
        }
    }

    /// Returns true for commands that run components for the people who write them.
    pub fn is_for_authors(&self) -> bool {
        matches!(self, Self::Dev(_) | Self::Run(_) | Self::Test(_) | Self::Eval(_))
    }

    /// Returns the `.env` files to read. `None` for commands that need no keys.
    pub fn dotenv(&self) -> Option<DotEnvSource> {
        match self {
            Self::Serve(args) => Some(args.dotenv()),
            Self::Dev(args) => Some(args.dotenv()),
            Self::Run(args) => Some(args.dotenv()),
            Self::Test(args) => Some(args.dotenv()),
            Self::Eval(args) => Some(args.dotenv()),
            Self::Doctor(args) => Some(args.dotenv()),
            Self::Mcp(args) => Some(args.dotenv()),
            Self::Models(args) => Some(args.dotenv()),
            Self::Login(args) => Some(args.dotenv()),
            _ => None,
        }
    }

    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(args) => serve::run(args).await,
            Self::Dev(args) => dev::run(args).await,
            Self::Run(args) => run::run(args).await,
            Self::Mcp(args) => mcp::run(args).await,
            Self::New(args) => new::run(args),
            Self::Build(args) => build::run(args).await,
            Self::Inspect(args) => inspect::run(args).await,
            Self::Rollback(args) => rollback::run(args),
            Self::Test(args) => test::run(args).await,
            Self::Eval(args) => eval::run(args).await,
            Self::Doctor(args) => doctor::run(args).await,
            Self::Sessions(args) => sessions::run(args).await,
            Self::Memory(args) => memory::run(args).await,
            Self::Top(args) => top::run(args).await,
            Self::Backup(args) => backup::run(args).await,
            Self::Models(args) => models::run(&args),
            Self::Grant(args) => grant::run(args).await,
            Self::Trust(args) => trust::run(args),
            Self::Login(args) => login::run(args).await,
            Self::Compile(args) => compile::run(args).await,
            Self::Push(args) => push::run(args).await,
            Self::Pull(args) => pull::run(args).await,
            Self::Schema(args) => schema::run(&args),
            Self::Completions(args) => completions::run(args),
        }
    }
}
