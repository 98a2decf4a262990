//! Reads of files in folders that others may change.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most `max` bytes in a folder. Others may replace what is in the folder by links at any time:
/// nothing outside of it is returned.
///
/// # Errors
/// If it is no file, is not in the folder, is larger, or cannot be read.
pub fn read_inside(folder: &Path, file: &Path, max: u64) -> io::Result<Vec<u8>> {
    let folder = folder.canonicalize()?;
    // Opening a pipe would wait for its other end.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let opened = File::open(file)?;
    // The path may have led elsewhere when it was opened.
    let path = file.canonicalize()?;
    if !path.starts_with(&folder) || !is_same(&opened.metadata()?, &fs::symlink_metadata(&path)?) {
        return Err(io::Error::other("it is not in its folder"));
    }
    let mut bytes = Vec::new();
    opened.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_maximum_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/x");
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_inside(folder.path(), &file, 5).unwrap(), b"12345");
        let error = read_inside(folder.path(), &file, 4).unwrap_err().to_string();
        assert_eq!(error, "it is larger than 4 bytes");
        assert_eq!(read_inside(folder.path(), folder.path(), 5).unwrap_err().to_string(), "it is no file");
    }

    #[cfg(unix)]
    #[test]
    fn links_to_elsewhere_are_not_read() {
        use std::os::unix::fs::symlink;

        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("inside")).unwrap();
        fs::create_dir_all(path("outside")).unwrap();
        fs::write(path("outside/secret"), "s3cret").unwrap();
        fs::write(path("inside/own"), "text").unwrap();
        symlink("../outside/secret", path("inside/file")).unwrap();
        symlink("../outside", path("inside/folder")).unwrap();
        symlink("own", path("inside/alias")).unwrap();
        for file in ["inside/file", "inside/folder/secret", "outside/secret"] {
            let error = read_inside(&path("inside"), &path(file), 100).unwrap_err().to_string();
            assert_eq!(error, "it is not in its folder", "{file}");
        }
        assert_eq!(read_inside(&path("inside"), &path("inside/alias"), 100).unwrap(), b"text");
    }
}
