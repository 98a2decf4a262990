//! Splits a text into passages: paragraphs that belong together, which are small enough to be part of a prompt.

/// A passage ends at the first blank line or heading after this many bytes.
const TARGET: usize = 800;

/// A passage ends at the latest after the line with which it has this many bytes.
const MAX: usize = 2000;

/// A passage with its lines, from 1.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) text: String,
}

/// Returns the passages of a text, without those that are blank.
pub(super) fn passages(text: &str) -> Vec<Lines> {
    let (mut passages, mut current, mut first_line) = (Vec::new(), String::new(), 1);
    let mut end = |current: &mut String, first: u32, last: u32| {
        let text = std::mem::take(current);
        if !text.trim().is_empty() {
            passages.push(Lines { first, last, text: text.trim_end().into() });
        }
    };
    for (line, number) in text.lines().zip(1u32..) {
        let is_break = line.trim().is_empty() || line.starts_with('#');
        if (is_break && current.len() >= TARGET) || current.len() >= MAX {
            end(&mut current, first_line, number - 1);
        }
        if current.is_empty() {
            first_line = number;
            if line.trim().is_empty() {
                continue;
            }
        }
        // The last line in the current passage.
        let mut last_line = number - 1;
        for piece in pieces(line) {
            if !current.is_empty() && current.len() + piece.len() > MAX {
                end(&mut current, first_line, last_line);
                first_line = number;
            }
            current.push_str(piece);
            last_line = number;
        }
        current.push('\n');
    }
    let last_line = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
    end(&mut current, first_line, last_line);
    passages
}

/// Splits a line that is longer than a passage.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let piece = rest.get(..rest.floor_char_boundary(MAX))?;
        rest = rest.get(piece.len()..)?;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(u32, u32, usize)> {
        passages(text).iter().map(|it| (it.first, it.last, it.text.len())).collect()
    }

    #[test]
    fn short_paragraphs_stay_together() {
        assert_eq!(lines("\n# Title\n\nOne.\n\nTwo.\n"), [(2, 6, "# Title\n\nOne.\n\nTwo.".len())]);
        assert!(lines(" \n\n").is_empty());
    }

    #[test]
    fn a_long_text_is_split_at_paragraphs() {
        let paragraph = "word ".repeat(150);
        let text = format!("{paragraph}\n\n{paragraph}\n\n{paragraph}\n");
        assert_eq!(lines(&text), [(1, 3, 1501), (5, 5, 749)]);
    }

    #[test]
    fn a_passage_ends_before_a_line_that_does_not_fit() {
        let text = format!("{}\n{}\nend\n", "a".repeat(600), "b".repeat(1500));
        assert_eq!(lines(&text), [(1, 1, 600), (2, 3, 1504)]);
    }

    #[test]
    fn a_line_without_end_is_split_too() {
        let text = "é".repeat(3000);
        assert_eq!(lines(&text), [(1, 1, 2000), (1, 1, 2000), (1, 1, 2000)]);
    }
}
