//! The machine: this host's version, its pool of instances, the cache of compiled code, the data folder.

use std::fs::File;
use std::io;
use std::path::Path;

use hatchery::Storage;
use hatchery_wasm::{CacheState, version};

use super::report::shell;
use super::{Finding, Visit};

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    let versions = format!("hatchery {}, offers hatchery:agent {}", env!("CARGO_PKG_VERSION"), version::OFFERED);
    vec![
        Finding::good(versions),
        pool(visit.options.engine.is_pooled()),
        cache(visit.options.cache.state()),
        data(visit),
    ]
}

fn pool(is_there: bool) -> Finding {
    if is_there {
        return Finding::good("instances come from a pool");
    }
    Finding::doubtful(
        "no address space for a pool of instances, so each call is some 25 µs slower; the process may reserve too little of it",
    )
    .fixed_by("ulimit -v unlimited")
}

fn cache(state: CacheState) -> Finding {
    match state {
        CacheState::Open { directory, files, bytes } => {
            let mib = bytes.div_ceil(1 << 20);
            let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
            Finding::good(format!("compiled code is kept in {}: {files}, {mib} MiB", directory.display()))
        }
        CacheState::Off => {
            Finding::doubtful("there is no place for compiled code, so components are compiled at each start")
                .fixed_by("export XDG_CACHE_HOME=/var/cache")
        }
        CacheState::Unusable { directory, reason } => {
            let fix = format!("mv {} {}", shell(&directory), shell(&directory.with_added_extension("old")));
            let directory = directory.display();
            let said = "compiled code is not kept, components are compiled at each start";
            Finding::doubtful(format!("{directory}: {said}: {reason}")).fixed_by(fix)
        }
    }
}

fn data(visit: &Visit<'_>) -> Finding {
    let own = visit.config.is_ok_and(|config| config.session_service.is_some() && config.artifact_service.is_some());
    match &visit.storage {
        Storage::Directory(folder) if !own => data_folder(folder),
        Storage::Directory(_) | Storage::InMemory => {
            Finding::good("sessions and artifacts are where hatchery.yaml says")
        }
    }
}

fn data_folder(folder: &Path) -> Finding {
    match try_to_write(folder) {
        Ok(()) => Finding::good(format!("sessions and artifacts are kept in {}", folder.display())),
        Err(error) => {
            let folder = folder.display();
            Finding::broken(format!("{folder}: sessions and artifacts cannot be kept there: {error}"))
                .fixed_by("hatchery serve DIR --data-dir /var/lib/hatchery")
        }
    }
}

/// Writes a file and takes it away again: into the folder, or where it would be made.
fn try_to_write(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let file = there.join(format!(".hatchery-doctor-{}", std::process::id()));
    File::create_new(&file)?;
    std::fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_pool_and_a_missing_cache_are_doubtful() {
        assert_eq!(pool(true), Finding::good("instances come from a pool"));
        let slow = "no address space for a pool of instances, so each call is some 25 µs slower; the process may reserve too little of it";
        assert_eq!(pool(false), Finding::doubtful(slow).fixed_by("ulimit -v unlimited"));
        let none = "there is no place for compiled code, so components are compiled at each start";
        assert_eq!(cache(CacheState::Off), Finding::doubtful(none).fixed_by("export XDG_CACHE_HOME=/var/cache"));
        let unusable = CacheState::Unusable { directory: "/c/code".into(), reason: "it is a link".into() };
        let said = "/c/code: compiled code is not kept, components are compiled at each start: it is a link";
        assert_eq!(cache(unusable), Finding::doubtful(said).fixed_by("mv /c/code /c/code.old"));
    }

    #[test]
    fn the_cache_is_told_with_its_size() {
        let state = |files| CacheState::Open { directory: "/c".into(), files, bytes: 3 << 20 };
        assert_eq!(cache(state(1)), Finding::good("compiled code is kept in /c: 1 file, 3 MiB"));
        assert_eq!(cache(state(2)), Finding::good("compiled code is kept in /c: 2 files, 3 MiB"));
    }

    #[test]
    fn a_data_folder_that_cannot_be_written_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("not/yet/there");
        assert_eq!(data_folder(&data), Finding::good(format!("sessions and artifacts are kept in {}", data.display())));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = try_to_write(&file.join("data")).unwrap_err();
        let said = format!("{}: sessions and artifacts cannot be kept there: {error}", file.join("data").display());
        let fix = "hatchery serve DIR --data-dir /var/lib/hatchery";
        assert_eq!(data_folder(&file.join("data")), Finding::broken(said).fixed_by(fix));
    }
}
