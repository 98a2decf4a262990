//! Opening a page in the user's browser.

use std::io;
use std::process::{Command, Stdio};

use crate::progress;
use crate::terminal::WARNING;

/// Opens a page in the user's browser. A failure is only reported.
pub fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let spawned =
        Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match spawned {
        // It ends by itself.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            warn(&format!("there is no {program} to open {url}; open it yourself"));
        }
        Err(error) => warn(&format!("cannot open {url}: {error}")),
    }
}

fn warn(message: &str) {
    progress::suspend(|| anstream::eprintln!("{WARNING}warning:{WARNING:#} {message}"));
}
