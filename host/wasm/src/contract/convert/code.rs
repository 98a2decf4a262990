//! Conversion of the input and output of code executors.

use hatchery_core::{CodeFile, CodeInput, CodeOutput};

use super::{BadValue, FromWit, ToWit, all_from_wit, all_to_wit};
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors as wit;

impl ToWit for CodeInput {
    type Wit = wit::CodeInput;

    fn to_wit(&self) -> wit::CodeInput {
        wit::CodeInput {
            code: self.code.clone(),
            input_files: all_to_wit(&self.input_files),
            execution_id: self.execution_id.clone(),
        }
    }
}

impl FromWit<wit::CodeOutput> for CodeOutput {
    fn from_wit(output: wit::CodeOutput) -> Result<Self, BadValue> {
        Ok(Self { stdout: output.stdout, stderr: output.stderr, output_files: all_from_wit(output.output_files)? })
    }
}

impl ToWit for CodeFile {
    type Wit = wit::CodeFile;

    fn to_wit(&self) -> wit::CodeFile {
        wit::CodeFile { name: self.name.clone(), mime_type: self.mime_type.clone(), content: self.content.to_vec() }
    }
}

impl FromWit<wit::CodeFile> for CodeFile {
    fn from_wit(file: wit::CodeFile) -> Result<Self, BadValue> {
        Ok(Self { name: file.name, mime_type: file.mime_type, content: file.content.into() })
    }
}
