//! How an agent's prompts word what its code needs: code and results as text between delimiters, data files by their names.
//!
//! A view rewords each content once, when it reads the event, so nothing is converted again from call to call.

use std::sync::Arc;

use hatchery_core::{Blob, CodeFile, Content, Event, LlmAgent, Part, PartData, USER_AUTHOR};

use super::{data_files, on_host};

/// What is put in place of what.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CodeMarkers {
    code: Option<(String, String)>,
    result: (String, String),
    data_files: bool,
}

impl CodeMarkers {
    /// The wording of an agent whose code the host runs.
    pub(crate) fn of(llm: &LlmAgent) -> Option<Self> {
        on_host(llm).map(|runner| Self {
            code: runner.code_delimiters.first().cloned(),
            result: runner.result_delimiters.clone(),
            data_files: runner.optimize_data_file,
        })
    }
}

/// The wording of one view, and what it has taken out so far.
#[derive(Clone)]
pub(crate) struct PromptRewriter {
    wording: CodeMarkers,
    /// How many events with a content have been read: numbers the contents for the names of data files. It counts events of all agents,
    /// since a file has to have one name for all of them.
    read: usize,
    files: Vec<CodeFile>,
}

impl PromptRewriter {
    pub(crate) fn new(wording: CodeMarkers) -> Self {
        Self { wording, read: 0, files: Vec::new() }
    }

    /// The same before it has read anything.
    pub(crate) fn anew(self) -> Self {
        Self::new(self.wording)
    }

    pub(crate) fn wording(&self) -> &CodeMarkers {
        &self.wording
    }

    /// The data files, oldest first.
    pub(crate) fn files(&self) -> &[CodeFile] {
        &self.files
    }

    /// Counts an event, seen by the agent or not.
    pub(crate) fn count(&mut self, event: &Event) {
        self.read += usize::from(event.content.as_ref().is_some_and(|content| !content.parts.is_empty()));
    }

    /// The content of the event that was counted last, as the prompt has it: the very same when there is nothing to reword.
    pub(crate) fn reword(&mut self, content: Arc<Content>) -> Arc<Content> {
        let from_user = content.role.as_deref() == Some(USER_AUTHOR);
        let texts: Vec<_> =
            (0..content.parts.len()).map(|place| self.text_for(&content.parts, place, from_user)).collect();
        if texts.iter().all(Option::is_none) {
            return content;
        }
        let has_result = |(part, text): (&Part, &Option<String>)| text.is_some() && is_result(part);
        // A model takes what its code gave as something that it is told.
        let told = content.parts.iter().zip(&texts).any(has_result);
        let role = if told { Some(USER_AUTHOR.into()) } else { content.role.clone() };
        let reworded = |(part, text): (&Part, Option<String>)| match text {
            None => part.clone(),
            Some(text) => Part {
                data: PartData::Text(text),
                thought: part.thought,
                thought_signature: part.thought_signature.clone(),
                extra: part.extra.clone(),
            },
        };
        let parts = content.parts.iter().zip(texts).map(reworded).collect();
        Arc::new(Content { role, parts })
    }

    /// What is put in the place of a part, if anything. Code with its result beside it was run by the model itself, and stays.
    fn text_for(&mut self, parts: &[Part], place: usize, from_user: bool) -> Option<String> {
        let beside = |place: Option<usize>| place.and_then(|place| parts.get(place));
        match &parts.get(place)?.data {
            PartData::ExecutableCode(code) => {
                let is_models = beside(place.checked_add(1)).is_some_and(is_result);
                (!is_models).then(|| between(self.wording.code.as_ref(), &code.code))
            }
            PartData::CodeExecutionResult(result) => {
                let is_models = beside(place.checked_sub(1)).is_some_and(is_code);
                let output = result.output.as_deref().unwrap_or_default();
                (!is_models).then(|| between(Some(&self.wording.result), output))
            }
            PartData::InlineData(blob)
                if self.wording.data_files && from_user && data_files::is_csv(&blob.mime_type) =>
            {
                Some(self.take(blob, place + 1))
            }
            PartData::Other
            | PartData::Text(_)
            | PartData::InlineData(_)
            | PartData::FileData(_)
            | PartData::FunctionCall(_)
            | PartData::FunctionResponse(_) => None,
        }
    }

    /// Takes a data file out of the prompt, and gives what the prompt says about it.
    fn take(&mut self, blob: &Blob, part: usize) -> String {
        let name = format!("data_{}_{part}.csv", self.read);
        let text = data_files::describe(&name, &blob.data);
        self.files.push(CodeFile { name, content: blob.data.clone(), mime_type: data_files::CSV.into() });
        text
    }
}

/// The text between delimiters; bare without any.
pub(super) fn between(delimiters: Option<&(String, String)>, text: &str) -> String {
    let (open, close) = delimiters.map_or(("", ""), |(open, close)| (open, close));
    format!("{open}{text}{close}")
}

fn is_code(part: &Part) -> bool {
    matches!(part.data, PartData::ExecutableCode(_))
}

fn is_result(part: &Part) -> bool {
    matches!(part.data, PartData::CodeExecutionResult(_))
}
