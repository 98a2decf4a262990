//! The Porter stemmer: removes the endings of English words (M. F. Porter, "An algorithm for suffix stripping", 1980).

/// The endings of step 2 and their replacements, for stems with a measure above 0.
const STEP_2: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

/// The suffixes of step 3, likewise.
const STEP_3: [(&str, &str); 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

/// The suffixes that step 4 removes from stems with a measure above 1.
const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// Returns the stem of a word in lower case. Words of up to three letters and words with other signs than English
/// letters are returned unchanged.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let word = step_1a(word);
    let word = step_1b(&word);
    let word = step_1c(&word);
    let word = replace(&word, &STEP_2);
    let word = replace(&word, &STEP_3);
    let word = step_4(&word);
    step_5(&word)
}

/// Returns for each letter whether it is a consonant. A `y` is one at the beginning and after a vowel.
fn consonants(text: &str) -> Vec<bool> {
    let mut kinds = Vec::with_capacity(text.len());
    for letter in text.bytes() {
        let is_consonant = match letter {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => !kinds.last().copied().unwrap_or(false),
            _ => true,
        };
        kinds.push(is_consonant);
    }
    kinds
}

/// Returns the number of vowels that a consonant follows.
fn measure(text: &str) -> usize {
    consonants(text).windows(2).filter(|pair| matches!(pair, [false, true])).count()
}

fn has_vowel(text: &str) -> bool {
    consonants(text).contains(&false)
}

fn ends_in_double_consonant(text: &str) -> bool {
    let mut letters = text.bytes().rev();
    let is_double = letters.next().is_some_and(|last| letters.next() == Some(last));
    is_double && consonants(text).last() == Some(&true)
}

/// Returns true if the text ends in consonant, vowel, consonant, and the last is not `w`, `x` or `y`.
fn ends_in_short_syllable(text: &str) -> bool {
    consonants(text).ends_with(&[true, false, true]) && !text.ends_with(['w', 'x', 'y'])
}

/// Plurals.
fn step_1a(word: &str) -> String {
    match word {
        _ if word.ends_with("sses") || word.ends_with("ies") => without_end(word, 2),
        _ if word.ends_with("ss") => word.to_owned(),
        _ if word.ends_with('s') => without_end(word, 1),
        _ => word.to_owned(),
    }
}

/// Participles and past tense.
fn step_1b(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("eed") {
        return if measure(stem) > 0 { format!("{stem}ee") } else { word.to_owned() };
    }
    let stem = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing")).filter(|stem| has_vowel(stem));
    let Some(stem) = stem else { return word.to_owned() };
    if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
        format!("{stem}e")
    } else if ends_in_double_consonant(stem) && !stem.ends_with(['l', 's', 'z']) {
        without_end(stem, 1)
    } else if measure(stem) == 1 && ends_in_short_syllable(stem) {
        format!("{stem}e")
    } else {
        stem.to_owned()
    }
}

fn step_1c(word: &str) -> String {
    match word.strip_suffix('y').filter(|stem| has_vowel(stem)) {
        Some(stem) => format!("{stem}i"),
        None => word.to_owned(),
    }
}

/// Replaces the first of these endings that the word has, if the stem before it has a measure above 0.
fn replace(word: &str, endings: &[(&str, &str)]) -> String {
    let found = endings.iter().find_map(|(end, new)| Some((word.strip_suffix(end)?, new)));
    match found {
        Some((stem, new)) if measure(stem) > 0 => format!("{stem}{new}"),
        _ => word.to_owned(),
    }
}

fn step_4(word: &str) -> String {
    let found = STEP_4.iter().find_map(|end| Some((word.strip_suffix(end)?, *end)));
    match found {
        Some((stem, end)) if measure(stem) > 1 && (end != "ion" || stem.ends_with(['s', 't'])) => stem.to_owned(),
        _ => word.to_owned(),
    }
}

/// A silent `e` and a double `l`.
fn step_5(word: &str) -> String {
    let word = match word.strip_suffix('e') {
        Some(stem) if measure(stem) > 1 || (measure(stem) == 1 && !ends_in_short_syllable(stem)) => stem,
        _ => word,
    };
    if word.ends_with("ll") && measure(word) > 1 { without_end(word, 1) } else { word.to_owned() }
}

/// Returns the word without its last `count` letters.
fn without_end(word: &str, count: usize) -> String {
    word.get(..word.len().saturating_sub(count)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_publication_have_their_stems() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("caress", "caress"),
            ("cats", "cat"),
            ("agreed", "agre"),
            ("feed", "feed"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("filing", "file"),
            ("happy", "happi"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("rational", "ration"),
            ("digitizer", "digit"),
            ("vietnamization", "vietnam"),
            ("hopefulness", "hope"),
            ("sensibiliti", "sensibl"),
            ("triplicate", "triplic"),
            ("electrical", "electr"),
            ("goodness", "good"),
            ("replacement", "replac"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("effective", "effect"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controlling", "control"),
            ("roll", "roll"),
            ("generalizations", "gener"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn short_and_foreign_words_are_kept() {
        for word in ["its", "as", "ülkes", "2nds", ""] {
            assert_eq!(stem(word), word);
        }
    }
}
