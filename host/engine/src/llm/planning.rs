//! Thinking before acting: what a planner asks of a model, and which parts of an answer are thoughts.
//!
//! With [`Planner::PlanReAct`] the model writes its plan, its reasoning and its answer under tags. What stands under the answer's tag is
//! the answer; the rest is marked as thought. Text before the first tag is thought when a tag or a tool call follows, and the answer of a
//! model that uses no tags otherwise. In a stream each piece is marked as the whole will be, so text whose kind is not known yet (before the
//! first tag, or the beginning of a tag) is held back until it is.

use std::sync::Arc;

use hatchery_core::{Content, LlmRequest, LlmResponse, Part, PartData, Planner};
use imbl::Vector;

/// The answer's tag. It is not part of the answer.
const ANSWER: &str = "/*FINAL_ANSWER*/";

/// Tags of thoughts. They stay in the thoughts, since the model reads them again.
const THOUGHTS: [&str; 4] = ["/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/"];

const INSTRUCTION: &str = "\
Work in these steps, and begin each with its tag, written exactly as here:

/*PLANNING*/ Before anything else, write a numbered plan that leads from what the user wants to the answer, using only the tools that \
you have. Keep it short.
/*ACTION*/ Carry out the next step of the plan by calling tools. Never write down a call or its result yourself.
/*REASONING*/ After each result, say what it tells you, what is still missing and which step comes next.
/*REPLANNING*/ When a result shows that the plan does not lead to the answer, write a new one from where you are.
/*FINAL_ANSWER*/ When you have all you need, write the answer. The user sees nothing but what follows this tag, so it has to say \
everything by itself. When only the user can tell you what is missing, ask them here.";

/// Puts the planner into a request whose last contents, `turn` in number, are the current turn. Its settings of the model's thinking win over those of the agent's own config.
pub(super) fn prepare(planner: Option<&Planner>, turn: usize, request: &mut LlmRequest) {
    match planner {
        None => {}
        Some(Planner::Thinking(config)) => {
            request.config.extra.insert("thinkingConfig".into(), config.clone());
        }
        Some(Planner::PlanReAct) => {
            request.system_instructions.push(INSTRUCTION.into());
            show_plan(&mut request.contents, turn);
        }
    }
}

/// Models are not sent their thoughts again, but a plan is there to be followed: in the current turn it is shown as text.
fn show_plan(contents: &mut Vector<Arc<Content>>, turn: usize) {
    let is_tagged = |part: &Part| {
        part.thought && part.as_text().is_some_and(|text| THOUGHTS.iter().any(|tag| text.trim_start().starts_with(tag)))
    };
    for at in contents.len().saturating_sub(turn)..contents.len() {
        let Some(content) = contents.get(at) else { return };
        if content.parts.iter().any(is_tagged) {
            let mut shown = Content::clone(content);
            shown.parts.iter_mut().filter(|part| is_tagged(part)).for_each(|part| part.thought = false);
            contents.set(at, Arc::new(shown));
        }
    }
}

/// Marks the thoughts in a whole answer.
pub(super) fn mark(planner: Option<&Planner>, response: &mut LlmResponse) {
    let (Some(Planner::PlanReAct), Some(content)) = (planner, &mut response.content) else { return };
    let mut marker = Marker::default();
    content.parts = marker.parts(std::mem::take(&mut content.parts));
    // A call has made all text before it a thought, so what is still open is the answer of a model that uses no tags.
    marker.release(&mut content.parts);
}

/// The pieces of one streamed answer, with their thoughts marked.
pub(super) struct Pieces(Option<Marker>);

impl Pieces {
    pub(super) fn new(planner: Option<&Planner>) -> Self {
        Self(matches!(planner, Some(Planner::PlanReAct)).then(Marker::default))
    }

    /// The piece as the client gets it; nothing while all of it is held back.
    pub(super) fn mark(&mut self, mut piece: LlmResponse) -> Option<LlmResponse> {
        let (Some(marker), Some(content)) = (&mut self.0, &mut piece.content) else { return Some(piece) };
        content.parts = marker.parts(std::mem::take(&mut content.parts));
        (!content.parts.is_empty()).then_some(piece)
    }
}

/// Tells thoughts from answers, part by part.
#[derive(Default)]
struct Marker {
    section: Section,
    /// Text whose kind is not known yet.
    held: String,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Section {
    /// Before the first tag.
    #[default]
    Open,
    Thought,
    /// Right after the answer's tag: the answer does not begin with white space.
    AnswerDue,
    Answer,
}

impl Marker {
    fn parts(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut marked = Vec::with_capacity(parts.len());
        for part in parts {
            match &part.data {
                PartData::Text(text) if !part.thought && part.extra.is_empty() => {
                    self.text(text, &mut marked);
                    if let Some(signature) = part.thought_signature {
                        self.release(&mut marked);
                        marked.push(Part { thought_signature: Some(signature), ..Part::text("") });
                    }
                }
                PartData::FunctionCall(_) | PartData::ExecutableCode(_) if self.section == Section::Open => {
                    self.section = Section::Thought;
                    self.release(&mut marked);
                    marked.push(part);
                }
                _ => {
                    self.release(&mut marked);
                    marked.push(part);
                }
            }
        }
        marked
    }

    fn text(&mut self, text: &str, marked: &mut Vec<Part>) {
        self.held.push_str(text);
        while let Some((at, tag)) = first_tag(&self.held) {
            if self.section == Section::Open {
                self.section = Section::Thought;
            }
            let before = self.take_held(at);
            self.push(before, marked);
            let tag_itself = self.take_held(tag.len());
            if tag == ANSWER {
                self.section = Section::AnswerDue;
            } else {
                self.section = Section::Thought;
                self.push(tag_itself, marked);
            }
        }
        if self.section != Section::Open {
            let known = self.take_held(start_of_tag(&self.held));
            self.push(known, marked);
        }
    }

    /// Adds what is held back, now that nothing more of it comes.
    fn release(&mut self, marked: &mut Vec<Part>) {
        let held = std::mem::take(&mut self.held);
        self.push(held, marked);
    }

    fn take_held(&mut self, bytes: usize) -> String {
        let rest = self.held.split_off(bytes);
        std::mem::replace(&mut self.held, rest)
    }

    /// Adds text of the current section, to the last part where that is of the same kind.
    fn push(&mut self, mut text: String, marked: &mut Vec<Part>) {
        if self.section == Section::AnswerDue {
            text = text.trim_start().into();
        }
        if text.is_empty() {
            return;
        }
        if self.section == Section::AnswerDue {
            self.section = Section::Answer;
        }
        let thought = self.section == Section::Thought;
        match marked.last_mut() {
            Some(Part { data: PartData::Text(before), thought: kind, thought_signature: None, extra })
                if *kind == thought && extra.is_empty() =>
            {
                before.push_str(&text);
            }
            _ => marked.push(Part { thought, ..Part::text(text) }),
        }
    }
}

fn tags() -> impl Iterator<Item = &'static str> {
    THOUGHTS.into_iter().chain([ANSWER])
}

/// The first tag, and where it begins.
fn first_tag(text: &str) -> Option<(usize, &'static str)> {
    tags().filter_map(|tag| Some((text.find(tag)?, tag))).min()
}

/// Where a tag begins that the end of the text cuts off; the end when there is none.
fn start_of_tag(text: &str) -> usize {
    let begun = [text.rfind("/*"), text.ends_with('/').then(|| text.len() - 1)];
    let is_tag = |at: &usize| text.get(*at..).is_some_and(|begun| tags().any(|tag| tag.starts_with(begun)));
    begun.into_iter().flatten().find(is_tag).unwrap_or(text.len())
}
