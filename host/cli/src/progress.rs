//! A bar on the terminal while components are compiled or are on their way. In a pipe there are lines instead: of the log for each that is
//! compiled, and one for each that begins to move.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use hatchery_registry::{Progress as Transfer, ProgressListener};
use hatchery_wasm::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar that is on the terminal, which log lines must not run into.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar that is shown until it is dropped.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    /// A bar if stderr is a terminal.
    fn start(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            *shown() = Some(bar.clone());
        }
        Self { bar }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        *shown() = None;
    }
}

/// How far the loading of components is.
pub struct LoadProgress(Shown);

impl LoadProgress {
    /// Shows it until it is dropped.
    pub fn start() -> Self {
        Self(Shown::start("loading {bar:30} {pos}/{len} {msg}"))
    }

    /// What tells the bar how far it is.
    pub fn listener(&self) -> Arc<dyn Fn(Progress) + Send + Sync> {
        // When the bar is gone, what is loaded later has nobody to tell.
        let bar = self.0.bar.downgrade();
        Arc::new(move |progress| {
            let Some(bar) = bar.upgrade() else { return };
            match progress {
                Progress::Found(components) => bar.inc_length(components as u64),
                Progress::Compiling { name, size } => {
                    let line = compiling(&name, size);
                    bar.suspend(|| anstream::eprintln!("{line}"));
                }
                Progress::Loaded { name, .. } | Progress::Rejected { name, .. } => {
                    bar.set_message(name);
                    bar.inc(1);
                }
            }
        })
    }
}

/// What people read who wait for a large component.
fn compiling(name: &str, size: u64) -> String {
    let size = size.div_ceil(1024);
    format!("compiling {name} ({size} KiB), which takes a while the first time; `hatchery compile` does it ahead")
}

/// How far a component is on its way from or to a registry.
pub struct TransferProgress(Shown);

impl TransferProgress {
    /// Shows it until it is dropped.
    pub fn start() -> Self {
        Self(Shown::start("{msg} {bar:30} {bytes}/{total_bytes}"))
    }

    /// What tells the bar how far it is, or writes a line where there is no bar.
    pub fn listener(&self) -> ProgressListener {
        let bar = self.0.bar.downgrade();
        Arc::new(move |progress| {
            let Some(bar) = bar.upgrade() else { return };
            let (verb, reference, bytes) = match progress {
                Transfer::Download { reference, bytes } => ("pulling", reference, bytes),
                Transfer::Upload { reference, bytes } => ("pushing", reference, bytes),
                Transfer::Transferred(bytes) => return bar.inc(bytes),
            };
            bar.reset();
            bar.set_length(bytes);
            bar.set_message(format!("{verb} {reference}"));
            if !io::stderr().is_terminal() {
                anstream::eprintln!("{verb} {reference} ({} KiB)", bytes.div_ceil(1024));
            }
        })
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes something while no bar is on the terminal.
pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
    let shown = shown().clone();
    match shown {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Stderr, on which a bar makes way for each write.
pub struct BehindBar;

impl Write for BehindBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().write(bytes);
        match &*shown() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_counts_what_is_loaded_and_what_is_rejected() {
        let progress = LoadProgress::start();
        let tell = progress.listener();
        tell(Progress::Found(2));
        tell(Progress::Loaded { name: "a".into(), took: Default::default(), is_from_cache: true });
        tell(Progress::Rejected { name: "b".into(), reason: "no".into() });
        assert_eq!((progress.0.bar.position(), progress.0.bar.length()), (2, Some(2)));
        drop(progress);
        tell(Progress::Found(1));
    }

    #[test]
    fn who_waits_for_a_large_component_is_told_why() {
        assert_eq!(
            compiling("python-tools", 21_000_000),
            "compiling python-tools (20508 KiB), which takes a while the first time; `hatchery compile` does it ahead"
        );
    }

    #[test]
    fn the_bar_counts_the_bytes_of_one_component_after_the_other() {
        let progress = TransferProgress::start();
        let tell = progress.listener();
        let reference = "localhost:5000/x:1".parse().unwrap();
        tell(Transfer::Download { reference: &reference, bytes: 9 });
        tell(Transfer::Transferred(9));
        tell(Transfer::Upload { reference: &reference, bytes: 4 });
        tell(Transfer::Transferred(3));
        assert_eq!((progress.0.bar.position(), progress.0.bar.length()), (3, Some(4)));
        assert_eq!(progress.0.bar.message(), "pushing localhost:5000/x:1");
    }
}
