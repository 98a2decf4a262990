//! A code executor, a summarizer, an example provider, a model and a live model.

use hatchery_guest::prelude::*;
use hatchery_guest::{FunctionCall, JsonMap, PartData, Transcription};

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

/// Repeats messages and sounds. The message `call NAME` calls a tool, `fail` fails, `spin` never ends, `mumble` is
/// answered by a call without an id, and `long` by a long text.
#[live_model]
#[allow(clippy::empty_loop, reason = "the tests need it")]
pub async fn parrot(_request: LlmRequest, connection: LiveConnection) -> Result<(), Error> {
    if connection.config().get("responseModalities") == Some(&json!(["VIDEO"])) {
        return Err(Error::new("MODEL_BAD_REQUEST", "parrots have no pictures"));
    }
    while let Some(request) = connection.receive().await? {
        match request {
            LiveRequest::Content { content, .. } => match content.text().as_str() {
                "fail" => return Err(Error::new("MODEL_RATE_LIMITED", "too much noise")),
                "spin" => loop {},
                "mumble" => connection.send(LiveResponse::ToolCalls(vec![FunctionCall::default()])).await?,
                "long" => connection.say("a".repeat(100_000)).await?,
                text => match text.strip_prefix("call ") {
                    Some(tool) => {
                        let call = FunctionCall { id: Some("c1".into()), name: tool.into(), ..FunctionCall::default() };
                        connection.send(LiveResponse::ToolCalls(vec![call])).await?;
                        continue;
                    }
                    None => connection.say(text).await?,
                },
            },
            LiveRequest::Blob(blob) => {
                let heard = Transcription { text: format!("{} bytes", blob.data.len()), finished: true };
                connection.send(LiveResponse::InputTranscription(heard.clone())).await?;
                connection.send(Content { role: None, parts: vec![PartData::InlineData(blob).into()] }).await?;
                connection.send(LiveResponse::OutputTranscription(heard)).await?;
            }
            LiveRequest::ToolResponses(responses) => {
                let results = responses.into_iter().map(|response| Value::Object(response.response)).collect();
                connection.say(Value::Array(results).to_string()).await?;
            }
            LiveRequest::ActivityStart => connection.send(LiveResponse::Interrupted).await?,
            LiveRequest::ActivityEnd | LiveRequest::AudioStreamEnd => continue,
        }
        let usage = JsonMap::from_iter([("totalTokenCount".to_owned(), json!(7))]);
        connection.send(LiveResponse::Usage(usage)).await?;
        connection.send(LiveResponse::TurnComplete).await?;
    }
    Ok(())
}
