//! Output files of code, encoded in an answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{CodeFile, CodeOutput};
use serde::Deserialize;

use crate::media_type::media_type;

/// A file in an answer.
#[derive(Deserialize)]
pub(crate) struct EncodedFile {
    name: String,
    /// Base64.
    #[serde(alias = "contents")]
    content: String,
}

/// Adds files to an output. The code has failed if one of them cannot be decoded: the model would refer to a file that
/// nobody gets.
pub(crate) fn add_files(output: &mut CodeOutput, files: Vec<EncodedFile>) {
    for EncodedFile { name, content } in files {
        match STANDARD.decode(content) {
            Ok(content) => {
                let mime_type = media_type(&name).into();
                output.output_files.push(CodeFile { name, content: content.into(), mime_type });
            }
            Err(error) => {
                if !output.stderr.is_empty() && !output.stderr.ends_with('\n') {
                    output.stderr.push('\n');
                }
                output.stderr.push_str(&format!(
                    "`{name}` is lost: its content arrived as invalid Base64 ({error}); write the file again\n"
                ));
            }
        }
    }
}
