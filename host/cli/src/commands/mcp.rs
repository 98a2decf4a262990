//! `hatchery mcp`: the agents and tools of a folder for one MCP client, over standard input and output.

use std::path::PathBuf;

use hatchery_core::CallerOrigin;

use crate::dotenv::DotEnvSource;
use crate::host::{self, ConfigArgs, StorageArgs, explain_trust};
use crate::interrupts::Interrupts;
use crate::outcome::Outcome;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery mcp my-agents\n  hatchery mcp my-agents --tools 'dice/*'\n\n\
    An MCP client starts this command and talks to it over standard input and output. Each agent is a tool `run_NAME`. Tools of \
    components are exposed by `mcp.expose.tools` of hatchery.yaml and by --tools. Log lines go to stderr.")]
pub struct Args {
    /// The folder with components (*.wasm) and YAML agents (NAME/root_agent.yaml)
    dir: PathBuf,
    /// Expose these tools in addition to the tools in hatchery.yaml: `COMPONENT/TOOL`, where `*` is a wildcard
    #[arg(long, value_name = "PATTERN")]
    tools: Vec<String>,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut interrupts = Interrupts::listen()?;
    let mut builder = host::builder(args.config.source(&args.dir), &args.storage).watch(true);
    if let Some(explanation) = explain_trust(builder.read_config()?) {
        tracing::warn!("{explanation}");
    }
    let Some(host) = interrupts.race(host::start(builder)).await.transpose()? else {
        return Ok(Outcome::Interrupted);
    };
    let service = host.mcp_service(CallerOrigin::Cli, args.tools);
    let served = service.serve_stdio(interrupts.next()).await;
    host.close().await;
    match served {
        Ok(()) => Ok(Outcome::Success),
        Err(reason) => anyhow::bail!("the MCP client did not complete the handshake: {reason}"),
    }
}
