//! Planning: the instructions of a planner, and a parser that marks the thoughts in a response.
//!
//! With [`Planner::PlanReAct`] the model writes its plan, its reasoning and its answer under tags. The text under the
//! answer's tag is the answer, and the rest is marked as thought. Text before the first tag is a thought if a tag or a
//! tool call follows, and otherwise the answer of a model that uses no tags. The parts of a stream are marked like the
//! parts of the complete response, so text is buffered while it is ambiguous: before the first tag, and at the start of
//! a tag.

use std::sync::Arc;

use hatchery_core::{Content, LlmRequest, LlmResponse, Part, PartData, Planner};
use imbl::Vector;

/// The tag of the answer, which is removed from it.
const ANSWER_TAG: &str = "/*FINAL_ANSWER*/";

/// The tags of thoughts. They are kept, because the model reads them again.
const THOUGHT_TAGS: [&str; 4] = ["/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/"];

const INSTRUCTION: &str = "\
Work in these steps, and begin each with its tag, written exactly as here:

/*PLANNING*/ Before anything else, write a numbered plan that leads from what the user wants to the answer, using only the tools that \
you have. Keep it short.
/*ACTION*/ Carry out the next step of the plan by calling tools. Never write down a call or its result yourself.
/*REASONING*/ After each result, say what it tells you, what is still missing and which step comes next.
/*REPLANNING*/ When a result shows that the plan does not lead to the answer, write a new one from where you are.
/*FINAL_ANSWER*/ When you have all you need, write the answer. The user sees nothing but what follows this tag, so it has to say \
everything by itself. When only the user can tell you what is missing, ask them here.";

/// Adds the planner to a request. The last `turn` contents are the current turn. The planner's thinking config replaces
/// the thinking config of the agent.
pub(super) fn prepare(planner: Option<&Planner>, turn: usize, request: &mut LlmRequest) {
    match planner {
        None => {}
        Some(Planner::Thinking(config)) => {
            request.config.extra.insert("thinkingConfig".into(), config.clone());
        }
        Some(Planner::PlanReAct) => {
            request.system_instructions.push(INSTRUCTION.into());
            include_plan(&mut request.contents, turn);
        }
    }
}

/// Sends the plan of the current turn as text. Other thoughts are not sent to the model again.
fn include_plan(contents: &mut Vector<Arc<Content>>, turn: usize) {
    let is_tagged = |part: &Part| {
        part.thought
            && part.as_text().is_some_and(|text| THOUGHT_TAGS.iter().any(|tag| text.trim_start().starts_with(tag)))
    };
    for index in contents.len().saturating_sub(turn)..contents.len() {
        let Some(content) = contents.get(index) else { return };
        if content.parts.iter().any(is_tagged) {
            let mut content = Content::clone(content);
            content.parts.iter_mut().filter(|part| is_tagged(part)).for_each(|part| part.thought = false);
            contents.set(index, Arc::new(content));
        }
    }
}

/// Marks the thoughts in a complete response.
pub(super) fn mark_thoughts(planner: Option<&Planner>, response: &mut LlmResponse) {
    let (Some(Planner::PlanReAct), Some(content)) = (planner, &mut response.content) else { return };
    let mut splitter = MarkerSplitter::default();
    content.parts = splitter.split_parts(std::mem::take(&mut content.parts));
    // Text before a call is a thought, so the remaining text is the answer of a model that uses no tags.
    splitter.flush(&mut content.parts);
}

/// Marks the thoughts in the partial responses of one stream.
pub(super) struct StreamSplitter(Option<MarkerSplitter>);

impl StreamSplitter {
    pub(super) fn new(planner: Option<&Planner>) -> Self {
        Self(matches!(planner, Some(Planner::PlanReAct)).then(MarkerSplitter::default))
    }

    /// Marks the thoughts in a partial response. `None` if all of it is buffered.
    pub(super) fn mark_thoughts(&mut self, mut partial: LlmResponse) -> Option<LlmResponse> {
        let (Some(splitter), Some(content)) = (&mut self.0, &mut partial.content) else { return Some(partial) };
        content.parts = splitter.split_parts(std::mem::take(&mut content.parts));
        (!content.parts.is_empty()).then_some(partial)
    }
}

/// An incremental parser that splits text at tags into thoughts and the answer.
#[derive(Default)]
struct MarkerSplitter {
    section: Section,
    /// Ambiguous text.
    buffer: String,
    /// The position in the buffer before which no tag begins, so that no text is searched twice.
    searched: usize,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Section {
    /// Before the first tag.
    #[default]
    Untagged,
    Thought,
    /// Directly after the answer's tag, where white space is skipped.
    AnswerStart,
    Answer,
}

impl MarkerSplitter {
    fn split_parts(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut output = Vec::with_capacity(parts.len());
        for part in parts {
            match &part.data {
                PartData::Text(text) if !part.thought && part.extra.is_empty() => {
                    self.split_text(text, &mut output);
                    if let Some(signature) = part.thought_signature {
                        self.flush(&mut output);
                        output.push(Part { thought_signature: Some(signature), ..Part::text("") });
                    }
                }
                PartData::FunctionCall(_) | PartData::ExecutableCode(_) if self.section == Section::Untagged => {
                    self.section = Section::Thought;
                    self.flush(&mut output);
                    output.push(part);
                }
                _ => {
                    self.flush(&mut output);
                    output.push(part);
                }
            }
        }
        output
    }

    fn split_text(&mut self, text: &str, output: &mut Vec<Part>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.push_str(text);
        let (mut rest, mut searched) = (buffer.as_str(), std::mem::take(&mut self.searched));
        while let Some((start, tag)) = find_tag(rest, searched) {
            let (before, from_tag) = rest.split_at(start);
            let (tag_text, after) = from_tag.split_at(tag.len());
            if self.section == Section::Untagged {
                self.section = Section::Thought;
            }
            self.push(before, output);
            if tag == ANSWER_TAG {
                self.section = Section::AnswerStart;
            } else {
                self.section = Section::Thought;
                self.push(tag_text, output);
            }
            (rest, searched) = (after, 0);
        }
        let end = searched + partial_tag_start(rest.get(searched..).unwrap_or_default());
        if self.section == Section::Untagged {
            self.searched = end;
        } else {
            let (unambiguous, ambiguous) = rest.split_at(end);
            self.push(unambiguous, output);
            rest = ambiguous;
        }
        let used = buffer.len() - rest.len();
        buffer.drain(..used);
        self.buffer = buffer;
    }

    /// Adds the buffered text.
    fn flush(&mut self, output: &mut Vec<Part>) {
        self.searched = 0;
        let text = std::mem::take(&mut self.buffer);
        self.push(&text, output);
    }

    /// Adds text of the current section. Appends to the last part if it is of the same kind.
    fn push(&mut self, text: &str, output: &mut Vec<Part>) {
        let text = if self.section == Section::AnswerStart { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        if self.section == Section::AnswerStart {
            self.section = Section::Answer;
        }
        let thought = self.section == Section::Thought;
        match output.last_mut() {
            Some(Part { data: PartData::Text(before), thought: kind, thought_signature: None, extra })
                if *kind == thought && extra.is_empty() =>
            {
                before.push_str(text);
            }
            _ => output.push(Part { thought, ..Part::text(text) }),
        }
    }
}

fn tags() -> impl Iterator<Item = &'static str> {
    THOUGHT_TAGS.into_iter().chain([ANSWER_TAG])
}

/// Finds the first tag at `from` or later. Returns its position too.
fn find_tag(text: &str, from: usize) -> Option<(usize, &'static str)> {
    let rest = text.get(from..)?;
    rest.match_indices("/*").find_map(|(at, _)| {
        let candidate = rest.get(at..)?;
        Some((from + at, tags().find(|tag| candidate.starts_with(tag))?))
    })
}

/// Returns the position of an incomplete tag at the end of the text, or the text's length if there is none.
fn partial_tag_start(text: &str) -> usize {
    let candidates = [text.rfind("/*"), text.ends_with('/').then(|| text.len() - 1)];
    let is_tag = |start: &usize| text.get(*start..).is_some_and(|suffix| tags().any(|tag| tag.starts_with(suffix)));
    candidates.into_iter().flatten().find(is_tag).unwrap_or(text.len())
}
