//! Parser of the output of a container. It is untrusted: code can print anything instead.

use hatchery_core::{CodeOutput, excerpt};
use serde::Deserialize;

use super::engine::CommandOutput;
use crate::output_files::{EncodedFile, add_files};

/// Maximum size in bytes of an unexpected output in an error.
const MAX_EXCERPT: usize = 500;

#[derive(Deserialize)]
struct Output {
    stdout: String,
    stderr: String,
    files: Vec<EncodedFile>,
}

/// Parses the output of a container. The error is for the model.
pub(super) fn parse(printed: &CommandOutput) -> Result<CodeOutput, String> {
    if printed.is_truncated {
        return Err("the output of the code is too large; print less".into());
    }
    let Ok(Output { stdout, stderr, files }) = serde_json::from_slice(&printed.stdout) else {
        let message = String::from_utf8_lossy(&printed.stderr);
        let reason = match message.trim() {
            "" => "it may have used too much memory".to_owned(),
            message => excerpt(message, MAX_EXCERPT),
        };
        return Err(format!("the process of the code has ended: {reason}"));
    };
    let mut output = CodeOutput { stdout, stderr, output_files: Vec::new() };
    add_files(&mut output, files);
    Ok(output)
}
