//! A minimal URL parser: splits URLs and resolves references such as `Location`. The host validates the parts.

use std::fmt;

use super::http_error;
use crate::error::Error;

/// A URL of `http` or `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) is_https: bool,
    /// The host, and the port if there is one.
    pub(super) authority: String,
    /// Starts with a slash.
    path: String,
    /// Without the question mark.
    query: Option<String>,
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let invalid = || http_error(format!("`{text}` is not a URL; write it as `https://host/path`"));
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(invalid)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid()),
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return Err(invalid());
        }
        let (path, query) = split_query(rest);
        Ok(Self { is_https, authority: authority.into(), path: normalize_path(path), query })
    }

    /// Resolves a reference against this URL (RFC 3986, section 5).
    pub(super) fn join(&self, reference: &str) -> Result<Self, Error> {
        let reference = reference.trim();
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme()));
        }
        let head = reference.split(['/', '?', '#']).next().unwrap_or_default();
        if head.contains(':') {
            return Self::parse(reference);
        }
        let (path, query) = split_query(reference);
        let (path, query) = match path {
            "" => (self.path.clone(), query.or_else(|| self.query.clone())),
            path if path.starts_with('/') => (normalize_path(path), query),
            path => {
                let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                (normalize_path(&format!("{folder}/{path}")), query)
            }
        };
        Ok(Self { path, query, ..self.clone() })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Returns the request target.
    #[cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "only used with a real host"))]
    pub(super) fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> (bool, String) {
        (self.is_https, self.authority.to_ascii_lowercase())
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authority, path, .. } = self;
        write!(f, "{}://{authority}{path}", self.scheme())?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

/// Splits the text after the host into path and query. A fragment is dropped.
fn split_query(text: &str) -> (&str, Option<String>) {
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query.into())),
        None => (text, None),
    }
}

/// Returns an absolute path without `.` and `..`.
fn normalize_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_with_dots = true;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        ends_with_dots = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let end = if ends_with_dots && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_normalized() {
        for (text, shown) in [
            ("https://a.com", "https://a.com/"),
            ("HTTP://a.com:80?q=1#top", "http://a.com:80/?q=1"),
            (" https://a.com/x/../y/./z/ ", "https://a.com/y/z/"),
            ("https://[::1]:8/a//b", "https://[::1]:8/a//b"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["a.com", "ftp://a.com", "https:///x", "https://", ""] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn references_are_resolved_against_the_base() {
        // Most of these are from RFC 3986, section 5.4.
        let base = Url::parse("http://a/b/c/d;p?q").unwrap();
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("https://x/y", "https://x/y"),
            ("/a:b", "http://a/a:b"),
        ] {
            assert_eq!(base.join(reference).unwrap().to_string(), expected, "{reference}");
        }
        assert!(base.join("javascript:alert(1)").is_err());
    }
}
