//! The request to run code, as one line for the program that passes it on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{CodeFile, CodeInput};
use serde_json::{Value, json};
use thiserror::Error;

/// Maximum length of a file name in bytes.
const MAX_NAME: usize = 100;

/// A file name that cannot be used in a container.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the file name `{}` cannot be used for code: it has a folder, or more than {MAX_NAME} bytes", .0.escape_debug())]
pub(super) struct InvalidFileName(String);

/// Returns the line.
///
/// # Errors
/// If the name of a file is not one of a plain file.
pub(super) fn encode_line(input: &CodeInput) -> Result<Vec<u8>, InvalidFileName> {
    let files: Vec<Value> = input.input_files.iter().map(encode_file).collect::<Result<_, _>>()?;
    let mut line = json!({"code": input.code, "files": files}).to_string().into_bytes();
    line.push(b'\n');
    Ok(line)
}

fn encode_file(file: &CodeFile) -> Result<Value, InvalidFileName> {
    let name = file.name.as_str();
    let is_plain = !name.is_empty() && name.len() <= MAX_NAME && !name.contains(['/', '\0']);
    if !is_plain || matches!(name, "." | "..") {
        return Err(InvalidFileName(name.into()));
    }
    Ok(json!({"name": name, "content": STANDARD.encode(&file.content)}))
}
