//! `hatchery schema`: the JSON Schemas of the YAML files, for editors.

use std::io::Write;

use clap::ValueEnum;
use hatchery::Config;
use hatchery_engine::yaml;

use crate::outcome::Outcome;
use crate::terminal::plain_stdout;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery schema > hatchery.schema.json\n  hatchery schema agent > agent.schema.json\n\n\
    Editors with the YAML language server complete and check a file that begins with:\n  \
    # yaml-language-server: $schema=hatchery.schema.json"
)]
pub struct Args {
    /// The file that the schema describes
    #[arg(value_enum, default_value_t = SchemaKind::Config)]
    file: SchemaKind,
}

/// A file with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaKind {
    /// hatchery.yaml
    Config,
    /// root_agent.yaml and the files of its sub agents
    Agent,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let schema = match args.file {
        SchemaKind::Config => Config::json_schema(),
        SchemaKind::Agent => yaml::json_schema(),
    };
    writeln!(plain_stdout(), "{}", serde_json::to_string_pretty(&schema)?)?;
    Ok(Outcome::Success)
}
