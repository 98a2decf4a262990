//! `hatchery models`: lists the model providers and their missing settings.

use std::io::{self, Write};
use std::path::PathBuf;

use hatchery::services::{self, Scripts};
use serde_json::{Value, json};

use crate::dotenv::{self, DotEnvSource};
use crate::files::require_folder;
use crate::host::{ConfigArgs, explain_trust};
use crate::outcome::Outcome;
use crate::terminal::{BOLD, DIM, SUCCESS, WARNING, escape_control, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery models\n  hatchery models my-agents --json\n\n\
    Reads the environment, the keys in DIR/.env, and DIR/hatchery.yaml. Nothing is sent to a provider, so a key that is set may still be \
    rejected. The models that components export are shown by `hatchery inspect`.")]
pub struct Args {
    /// The served folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.config)
    }
}

/// A model provider.
struct Provider {
    label: &'static str,
    models: Vec<&'static str>,
    embedders: Vec<&'static str>,
    base_url: Option<String>,
    missing: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    require_folder(&args.dir)?;
    let loaded = args.config.source(&args.dir).load()?;
    let registry = services::model_providers(&loaded.config, &Scripts::in_folder(&args.dir, &loaded.config));
    let providers: Vec<_> = registry
        .providers()
        .map(|provider| Provider {
            label: provider.label,
            models: provider.patterns,
            embedders: provider.embedder_patterns,
            base_url: provider.base_url,
            missing: provider.missing,
        })
        .collect();
    let fallbacks = &loaded.config.models.fallback;
    if args.json {
        let providers: Vec<_> = providers.iter().map(to_json).collect();
        let list = json!({
            "providers": providers,
            "fallback": fallbacks,
            "embedders": [services::DEFAULT_EMBEDDER],
        });
        writeln!(plain_stdout(), "{list}")?;
    } else {
        print(&providers, &mut stdout())?;
        for (name, others) in fallbacks {
            let line = format!("if `{name}` fails: {}", others.join(", "));
            writeln!(stdout(), "{}", escape_control(&line))?;
        }
    }
    if let Some(explanation) = explain_trust(&loaded) {
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {}", escape_control(&explanation));
    }
    Ok(Outcome::Success)
}

fn to_json(provider: &Provider) -> Value {
    json!({
        "provider": provider.label,
        "models": provider.models,
        "embedders": provider.embedders,
        "baseUrl": provider.base_url,
        "isUsable": provider.missing.is_none(),
        "missing": provider.missing,
    })
}

fn print(providers: &[Provider], out: &mut impl Write) -> io::Result<()> {
    let width = providers.iter().map(|provider| provider.label.len()).max().unwrap_or_default();
    for provider in providers {
        let Provider { label, models, embedders, base_url, missing } = provider;
        let (mark, style) = if missing.is_none() { ("✓", SUCCESS) } else { ("✗", WARNING) };
        write!(out, "{style}{mark}{style:#} {BOLD}{label:<width$}{BOLD:#}  {}", models.join(", "))?;
        match (missing, base_url) {
            (Some(missing), _) => writeln!(out, "  {WARNING}set {missing}{WARNING:#}")?,
            (None, Some(url)) => writeln!(out, "  {DIM}{}{DIM:#}", escape_control(url))?,
            (None, None) => writeln!(out)?,
        }
        if !embedders.is_empty() {
            writeln!(out, "  {:<width$}  {DIM}embeddings: {}{DIM:#}", "", embedders.join(", "))?;
        }
    }
    writeln!(out, "{SUCCESS}✓{SUCCESS:#} {DIM}embeddings without a provider: {}{DIM:#}", services::DEFAULT_EMBEDDER)?;
    if providers.iter().any(|provider| provider.missing.is_some()) {
        writeln!(
            out,
            "set variables in the environment; keys can also be lines NAME=… of the file {}",
            dotenv::FILE_NAME
        )?;
    }
    Ok(())
}
