//! Blocks of code in Markdown.

/// A block of code between fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// What follows the opening fence: a language, and what a test calls the block by.
    pub info: &'a str,
    /// What stands between the fences.
    pub text: &'a str,
    /// The line of the opening fence, from 1.
    pub line: usize,
}

/// The blocks of a text, in order. Fences are three backticks or more at the begin of a line; one that is not closed ends with the text.
pub fn of(markdown: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = markdown;
    let mut read = 0;
    std::iter::from_fn(move || {
        while let Some((line, below)) = rest.split_once('\n') {
            (rest, read) = (below, read + 1);
            let info = line.trim_start_matches('`');
            let fence = line.strip_suffix(info).filter(|fence| fence.len() >= 3);
            if let Some(fence) = fence {
                let text = until(below, fence);
                let block = Block { info: info.trim(), text, line: read };
                read += text.lines().count() + 1;
                rest = below.strip_prefix(text).and_then(|end| end.split_once('\n')).map_or("", |(_, below)| below);
                return Some(block);
            }
        }
        None
    })
}

/// The lines before the one that is this fence.
fn until<'a>(text: &'a str, fence: &str) -> &'a str {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == fence {
            break;
        }
        length += line.len();
    }
    text.get(..length).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_with_their_lines_and_may_hold_shorter_fences() {
        let text = "a\n```yaml x\nb: 1\n```\nc\n````\n```\nd\n```\n````\n```rust\n```\n```json\n{";
        let found: Vec<_> = of(text).map(|block| (block.info, block.text, block.line)).collect();
        assert_eq!(found, [("yaml x", "b: 1\n", 2), ("", "```\nd\n```\n", 6), ("rust", "", 11), ("json", "{", 13)]);
    }
}
