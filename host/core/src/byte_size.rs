//! Parsing of byte sizes such as `16 MiB`.

const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];

/// Parses a number of bytes such as `16 MiB`, `1.5gib`, `500kB` or `1048576`. Units are case-insensitive. A fraction of
/// a byte is dropped.
///
/// # Errors
/// A message with an example, if the string is not a size, or the size does not fit into 64 bits.
pub fn parse_byte_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    parse(text).ok_or_else(|| format!("`{text}` is not a size; write for example `16 MiB` or 1048576"))
}

fn parse(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, size) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    if number.contains('.') {
        let bytes = number.parse::<f64>().ok()? * *size as f64;
        return (bytes < u64::MAX as f64).then_some(bytes as u64);
    }
    number.parse::<u64>().ok()?.checked_mul(*size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_parsed_with_and_without_units_and_fractions() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("0", 0),
            ("16 MiB", 16 << 20),
            (" 64MiB\n", 64 << 20),
            ("1.5 MiB", 3 << 19),
            (".5 kB", 500),
            ("0.3 KiB", 307),
            ("2kB", 2000),
            ("2 KB", 2000),
            ("1 gib", 1 << 30),
            ("7b", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_byte_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_strings_are_rejected_with_an_example() {
        for text in [
            "",
            ".",
            "MiB",
            "-1",
            "+1",
            "1e3",
            "1.5.2 MiB",
            "3 parsecs",
            "inf",
            "NaN",
            "99999999999999999999",
            "17179869184 GiB",
            "17179869184.0 GiB",
        ] {
            let error = parse_byte_size(text).unwrap_err();
            assert_eq!(error, format!("`{text}` is not a size; write for example `16 MiB` or 1048576"));
        }
    }

    proptest! {
        #[test]
        fn whole_sizes_are_exact_in_every_unit_and_case(number in 0..1_u64 << 33, unit in 0..UNITS.len(), is_lower: bool) {
            let (name, size) = UNITS[unit];
            let name = if is_lower { name.to_lowercase() } else { name.to_uppercase() };
            prop_assert_eq!(parse_byte_size(&format!("{number} {name}")), Ok(number * size));
            prop_assert_eq!(parse_byte_size(&format!("{number}{name}")), Ok(number * size));
        }

        #[test]
        fn no_string_makes_it_panic(text in "\\PC{0,12}") {
            let _ = parse_byte_size(&text);
        }
    }
}
