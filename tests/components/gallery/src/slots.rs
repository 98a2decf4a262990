//! What takes a place in the host: a code executor, a summarizer, a provider of examples and a model.

use hatchery_guest::prelude::*;

/// "Runs" code: what it prints is the code in capital letters, and `out.txt` holds the name of the first input file. The code `fail` fails,
/// the code `trap` panics.
#[code_executor]
#[allow(clippy::panic, reason = "that is what it is for")]
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

/// Says how many events there are; nothing when there are none.
#[summarizer]
pub async fn counter(events: Vec<Event>) -> Result<Option<Content>, Error> {
    Ok((!events.is_empty()).then(|| Content::model(format!("{} events", events.len()))))
}

/// One example, for whatever the user says.
#[examples]
pub async fn sums(query: String) -> Result<Vec<Example>, Error> {
    Ok(vec![Example::new(query, "That makes four.")])
}

/// Says back, word by word, what the user has said last. `fail` makes it fail, `spin` keeps it busy for ever.
#[model]
#[allow(clippy::empty_loop, reason = "that is what it is for")]
pub async fn echo(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    let said = request.contents.last().map(Content::text).unwrap_or_default();
    match said.as_str() {
        "fail" => Err(Error::new("ECHO_FAILED", "there is no echo here")),
        "spin" => loop {},
        said => {
            for word in said.split_inclusive(' ') {
                answer.say(word).await?;
            }
            Ok(())
        }
    }
}
