//! Tools that return the WASI environment.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hatchery_guest::prelude::*;

/// Returns the environment variables.
#[tool]
pub async fn environment() -> BTreeMap<String, String> {
    std::env::vars().collect()
}

/// An operation on a file.
#[derive(Deserialize, JsonSchema)]
pub struct File {
    /// `read`, `write`, `remove`, `rename`, `link` or `list`.
    what: String,
    /// Its path.
    path: String,
}

/// Performs an operation on a file, and returns its content.
#[tool]
pub async fn files(file: File) -> Result<String, ToolError> {
    let path = &file.path;
    match file.what.as_str() {
        "read" => Ok(fs::read_to_string(path)?),
        "write" => Ok(fs::write(path, "written by a guest").map(|()| String::new())?),
        "remove" => Ok(fs::remove_file(path).map(|()| String::new())?),
        "rename" => Ok(fs::rename(path, format!("{path}.old")).map(|()| String::new())?),
        _ => {
            let mut names: Vec<_> = fs::read_dir(path)?.flatten().map(|it| it.file_name()).collect();
            names.sort();
            Ok(names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(" "))
        }
    }
}

/// Returns the time in seconds since 1970, a random number, and whether the monotonic clock advances.
#[tool]
pub async fn time_and_chance() -> Result<Value, ToolError> {
    let began = Instant::now();
    while began.elapsed().is_zero() {}
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(json!({ "seconds": seconds, "random": RandomState::new().hash_one(0), "goes_on": true }))
}
