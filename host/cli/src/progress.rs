//! Progress bars on stderr while components are loaded, downloaded or uploaded, and while an app is evaluated. If
//! stderr is not a terminal, downloads and uploads print one line each instead.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_eval::Progress as RunProgress;
use hatchery_registry::{Progress as TransferEvent, ProgressListener};
use hatchery_wasm::Progress as LoadEvent;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar on the terminal. Other output suspends it.
static ACTIVE_BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn active_bar() -> MutexGuard<'static, Option<ProgressBar>> {
    ACTIVE_BAR.lock_unpoisoned()
}

/// A bar that is visible until it is dropped. It is hidden if stderr is not a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn start(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            *active_bar() = Some(bar.clone());
        }
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        *active_bar() = None;
    }
}

/// The progress of loading components. Visible until it is dropped.
pub struct LoadProgress(Bar);

impl LoadProgress {
    pub fn start() -> Self {
        Self(Bar::start("loading {bar:30} {pos}/{len} {msg}"))
    }

    /// Returns the listener that updates the bar. It does nothing after the bar is dropped.
    pub fn listener(&self) -> Arc<dyn Fn(LoadEvent) + Send + Sync> {
        let bar = self.0.0.downgrade();
        Arc::new(move |event| {
            let Some(bar) = bar.upgrade() else { return };
            match event {
                LoadEvent::Found(components) => bar.inc_length(components as u64),
                LoadEvent::Compiling { name, size } => {
                    let line = format_compiling(&name, size);
                    bar.suspend(|| anstream::eprintln!("{line}"));
                }
                LoadEvent::Loaded { name, .. } | LoadEvent::Rejected { name, .. } => {
                    bar.set_message(name);
                    bar.inc(1);
                }
            }
        })
    }
}

/// The progress of an evaluation. Visible until it is dropped.
pub struct EvalProgress(Bar);

impl EvalProgress {
    /// Shows the progress of the set with this id.
    pub fn start(set: &str) -> Self {
        let bar = Bar::start("evaluating {msg} {bar:30} {pos}/{len}");
        bar.0.set_message(set.to_owned());
        Self(bar)
    }

    pub fn update(&self, progress: RunProgress) {
        self.0.0.set_length(progress.total as u64);
        self.0.0.set_position(progress.done as u64);
    }
}

/// Formats the line that explains why a large component takes long. `size` is in bytes.
fn format_compiling(name: &str, size: u64) -> String {
    let kib = size.div_ceil(1024);
    format!("compiling {name} ({kib} KiB); later starts use the cache, which `hatchery compile` can fill in advance")
}

/// The progress of one download or upload after another. Visible until it is dropped.
pub struct TransferProgress(Bar);

impl TransferProgress {
    pub fn start() -> Self {
        Self(Bar::start("{msg} {bar:30} {bytes}/{total_bytes}"))
    }

    /// Returns the listener that updates the bar, or prints a line per transfer if stderr is not a terminal.
    pub fn listener(&self) -> ProgressListener {
        let bar = self.0.0.downgrade();
        Arc::new(move |event| {
            let Some(bar) = bar.upgrade() else { return };
            let (action, reference, bytes) = match event {
                TransferEvent::Download { reference, bytes } => ("pulling", reference, bytes),
                TransferEvent::Upload { reference, bytes } => ("pushing", reference, bytes),
                TransferEvent::Transferred(bytes) => return bar.inc(bytes),
            };
            bar.reset();
            bar.set_length(bytes);
            bar.set_message(format!("{action} {reference}"));
            if !io::stderr().is_terminal() {
                anstream::eprintln!("{action} {reference} ({} KiB)", bytes.div_ceil(1024));
            }
        })
    }
}

/// Runs `write` while the bar is hidden.
pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
    let bar = active_bar().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Stderr for log lines. Hides the bar during each write.
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().write(bytes);
        match &*active_bar() {
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
    fn the_bar_counts_loaded_and_rejected_components() {
        let progress = LoadProgress::start();
        let notify = progress.listener();
        notify(LoadEvent::Found(2));
        notify(LoadEvent::Loaded { name: "a".into(), took: Default::default(), is_from_cache: true });
        notify(LoadEvent::Rejected { name: "b".into(), reason: "no".into() });
        assert_eq!((progress.0.0.position(), progress.0.0.length()), (2, Some(2)));
        drop(progress);
        notify(LoadEvent::Found(1));
    }

    #[test]
    fn the_bar_of_an_evaluation_counts_its_runs() {
        let progress = EvalProgress::start("primes");
        progress.update(RunProgress { done: 2, total: 6 });
        assert_eq!((progress.0.0.position(), progress.0.0.length()), (2, Some(6)));
        assert_eq!(progress.0.0.message(), "primes");
    }

    #[test]
    fn a_large_component_explains_why_it_takes_long() {
        assert_eq!(
            format_compiling("python-tools", 21_000_000),
            "compiling python-tools (20508 KiB); later starts use the cache, which `hatchery compile` can fill in advance"
        );
    }

    #[test]
    fn the_bar_counts_the_bytes_of_one_component_after_the_other() {
        let progress = TransferProgress::start();
        let notify = progress.listener();
        let reference = "localhost:5000/x:1".parse().unwrap();
        notify(TransferEvent::Download { reference: &reference, bytes: 9 });
        notify(TransferEvent::Transferred(9));
        notify(TransferEvent::Upload { reference: &reference, bytes: 4 });
        notify(TransferEvent::Transferred(3));
        assert_eq!((progress.0.0.position(), progress.0.0.length()), (3, Some(4)));
        assert_eq!(progress.0.0.message(), "pushing localhost:5000/x:1");
    }
}
