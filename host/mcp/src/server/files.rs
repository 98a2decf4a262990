//! Files of the host as resources, at URIs of the operator's choice. A URI with a placeholder, as in `docs://{page}`,
//! is a template for the files of a folder.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_core::{Blob, encode_segment};
use hatchery_files::{FileStamp, read_inside};
use percent_encoding::percent_decode_str;
use rmcp::model::{Resource, ResourceTemplate};

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 16 << 20;

/// A file, or the files of a folder, as resources for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileResource {
    /// The URI, with at most one placeholder.
    pub uri: String,
    /// The folder that links must not lead out of.
    pub root: PathBuf,
    /// The path in `root`, with the same placeholder in the name of the file.
    pub file: PathBuf,
    /// A description for people and models.
    pub description: String,
    /// The media type. `None` uses the media type of the file's extension.
    pub mime_type: Option<String>,
}

/// A text around a placeholder.
struct Pattern<'a> {
    prefix: &'a str,
    placeholder: &'a str,
    suffix: &'a str,
}

impl<'a> Pattern<'a> {
    /// Returns `None` for a text without a placeholder.
    fn parse(text: &'a str) -> Option<Self> {
        let (prefix, rest) = text.split_once('{')?;
        let (placeholder, suffix) = rest.split_once('}')?;
        Some(Self { prefix, placeholder, suffix })
    }

    /// Returns the value of the placeholder.
    fn value<'b>(&self, text: &'b str) -> Option<&'b str> {
        text.strip_prefix(self.prefix)?.strip_suffix(self.suffix).filter(|value| !value.is_empty())
    }

    fn expand(&self, value: &str) -> String {
        format!("{}{value}{}", self.prefix, self.suffix)
    }
}

impl FileResource {
    /// Checks the URI and the path.
    ///
    /// # Errors
    /// The fault of one of them.
    pub fn check(&self) -> Result<(), String> {
        let Self { uri, .. } = self;
        if !uri.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()) {
            return Err(format!("`{uri}` is not a URI, such as `docs://handbook`"));
        }
        if uri.starts_with(super::resources::PREFIX) {
            return Err(format!("`{uri}` begins as the URIs of artifacts do; choose another scheme"));
        }
        let name = self.name();
        let (in_uri, in_name) = (Pattern::parse(uri), Pattern::parse(&name));
        if in_uri.as_ref().map(|it| it.placeholder) != in_name.as_ref().map(|it| it.placeholder) {
            return Err(format!(
                "`{uri}` and the name of its file need the same placeholder, as in `{{page}}`, or none"
            ));
        }
        let folder = self.file.parent().map(|folder| folder.to_string_lossy()).unwrap_or_default();
        let is_second = |pattern: Option<Pattern<'_>>| pattern.is_some_and(|it| it.suffix.contains(['{', '}']));
        if is_second(in_uri) || is_second(in_name) || folder.contains(['{', '}']) {
            return Err(format!(
                "`{uri}` may have one placeholder, in the name of the file and not in the name of a folder"
            ));
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the resource. `None` for a template.
    pub(super) fn resource(&self) -> Option<Resource> {
        if Pattern::parse(&self.uri).is_some() {
            return None;
        }
        let mut resource = Resource::new(&self.uri, self.name()).with_mime_type(self.mime_type_of(&self.file));
        resource.description = (!self.description.is_empty()).then(|| self.description.clone());
        Some(resource)
    }

    /// Returns the template. `None` for a single file.
    pub(super) fn template(&self) -> Option<ResourceTemplate> {
        let placeholder = Pattern::parse(&self.uri)?.placeholder.to_owned();
        let mut template = ResourceTemplate::new(&self.uri, placeholder);
        template.description = (!self.description.is_empty()).then(|| self.description.clone());
        template.mime_type = Some(self.mime_type_of(&self.file));
        Some(template)
    }

    fn mime_type_of(&self, path: &Path) -> String {
        let guess = || mime_guess::from_path(path).first_or_octet_stream().essence_str().to_owned();
        self.mime_type.clone().unwrap_or_else(guess)
    }

    /// Returns the file of a URI. `None` if the URI is not of this resource.
    pub(super) fn path(&self, uri: &str) -> Option<PathBuf> {
        let Some(pattern) = Pattern::parse(&self.uri) else { return (uri == self.uri).then(|| self.file.clone()) };
        let value = percent_decode_str(pattern.value(uri)?).decode_utf8().ok()?;
        // One name without a path, and no hidden file.
        if value.starts_with('.') || value.contains(['/', '\\', '\0', ':']) {
            return None;
        }
        let name = self.name();
        Some(self.file.with_file_name(Pattern::parse(&name)?.expand(&value)))
    }

    /// Returns the values of the placeholder that begin with `prefix` and have a file, sorted. Empty for a placeholder
    /// of another name.
    pub(super) fn values(&self, placeholder: &str, prefix: &str) -> Vec<String> {
        let name = self.name();
        let Some(pattern) = Pattern::parse(&name).filter(|it| it.placeholder == placeholder) else { return Vec::new() };
        let entries = self.folder().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let values = names.filter_map(|name| pattern.value(&name).map(encode_segment));
        let mut values: Vec<String> =
            values.filter(|value| !value.starts_with('.') && value.starts_with(prefix)).collect();
        values.sort_unstable();
        values
    }

    /// Resolves the folder of the files. `None` if there is none, or links lead out of the root or to hidden folders.
    fn folder(&self) -> Option<PathBuf> {
        let folder = canonicalize_folder(self.file.parent()?).ok()?;
        let inside = folder.strip_prefix(canonicalize_folder(&self.root).ok()?).ok()?;
        let is_hidden = |part: &OsStr| part.as_encoded_bytes().starts_with(b".");
        (!inside.iter().any(is_hidden)).then_some(folder)
    }

    /// Resolves a file of this resource. `None` if there is none, or it is a link to elsewhere or to a hidden file.
    fn locate(&self, path: &Path) -> Option<(PathBuf, Metadata)> {
        let target = path.canonicalize().ok()?;
        let is_hidden = target.file_name()?.as_encoded_bytes().starts_with(b".");
        let metadata = std::fs::metadata(&target).ok().filter(Metadata::is_file)?;
        (!is_hidden && target.parent() == Some(&self.folder()?)).then_some((target, metadata))
    }

    /// Returns the stamp of a file of this resource. `None` if there is no such file.
    pub(super) fn stamp(&self, path: &Path) -> Option<FileStamp> {
        self.locate(path).map(|(_, metadata)| FileStamp::new(&metadata))
    }

    /// Reads a file of this resource. `None` if there is no such file.
    ///
    /// # Errors
    /// If it cannot be read, or is too large.
    pub(super) fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        let Some((target, metadata)) = self.locate(path) else { return Ok(None) };
        if metadata.len() > MAX_FILE {
            return Err(io::Error::other(format!("the file is larger than {} MiB", MAX_FILE >> 20)));
        }
        // It may have been replaced since it was found, also by a link.
        let data = read_inside(target.parent().unwrap_or(&target), &target, MAX_FILE)?.into();
        Ok(Some(Blob { mime_type: self.mime_type_of(path), data, display_name: None }))
    }
}

fn canonicalize_folder(folder: &Path) -> io::Result<PathBuf> {
    if folder.as_os_str().is_empty() { Path::new(".").canonicalize() } else { folder.canonicalize() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(uri: &str, file: &str) -> FileResource {
        let root = PathBuf::new();
        FileResource { uri: uri.into(), root, file: file.into(), description: String::new(), mime_type: None }
    }

    #[test]
    fn a_placeholder_is_one_name() {
        let pages = resource("docs://{page}/text", "docs/{page}.md");
        assert_eq!(pages.path("docs://a%20b/text"), Some("docs/a b.md".into()));
        for other in
            ["docs:///text", "docs://a", "docs://../text", "docs://a%2Fb/text", "docs://.a/text", "docs://%00/text"]
        {
            assert_eq!(pages.path(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_resources_are_refused() {
        let fault = |uri: &str, file: &str| resource(uri, file).check().unwrap_err();
        assert_eq!(fault("docs", "a.md"), "`docs` is not a URI, such as `docs://handbook`");
        assert_eq!(
            fault("artifact:///a", "a.md"),
            "`artifact:///a` begins as the URIs of artifacts do; choose another scheme"
        );
        let placeholders = "need the same placeholder, as in `{page}`, or none";
        assert!(fault("docs://{page}", "a.md").ends_with(placeholders));
        assert!(fault("docs://a", "{page}.md").ends_with(placeholders));
        let number = "may have one placeholder, in the name of the file and not in the name of a folder";
        assert!(fault("docs://{a}/{b}", "{a}-{b}.md").ends_with(number));
        assert!(fault("docs://{a}", "{a}/{a}.md").ends_with(number));
        assert_eq!(resource("docs://{page}", "docs/{page}.md").check(), Ok(()));
    }
}
