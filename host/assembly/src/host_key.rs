//! The secret key that signs events, so that the host recognizes the events that it has created.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hatchery_core::{EventSigner, generate_secret};
use thiserror::Error;

use crate::config::Config;
use crate::services::create_data_folder;
use crate::storage::Storage;

/// The file of the key in the data folder.
pub(crate) const FILE_NAME: &str = "host.key";
/// The environment variable that names a file with a key. It takes precedence over `server.secret_file`.
pub(crate) const SECRET_FILE: &str = "HATCHERY_SECRET_FILE";

/// Minimum length of a key.
const MIN_BYTES: usize = 32;

/// Reasons why the key cannot be used.
#[derive(Debug, Error)]
pub enum HostKeyError {
    /// The configured file is unusable.
    #[error("{setting} {}: {reason}; generate a key with `openssl rand -hex 32`", file.display())]
    Secret {
        /// The setting that names the file.
        setting: &'static str,
        file: PathBuf,
        reason: String,
    },
    /// The key in the data folder cannot be read or created.
    #[error(
        "host key {}: {reason}; set `server.secret_file` in hatchery.yaml or {SECRET_FILE} to a file with a key, or choose \
         another data folder",
        file.display()
    )]
    File { file: PathBuf, reason: String },
}

/// Opens the signer of a host. The key is read from the file that the environment or `config` names. Otherwise it is
/// read from the data folder, where it is created once. For sessions in memory a key of the process is used.
pub(crate) fn open(
    config: &Config,
    storage: &Storage,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<EventSigner, HostKeyError> {
    let variable = environment(SECRET_FILE).filter(|file| !file.is_empty()).map(PathBuf::from);
    let setting = config.server.secret_file.clone();
    let named = variable.map(|file| (SECRET_FILE, file)).or_else(|| setting.map(|file| ("server.secret_file", file)));
    if let Some((setting, file)) = named {
        let failed = |reason| HostKeyError::Secret { setting, file: file.clone(), reason };
        let secret = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        return signer(&secret).map_err(failed);
    }
    match storage {
        Storage::Directory(folder) if config.session_service.as_deref() != Some("memory:") => {
            let file = folder.join(FILE_NAME);
            let failed = |reason: String| HostKeyError::File { file: file.clone(), reason };
            let secret = read_or_create(folder, &file).map_err(|error| failed(error.to_string()))?;
            signer(&secret).map_err(failed)
        }
        Storage::Directory(_) | Storage::InMemory => Ok(EventSigner::for_process()),
    }
}

fn signer(secret: &str) -> Result<EventSigner, String> {
    let secret = secret.trim();
    if secret.len() < MIN_BYTES {
        return Err(format!("the key has {} bytes; it needs at least {MIN_BYTES}", secret.len()));
    }
    Ok(EventSigner::new(secret.as_bytes()))
}

fn read_or_create(folder: &Path, file: &Path) -> io::Result<String> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    create_data_folder(folder)?;
    // Written to a temporary file and linked: another process must neither read a partial key nor replace this one.
    let new = folder.join(format!("{FILE_NAME}.{}", uuid::Uuid::new_v4().simple()));
    let linked = write_private(&new, &generate_secret()).and_then(|()| std::fs::hard_link(&new, file));
    let _ = std::fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => std::fs::read_to_string(file),
    }
}

/// Writes a new file that only its owner can read.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Claim, EventData, SessionKey};

    use super::*;
    use crate::config::ServerConfig;

    fn no_variables(_: &str) -> Option<OsString> {
        None
    }

    /// Returns true if the second signer verifies events that the first has signed.
    fn agree(one: &EventSigner, other: &EventSigner) -> bool {
        let (session, mut event) = (SessionKey::new("app", "ada", "s"), EventData::default());
        one.sign(&session, &mut event, Claim::Run);
        other.proves(&session, &event, Claim::Run)
    }

    fn with_secret_file(file: &Path) -> Config {
        let server = ServerConfig { secret_file: Some(file.to_owned()), ..ServerConfig::default() };
        Config { server, ..Config::default() }
    }

    #[test]
    fn a_private_key_is_created_once_in_the_data_folder() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let first = open(&Config::default(), &storage, no_variables).unwrap();
        let second = open(&Config::default(), &storage, no_variables).unwrap();
        assert!(agree(&first, &second) && !agree(&first, &EventSigner::for_process()));
        let names: Vec<_> =
            std::fs::read_dir(folder.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "the key and .gitignore: {names:?}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = folder.path().join("data/host.key").metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let other = tempfile::tempdir().unwrap();
        let other = open(&Config::default(), &Storage::Directory(other.path().to_owned()), no_variables).unwrap();
        assert!(!agree(&first, &other));
    }

    #[test]
    fn sessions_in_memory_use_the_key_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let config = Config { session_service: Some("memory:".into()), ..Config::default() };
        for (config, storage) in [(config, storage), (Config::default(), Storage::InMemory)] {
            assert!(agree(&open(&config, &storage, no_variables).unwrap(), &EventSigner::for_process()));
        }
        assert!(!folder.path().join("data").exists());
    }

    #[test]
    fn hosts_that_name_the_same_file_share_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, format!("{}\n", "1".repeat(32))).unwrap();
        std::fs::write(&other, "2".repeat(32)).unwrap();
        let signer = |config: &Config, file: Option<&Path>| {
            let environment = |name: &str| file.filter(|_| name == SECRET_FILE).map(|file| file.as_os_str().to_owned());
            open(config, &Storage::InMemory, environment).unwrap()
        };
        let of_one = EventSigner::new("1".repeat(32).as_bytes());
        assert!(agree(&signer(&with_secret_file(&one), None), &of_one));
        assert!(agree(&signer(&with_secret_file(&other), Some(&one)), &of_one), "the environment takes precedence");
    }

    #[test]
    fn an_unusable_key_is_an_error_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let short = folder.path().join("short");
        std::fs::write(&short, "secret\n").unwrap();
        let error = |config: &Config, storage: &Storage| open(config, storage, no_variables).unwrap_err().to_string();
        assert_eq!(
            error(&with_secret_file(&short), &Storage::InMemory),
            format!(
                "server.secret_file {}: the key has 6 bytes; it needs at least 32; generate a key with `openssl rand -hex 32`",
                short.display()
            )
        );
        assert!(
            error(&with_secret_file(Path::new("/no/such")), &Storage::InMemory)
                .starts_with("server.secret_file /no/such: ")
        );
        let file = folder.path().join("host.key");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            error(&Config::default(), &Storage::Directory(folder.path().to_owned())),
            format!(
                "host key {}: the key has 0 bytes; it needs at least 32; set `server.secret_file` in hatchery.yaml or \
                 HATCHERY_SECRET_FILE to a file with a key, or choose another data folder",
                file.display()
            )
        );
    }
}
