//! Finds and replaces personal data in text.

use std::borrow::Cow;
use std::sync::LazyLock;

use hatchery_guest::prelude::*;
use regex_lite::{Captures, Regex};

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An e-mail address.
    Email,
    /// The number of a payment card, with a check digit.
    Card,
    /// An international bank account number, with check digits.
    Iban,
    /// A telephone number with its country code.
    Phone,
}

impl Kind {
    /// All kinds, in the order of the search: numbers with check digits come before others that could be parts of them.
    pub const ALL: [Self; 4] = [Self::Email, Self::Iban, Self::Card, Self::Phone];

    fn label(self) -> &'static str {
        match self {
            Self::Email => "[email]",
            Self::Card => "[card]",
            Self::Iban => "[iban]",
            Self::Phone => "[phone]",
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Email => r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
            Self::Card => r"\b[0-9]([ -]?[0-9]){12,18}\b",
            Self::Iban => r"\b[A-Z]{2}[0-9]{2}( ?[A-Z0-9]){11,30}\b",
            Self::Phone => r"\+[0-9]([ /-]?\(?[0-9]\)?){6,14}\b",
        }
    }

    /// Returns true if a text that matches the pattern has valid check digits.
    fn is_valid(self, found: &str) -> bool {
        match self {
            Self::Email | Self::Phone => true,
            Self::Card => luhn(found),
            Self::Iban => mod_97(found),
        }
    }
}

/// The compiled pattern of each kind.
static PATTERNS: LazyLock<Vec<(Kind, Regex)>> =
    LazyLock::new(|| Kind::ALL.into_iter().filter_map(|kind| Some((kind, Regex::new(kind.pattern()).ok()?))).collect());

/// Replaces data of these kinds by labels. `None` if there is none.
pub fn redact(text: &str, kinds: &[Kind]) -> Option<String> {
    let mut redacted = Cow::Borrowed(text);
    for (kind, pattern) in PATTERNS.iter().filter(|(kind, _)| kinds.contains(kind)) {
        let label = |found: &Captures| match found.get(0).map_or("", |found| found.as_str()) {
            found if kind.is_valid(found) => kind.label().to_owned(),
            other => other.to_owned(),
        };
        let replaced = pattern.replace_all(&redacted, label).into_owned();
        if replaced != redacted {
            redacted = Cow::Owned(replaced);
        }
    }
    match redacted {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}

/// Checks a card number (Luhn algorithm, ISO/IEC 7812-1): every second digit from the right counts twice.
fn luhn(number: &str) -> bool {
    let digits = number.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    let sum: u32 = digits
        .map(|(position, digit)| match (position % 2, digit * 2) {
            (0, _) => digit,
            (_, twice) => twice / 10 + twice % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Checks an account number (ISO 13616): with the first four characters moved to the end and letters as numbers, the
/// remainder modulo 97 is 1.
fn mod_97(account: &str) -> bool {
    let plain: Vec<u32> = account.chars().filter_map(|c| c.to_digit(36)).collect();
    let Some((head, tail)) = plain.split_at_checked(4) else { return false };
    let remainder = tail.iter().chain(head).fold(0, |remainder, value| match value {
        0..10 => (remainder * 10 + value) % 97,
        _ => (remainder * 100 + value) % 97,
    });
    remainder == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Option<String> {
        redact(text, &Kind::ALL)
    }

    #[test]
    fn each_kind_gets_its_label() {
        assert_eq!(all("Write to ada.l+x@mail.example.org!").as_deref(), Some("Write to [email]!"));
        assert_eq!(all("Card 4111 1111 1111 1111, please").as_deref(), Some("Card [card], please"));
        assert_eq!(all("to GB82 WEST 1234 5698 7654 32.").as_deref(), Some("to [iban]."));
        assert_eq!(all("call +44 20 7946 0958 now").as_deref(), Some("call [phone] now"));
    }

    #[test]
    fn numbers_with_a_wrong_check_digit_are_unchanged() {
        assert_eq!(all("order 4111 1111 1111 1112"), None);
        assert_eq!(all("part GB83WEST12345698765432"), None);
        assert_eq!(all("12 eggs, 3 pans, 17:30"), None);
    }

    #[test]
    fn disabled_kinds_are_unchanged() {
        assert_eq!(redact("ada@example.com", &[Kind::Card]), None);
    }
}
