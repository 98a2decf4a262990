//! The trusted comment of a signature: fields that are signed together with the bytes, as minisign writes them.

use std::fmt;

use super::{Problem, Subject};

/// What a trusted comment says of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    file: Option<&'a str>,
    version: Option<&'a str>,
}

impl<'a> Comment<'a> {
    /// The comment that signs `subject`.
    pub(super) fn of(subject: Subject<'a>) -> Self {
        Self { file: Some(subject.name), version: subject.version }
    }

    /// Reads the fields that count, such as `file:dice.wasm`; other ones, such as `timestamp:1795295339`, may be there.
    pub(super) fn parse(text: &'a str) -> Self {
        let field = |name: &str| text.split(['\t', ' ']).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
        Self { file: field("file").map(|file| file.strip_suffix(".wasm").unwrap_or(file)), version: field("version") }
    }

    /// Why this is not the signature of `subject`, whose name in signatures may be another one.
    pub(super) fn problem(&self, subject: Subject<'_>, signed_as: Option<&str>) -> Option<Problem> {
        let (found, expected) = (subject.name, signed_as.unwrap_or(subject.name));
        let Some(signed) = self.file else {
            return Some(Problem {
                problem: "has a signature that names no file".into(),
                advice: format!(
                    "sign it again with `hatchery push --sign-with` or `minisign -S -t file:{expected}.wasm`, or say which bytes it has \
                     by `components.{found}.sha256` of hatchery.yaml"
                ),
            });
        };
        if signed != expected {
            return Some(Problem {
                problem: format!("is signed as `{signed}.wasm`, not as `{expected}.wasm`"),
                advice: format!(
                    "rename the file to `{signed}.wasm`, have it signed under its new name, or allow it by \
                     `components.{found}.signed_as: {signed}` of hatchery.yaml"
                ),
            });
        }
        let (signed, asked) = self.version.zip(subject.version).filter(|(signed, asked)| signed != asked)?;
        Some(Problem {
            problem: format!("is signed as version {signed}, not as {asked}"),
            advice: format!("ask for {signed}, or have it pushed and signed as {asked}"),
        })
    }
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}.wasm", self.file.unwrap_or_default())?;
        self.version.map_or(Ok(()), |version| write!(f, "\tversion:{version}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(comment: &str, name: &str, version: Option<&str>, signed_as: Option<&str>) -> Option<String> {
        let problem = Comment::parse(comment).problem(Subject { name, version }, signed_as);
        problem.map(|Problem { problem, advice }| format!("{problem}; {advice}"))
    }

    #[test]
    fn a_comment_is_read_as_it_is_written() {
        for (subject, text) in [
            (Subject { name: "dice", version: Some("1.0") }, "file:dice.wasm\tversion:1.0"),
            (Subject { name: "dice", version: None }, "file:dice.wasm"),
        ] {
            assert_eq!(Comment::of(subject).to_string(), text);
            assert_eq!(Comment::parse(text), Comment::of(subject));
        }
        let by_minisign = Comment::parse("timestamp:1795295339\tfile:dice.wasm\thashed");
        assert_eq!(by_minisign, Comment { file: Some("dice"), version: None });
    }

    #[test]
    fn a_signature_is_for_one_name() {
        assert_eq!(problem("file:dice.wasm", "dice", None, None), None);
        assert_eq!(
            problem("file:dice.wasm", "vault", None, None).unwrap(),
            "is signed as `dice.wasm`, not as `vault.wasm`; rename the file to `dice.wasm`, have it signed under its new name, or \
             allow it by `components.vault.signed_as: dice` of hatchery.yaml"
        );
        assert_eq!(problem("file:dice.wasm", "vault", None, Some("dice")), None);
        assert!(problem("file:vault.wasm", "vault", None, Some("dice")).unwrap().contains("not as `dice.wasm`"));
    }

    #[test]
    fn a_signature_is_for_the_version_that_it_names() {
        for (comment, version, is_fine) in [
            ("file:dice.wasm\tversion:1.0", Some("1.0"), true),
            ("file:dice.wasm\tversion:1.0", None, true),
            ("file:dice.wasm", Some("1.0"), true),
            ("file:dice.wasm\tversion:1.0", Some("2.0"), false),
        ] {
            assert_eq!(problem(comment, "dice", version, None).is_none(), is_fine, "{comment} {version:?}");
        }
        assert_eq!(
            problem("file:dice.wasm\tversion:1.0", "dice", Some("2.0"), None).unwrap(),
            "is signed as version 1.0, not as 2.0; ask for 1.0, or have it pushed and signed as 2.0"
        );
    }

    #[test]
    fn a_signature_of_no_file_says_how_to_mend_it() {
        assert_eq!(
            problem("timestamp:1795295339", "dice", None, None).unwrap(),
            "has a signature that names no file; sign it again with `hatchery push --sign-with` or `minisign -S -t file:dice.wasm`, \
             or say which bytes it has by `components.dice.sha256` of hatchery.yaml"
        );
    }
}
