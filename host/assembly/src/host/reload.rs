//! Hot reload of the configuration: watches its file and the list of trusted folders.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use hatchery_files::FileStamp;

use super::live_config::{LiveConfig, Trigger};
use crate::trust::ConfigSource;

/// Interval at which the files are checked. A check costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Applies the configuration whenever its files have changed, until the host is dropped. A refused configuration is
/// applied again with the next generation of the catalog, which may have the missing plugin.
pub(super) async fn follow_files(live: Weak<LiveConfig>, mut files: FileStamps) {
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    let mut refused_at = None;
    loop {
        interval.tick().await;
        let Some(live) = live.upgrade() else { return };
        let is_retried = refused_at.is_some_and(|generation| generation != live.generation());
        if files.has_changed() || is_retried {
            let is_applied = live.reload(Trigger::Change).await;
            refused_at = (!is_applied).then(|| live.generation());
        }
    }
}

/// Detects changes of files without reading them.
pub(super) struct FileStamps {
    paths: Vec<PathBuf>,
    /// `None` for a file that does not exist.
    stamps: Vec<Option<FileStamp>>,
    /// True if a change was seen and the files may still be being written.
    is_changing: bool,
}

impl FileStamps {
    /// Records the current state of a configuration file and of the list of trusted folders.
    pub(super) fn new(source: &ConfigSource) -> Self {
        let list = source.store().map(|store| store.file().to_owned());
        let paths: Vec<_> = std::iter::once(source.file()).chain(list).collect();
        Self { stamps: stamps(&paths), paths, is_changing: false }
    }

    /// Returns true if a file has changed, was created or removed, and the change is at least one call old.
    fn has_changed(&mut self) -> bool {
        let now = stamps(&self.paths);
        if self.stamps != now {
            self.stamps = now;
            self.is_changing = true;
            return false;
        }
        std::mem::take(&mut self.is_changing)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    paths.iter().map(|path| FileStamp::read(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Instant, SystemTime};

    use super::*;

    #[test]
    fn a_change_of_the_file_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FileStamps::new(&ConfigSource::new(folder.path()));
        assert!(!file.has_changed());
        fs::write(folder.path().join("hatchery.yaml"), "# one").unwrap();
        assert!(!file.has_changed(), "it may still be being written");
        assert!(file.has_changed());
        assert!(!file.has_changed());
        fs::write(folder.path().join("hatchery.yaml"), "# another one").unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
        fs::remove_file(folder.path().join("hatchery.yaml")).unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
    }

    #[cfg(unix)]
    #[test]
    fn a_replacement_of_the_same_size_and_modification_time_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hatchery.yaml");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write("# one");
        let mut file = FileStamps::new(&ConfigSource::new(folder.path()));
        // The time of a change may be as coarse as the clock of the kernel.
        let begun = Instant::now();
        while !file.is_changing {
            assert!(begun.elapsed() < Duration::from_secs(10), "the change was not noticed");
            write("# two");
            assert!(!file.has_changed());
        }
        assert!(file.has_changed());
    }
}
