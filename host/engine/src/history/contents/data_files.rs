//! Data files: replaces the contents of CSV files in a prompt by descriptions.

/// The media type of the files that are replaced.
pub(super) const CSV: &str = "text/csv";

/// Maximum length of a header line in a description.
const MAX_HEADER_BYTES: usize = 1024;

/// Returns true for CSV, with or without parameters such as `charset`.
pub(super) fn is_csv(mime_type: &str) -> bool {
    mime_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(CSV)
}

/// Describes a file so that a model can write code for it: the name, the header line, and the number of rows.
pub(super) fn describe(name: &str, csv: &[u8]) -> String {
    let csv = csv.strip_prefix(b"\xef\xbb\xbf").unwrap_or(csv);
    let mut records = records(csv);
    let Some(header) = records.next() else { return format!("Available file: `{name}`\nIt is empty.") };
    let header = String::from_utf8_lossy(header);
    let excerpt = header.get(..header.floor_char_boundary(MAX_HEADER_BYTES)).unwrap_or_default();
    let cut = if excerpt.len() < header.len() { " (cut)" } else { "" };
    format!("Available file: `{name}`\nHeader line{cut}: {excerpt}\nRows after it: {}", records.count())
}

/// Returns the records of a CSV file without blank lines. A quoted line break is part of a record.
fn records(csv: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let ends_record = move |byte: &u8| {
        quoted ^= *byte == b'"';
        *byte == b'\n' && !quoted
    };
    csv.split(ends_record).map(<[u8]>::trim_ascii).filter(|record| !record.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(csv: &str) -> String {
        describe("d.csv", csv.as_bytes()).replace("Available file: `d.csv`\n", "")
    }

    #[test]
    fn a_description_has_the_header_and_the_number_of_rows() {
        assert_eq!(description("a,b\n1,2\n3,4\n"), "Header line: a,b\nRows after it: 2");
        assert_eq!(description("\u{feff}a,b\r\n\r\n1,2"), "Header line: a,b\nRows after it: 1");
        assert_eq!(description("a"), "Header line: a\nRows after it: 0");
        assert_eq!(description("\n \n"), "It is empty.");
    }

    #[test]
    fn a_quoted_line_break_does_not_end_a_row() {
        assert_eq!(description("a,b\n\"x\ny\",\"say \"\"hi\"\"\"\n1,2\n"), "Header line: a,b\nRows after it: 2");
    }

    #[test]
    fn a_long_header_line_is_truncated_between_characters() {
        let header = format!("a{}", "é".repeat(600));
        let excerpt_text = format!("a{}", "é".repeat(511));
        assert_eq!(description(&header), format!("Header line (cut): {excerpt_text}\nRows after it: 0"));
    }

    #[test]
    fn csv_is_recognized_by_its_media_type() {
        assert!(is_csv("text/csv") && is_csv("Text/CSV; charset=utf-8"));
        assert!(!is_csv("text/plain") && !is_csv("text/csv-schema") && !is_csv(""));
    }
}
