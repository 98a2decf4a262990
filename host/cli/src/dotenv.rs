//! Keys in a file `.env` of the served folder, for development: they are set as environment variables that do not exist yet.
//!
//! The author of a folder writes this file, so it cannot change how the command behaves: only keys, tokens, secrets and
//! passwords are read, and no variables are substituted. A proxy or a base URL in it would receive the operator's keys.

use std::path::{Path, PathBuf};

/// The name of the file.
const FILE_NAME: &str = ".env";

/// The ends of names that are read.
const KEY_SUFFIXES: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

/// The content of `.env` files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DotEnv {
    variables: Vec<(String, String)>,
    /// Names that are not those of keys, by file.
    ignored: Vec<(PathBuf, Vec<String>)>,
}

impl DotEnv {
    /// Reads the files in these folders. A file that does not exist has no variables; other errors are returned.
    pub fn read(folders: &[PathBuf]) -> anyhow::Result<Self> {
        let mut read = Self::default();
        for file in folders.iter().map(|folder| folder.join(FILE_NAME)) {
            match std::fs::read_to_string(&file) {
                Ok(text) => read.add(&text, &file)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => anyhow::bail!("{}: {error}", file.display()),
            }
        }
        Ok(read)
    }

    fn add(&mut self, text: &str, file: &Path) -> anyhow::Result<()> {
        let mut ignored = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = parse(line).ok_or_else(|| {
                anyhow::anyhow!("{}:{}: not a line such as OPENAI_API_KEY=value", file.display(), number + 1)
            })?;
            match KEY_SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
                true => self.variables.push((name, value)),
                false => ignored.push(name),
            }
        }
        if !ignored.is_empty() {
            self.ignored.push((file.to_owned(), ignored));
        }
        Ok(())
    }

    /// Sets the variables that are not set.
    pub fn apply(&self) {
        for (name, value) in self.variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
            // SAFETY: the caller is the main thread, and no other thread has been started.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// Logs the names that were not read.
    pub fn log(&self) {
        for (file, names) in &self.ignored {
            tracing::warn!(
                "{}: ignoring {}: only names that end in _KEY, _TOKEN, _SECRET or _PASSWORD are read; export other variables",
                file.display(),
                names.join(", ")
            );
        }
    }
}

/// Splits `NAME=value`, with an optional `export`, quotes and a comment. `None` if it is malformed.
fn parse(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value = match value.chars().next().filter(|quote| matches!(quote, '"' | '\'')) {
        Some(quote) => value.get(1..)?.split_once(quote)?.0,
        None => value.split_once(" #").map_or(value, |(value, _)| value.trim_end()),
    };
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_other_variables_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# for the demo\nexport OPENAI_API_KEY=\"sk-1 # 2\"\nPRICE_TOKEN = abc # mine\n\nHTTPS_PROXY=http://evil\nA_SECRET=\n";
        std::fs::write(folder.path().join(".env"), text).unwrap();
        let read = DotEnv::read(&[folder.path().to_owned(), folder.path().join("none")]).unwrap();
        let variables = [("OPENAI_API_KEY", "sk-1 # 2"), ("PRICE_TOKEN", "abc"), ("A_SECRET", "")];
        assert_eq!(read.variables, variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(read.ignored, [(folder.path().join(".env"), vec!["HTTPS_PROXY".to_owned()])]);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["A_KEY=1\nnonsense", "\n1_KEY=2", "# x\nA_KEY=\"open"] {
            std::fs::write(folder.path().join(".env"), text).unwrap();
            let error = DotEnv::read(&[folder.path().to_owned()]).unwrap_err().to_string();
            assert!(error.ends_with(".env:2: not a line such as OPENAI_API_KEY=value"), "{error}");
        }
    }
}
