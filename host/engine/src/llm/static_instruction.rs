//! Static instructions: the beginning of the system instruction that is the same in every request, so that providers
//! find it in their prompt caches.
//!
//! System instructions are text, so that files of a static instruction become the first contents. The agent's other
//! instruction may change from call to call. It becomes a content before the message that the agent answers, and stays
//! there while tools are called, so that everything before it is the same as in the last request.

use std::sync::Arc;

use hatchery_core::{Content, Part};
use imbl::Vector;

/// Adds the texts of a static instruction to the system instructions. Returns its files as contents; none without
/// `with_files`.
pub(super) fn add(instruction: &[Part], with_files: bool, system_instructions: &mut Vec<String>) -> Vec<Arc<Content>> {
    let mut files = Vec::new();
    for part in instruction {
        if let Some(text) = part.as_text() {
            system_instructions.push(text.to_owned());
        } else if with_files {
            let name = format!("file_{}", files.len() + 1);
            system_instructions.push(format!("The file `{name}`, with which the conversation begins, belongs here."));
            files.push(Arc::new(Content::instruction_file(&name, part.clone())));
        }
    }
    files
}

/// Inserts the agent's other instruction, if it has a text, before the current turn, which are the last `turn`
/// contents, and `files` before all contents.
pub(super) fn insert(
    instruction: Option<&str>,
    files: Vec<Arc<Content>>,
    turn: usize,
    contents: &mut Vector<Arc<Content>>,
) {
    if let Some(text) = instruction.filter(|text| !text.trim().is_empty()) {
        let start = turn_start(contents, turn);
        contents.insert(start, Arc::new(Content::instruction(text)));
    }
    for file in files.into_iter().rev() {
        contents.push_front(file);
    }
}

/// Returns the index of the first message that the agent answers. An answer to a call is not one: it stays behind its
/// call.
fn turn_start(contents: &Vector<Arc<Content>>, turn: usize) -> usize {
    let is_answer = |content: &Arc<Content>| content.function_responses().next().is_some();
    let is_message = |content: &Arc<Content>| content.role.as_deref() != Some("model") && !is_answer(content);
    let mut index = contents.len().saturating_sub(turn);
    while contents.get(index).is_some_and(is_answer) {
        index += 1;
    }
    while let Some(before) = index.checked_sub(1)
        && contents.get(before).is_some_and(is_message)
    {
        index = before;
    }
    index
}

#[cfg(test)]
mod tests {
    use hatchery_core::{FunctionCall, FunctionResponse, PartData};

    use super::*;

    /// `u` is a message in the user's role, `m` of the model, `c` a call, `r` its answer, `I` the instruction.
    fn content(word: char) -> Content {
        match word {
            'u' => Content::user("u"),
            'm' => Content::model("m"),
            'c' => Content::new("model", vec![PartData::FunctionCall(FunctionCall::default()).into()]),
            _ => Content::new("user", vec![PartData::FunctionResponse(FunctionResponse::default()).into()]),
        }
    }

    fn word(content: &Content) -> char {
        if content.is_instruction() {
            return 'I';
        }
        let is_call = content.function_calls().next().is_some();
        let is_answer = content.function_responses().next().is_some();
        if is_call {
            'c'
        } else if is_answer {
            'r'
        } else {
            content.text().chars().next().unwrap()
        }
    }

    fn inserted(words: &str, turn: usize) -> String {
        let mut contents = words.chars().map(|word| Arc::new(content(word))).collect();
        insert(Some("Be brief."), Vec::new(), turn, &mut contents);
        contents.iter().map(|content| word(content)).collect()
    }

    #[test]
    fn the_instruction_is_before_the_messages_of_the_turn_and_stays_there() {
        assert_eq!(inserted("u", 1), "Iu");
        assert_eq!(inserted("umu", 1), "umIu");
        assert_eq!(inserted("umucrm", 4), "umIucrm");
        assert_eq!(inserted("umuu", 1), "umIuu", "the context of another agent follows the message");
        assert_eq!(inserted("um", 0), "umI");
        assert_eq!(inserted("", 0), "I");
    }

    #[test]
    fn the_instruction_does_not_separate_a_call_from_its_answer() {
        assert_eq!(inserted("ucr", 1), "ucrI");
        assert_eq!(inserted("ucrrm", 3), "ucrrIm");
    }
}
