//! Log rotation by size: `audit.log`, and a bounded number of older files `audit.log.1` (the newest), `audit.log.2`, …
//!
//! Existing crates rotate by time or use the umask for new files. Here the size is bounded and only the owner can read
//! the files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file for appending that is rotated by size.
pub struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    max_backups: usize,
}

impl RotatingFile {
    /// Opens a file for appending. Creates it and its folder if necessary.
    pub fn open(path: &Path, max_size: u64, max_backups: usize) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            make_folder(folder)?;
        }
        let file = append_to(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, max_size, max_backups })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line in one write. Rotates the file first if the line would exceed the maximum size.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64;
        if self.size > 0 && self.size.saturating_add(bytes) > self.max_size {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size = self.size.saturating_add(bytes);
        Ok(())
    }

    /// Begins a new file. Rotated files stay as they are if another program has moved or removed the current one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.path.try_exists()? {
            self.move_away()?;
        }
        self.file = append_to(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    /// Renames the current file to the newest rotated one, or removes it if none are kept.
    fn move_away(&self) -> io::Result<()> {
        let numbered = |number: usize| self.path.with_added_extension(number.to_string());
        if self.max_backups == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..self.max_backups).rev() {
            let rotated = numbered(number);
            if rotated.exists() {
                fs::rename(rotated, numbered(number + 1))?;
            }
        }
        fs::rename(&self.path, numbered(1))
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    // The file may have been created by another program.
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = RotatingFile::open(&path, 10, 2).unwrap();
        for number in 1..=7 {
            log.append(&format!("{number}234\n")).unwrap();
        }
        let named = |files: Vec<(String, String)>| {
            files.into_iter().map(|(name, text)| format!("{name}: {text:?}")).collect::<Vec<_>>()
        };
        let expected = [r#"audit.log: "7234\n""#, r#"audit.log.1: "5234\n6234\n""#, r#"audit.log.2: "3234\n4234\n""#];
        assert_eq!(named(files(folder.path())), expected);
        drop(log);
        // A new log continues the existing file.
        RotatingFile::open(&path, 10, 2).unwrap().append("8234\n").unwrap();
        assert_eq!(files(folder.path())[0].1, "7234\n8234\n");
    }

    #[test]
    fn without_rotated_files_only_the_current_one_exists() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = RotatingFile::open(&folder.path().join("audit.log"), 10, 0).unwrap();
        for _ in 0..5 {
            log.append("a line that is longer than the file\n").unwrap();
        }
        assert_eq!(
            files(folder.path()),
            [("audit.log".to_owned(), "a line that is longer than the file\n".to_owned())]
        );
    }

    #[test]
    fn a_file_that_another_program_has_moved_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for max_backups in [0, 3] {
            let mut log = RotatingFile::open(&path, 10, max_backups).unwrap();
            fs::write(path.with_added_extension("1"), "older\n").unwrap();
            log.append("1234\n").unwrap();
            fs::rename(&path, folder.path().join("moved")).unwrap();
            log.append("2234\n").unwrap();
            log.append("3234\n").unwrap();
            log.append("4234\n").unwrap();
            let expected = [("audit.log", "3234\n4234\n"), ("audit.log.1", "older\n"), ("moved", "1234\n2234\n")];
            assert_eq!(files(folder.path()), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
            fs::remove_file(&path).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it_also_after_a_rotation() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit/audit.log");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "created by another program\n").unwrap();
        let mut log = RotatingFile::open(&path, 10, 3).unwrap();
        log.append("a line\n").unwrap();
        for file in [path.clone(), path.with_added_extension("1")] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let new = folder.path().join("new/audit.log");
        RotatingFile::open(&new, 10, 3).unwrap();
        assert_eq!(fs::metadata(new.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
