//! A code executor, a summarizer, an example provider and a model.

use hatchery_guest::prelude::*;

/// Prints the code in capital letters, and writes the name of the first input file to `out.txt`. The code `fail` fails,
/// the code `trap` panics.
#[code_executor]
#[allow(clippy::panic, reason = "the tests need it")]
pub async fn shout(input: CodeInput) -> Result<CodeOutput, ToolError> {
    match input.code.trim() {
        "fail" => Ok(CodeOutput { stderr: "it failed".into(), ..CodeOutput::default() }),
        "trap" => panic!("the code wanted it"),
        code => {
            let first = input.input_files.first().map(|file| file.name.as_str()).unwrap_or_default();
            let output_files = vec![CodeFile::text("out.txt", first)];
            Ok(CodeOutput { stdout: code.to_uppercase(), output_files, ..CodeOutput::default() })
        }
    }
}

/// Returns the number of events; `None` if there are none.
#[summarizer]
pub async fn counter(events: Vec<Event>) -> Result<Option<Content>, Error> {
    Ok((!events.is_empty()).then(|| Content::model(format!("{} events", events.len()))))
}

/// Returns the same example for every query.
#[examples]
pub async fn sums(query: String) -> Result<Vec<Example>, Error> {
    Ok(vec![Example::new(query, "That makes four.")])
}

/// Streams the last user message word by word. The message `fail` fails, the message `spin` never ends.
#[model]
#[allow(clippy::empty_loop, reason = "the tests need it")]
pub async fn echo(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    let reply = request.contents.last().map(Content::text).unwrap_or_default();
    match reply.as_str() {
        "fail" => Err(Error::new("ECHO_FAILED", "there is no echo here")),
        "spin" => loop {},
        reply => {
            for word in reply.split_inclusive(' ') {
                answer.say(word).await?;
            }
            Ok(())
        }
    }
}
