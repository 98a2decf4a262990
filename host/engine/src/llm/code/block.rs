//! Code blocks: finds code between delimiters in a response, and moves it into a part.

use hatchery_core::{Content, Delimiters, ExecutableCode, Part, PartData};

use crate::history::contents::delimit;

/// Returns the code at the end of a content.
pub(crate) fn pending_code(content: &Content) -> Option<&str> {
    match &content.parts.last()?.data {
        PartData::ExecutableCode(code) => Some(&code.code),
        _ => None,
    }
}

/// Returns true if the model has run code itself, and the content has no text after the result.
pub(crate) fn ends_in_result(content: &Content) -> bool {
    content.parts.last().is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
}

/// Returns true if the model has returned code as a part.
pub(super) fn has_code(content: &Content) -> bool {
    content.parts.iter().any(|part| matches!(part.data, PartData::ExecutableCode(_)))
}

/// Moves the first code block in the text, except thoughts, into a separate part, and drops the parts after it.
/// Returns false if there is no code.
pub(super) fn extract(content: &mut Content, delimiters: &[Delimiters]) -> bool {
    let block = content.parts.iter().enumerate().find_map(|(index, part)| {
        let text = part.as_text().filter(|_| !part.thought)?;
        let find_in =
            |text: &str| find(text, delimiters).map(|block| (index, block.before.to_owned(), block.code.to_owned()));
        // Some models use Windows line endings, but delimiters do not.
        find_in(text).or_else(|| find_in(&text.replace("\r\n", "\n")))
    });
    let Some((index, before, code)) = block else { return false };
    let Some(part) = content.parts.drain(index..).next() else { return false };
    let code = PartData::ExecutableCode(ExecutableCode { language: Some("PYTHON".into()), code, ..Default::default() });
    if before.trim().is_empty() {
        content.parts.push(Part { data: code, ..part });
    } else {
        content.parts.extend([Part { data: PartData::Text(before), ..part }, code.into()]);
    }
    true
}

/// Converts code at the end of a content, which the model has returned as a part and not run, into text.
pub(super) fn quote_last(content: &mut Content, delimiters: &[Delimiters]) {
    if let Some(Part { data, .. }) = content.parts.last_mut()
        && let PartData::ExecutableCode(code) = data
    {
        *data = PartData::Text(delimit(delimiters.first(), &code.code));
    }
}

/// A code block in a text.
#[derive(Debug, PartialEq)]
struct CodeBlock<'a> {
    before: &'a str,
    code: &'a str,
}

/// Finds the first block. If two begin at the same position, the first pair of delimiters is used.
fn find<'a>(text: &'a str, delimiters: &[Delimiters]) -> Option<CodeBlock<'a>> {
    delimiters
        .iter()
        .filter_map(|pair| first_between(text, &pair.open, &pair.close))
        .min_by_key(|block| block.before.len())
}

/// Finds the first block between two delimiters that is not blank.
fn first_between<'a>(text: &'a str, open: &str, close: &str) -> Option<CodeBlock<'a>> {
    if open.is_empty() {
        return None;
    }
    // In an empty block, the delimiters share a line break.
    let shared = usize::from(open.ends_with('\n') && close.starts_with('\n'));
    let mut offset = 0;
    loop {
        let start = offset + text.get(offset..)?.find(open)?;
        let code_start = start + open.len();
        let code_end = code_start - shared + text.get(code_start - shared..)?.find(close)?;
        let code = text.get(code_start..code_end).unwrap_or_default();
        if !code.trim().is_empty() {
            return Some(CodeBlock { before: text.get(..start)?, code });
        }
        offset = code_start.max(code_end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn default_delimiters() -> Vec<Delimiters> {
        vec![Delimiters::new("```tool_code\n", "\n```"), Delimiters::new("```python\n", "\n```")]
    }

    fn found(text: &str) -> Option<(String, String)> {
        find(text, &default_delimiters()).map(|block| (block.before.to_owned(), block.code.to_owned()))
    }

    fn block(before: &str, code: &str) -> Option<(String, String)> {
        Some((before.to_owned(), code.to_owned()))
    }

    #[test]
    fn both_pairs_of_delimiters_enclose_code() {
        assert_eq!(found("So:\n```tool_code\na\nb\n```\nend"), block("So:\n", "a\nb"));
        assert_eq!(found("```python\na\n```"), block("", "a"));
    }

    #[test]
    fn the_block_that_begins_first_is_used() {
        assert_eq!(found("1```python\na\n```2```tool_code\nb\n```"), block("1", "a"));
    }

    #[test]
    fn backticks_within_a_line_do_not_end_a_block() {
        assert_eq!(found("```python\nprint('```')\nx\n```"), block("", "print('```')\nx"));
        assert_eq!(
            found("```python\na = '''\n```\n'''\n```"),
            block("", "a = '''"),
            "the first line of backticks does"
        );
    }

    #[test]
    fn unclosed_and_empty_blocks_and_other_languages_are_not_code() {
        for text in
            ["```python\nprint(1)", "```python\n\n```", "```json\n1\n```", "print(1)", "", "```python\nprint(1)```"]
        {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(found("```python\n \n```then```python\na\n```"), block("```python\n \n```then", "a"));
        assert_eq!(found("```python\n```then```python\na\n```"), block("```python\n```then", "a"));
    }

    #[test]
    fn the_first_of_two_matching_pairs_is_used() {
        let pair = |open: &str, close: &str| Delimiters { open: open.to_owned(), close: close.to_owned() };
        let found = find("<a>1<b>2<c>", &[pair("<a>", "<c>"), pair("<a>", "<b>")]);
        assert_eq!(found, Some(CodeBlock { before: "", code: "1<b>2" }));
    }

    #[test]
    fn windows_line_endings_are_supported() {
        let mut content = Content::model("So:\r\n```python\r\na\r\nb\r\n```\r\nend");
        assert!(extract(&mut content, &default_delimiters()));
        assert_eq!((content.text().as_str(), pending_code(&content)), ("So:\n", Some("a\nb")));
        let mut content = Content::model("no\r\ncode");
        assert!(!extract(&mut content, &default_delimiters()));
        assert_eq!(content.text(), "no\r\ncode");
    }

    #[test]
    fn an_empty_delimiter_never_hangs() {
        assert_eq!(find("abc", &[Delimiters { open: String::new(), close: String::new() }]), None);
    }

    proptest! {
        #[test]
        fn the_code_of_a_block_is_unchanged(before in "[a-z\n]{0,8}", code in "[a-z\n]{1,8}", after in "[a-z`\n]{0,8}") {
            prop_assume!(!code.trim().is_empty());
            let text = format!("{before}```python\n{code}\n```{after}");
            let block = find(&text, &default_delimiters());
            prop_assert_eq!(block, Some(CodeBlock { before: &before, code: &code }));
        }

        #[test]
        fn extracted_code_is_the_last_part(texts in prop::collection::vec(("[a`\npython]{0,20}", any::<bool>()), 0..6)) {
            let parts = texts.iter().map(|(text, thought)| Part { thought: *thought, ..Part::text(text.as_str()) });
            let mut content = Content::new("model", parts.collect());
            let original = content.clone();
            if extract(&mut content, &default_delimiters()) {
                prop_assert!(pending_code(&content).is_some());
                prop_assert!(content.parts.len() <= original.parts.len() + 1);
            } else {
                prop_assert_eq!(content, original);
            }
        }
    }
}
