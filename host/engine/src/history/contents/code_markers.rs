//! Code markers: rewrites the contents of a prompt for an agent that runs code. Code and results become text between
//! delimiters, and data files become descriptions.
//!
//! A view rewrites each content once, when it reads the event, and not again for each model call.

use std::sync::Arc;

use hatchery_core::{Blob, CodeFile, CodeRunner, Content, Delimiters, Event, Part, PartData, USER_AUTHOR};

use super::data_files;

/// The delimiters of code and results, and whether data files are replaced.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CodeMarkers {
    code: Option<Delimiters>,
    result: Delimiters,
    data_files: bool,
}

impl CodeMarkers {
    /// Returns the markers of an agent whose code the host runs.
    pub(crate) fn new(runner: &CodeRunner) -> Self {
        Self {
            code: runner.code_delimiters.first().cloned(),
            result: runner.result_delimiters.clone(),
            data_files: runner.optimize_data_file,
        }
    }
}

/// Rewrites the contents of one view, and collects the data files in them.
#[derive(Clone)]
pub(crate) struct PromptRewriter {
    markers: CodeMarkers,
    /// The number of events with content so far, which is part of the names of data files. It counts the events of all
    /// agents, so that a file has the same name for each of them.
    content_count: usize,
    files: Vec<CodeFile>,
}

impl PromptRewriter {
    pub(crate) fn new(markers: CodeMarkers) -> Self {
        Self { markers, content_count: 0, files: Vec::new() }
    }

    /// Returns a rewriter with the same markers that has not read any event.
    pub(crate) fn reset(self) -> Self {
        Self::new(self.markers)
    }

    pub(crate) fn markers(&self) -> &CodeMarkers {
        &self.markers
    }

    /// Returns the data files, oldest first.
    pub(crate) fn files(&self) -> &[CodeFile] {
        &self.files
    }

    /// Counts an event, whether it is visible to the agent or not.
    pub(crate) fn count(&mut self, event: &Event) {
        self.content_count += usize::from(event.content.as_ref().is_some_and(|content| !content.parts.is_empty()));
    }

    /// Rewrites the content of the last counted event. Returns the same `Arc` if nothing changes.
    pub(crate) fn rewrite(&mut self, content: Arc<Content>) -> Arc<Content> {
        let is_from_user = content.role.as_deref() == Some(USER_AUTHOR);
        let texts: Vec<_> =
            (0..content.parts.len()).map(|index| self.replacement(&content.parts, index, is_from_user)).collect();
        if texts.iter().all(Option::is_none) {
            return content;
        }
        let has_result = |(part, text): (&Part, &Option<String>)| text.is_some() && is_result(part);
        // Results are sent with the user role.
        let is_result_content = content.parts.iter().zip(&texts).any(has_result);
        let role = if is_result_content { Some(USER_AUTHOR.into()) } else { content.role.clone() };
        let rewritten = |(part, text): (&Part, Option<String>)| match text {
            None => part.clone(),
            Some(text) => Part {
                data: PartData::Text(text),
                thought: part.thought,
                thought_signature: part.thought_signature.clone(),
                extra: part.extra.clone(),
            },
        };
        let parts = content.parts.iter().zip(texts).map(rewritten).collect();
        Arc::new(Content { role, parts })
    }

    /// Returns the text that replaces a part. `None` if the part is unchanged, as code that the model itself has run:
    /// it is next to its result.
    fn replacement(&mut self, parts: &[Part], index: usize, is_from_user: bool) -> Option<String> {
        let neighbor = |index: Option<usize>| index.and_then(|index| parts.get(index));
        match &parts.get(index)?.data {
            PartData::ExecutableCode(code) => {
                let ran_in_model = neighbor(index.checked_add(1)).is_some_and(is_result);
                (!ran_in_model).then(|| delimit(self.markers.code.as_ref(), &code.code))
            }
            PartData::CodeExecutionResult(result) => {
                let ran_in_model = neighbor(index.checked_sub(1)).is_some_and(is_code);
                let output = result.output.as_deref().unwrap_or_default();
                (!ran_in_model).then(|| delimit(Some(&self.markers.result), output))
            }
            PartData::InlineData(blob)
                if self.markers.data_files && is_from_user && data_files::is_csv(&blob.mime_type) =>
            {
                Some(self.extract_file(blob, index + 1))
            }
            PartData::Other
            | PartData::Text(_)
            | PartData::InlineData(_)
            | PartData::FileData(_)
            | PartData::FunctionCall(_)
            | PartData::FunctionResponse(_) => None,
        }
    }

    /// Adds a data file. Returns its description for the prompt.
    fn extract_file(&mut self, blob: &Blob, part: usize) -> String {
        let name = format!("data_{}_{part}.csv", self.content_count);
        let text = data_files::describe(&name, &blob.data);
        self.files.push(CodeFile { name, content: blob.data.clone(), mime_type: data_files::CSV.into() });
        text
    }
}

/// Returns the text between delimiters, or only the text without any.
pub(crate) fn delimit(delimiters: Option<&Delimiters>, text: &str) -> String {
    let (open, close) = delimiters.map_or(("", ""), |pair| (pair.open.as_str(), pair.close.as_str()));
    format!("{open}{text}{close}")
}

fn is_code(part: &Part) -> bool {
    matches!(part.data, PartData::ExecutableCode(_))
}

fn is_result(part: &Part) -> bool {
    matches!(part.data, PartData::CodeExecutionResult(_))
}
