//! Reading one YAML file, and locating errors in it.

use std::fs;
use std::path::Path;

use hatchery_core::{ResolveError, without_byte_order_mark};

use super::error::{self, ConfigError};

/// Larger files are refused before they are parsed.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// More open brackets are refused before the file is parsed: the parser's time grows with the square of the depth.
const MAX_BRACKETS: usize = 256;

/// A file that is being read, for error locations.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Returns an error at the first position where `key` has this value, or any value if `value` is empty.
    pub(super) fn error(&self, key: &str, value: &str, message: String) -> ConfigError {
        ConfigError::at(self.path, error::find(self.text, key, value), message)
    }

    /// Returns the error of a name that cannot be resolved.
    pub(super) fn resolve_error(&self, key: &str, name: &str, error: &ResolveError) -> ConfigError {
        let at = [key, "name", "code"].into_iter().find_map(|key| error::find(self.text, key, name));
        // A default name is not in the file.
        let at = at.or_else(|| error::find(self.text, key, ""));
        let mut message = format!("{key}: {error}");
        if let (ResolveError::Unknown { .. }, Some(item)) = (error, item_of_package(name)) {
            message.push_str("; code of a Python or Java package is not loaded: put it into a component, and name it ");
            message.push_str(&format!("`COMPONENT/{item}`"));
        }
        ConfigError::at(self.path, at, message)
    }
}

/// Returns the last part of a name such as `package.module.item`, by which files of ADK refer to code. `None` for other
/// names.
fn item_of_package(name: &str) -> Option<&str> {
    let (_, item) = name.rsplit_once('.')?;
    (!name.contains('/') && !item.is_empty()).then_some(item)
}

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ConfigError::at(path, None, "there is no such file".into()),
        _ => ConfigError::at(path, None, format!("cannot be read: {error}")),
    };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        let message = format!("is {size} bytes long; an agent config may be {MAX_FILE_BYTES} bytes long at most");
        return Err(ConfigError::at(path, None, message));
    }
    let text = without_byte_order_mark(&fs::read_to_string(path).map_err(unreadable)?).to_owned();
    if max_open_brackets(&text) > MAX_BRACKETS {
        return Err(ConfigError::at(path, None, format!("more than {MAX_BRACKETS} brackets are open at once")));
    }
    Ok(text)
}

fn max_open_brackets(text: &str) -> usize {
    let (_, most) = text.bytes().fold((0usize, 0usize), |(open, most), byte| match byte {
        b'{' | b'[' => (open + 1, most.max(open + 1)),
        b'}' | b']' => (open.saturating_sub(1), most),
        _ => (open, most),
    });
    most
}
