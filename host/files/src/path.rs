//! Serialization of paths.

use std::path::Path;

use serde::Serializer;

/// Serializes a path with U+FFFD for what is not UTF-8, where the serialization of [`Path`] fails.
pub fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_path_that_is_not_utf_8_is_serialized_with_replacement_characters() {
        let serialize =
            |name: &[u8]| serialize_path(Path::new(OsStr::from_bytes(name)), serde_json::value::Serializer).unwrap();
        assert_eq!(serialize(b"folder/agent.yaml"), "folder/agent.yaml");
        assert_eq!(serialize(b"folder/\xff.yaml"), "folder/\u{fffd}.yaml");
    }
}
