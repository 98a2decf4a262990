//! Unified diff of two JSON values, computed by longest common subsequence.

use std::fmt::Write;

use serde_json::Value;

/// The number of equal lines around a difference.
const CONTEXT_LINES: usize = 3;
/// The maximum number of line comparisons. Longer texts are shown as replaced from the first to the last difference.
const MAX_COMPARISONS: usize = 4_000_000;

/// Returns the differences of two values as indented JSON, in which a string with line ends takes several lines. The
/// first name and value are marked with `-`, the second with `+`.
pub(crate) fn unified_diff(names: [&str; 2], first: &Value, second: &Value) -> String {
    let [first, second] = [first, second].map(pretty_print);
    let [before, after]: [Vec<&str>; 2] = [first.lines().collect(), second.lines().collect()];
    let [first_name, second_name] = names;
    let mut text = format!("--- {first_name}\n+++ {second_name}\n");
    write_hunks(&mut text, &diff_lines(&before, &after));
    text
}

/// Returns indented JSON with a line break after each `\n` in a string.
fn pretty_print(value: &Value) -> String {
    let json = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut text = String::with_capacity(json.len());
    for line in json.lines() {
        let indent = line.len() - line.trim_start().len() + 2;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            text.push(c);
            if c == '\\'
                && let Some(escaped) = chars.next()
            {
                text.push(escaped);
                if escaped == 'n' && chars.peek() != Some(&'"') {
                    text.push('\n');
                    text.extend(std::iter::repeat_n(' ', indent));
                }
            }
        }
        text.push('\n');
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns a shortest edit script from one text to the other.
fn diff_lines<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (same, before) = before.split_at(head);
    let after = after.get(head..).unwrap_or_default();
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    let (before, end) = before.split_at(before.len() - tail);
    let after = after.get(..after.len() - tail).unwrap_or_default();
    let mut lines: Vec<_> = same.iter().map(|line| Line::Same(line)).collect();
    lines.extend(diff_by_common_lines(before, after));
    lines.extend(end.iter().map(|line| Line::Same(line)));
    lines
}

fn diff_by_common_lines<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    if before.len().saturating_mul(after.len()) > MAX_COMPARISONS {
        let removed = before.iter().map(|line| Line::Removed(line));
        return removed.chain(after.iter().map(|line| Line::Added(line))).collect();
    }
    let common = common_line_counts(before, after);
    let at = |row: usize, column: usize| common.get(row).and_then(|row| row.get(column)).copied().unwrap_or(0);
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::new();
    loop {
        match (before.get(row), after.get(column)) {
            (Some(a), Some(b)) if a == b => {
                lines.push(Line::Same(a));
                row += 1;
                column += 1;
            }
            (Some(a), b) if b.is_none() || at(row + 1, column) >= at(row, column + 1) => {
                lines.push(Line::Removed(a));
                row += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Added(b));
                column += 1;
            }
            (_, None) => return lines,
        }
    }
}

/// Returns the table of the lengths of the longest common subsequences of the lines from `row` and from `column` to the
/// end.
fn common_line_counts(before: &[&str], after: &[&str]) -> Vec<Vec<u32>> {
    let mut rows = vec![vec![0; after.len() + 1]];
    for a in before.iter().rev() {
        let below = rows.last().map(Vec::as_slice).unwrap_or_default();
        let mut row = vec![0; after.len() + 1];
        let mut right = 0;
        for (column, b) in after.iter().enumerate().rev() {
            let [diagonal, down] = [column + 1, column].map(|column| below.get(column).copied().unwrap_or(0));
            right = if a == b { diagonal + 1 } else { right.max(down) };
            if let Some(cell) = row.get_mut(column) {
                *cell = right;
            }
        }
        rows.push(row);
    }
    rows.reverse();
    rows
}

/// Writes the differences with [`CONTEXT_LINES`] lines of context.
fn write_hunks(text: &mut String, lines: &[Line<'_>]) {
    let (mut before_line, mut after_line) = (1, 1);
    let mut is_in_hunk = false;
    for (index, line) in lines.iter().enumerate() {
        let around =
            lines.iter().skip(index.saturating_sub(CONTEXT_LINES)).take(CONTEXT_LINES.min(index) + 1 + CONTEXT_LINES);
        let is_shown = around.clone().any(|line| !matches!(line, Line::Same(_)));
        if is_shown && !is_in_hunk {
            let _ = writeln!(text, "@@ -{before_line} +{after_line} @@");
        }
        is_in_hunk = is_shown;
        let (sign, content) = match line {
            Line::Same(content) => (' ', content),
            Line::Removed(content) => ('-', content),
            Line::Added(content) => ('+', content),
        };
        if is_shown {
            let _ = writeln!(text, "{sign}{content}");
        }
        before_line += usize::from(!matches!(line, Line::Added(_)));
        after_line += usize::from(!matches!(line, Line::Removed(_)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn diff_words(before: &str, after: &str) -> String {
        let [before, after]: [Vec<&str>; 2] = [before.split(' ').collect(), after.split(' ').collect()];
        let mut text = String::new();
        write_hunks(&mut text, &diff_lines(&before, &after));
        text
    }

    #[test]
    fn only_differences_and_their_context_are_shown() {
        let before = "a b c d e f g h i j k l m n o";
        let after = "a B c d e f g h i j k l m n o p";
        assert_eq!(diff_words(before, after), "@@ -1 +1 @@\n a\n-b\n+B\n c\n d\n e\n@@ -13 +13 @@\n m\n n\n o\n+p\n");
    }

    #[test]
    fn common_lines_are_kept() {
        assert_eq!(diff_words("a x b y c", "a b z c"), "@@ -1 +1 @@\n a\n-x\n b\n-y\n+z\n c\n");
        assert_eq!(diff_words("a", "a"), "");
        assert_eq!(diff_words("a b", "c"), "@@ -1 +1 @@\n-a\n-b\n+c\n");
    }

    #[test]
    fn texts_too_long_to_compare_are_shown_as_replaced() {
        let long = |prefix: &str| (0..2100).map(|line| format!("{prefix}{line} same")).collect::<Vec<_>>().join(" ");
        let text = diff_words(&long("a"), &long("b"));
        assert_eq!(text.lines().filter(|line| line.starts_with('-')).count(), 4199);
    }

    #[test]
    fn a_string_with_line_ends_takes_several_lines() {
        let [before, after] = ["one\ntwo \\n\n", "one\n2 \\n\n"].map(|text| json!({ "text": text }));
        let diff = unified_diff(["recorded", "now"], &before, &after);
        assert_eq!(
            diff,
            "--- recorded\n+++ now\n@@ -1 +1 @@\n {\n   \"text\": \"one\\n\n-    two \\\\n\\n\"\n+    2 \\\\n\\n\"\n }\n"
        );
    }
}
