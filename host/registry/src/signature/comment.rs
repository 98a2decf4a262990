//! Trusted comment of a minisign signature: fields that are signed together with the bytes.

use std::fmt;

use super::{SignatureProblem, SignatureSubject};

/// The relevant fields of a trusted comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    file: Option<&'a str>,
    version: Option<&'a str>,
}

impl<'a> Comment<'a> {
    /// Creates the comment for a subject.
    pub(super) fn new(subject: SignatureSubject<'a>) -> Self {
        Self { file: Some(subject.name), version: subject.version }
    }

    /// Parses a comment such as `file:dice.wasm`. Other fields, such as `timestamp:1795295339`, are ignored.
    pub(super) fn parse(text: &'a str) -> Self {
        let field = |name: &str| text.split(['\t', ' ']).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
        Self { file: field("file").map(|file| file.strip_suffix(".wasm").unwrap_or(file)), version: field("version") }
    }

    /// Returns a problem if this is not the signature of `subject`. `signed_as` is its name in signatures if that is
    /// another one.
    pub(super) fn check(&self, subject: SignatureSubject<'_>, signed_as: Option<&str>) -> Option<SignatureProblem> {
        let (name, expected) = (subject.name, signed_as.unwrap_or(subject.name));
        let Some(signed) = self.file else {
            return Some(SignatureProblem {
                problem: "has a signature that names no file".into(),
                advice: format!(
                    "sign it again with `minisign -S -t file:{expected}.wasm`, or pin its digest with \
                     `components.{name}.sha256` of hatchery.yaml"
                ),
            });
        };
        if signed != expected {
            return Some(SignatureProblem {
                problem: format!("is signed as `{signed}.wasm`, not as `{expected}.wasm`"),
                advice: format!(
                    "rename the file to `{signed}.wasm`, have it signed under its new name, or allow it with \
                     `components.{name}.signed_as: {signed}` of hatchery.yaml"
                ),
            });
        }
        let (signed, requested) =
            self.version.zip(subject.version).filter(|(signed, requested)| signed != requested)?;
        Some(SignatureProblem {
            problem: format!("is signed as version {signed}, not as {requested}"),
            advice: format!("request {signed}, or have it pushed and signed as {requested}"),
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
        let problem = Comment::parse(comment).check(SignatureSubject { name, version }, signed_as);
        problem.map(|SignatureProblem { problem, advice }| format!("{problem}; {advice}"))
    }

    #[test]
    fn a_comment_round_trips() {
        for (subject, text) in [
            (SignatureSubject { name: "dice", version: Some("1.0") }, "file:dice.wasm\tversion:1.0"),
            (SignatureSubject { name: "dice", version: None }, "file:dice.wasm"),
        ] {
            assert_eq!(Comment::new(subject).to_string(), text);
            assert_eq!(Comment::parse(text), Comment::new(subject));
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
             allow it with `components.vault.signed_as: dice` of hatchery.yaml"
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
            "is signed as version 1.0, not as 2.0; request 1.0, or have it pushed and signed as 2.0"
        );
    }

    #[test]
    fn a_signature_without_a_file_name_is_explained() {
        assert_eq!(
            problem("timestamp:1795295339", "dice", None, None).unwrap(),
            "has a signature that names no file; sign it again with `minisign -S -t file:dice.wasm`, or \
             pin its digest with `components.dice.sha256` of hatchery.yaml"
        );
    }
}
