//! The path below which the routes are: `base_path`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The path below which the routes of a server are, such as `/agents`: without a slash at its end, and with nothing
/// that would have to be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BasePath(String);

impl BasePath {
    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the rest of a path after the base path: an empty string, or a path that begins with a slash. `None` for
    /// a path outside of the base path.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.0).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BasePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let is_plain = |segment: &str| {
            let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !matches!(segment, "" | "." | "..") && segment.bytes().all(is_unreserved)
        };
        match path.strip_prefix('/') {
            Some(segments) if segments.split('/').all(is_plain) => Ok(Self(path.to_owned())),
            _ => Err(format!(
                "`{}` is not a base path; write one such as /agents, of letters, digits and `-._~`, or leave it out to serve at the root",
                text.escape_debug()
            )),
        }
    }
}

impl TryFrom<String> for BasePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_has_plain_segments() {
        for (text, expected) in [("/agents", "/agents"), ("/a/b-1/", "/a/b-1"), ("/~x/v1.2", "/~x/v1.2")] {
            assert_eq!(text.parse::<BasePath>().unwrap().as_str(), expected);
        }
        for text in
            ["", "/", "agents", "//a", "/a//b", "/a//", "/../a", "/a/.", "/a b", "/a%20b", "/a?b", "/{app}", "/*"]
        {
            let error = text.parse::<BasePath>().unwrap_err();
            assert!(error.starts_with(&format!("`{text}` is not a base path; write one such as /agents")), "{error}");
        }
    }

    #[test]
    fn a_path_is_below_the_base_path_by_whole_segments() {
        let base: BasePath = "/a/b".parse().unwrap();
        for (path, expected) in [
            ("/a/b", Some("")),
            ("/a/b/", Some("/")),
            ("/a/b/run", Some("/run")),
            ("/a/bc", None),
            ("/a", None),
            ("/run", None),
            ("/A/b/run", None),
        ] {
            assert_eq!(base.strip(path), expected, "{path}");
        }
    }
}
