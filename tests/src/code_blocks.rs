//! Parser of code blocks in Markdown.

/// A fenced code block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeBlock<'a> {
    /// The text after the opening fence: the language, and a name for tests.
    pub info: &'a str,
    /// The text between the fences.
    pub text: &'a str,
    /// The line number of the opening fence, starting at 1.
    pub line: usize,
}

/// Returns the code blocks of a text, in order. Fences are three or more backticks at the start of a line; a block
/// without a closing fence ends with the text.
pub fn parse(markdown: &str) -> impl Iterator<Item = CodeBlock<'_>> {
    let mut rest = markdown;
    let mut line_count = 0;
    std::iter::from_fn(move || {
        while let Some((line, below)) = rest.split_once('\n') {
            (rest, line_count) = (below, line_count + 1);
            let info = line.trim_start_matches('`');
            let fence = line.strip_suffix(info).filter(|fence| fence.len() >= 3);
            if let Some(fence) = fence {
                let text = lines_before(below, fence);
                let block = CodeBlock { info: info.trim(), text, line: line_count };
                line_count += text.lines().count() + 1;
                rest = below.strip_prefix(text).and_then(|end| end.split_once('\n')).map_or("", |(_, below)| below);
                return Some(block);
            }
        }
        None
    })
}

/// Returns the lines before this fence.
fn lines_before<'a>(text: &'a str, fence: &str) -> &'a str {
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
    fn blocks_have_line_numbers_and_can_contain_shorter_fences() {
        let text = "a\n```yaml x\nb: 1\n```\nc\n````\n```\nd\n```\n````\n```rust\n```\n```json\n{";
        let blocks: Vec<_> = parse(text).map(|block| (block.info, block.text, block.line)).collect();
        assert_eq!(blocks, [("yaml x", "b: 1\n", 2), ("", "```\nd\n```\n", 6), ("rust", "", 11), ("json", "{", 13)]);
    }
}
