//! A bar on the terminal while components are compiled. In a pipe there is none: there the log has a line for each.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use hatchery_wasm::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar that is on the terminal, which log lines must not run into.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Shows a bar until it is dropped.
pub struct LoadProgress {
    bar: ProgressBar,
}

impl LoadProgress {
    /// A bar if stderr is a terminal.
    pub fn start() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("loading {bar:30} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        if io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            *shown() = Some(bar.clone());
        }
        Self { bar }
    }

    /// What tells the bar how far it is.
    pub fn listener(&self) -> Arc<dyn Fn(Progress) + Send + Sync> {
        // When the bar is gone, what is loaded later has nobody to tell.
        let bar = self.bar.downgrade();
        Arc::new(move |progress| {
            let Some(bar) = bar.upgrade() else { return };
            match progress {
                Progress::Found(components) => bar.inc_length(components as u64),
                Progress::Loaded { name, .. } | Progress::Rejected { name, .. } => {
                    bar.set_message(name);
                    bar.inc(1);
                }
            }
        })
    }
}

impl Drop for LoadProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        *shown() = None;
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!((progress.bar.position(), progress.bar.length()), (2, Some(2)));
        drop(progress);
        tell(Progress::Found(1));
    }
}
