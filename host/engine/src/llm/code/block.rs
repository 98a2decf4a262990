//! Code in a model's answer: where it begins and ends, and the part that it becomes.

use hatchery_core::{Content, ExecutableCode, Part, PartData};

use super::markers::between;

/// The code that a content ends in.
pub(crate) fn due(content: &Content) -> Option<&str> {
    match &content.parts.last()?.data {
        PartData::ExecutableCode(code) => Some(&code.code),
        _ => None,
    }
}

/// True when the model has run code itself and has not said anything about the result yet.
pub(crate) fn ends_in_result(content: &Content) -> bool {
    content.parts.last().is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
}

/// True when the model itself has sent code as a part.
pub(super) fn has_code(content: &Content) -> bool {
    content.parts.iter().any(|part| matches!(part.data, PartData::ExecutableCode(_)))
}

/// Turns the first block of code in the text, thoughts apart, into a part of its own, and drops what follows it. False when there is no
/// code.
pub(super) fn separate(content: &mut Content, delimiters: &[(String, String)]) -> bool {
    let found = content.parts.iter().enumerate().find_map(|(place, part)| {
        let text = part.as_text().filter(|_| !part.thought)?;
        let found =
            |text: &str| find(text, delimiters).map(|block| (place, block.before.to_owned(), block.code.to_owned()));
        // Some models end lines as on Windows, where delimiters end them as everywhere else.
        found(text).or_else(|| found(&text.replace("\r\n", "\n")))
    });
    let Some((place, before, code)) = found else { return false };
    let Some(part) = content.parts.drain(place..).next() else { return false };
    let code = PartData::ExecutableCode(ExecutableCode { language: Some("PYTHON".into()), code, ..Default::default() });
    if before.trim().is_empty() {
        content.parts.push(Part { data: code, ..part });
    } else {
        content.parts.extend([Part { data: PartData::Text(before), ..part }, code.into()]);
    }
    true
}

/// Turns code that the model itself has sent last, and not run, into text.
pub(super) fn quote_last(content: &mut Content, delimiters: &[(String, String)]) {
    if let Some(Part { data, .. }) = content.parts.last_mut()
        && let PartData::ExecutableCode(code) = data
    {
        *data = PartData::Text(between(delimiters.first(), &code.code));
    }
}

/// A block of code in a text.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    before: &'a str,
    code: &'a str,
}

/// The block that begins first. Where two begin at the same place, the pair that is named first wins.
fn find<'a>(text: &'a str, delimiters: &[(String, String)]) -> Option<Block<'a>> {
    delimiters
        .iter()
        .filter_map(|(open, close)| first_between(text, open, close))
        .min_by_key(|block| block.before.len())
}

/// The first block between two delimiters that has anything in it.
fn first_between<'a>(text: &'a str, open: &str, close: &str) -> Option<Block<'a>> {
    if open.is_empty() {
        return None;
    }
    // Around an empty block, the line break that ends the one delimiter begins the other.
    let shared = usize::from(open.ends_with('\n') && close.starts_with('\n'));
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(open)?;
        let begin = at + open.len();
        let end = begin - shared + text.get(begin - shared..)?.find(close)?;
        let code = text.get(begin..end).unwrap_or_default();
        if !code.trim().is_empty() {
            return Some(Block { before: text.get(..at)?, code });
        }
        from = begin.max(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usual() -> Vec<(String, String)> {
        let pair = |open: &str, close: &str| (open.to_owned(), close.to_owned());
        vec![pair("```tool_code\n", "\n```"), pair("```python\n", "\n```")]
    }

    fn found(text: &str) -> Option<(String, String)> {
        find(text, &usual()).map(|block| (block.before.to_owned(), block.code.to_owned()))
    }

    fn block(before: &str, code: &str) -> Option<(String, String)> {
        Some((before.to_owned(), code.to_owned()))
    }

    #[test]
    fn either_pair_of_delimiters_holds_code() {
        assert_eq!(found("So:\n```tool_code\na\nb\n```\nend"), block("So:\n", "a\nb"));
        assert_eq!(found("```python\na\n```"), block("", "a"));
    }

    #[test]
    fn the_block_that_begins_first_counts() {
        assert_eq!(found("1```python\na\n```2```tool_code\nb\n```"), block("1", "a"));
    }

    #[test]
    fn backticks_inside_a_line_do_not_end_a_block() {
        assert_eq!(found("```python\nprint('```')\nx\n```"), block("", "print('```')\nx"));
        assert_eq!(
            found("```python\na = '''\n```\n'''\n```"),
            block("", "a = '''"),
            "the first line of backticks does"
        );
    }

    #[test]
    fn what_is_not_closed_or_empty_or_of_another_language_is_no_code() {
        for text in
            ["```python\nprint(1)", "```python\n\n```", "```json\n1\n```", "print(1)", "", "```python\nprint(1)```"]
        {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(found("```python\n \n```then```python\na\n```"), block("```python\n \n```then", "a"));
        assert_eq!(found("```python\n```then```python\na\n```"), block("```python\n```then", "a"));
    }

    #[test]
    fn of_two_pairs_that_fit_the_first_named_counts() {
        let pair = |open: &str, close: &str| (open.to_owned(), close.to_owned());
        let found = find("<a>1<b>2<c>", &[pair("<a>", "<c>"), pair("<a>", "<b>")]);
        assert_eq!(found, Some(Block { before: "", code: "1<b>2" }));
    }

    #[test]
    fn lines_may_end_as_on_windows() {
        let mut content = Content::model("So:\r\n```python\r\na\r\nb\r\n```\r\nend");
        assert!(separate(&mut content, &usual()));
        assert_eq!((content.text().as_str(), due(&content)), ("So:\n", Some("a\nb")));
        let mut content = Content::model("no\r\ncode");
        assert!(!separate(&mut content, &usual()));
        assert_eq!(content.text(), "no\r\ncode");
    }

    #[test]
    fn an_empty_delimiter_never_hangs() {
        assert_eq!(find("abc", &[(String::new(), String::new())]), None);
    }

    proptest! {
        #[test]
        fn a_block_is_cut_out_of_the_text_as_it_is(before in "[a-z\n]{0,8}", code in "[a-z\n]{1,8}", after in "[a-z`\n]{0,8}") {
            prop_assume!(!code.trim().is_empty());
            let text = format!("{before}```python\n{code}\n```{after}");
            let block = find(&text, &usual());
            prop_assert_eq!(block, Some(Block { before: &before, code: &code }));
        }

        #[test]
        fn separated_code_is_the_last_part(texts in prop::collection::vec(("[a`\npython]{0,20}", any::<bool>()), 0..6)) {
            let parts = texts.iter().map(|(text, thought)| Part { thought: *thought, ..Part::text(text.as_str()) });
            let mut content = Content::new("model", parts.collect());
            let whole = content.clone();
            if separate(&mut content, &usual()) {
                prop_assert!(due(&content).is_some());
                prop_assert!(content.parts.len() <= whole.parts.len() + 1);
            } else {
                prop_assert_eq!(content, whole);
            }
        }
    }
}
