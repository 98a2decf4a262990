//! `hatchery dev`: serves a folder and builds its components again whenever a source is saved.

mod browser;
mod projects;

use std::path::{Path, PathBuf};

use crate::commands::serve::{self, ServerArgs};
use crate::dotenv::DotEnvSource;
use crate::outcome::Outcome;

use self::projects::Projects;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cd dice && hatchery dev\n  hatchery dev my-agents --open\n\n\
                        Builds every project (Rust, Python or JavaScript) in the folder, serves the folder, and rebuilds a project \
                        when one of its files changes. A new version is active as soon as it is built; runs in progress finish \
                        with the version that they started with. If a build fails, its errors are shown and the previous \
                        version keeps serving. Keys are read from the file .env of the folder.")]
pub struct Args {
    /// The folder of one project, or a folder with projects and YAML agents
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Open the developer UI in the browser
    #[arg(long)]
    open: bool,
    /// Cargo profile of components in Rust
    #[arg(long, default_value = "dev")]
    profile: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.server.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let folder: &Path = &args.dir;
    let mut projects = Projects::find(folder, &args.profile)?;
    // A build can take minutes.
    serve::check_address(&args.server).await?;
    projects.build_changed().await;
    let builder = tokio::spawn(projects.watch());
    let opens_page = args.open;
    let outcome = serve::serve(folder, args.server, true, |url| {
        if opens_page {
            browser::open(&format!("{url}/dev-ui"));
        }
    })
    .await;
    builder.abort();
    outcome
}
