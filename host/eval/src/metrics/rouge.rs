//! ROUGE-1: the words that two texts share.

use std::collections::HashMap;

use super::stem::stem;

/// Returns the F-measure of ROUGE-1, from 0 to 1: the harmonic mean of the share of `response`'s words that are in
/// `reference` and the share of `reference`'s words that are in `response`. A word counts as often as it occurs.
///
/// Words are compared without case and, if they are English, by their stem ("rolled" is "rolls"). Signs other than
/// letters and digits separate words. Each Chinese character and each kana is a word. Two texts without words match.
pub(crate) fn rouge1_f_measure(response: &str, reference: &str) -> f64 {
    let (response, reference) = (words(response), words(reference));
    if response.is_empty() && reference.is_empty() {
        return 1.0;
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in &reference {
        *counts.entry(word).or_default() += 1;
    }
    let mut shared = 0;
    for word in &response {
        if let Some(count) = counts.get_mut(word.as_str()).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    // The harmonic mean of shared/response and shared/reference.
    2.0 * f64::from(shared) / (response.len() + reference.len()) as f64
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            words.push(stem(&std::mem::take(word)));
        }
    };
    for character in text.chars() {
        if is_word_by_itself(character) {
            end(&mut word);
            word.push(character);
            end(&mut word);
        } else if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        } else if !is_mark(character) {
            end(&mut word);
        }
    }
    end(&mut word);
    words
}

/// Returns true for characters of scripts that do not separate words.
fn is_word_by_itself(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{2fa1f}')
}

/// Returns true for accents that follow their letter.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{0300}'..='\u{036f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_compared_without_case_signs_and_endings() {
        assert_eq!(
            words("You're ROLLING 2 dice; state-of-the-art."),
            ["you", "re", "roll", "2", "dice", "state", "of", "the", "art"]
        );
        assert_eq!(words("Zażółć gęślą"), ["zażółć", "gęślą"]);
        assert_eq!(words("東京は3つ"), ["東", "京", "は", "3", "つ"]);
        assert_eq!(words(" …!"), Vec::<String>::new());
    }

    #[test]
    fn the_f_measure_is_the_harmonic_mean_of_precision_and_recall() {
        for (response, reference, expected) in [
            ("a b c d", "a b c d", 1.0),
            ("a b", "a b c d", 2.0 / 3.0), // precision 1, recall 1/2
            ("a a a a", "a b", 1.0 / 3.0), // precision 1/4, recall 1/2
            ("d c b a", "a b c d", 1.0),   // order does not count
            ("", "a", 0.0),
            ("a", "", 0.0),
            ("", "", 1.0),
            ("x", "y", 0.0),
            ("You rolled a 3.", "you rolled a 3", 1.0),
            ("You rolled 3.", "You rolled 17.", 2.0 / 3.0),
        ] {
            let found = rouge1_f_measure(response, reference);
            assert!((found - expected).abs() < 1e-12, "{response:?} and {reference:?}: {found}");
        }
    }

    proptest! {
        #[test]
        fn it_is_symmetric_between_zero_and_one_and_one_for_the_same_words(one in ".{0,60}", other in ".{0,60}") {
            let score = rouge1_f_measure(&one, &other);
            prop_assert!((0.0..=1.0).contains(&score));
            prop_assert_eq!(score, rouge1_f_measure(&other, &one));
            prop_assert_eq!(rouge1_f_measure(&one, &one), 1.0);
        }
    }
}
