//! Checks the machine: host version, instance pool, code cache, and data folder.

use std::fs::File;
use std::io;
use std::path::Path;

use hatchery::services::{self, Scripts};
use hatchery::shell::quote_path;
use hatchery::{CONFIG_FILE, Config, Storage};
use hatchery_core::pluralize;
use hatchery_wasm::{CacheState, version};

use super::{Diagnosis, Finding};

pub(super) async fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let versions = format!("hatchery {}, contract hatchery:agent {}", env!("CARGO_PKG_VERSION"), version::OFFERED);
    let mut findings = vec![
        Finding::ok(versions),
        check_pool(diagnosis.options.engine.is_pooled()),
        check_cache(diagnosis.options.cache.state()),
        check_data(diagnosis),
    ];
    if let Ok(config) = diagnosis.config {
        findings.extend(check_services(config).await);
    }
    findings
}

/// Opens the services of the configuration as a host does, except for files, which it would create. Returns an error if
/// that fails.
async fn check_services(config: &Config) -> Option<Finding> {
    let mut config = config.clone();
    for uri in [&mut config.session_service, &mut config.artifact_service] {
        uri.take_if(|uri| ["sqlite:", "file:"].iter().any(|scheme| uri.starts_with(scheme)));
    }
    let opened = services::open(&config, &Storage::InMemory, &Scripts::default()).await;
    opened.err().map(|error| Finding::error(format!("{CONFIG_FILE}: {error}")))
}

fn check_pool(is_available: bool) -> Finding {
    if is_available {
        return Finding::ok("instance pool: available");
    }
    Finding::warning(
        "instance pool: not available, since the process may not reserve enough address space; each call takes some 25 µs longer",
    )
    .with_fix("ulimit -v unlimited")
}

fn check_cache(state: CacheState) -> Finding {
    match state {
        CacheState::Open { directory, files, bytes } => {
            let (files, mib) = (pluralize(files, "file", "files"), bytes.div_ceil(1 << 20));
            Finding::ok(format!("code cache: {} ({files}, {mib} MiB)", directory.display()))
        }
        CacheState::Off => Finding::warning("code cache: no cache folder; components are compiled at each start")
            .with_fix("export XDG_CACHE_HOME=/var/cache"),
        CacheState::Unusable { directory, reason } => {
            let fix = format!("mv {} {}", quote_path(&directory), quote_path(&directory.with_added_extension("old")));
            let directory = directory.display();
            Finding::warning(format!(
                "code cache: cannot use {directory}: {reason}; components are compiled at each start"
            ))
            .with_fix(fix)
        }
    }
}

fn check_data(diagnosis: &Diagnosis<'_>) -> Finding {
    let has_services = diagnosis.config.is_ok_and(|config| {
        config.session_service.is_some() && config.artifact_service.is_some() && config.memory_service.is_some()
    });
    match &diagnosis.storage {
        Storage::Directory(folder) if !has_services => check_data_folder(folder),
        Storage::Directory(_) | Storage::InMemory => {
            Finding::ok("data: sessions, artifacts and memory are stored in the services of hatchery.yaml")
        }
    }
}

fn check_data_folder(folder: &Path) -> Finding {
    match try_write(folder) {
        Ok(()) => Finding::ok(format!("data folder: {}", folder.display())),
        Err(error) => Finding::error(format!("data folder: cannot write to {}: {error}", folder.display()))
            .with_fix("hatchery serve DIR --data-dir /var/lib/hatchery"),
    }
}

/// Creates and removes a file in the folder, or in the nearest parent if the folder does not exist.
fn try_write(folder: &Path) -> io::Result<()> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let file = existing.join(format!(".hatchery-doctor-{}", std::process::id()));
    File::create_new(&file)?;
    std::fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_pool_and_a_missing_cache_are_warnings() {
        assert_eq!(check_pool(true), Finding::ok("instance pool: available"));
        let slow = "instance pool: not available, since the process may not reserve enough address space; each call takes \
                    some 25 µs longer";
        assert_eq!(check_pool(false), Finding::warning(slow).with_fix("ulimit -v unlimited"));
        let off = "code cache: no cache folder; components are compiled at each start";
        assert_eq!(check_cache(CacheState::Off), Finding::warning(off).with_fix("export XDG_CACHE_HOME=/var/cache"));
        let state = CacheState::Unusable { directory: "/c/code".into(), reason: "it is a link".into() };
        let unusable = "code cache: cannot use /c/code: it is a link; components are compiled at each start";
        assert_eq!(check_cache(state), Finding::warning(unusable).with_fix("mv /c/code /c/code.old"));
    }

    #[tokio::test]
    async fn a_service_that_cannot_be_opened_is_an_error() {
        let config = |uri: &str| Config { session_service: Some(uri.into()), ..Config::default() };
        let finding = check_services(&config("oracle://scott:tiger@db")).await.unwrap();
        let json = serde_json::to_value(&finding).unwrap();
        assert_eq!(json["level"], "error");
        let message = json["message"].as_str().unwrap();
        assert!(message.starts_with("hatchery.yaml: session_service `oracle://…@db`: "), "{message}");
        assert_eq!(check_services(&config("memory:")).await, None);
        assert_eq!(check_services(&config("sqlite:///no/such/folder/x.db")).await, None, "a host would create it");
    }

    #[test]
    fn the_cache_is_shown_with_its_size() {
        let state = |files| CacheState::Open { directory: "/c".into(), files, bytes: 3 << 20 };
        assert_eq!(check_cache(state(1)), Finding::ok("code cache: /c (1 file, 3 MiB)"));
        assert_eq!(check_cache(state(2)), Finding::ok("code cache: /c (2 files, 3 MiB)"));
    }

    #[test]
    fn a_data_folder_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("not/yet/there");
        assert_eq!(check_data_folder(&data), Finding::ok(format!("data folder: {}", data.display())));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left behind");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let data = file.join("data");
        let error = try_write(&data).unwrap_err();
        let message = format!("data folder: cannot write to {}: {error}", data.display());
        let fix = "hatchery serve DIR --data-dir /var/lib/hatchery";
        assert_eq!(check_data_folder(&data), Finding::error(message).with_fix(fix));
    }
}
