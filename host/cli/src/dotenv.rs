//! Keys in a file `.env` of the served folder, for development: they are set as environment variables that do not exist
//! yet.
//!
//! The author of a folder writes this file, so it cannot change how the command behaves: only keys, tokens, secrets and
//! passwords are read, and no variables are substituted. A proxy or a base URL in it would receive the operator's keys.
//! Nothing is read while the folder's configuration requests access that is not trusted.

use std::path::{Path, PathBuf};

use hatchery::shell::quote_path;
use hatchery::trust::{ConfigSource, TrustStatus};
use hatchery_core::without_byte_order_mark;

use crate::host::{ConfigArgs, app_and_served_folder};

/// The name of the file.
pub const FILE_NAME: &str = ".env";

/// The ends of names that are read.
const KEY_SUFFIXES: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

/// The folders whose `.env` a command reads, and the configuration that they are served with.
#[derive(Debug)]
pub struct DotEnvSource {
    folders: Vec<PathBuf>,
    config: ConfigSource,
}

impl DotEnvSource {
    /// The served folder.
    pub fn for_served_folder(folder: &Path, config: &ConfigArgs) -> Self {
        Self { folders: vec![folder.to_owned()], config: config.source(folder) }
    }

    /// A folder, and the folder that is served with it if it is the folder of one app.
    pub fn for_app_folder(folder: &Path, config: &ConfigArgs) -> Self {
        let folders = app_and_served_folder(folder);
        let config = config.source(folders.last().map_or(folder, PathBuf::as_path));
        Self { folders, config }
    }

    /// Returns true if the configuration requests no access that is not trusted. Otherwise the folder's keys are not
    /// used either: they are the request of the same author.
    fn is_trusted(&self) -> bool {
        self.config.load().is_ok_and(|loaded| !matches!(loaded.status, TrustStatus::Untrusted(_)))
    }
}

/// Returns true for the names of variables that are read.
pub fn is_key(name: &str) -> bool {
    KEY_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// The content of `.env` files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DotEnv {
    files: Vec<EnvFile>,
    /// Files that were not read because their folder is not trusted, with the served folder.
    refused: Vec<(PathBuf, PathBuf)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct EnvFile {
    path: PathBuf,
    variables: Vec<(String, String)>,
    /// Names of variables that are not keys, and are not set.
    ignored: Vec<String>,
}

impl DotEnv {
    /// Reads the files. A file that does not exist has no variables. The same applies to a folder of this name, which
    /// may be a virtual environment of Python. Other errors are returned.
    pub fn read(source: &DotEnvSource) -> anyhow::Result<Self> {
        let mut read = Self::default();
        let files = source.folders.iter().map(|folder| folder.join(FILE_NAME));
        let files: Vec<_> = files.filter(|file| file.exists() && !file.is_dir()).collect();
        if !files.is_empty() && !source.is_trusted() {
            read.refused = files.into_iter().map(|file| (file, source.config.folder().to_owned())).collect();
            return Ok(read);
        }
        for file in files {
            match std::fs::read_to_string(&file) {
                Ok(text) => read.files.push(EnvFile::parse(&text, file)?),
                Err(error) => anyhow::bail!("{}: {error}", file.display()),
            }
        }
        Ok(read)
    }

    /// Sets the variables that are not set, and forgets the others.
    pub fn apply(&mut self) {
        for file in &mut self.files {
            file.variables.retain(|(name, _)| std::env::var_os(name).is_none());
            for (name, value) in &file.variables {
                // SAFETY: the caller is the main thread, and no other thread has been started.
                unsafe { std::env::set_var(name, value) };
            }
        }
    }

    /// Logs the names that are used and those that are not.
    pub fn log(&self) {
        for (file, folder) in &self.refused {
            tracing::warn!(
                "{}: not read, because the {} of its folder is invalid or not trusted; check it with `hatchery trust {}`",
                file.display(),
                hatchery::CONFIG_FILE,
                quote_path(folder)
            );
        }
        for EnvFile { path, variables, ignored } in &self.files {
            let names: Vec<_> = variables.iter().map(|(name, _)| name.as_str()).collect();
            if !names.is_empty() {
                tracing::info!("{}: using {}", path.display(), names.join(", "));
            }
            if !ignored.is_empty() {
                tracing::warn!(
                    "{}: ignoring {}: only names that end in _KEY, _TOKEN, _SECRET or _PASSWORD are read; export other variables",
                    path.display(),
                    ignored.join(", ")
                );
            }
        }
    }
}

impl EnvFile {
    fn parse(text: &str, path: PathBuf) -> anyhow::Result<Self> {
        let mut file = Self { path, ..Self::default() };
        for (number, line) in without_byte_order_mark(text).lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = parse(line).ok_or_else(|| {
                anyhow::anyhow!("{}:{}: not a line such as OPENAI_API_KEY=value", file.path.display(), number + 1)
            })?;
            if is_key(&name) { file.variables.push((name, value)) } else { file.ignored.push(name) }
        }
        Ok(file)
    }
}

/// Splits `NAME=value`, with an optional `export`, quotes and a comment. A value has no escapes. `None` if the line is
/// malformed.
fn parse(line: &str) -> Option<(String, String)> {
    let assignment = line.strip_prefix("export").filter(|rest| rest.starts_with(char::is_whitespace));
    let (name, value) = assignment.unwrap_or(line).split_once('=')?;
    let name = name.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value = match value.trim_start().chars().next().filter(|quote| matches!(quote, '"' | '\'')) {
        Some(quote) => {
            let (value, rest) = value.trim_start().get(1..)?.split_once(quote)?;
            // Another quote in the value would cut it off.
            without_comment(rest).is_empty().then_some(value)?
        }
        None => without_comment(value),
    };
    // The environment has no value with a zero byte.
    (!value.contains('\0')).then(|| (name.to_owned(), value.to_owned()))
}

/// Returns the trimmed text before a comment, which begins with a `#` after a space.
fn without_comment(text: &str) -> &str {
    let before = move |start: usize| text.get(..start).unwrap_or_default();
    let mut starts = text.match_indices('#').map(|(start, _)| start);
    let comment = starts.find(|start| before(*start).ends_with(char::is_whitespace));
    comment.map_or(text, before).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `.env` and `hatchery.yaml`, and returns the source of the folder.
    fn source(folder: &Path, text: &str, yaml: &str) -> DotEnvSource {
        std::fs::write(folder.join(FILE_NAME), text).unwrap();
        std::fs::write(folder.join("hatchery.yaml"), yaml).unwrap();
        DotEnvSource { folders: vec![folder.to_owned(), folder.join("none")], config: ConfigSource::new(folder) }
    }

    #[test]
    fn keys_are_read_and_other_variables_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# for the demo\nexport OPENAI_API_KEY=\"sk-1 # 2\"\nPRICE_TOKEN = abc # mine\n\nHTTPS_PROXY=http://evil\nA_SECRET=\n";
        let read = DotEnv::read(&source(folder.path(), text, "")).unwrap();
        let variables = [("OPENAI_API_KEY", "sk-1 # 2"), ("PRICE_TOKEN", "abc"), ("A_SECRET", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let path = folder.path().join(".env");
        assert_eq!(read.files, [EnvFile { path, variables, ignored: vec!["HTTPS_PROXY".to_owned()] }]);
    }

    #[test]
    fn comments_quotes_and_files_of_windows_are_read_as_in_a_shell() {
        for (line, value) in [
            ("A_KEY=abc\t# mine", "abc"),
            ("A_KEY= # none", ""),
            ("A_KEY=#1#2", "#1#2"),
            ("A_KEY = 'a \"b\" # c' # d", "a \"b\" # c"),
            ("export\tA_KEY=x", "x"),
        ] {
            assert_eq!(parse(line), Some(("A_KEY".to_owned(), value.to_owned())), "{line}");
        }
        let read = EnvFile::parse("\u{feff}A_KEY=a\r\nB_KEY=\"b\"\r\n", PathBuf::new()).unwrap();
        let variables = [("A_KEY", "a"), ("B_KEY", "b")];
        assert_eq!(read.variables, variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_folder_of_this_name_has_no_keys() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(FILE_NAME)).unwrap();
        let source = DotEnvSource { folders: vec![folder.path().to_owned()], config: ConfigSource::new(folder.path()) };
        assert_eq!(DotEnv::read(&source).unwrap(), DotEnv::default());
    }

    #[test]
    fn a_malformed_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let malformed = [
            "A_KEY=1\nnonsense",
            "\n1_KEY=2",
            "# x\nA_KEY=\"open",
            "\nA_KEY=\"a\\\"b\"",
            "\nA_KEY='a'b",
            "\nA_KEY='a'#b",
            "\nA_KEY=a\0b",
        ];
        for text in malformed {
            let error = DotEnv::read(&source(folder.path(), text, "")).unwrap_err().to_string();
            assert!(error.ends_with(".env:2: not a line such as OPENAI_API_KEY=value"), "{error}");
        }
    }

    #[test]
    fn no_file_is_read_in_a_folder_whose_configuration_is_invalid_or_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        for yaml in ["models: {openai_base_url: 'http://evil.example'}", "nonsense: [", "unknown: 1"] {
            let read = DotEnv::read(&source(folder.path(), "OPENAI_API_KEY=theirs\nnonsense", yaml)).unwrap();
            let refused = vec![(folder.path().join(".env"), folder.path().to_owned())];
            assert_eq!(read, DotEnv { files: Vec::new(), refused }, "{yaml}");
        }
    }
}
