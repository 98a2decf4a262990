//! Finds personal data in text.

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
    /// The number of a payment card, whose last digit checks the others.
    Card,
    /// An international bank account number, which checks itself too.
    Iban,
    /// A telephone number with its country code.
    Phone,
}

impl Kind {
    /// All of them, those that check themselves before those that could be part of them.
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

    /// True when what looks like one is one.
    fn is(self, found: &str) -> bool {
        match self {
            Self::Email | Self::Phone => true,
            Self::Card => luhn(found),
            Self::Iban => mod_97(found),
        }
    }
}

/// Each kind with its compiled pattern.
static PATTERNS: LazyLock<Vec<(Kind, Regex)>> =
    LazyLock::new(|| Kind::ALL.into_iter().filter_map(|kind| Some((kind, Regex::new(kind.pattern()).ok()?))).collect());

/// The text with labels in place of what is of these kinds; nothing when there is none.
pub fn redacted(text: &str, kinds: &[Kind]) -> Option<String> {
    let mut cleaned = Cow::Borrowed(text);
    for (kind, pattern) in PATTERNS.iter().filter(|(kind, _)| kinds.contains(kind)) {
        let label = |found: &Captures| match found.get(0).map_or("", |found| found.as_str()) {
            found if kind.is(found) => kind.label().to_owned(),
            other => other.to_owned(),
        };
        let replaced = pattern.replace_all(&cleaned, label).into_owned();
        if replaced != cleaned {
            cleaned = Cow::Owned(replaced);
        }
    }
    match cleaned {
        Cow::Borrowed(_) => None,
        Cow::Owned(cleaned) => Some(cleaned),
    }
}

/// The check of card numbers (ISO/IEC 7812-1): every second digit from the right counts twice.
fn luhn(number: &str) -> bool {
    let digits = number.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    let sum: u32 = digits
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => digit,
            (_, twice) => twice / 10 + twice % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The check of account numbers (ISO 13616): with its first four characters moved to the end and letters as numbers, the rest of dividing
/// by 97 is 1.
fn mod_97(account: &str) -> bool {
    let plain: Vec<u32> = account.chars().filter_map(|c| c.to_digit(36)).collect();
    let Some((head, rest)) = plain.split_at_checked(4) else { return false };
    let rest = rest.iter().chain(head).fold(0, |rest, value| match value {
        0..10 => (rest * 10 + value) % 97,
        _ => (rest * 100 + value) % 97,
    });
    rest == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Option<String> {
        redacted(text, &Kind::ALL)
    }

    #[test]
    fn each_kind_gets_its_label() {
        assert_eq!(all("Write to ada.l+x@mail.example.org!").as_deref(), Some("Write to [email]!"));
        assert_eq!(all("Card 4111 1111 1111 1111, please").as_deref(), Some("Card [card], please"));
        assert_eq!(all("to GB82 WEST 1234 5698 7654 32.").as_deref(), Some("to [iban]."));
        assert_eq!(all("call +44 20 7946 0958 now").as_deref(), Some("call [phone] now"));
    }

    #[test]
    fn numbers_that_do_not_check_stay() {
        assert_eq!(all("order 4111 1111 1111 1112"), None);
        assert_eq!(all("part GB83WEST12345698765432"), None);
        assert_eq!(all("12 eggs, 3 pans, 17:30"), None);
    }

    #[test]
    fn kinds_that_are_not_wanted_stay() {
        assert_eq!(redacted("ada@example.com", &[Kind::Card]), None);
    }
}
