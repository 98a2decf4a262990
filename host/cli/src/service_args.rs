//! Arguments of commands that work on the data of a served folder, whose server may be running.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use hatchery::services::{self, Scripts};
use hatchery::{Config, Storage};
use hatchery_core::{Services, SessionKey};
use serde_json::Value;

use crate::files::require_folder;
use crate::host::{ConfigArgs, StorageArgs};
use crate::outcome::Outcome;
use crate::terminal::{list_names, plain_stdout, stdout};

/// The app and the user of the data.
#[derive(clap::Args)]
pub struct OwnerArgs {
    /// The app
    #[arg(long)]
    pub app: String,
    /// The user
    #[arg(long)]
    pub user: String,
}

impl OwnerArgs {
    /// Returns the key of a session of the user in the app.
    pub fn session(&self, id: &str) -> SessionKey {
        SessionKey::new(self.app.as_str(), self.user.as_str(), id)
    }
}

/// The services with the data.
#[derive(clap::Args)]
pub struct ServiceArgs {
    /// The served folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The data folder of the server; DIR/.hatchery by default
    #[arg(long, value_name = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ServiceArgs {
    /// Returns the configuration of the folder, and where services without a URI store their data.
    pub fn storage(&self) -> anyhow::Result<(Config, Storage)> {
        require_folder(&self.dir)?;
        // A mistyped folder would be created, and have no data.
        if let Some(data) = self.data_dir.as_ref().filter(|data| !data.is_dir()) {
            bail!(
                "--data-dir {} is not a folder; name the data folder of the server, or create it first",
                data.display()
            );
        }
        let config = self.config.source(&self.dir).load()?.require_host_access()?.config;
        Ok((config, StorageArgs::in_directory(self.data_dir.clone()).storage(&self.dir)))
    }

    /// Opens the services of the folder for what they have stored. Nothing is created.
    pub async fn stored_services(&self) -> anyhow::Result<Services> {
        let (config, storage) = self.storage()?;
        let scripts = Scripts::in_folder(&self.dir, &config);
        services::open_stored(&config, &storage, &scripts).await?.ok_or_else(|| {
            let dir = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
            anyhow!(
                "nothing is stored for {} yet; name the served folder with --dir, or the data folder of its server with \
                 --data-dir",
                dir.display()
            )
        })
    }

    /// Opens the services of the folder, and creates the ones that do not exist.
    pub async fn services(&self) -> anyhow::Result<Services> {
        let (config, storage) = self.storage()?;
        Ok(services::open(&config, &storage, &Scripts::in_folder(&self.dir, &config)).await?)
    }

    /// Prints a value as JSON, or lines of text.
    pub fn print(&self, value: &Value, lines: impl IntoIterator<Item = String>) -> anyhow::Result<Outcome> {
        if self.json {
            writeln!(plain_stdout(), "{value}")?;
        } else {
            let mut out = stdout();
            for line in lines {
                writeln!(out, "{line}")?;
            }
        }
        Ok(Outcome::Success)
    }
}

/// Returns the error of a session that does not exist, with those that do.
pub async fn unknown_session(services: &Services, key: &SessionKey) -> anyhow::Error {
    let SessionKey { app, user, id } = key;
    match services.sessions.list(app, user).await {
        Ok(others) => {
            let ids: Vec<_> = others.iter().map(|session| session.key.id.to_string()).collect();
            anyhow!("no session `{id}` of user `{user}` in app `{app}`; available: {}", list_names(&ids))
        }
        Err(error) => error.into(),
    }
}
