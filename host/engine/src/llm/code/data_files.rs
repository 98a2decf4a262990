//! Data files in messages: what a prompt says about them in place of their contents.

/// The media type of the files that are taken out of prompts.
pub(super) const CSV: &str = "text/csv";

/// More of a header line is not shown.
const MAX_HEADER_BYTES: usize = 1024;

/// True for CSV, with or without parameters such as `charset`.
pub(super) fn is_csv(mime_type: &str) -> bool {
    mime_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(CSV)
}

/// What a model has to know of a file to write code for it: its name, its header line, and how many rows follow.
pub(super) fn describe(name: &str, csv: &[u8]) -> String {
    let csv = csv.strip_prefix(b"\xef\xbb\xbf").unwrap_or(csv);
    let mut records = records(csv);
    let Some(header) = records.next() else { return format!("Available file: `{name}`\nIt is empty.") };
    let header = String::from_utf8_lossy(header);
    let shown = header.get(..header.floor_char_boundary(MAX_HEADER_BYTES)).unwrap_or_default();
    let cut = if shown.len() < header.len() { " (cut)" } else { "" };
    format!("Available file: `{name}`\nHeader line{cut}: {shown}\nRows after it: {}", records.count())
}

/// The records of a CSV file, blank lines apart. A line break between quotes is part of a record.
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

    fn told(csv: &str) -> String {
        describe("d.csv", csv.as_bytes()).replace("Available file: `d.csv`\n", "")
    }

    #[test]
    fn header_and_rows_are_told() {
        assert_eq!(told("a,b\n1,2\n3,4\n"), "Header line: a,b\nRows after it: 2");
        assert_eq!(told("\u{feff}a,b\r\n\r\n1,2"), "Header line: a,b\nRows after it: 1");
        assert_eq!(told("a"), "Header line: a\nRows after it: 0");
        assert_eq!(told("\n \n"), "It is empty.");
    }

    #[test]
    fn a_line_break_between_quotes_ends_no_row() {
        assert_eq!(told("a,b\n\"x\ny\",\"say \"\"hi\"\"\"\n1,2\n"), "Header line: a,b\nRows after it: 2");
    }

    #[test]
    fn a_long_header_line_is_cut_between_characters() {
        let header = format!("a{}", "é".repeat(600));
        let shown = format!("a{}", "é".repeat(511));
        assert_eq!(told(&header), format!("Header line (cut): {shown}\nRows after it: 0"));
    }

    #[test]
    fn csv_is_known_by_its_media_type() {
        assert!(is_csv("text/csv") && is_csv("Text/CSV; charset=utf-8"));
        assert!(!is_csv("text/plain") && !is_csv("text/csv-schema") && !is_csv(""));
    }
}
