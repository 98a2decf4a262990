//! Prints the events of a run on the terminal: text as it is streamed, thoughts and tool calls dimmed, errors on
//! stderr.

use std::io::{self, Write};
use std::sync::Arc;

use hatchery_core::{
    Event, FunctionCall, Part, PartData, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, RunError, TOOL_PROGRESS_KEY,
    USER_AUTHOR, pluralize,
};
use serde_json::{Value, json};

use crate::dotenv;
use crate::terminal::{BOLD, DIM, ERROR, escape_control, truncate};

/// Maximum number of printed characters of a tool's arguments or result.
const MAX_CHARS: usize = 400;

/// Maximum number of printed lines of code or of its output.
const MAX_LINES: usize = 40;

/// Maximum number of printed characters about the progress of a tool, which must fit into a line of the terminal.
const MAX_PROGRESS_CHARS: usize = 72;

/// Prints events. Errors go to `errors`.
pub struct ChatPrinter<O, E> {
    out: O,
    errors: E,
    /// True if names of agents are printed.
    has_several_agents: bool,
    /// The agent whose name was printed last.
    author: String,
    /// The event whose parts are printed as they arrive.
    stream: Option<PrintedStream>,
    /// Complete events of parallel agents that arrived while another agent's text was streamed. They are printed when
    /// it is complete, so that no text is torn.
    held: Vec<Arc<Event>>,
    /// The error of the last event with one.
    event_error: Option<EventError>,
    /// True if the last line does not end with a line break yet.
    is_line_open: bool,
    /// True if the progress of tools is shown, in a line that is overwritten.
    shows_progress: bool,
    /// The number of characters of the line about progress; 0 if there is none.
    progress_width: usize,
}

/// An error in an event. It is printed with the next event, since the error that ends the run may say more.
struct EventError {
    code: String,
    message: String,
    is_printed: bool,
}

/// An event whose text is printed while it is streamed.
struct PrintedStream {
    id: String,
    author: String,
    /// The text so far.
    text: String,
}

impl<O: Write, E: Write> ChatPrinter<O, E> {
    /// Creates a printer. It prints the names of agents if `has_several_agents` is set.
    pub fn new(out: O, errors: E, has_several_agents: bool) -> Self {
        Self {
            out,
            errors,
            has_several_agents,
            author: String::new(),
            stream: None,
            held: Vec::new(),
            event_error: None,
            is_line_open: false,
            shows_progress: false,
            progress_width: 0,
        }
    }

    /// Sets whether the progress of tools is shown, which only a terminal can overwrite.
    #[must_use]
    pub fn with_progress(self, shows_progress: bool) -> Self {
        Self { shows_progress, ..self }
    }

    /// Prints an event, or holds it until the text that is being streamed is complete.
    pub fn print(&mut self, event: &Arc<Event>) -> io::Result<()> {
        if event.author == USER_AUTHOR {
            return Ok(());
        }
        if let Some(progress) = progress_of(event) {
            return self.print_progress(&progress);
        }
        self.clear_progress()?;
        if self.stream.as_ref().is_some_and(|stream| stream.author != event.author) {
            if !event.partial {
                self.held.push(event.clone());
            }
            return Ok(());
        }
        self.print_now(event)?;
        if !event.partial { self.print_held() } else { Ok(()) }
    }

    /// Prints the events that were held. Must be called when the run has ended.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream = None;
        self.clear_progress()?;
        self.print_held()?;
        self.print_event_error()
    }

    fn print_held(&mut self) -> io::Result<()> {
        std::mem::take(&mut self.held).iter().try_for_each(|event| self.print_now(event))
    }

    fn print_now(&mut self, event: &Event) -> io::Result<()> {
        self.print_event_error()?;
        let parts = event.content.as_ref().map(|content| content.parts.as_slice()).unwrap_or_default();
        let is_printed = self.update_stream(event, parts.iter().filter_map(Part::as_text).collect());
        if !event.partial && !is_printed {
            self.end_line()?;
        }
        for part in parts {
            match &part.data {
                PartData::Text(_) if is_printed => {}
                PartData::Text(text) => self.print_text(&event.author, text, part.thought)?,
                // The complete event that follows contains it.
                _ if event.partial => {}
                other => self.print_line(&event.author, other, part)?,
            }
        }
        if !event.partial {
            self.end_line()?;
        }
        if let Some(message) = event.error_message.as_deref().or(event.error_code.as_deref()) {
            let code = event.error_code.as_deref().unwrap_or("ERROR");
            self.event_error = Some(EventError { code: code.into(), message: message.into(), is_printed: false });
        }
        self.out.flush()
    }

    /// Updates the stream. Returns true if the event's text is already printed.
    fn update_stream(&mut self, event: &Event, text: String) -> bool {
        if !event.partial {
            // Callbacks may have replaced the streamed text.
            return self.stream.take().is_some_and(|stream| stream.id == event.id && stream.text.starts_with(&text));
        }
        // An agent begins its next event only after the last one.
        let stream = self.stream.take_if(|stream| stream.id == event.id);
        let (id, author) = (event.id.clone(), event.author.clone());
        let mut stream = stream.unwrap_or(PrintedStream { id, author, text: String::new() });
        stream.text.push_str(&text);
        self.stream = Some(stream);
        false
    }

    /// Prints the error that ended the run, instead of the event that reports it to clients.
    pub fn print_error(&mut self, error: &RunError) -> io::Result<()> {
        self.stream = None;
        self.clear_progress()?;
        self.print_held()?;
        let (code, message, client_message) = (error.code(), error.to_string(), error.client_message());
        let report = self.event_error.take_if(|report| report.code == code && report.message == client_message);
        if report.is_some_and(|report| report.is_printed && report.message == message) {
            return Ok(());
        }
        self.print_event_error()?;
        self.write_error(code, &message)
    }

    fn print_event_error(&mut self) -> io::Result<()> {
        let Some(error) = self.event_error.take() else { return Ok(()) };
        if !error.is_printed {
            self.write_error(&error.code, &error.message)?;
        }
        self.event_error = Some(EventError { is_printed: true, ..error });
        Ok(())
    }

    fn write_error(&mut self, code: &str, message: &str) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()?;
        writeln!(self.errors, "{ERROR}{}:{ERROR:#} {}", escape_control(code), escape_control(message))?;
        if message.contains("no key: set ") {
            writeln!(
                self.errors,
                "{DIM}a key can also be a line NAME=… of the file {} in the folder{DIM:#}",
                dotenv::FILE_NAME
            )?;
        }
        Ok(())
    }

    fn print_author(&mut self, author: &str) -> io::Result<()> {
        if self.has_several_agents && self.author != author {
            self.end_line()?;
            writeln!(self.out, "{BOLD}{}{BOLD:#}", escape_control(author))?;
            self.author = author.to_owned();
        }
        Ok(())
    }

    fn print_text(&mut self, author: &str, text: &str, thought: bool) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.print_author(author)?;
        let text = escape_control(text);
        if thought {
            write!(self.out, "{DIM}{text}{DIM:#}")?;
        } else {
            write!(self.out, "{text}")?;
        }
        self.is_line_open = !text.ends_with('\n');
        Ok(())
    }

    fn print_line(&mut self, author: &str, data: &PartData, part: &Part) -> io::Result<()> {
        let line = match data {
            // The prompt for the user's answer shows it.
            PartData::FunctionCall(call) if is_question(call) => return Ok(()),
            PartData::FunctionCall(call) => format!("→ {}({})", call.name, Value::from(call.args.clone())),
            PartData::FunctionResponse(response) => {
                format!("← {} {}", response.name, Value::from(response.response.clone()))
            }
            PartData::InlineData(blob) => {
                format!("[{}, {}]", blob.mime_type, pluralize(blob.data.len(), "byte", "bytes"))
            }
            PartData::FileData(file) => format!("[{}]", file.file_uri),
            PartData::ExecutableCode(code) => return self.print_block(author, "code", &code.code),
            PartData::CodeExecutionResult(result) => {
                let result = result.output.as_deref().or(result.outcome.as_deref()).unwrap_or_default();
                return self.print_block(author, "result", result);
            }
            PartData::Text(_) => return Ok(()),
            PartData::Other if part.extra.is_empty() => return Ok(()),
            PartData::Other => json!(part.extra).to_string(),
        };
        self.print_author(author)?;
        self.end_line()?;
        writeln!(self.out, "{DIM}{}{DIM:#}", truncate(&line, MAX_CHARS))
    }

    /// Prints a text of several lines under a title.
    fn print_block(&mut self, author: &str, title: &str, text: &str) -> io::Result<()> {
        self.print_author(author)?;
        self.end_line()?;
        writeln!(self.out, "{DIM}{title}:{DIM:#}")?;
        for line in text.lines().take(MAX_LINES) {
            writeln!(self.out, "{DIM}  {}{DIM:#}", truncate(line, MAX_CHARS))?;
        }
        if text.lines().nth(MAX_LINES).is_some() {
            writeln!(self.out, "{DIM}  …{DIM:#}")?;
        }
        Ok(())
    }

    /// Overwrites the line about progress, unless text is being streamed.
    fn print_progress(&mut self, progress: &str) -> io::Result<()> {
        if !self.shows_progress || self.is_line_open {
            return Ok(());
        }
        let line = truncate(progress, MAX_PROGRESS_CHARS);
        let width = line.chars().count();
        let rest = self.progress_width.saturating_sub(width);
        write!(self.out, "\r{DIM}{line}{DIM:#}{:rest$}", "")?;
        self.progress_width = width;
        self.out.flush()
    }

    fn clear_progress(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.progress_width) {
            0 => Ok(()),
            width => write!(self.out, "\r{:width$}\r", ""),
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_line_open) {
            writeln!(self.out)?;
        }
        Ok(())
    }
}

/// Returns the progress of a tool that an event reports, as a line. `None` for any other event.
fn progress_of(event: &Event) -> Option<String> {
    let report = event.custom_metadata.as_deref().filter(|_| event.partial)?.get(TOOL_PROGRESS_KEY)?;
    let number = |key: &str| report.get(key).and_then(Value::as_f64);
    let text = |key: &str| report.get(key).and_then(Value::as_str).unwrap_or_default();
    let progress = number("progress")?;
    let amount = match number("total").filter(|total| *total > 0.0) {
        Some(total) => format!("{:.0}%", (100.0 * progress / total).clamp(0.0, 100.0)),
        None => progress.to_string(),
    };
    Some(format!("… {} {amount} {}", text("name"), text("message")))
}

/// Returns true for a request to the user.
fn is_question(call: &FunctionCall) -> bool {
    [REQUEST_CONFIRMATION, REQUEST_CREDENTIAL].contains(&call.name.as_str())
}

#[cfg(test)]
mod tests {
    use hatchery_core::{CodeExecutionResult, Content, EventData, ExecutableCode};

    use super::*;

    fn event(id: &str, partial: bool, parts: Vec<Part>) -> Arc<Event> {
        let content = Some(Arc::new(Content::new("model", parts)));
        Event::new(EventData { id: id.into(), author: "dice".into(), partial, content, ..EventData::default() })
    }

    fn print_all(has_several_agents: bool, events: &[Arc<Event>]) -> (String, String) {
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let mut printer = ChatPrinter::new(
            anstream::StripStream::new(&mut out),
            anstream::StripStream::new(&mut errors),
            has_several_agents,
        );
        for event in events {
            printer.print(event).unwrap();
        }
        printer.finish().unwrap();
        drop(printer);
        (String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
    }

    #[test]
    fn streamed_text_is_printed_once() {
        let events = [
            event("1", true, vec![Part::text("Hel")]),
            event("1", true, vec![Part::text("lo")]),
            event("1", false, vec![Part::text("Hello")]),
            event("2", false, vec![Part::text("Bye")]),
        ];
        assert_eq!(print_all(false, &events).0, "Hello\nBye\n");
    }

    #[test]
    fn text_of_parallel_agents_is_printed_once_and_in_one_piece() {
        let text_event = |author: &str, partial, text| {
            let content = Some(Arc::new(Content::new("model", vec![Part::text(text)])));
            let (id, author) = (author.into(), author.into());
            Event::new(EventData { id, author, partial, content, ..EventData::default() })
        };
        let events = [
            text_event("a", true, "on"),
            text_event("b", true, "tw"),
            text_event("a", true, "e"),
            text_event("b", true, "o"),
            text_event("b", false, "two"),
            text_event("a", true, "!"),
            text_event("a", false, "one!"),
        ];
        assert_eq!(print_all(true, &events).0, "a\none!\nb\ntwo\n");
        // A stream that is never completed does not hide the others.
        assert_eq!(print_all(true, &events[..5]).0, "a\none\nb\ntwo\n");
    }

    #[test]
    fn an_answer_that_differs_from_the_streamed_text_is_printed_too() {
        let events = [event("1", true, vec![Part::text("My PIN is")]), event("1", false, vec![Part::text("No.")])];
        assert_eq!(print_all(false, &events).0, "My PIN is\nNo.\n");
    }

    #[test]
    fn calls_have_their_own_lines_after_streamed_text() {
        let call = FunctionCall {
            name: "roll".into(),
            args: [("sides".into(), 6.into())].into_iter().collect(),
            ..Default::default()
        };
        let events = [
            event("1", true, vec![Part::text("I roll.")]),
            event("1", true, vec![PartData::FunctionCall(call.clone()).into()]),
            event("1", false, vec![Part::text("I roll."), PartData::FunctionCall(call).into()]),
        ];
        assert_eq!(print_all(false, &events).0, "I roll.\n→ roll({\"sides\":6})\n");
    }

    fn progress_event(report: Value) -> Arc<Event> {
        let custom_metadata = Some(Box::new(json!({ TOOL_PROGRESS_KEY: report })));
        Event::new(EventData { author: "dice".into(), partial: true, custom_metadata, ..EventData::default() })
    }

    #[test]
    fn progress_of_a_tool_is_a_line_of_the_terminal_that_is_overwritten() {
        let events = [
            progress_event(json!({"name": "bake", "progress": 1.0, "total": 4.0, "message": "two loaves"})),
            progress_event(json!({"name": "bake", "progress": 9.5})),
            event("1", false, vec![Part::text("Done")]),
        ];
        let print = |is_terminal: bool| {
            let mut out = Vec::new();
            let mut printer = ChatPrinter::new(anstream::StripStream::new(&mut out), io::sink(), false);
            printer = printer.with_progress(is_terminal);
            events.iter().for_each(|event| printer.print(event).unwrap());
            printer.finish().unwrap();
            drop(printer);
            String::from_utf8(out).unwrap()
        };
        let second = "… bake 9.5 ";
        let (rest, blank) = (" ".repeat("… bake 25% two loaves".chars().count() - 11), " ".repeat(11));
        assert_eq!(print(true), format!("\r… bake 25% two loaves\r{second}{rest}\r{blank}\rDone\n"));
        assert_eq!(print(false), "Done\n");
    }

    #[test]
    fn progress_does_not_hold_events_of_other_agents_back() {
        let mut other = EventData { author: "other".into(), ..EventData::default() };
        other.content = Some(Arc::new(Content::new("model", vec![Part::text("I am done")])));
        let events = [progress_event(json!({"name": "bake", "progress": 1.0})), Event::new(other)];
        let mut out = Vec::new();
        let mut printer = ChatPrinter::new(anstream::StripStream::new(&mut out), io::sink(), false);
        events.iter().for_each(|event| printer.print(event).unwrap());
        drop(printer);
        assert_eq!(String::from_utf8(out).unwrap(), "I am done\n");
    }

    #[test]
    fn requests_to_the_user_are_not_printed_as_calls() {
        for name in ["adk_request_confirmation", "adk_request_credential"] {
            let call = FunctionCall { name: name.into(), ..Default::default() };
            assert_eq!(print_all(false, &[event("1", false, vec![PartData::FunctionCall(call).into()])]).0, "");
        }
    }

    #[test]
    fn code_and_its_output_keep_their_lines() {
        let code = ExecutableCode { code: "a = 1\nprint(a)".into(), ..Default::default() };
        let result = CodeExecutionResult { output: Some("line\n".repeat(41)), ..Default::default() };
        let parts = vec![PartData::ExecutableCode(code).into(), PartData::CodeExecutionResult(result).into()];
        let lines = "  line\n".repeat(40);
        assert_eq!(
            print_all(false, &[event("1", false, parts)]).0,
            format!("code:\n  a = 1\n  print(a)\nresult:\n{lines}  …\n")
        );
    }

    #[test]
    fn agents_are_named_if_there_are_several() {
        let events = [event("1", false, vec![Part::text("a")]), event("2", false, vec![Part::text("b")])];
        assert_eq!(print_all(true, &events).0, "dice\na\nb\n");
    }

    #[test]
    fn an_agent_without_output_is_not_named() {
        let call = || vec![PartData::FunctionCall(FunctionCall { name: "roll".into(), ..Default::default() }).into()];
        let events = [event("1", false, vec![]), event("2", true, call()), event("3", false, vec![Part::text("")])];
        assert_eq!(print_all(true, &events).0, "");
        assert_eq!(print_all(true, &[event("2", true, call()), event("2", false, call())]).0, "dice\n→ roll({})\n");
    }

    fn error_event(code: &str, message: &str) -> Arc<Event> {
        Event::new(EventData {
            author: "dice".into(),
            error_code: Some(code.into()),
            error_message: Some(message.into()),
            ..EventData::default()
        })
    }

    #[test]
    fn errors_go_to_the_error_stream() {
        let events = [error_event("MODEL_AUTH", "no key")];
        assert_eq!(print_all(false, &events), (String::new(), "MODEL_AUTH: no key\n".into()));
    }

    #[test]
    fn a_missing_key_is_answered_with_the_file_for_it() {
        let events = [error_event("MODEL_AUTH", "model `gpt-5`: no key: set OPENAI_API_KEY")];
        let expected = "MODEL_AUTH: model `gpt-5`: no key: set OPENAI_API_KEY\na key can also be a line NAME=… of the \
                        file .env in the folder\n";
        assert_eq!(print_all(false, &events).1, expected);
    }

    #[test]
    fn the_error_of_a_run_is_printed_once_and_in_full() {
        let errors = |events: &[Arc<Event>], error: &RunError| {
            let mut errors = Vec::new();
            let mut printer = ChatPrinter::new(io::sink(), anstream::StripStream::new(&mut errors), false);
            events.iter().for_each(|event| printer.print(event).unwrap());
            printer.print_error(error).unwrap();
            printer.finish().unwrap();
            drop(printer);
            String::from_utf8(errors).unwrap()
        };
        let internal = RunError::Internal("no disk".into());
        let report = error_event(internal.code(), &internal.client_message());
        let full = "INTERNAL: internal error: no disk; please report it\n";
        assert_eq!(errors(&[], &internal), full);
        assert_eq!(errors(&[report], &internal), full, "the report for clients says less");
        let failed = || error_event("MODEL_AUTH", "no key");
        assert_eq!(errors(&[failed()], &internal), format!("MODEL_AUTH: no key\n{full}"), "another error");
        let reported = RunError::AlreadyReported { code: "MODEL_AUTH".into(), message: "no key".into() };
        let bye = event("1", false, vec![Part::text("Bye")]);
        assert_eq!(errors(&[failed(), bye], &reported), "MODEL_AUTH: no key\n");
    }
}
