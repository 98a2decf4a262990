//! Models of a component: [`Model`], and the [`Answer`] that its code streams.
//!
//! The code runs as its responses are read, so a model is never ahead of its readers by more than one response.

use std::pin::pin;

use futures::channel::mpsc;
use futures::lock::Mutex;
use futures::{FutureExt, SinkExt, Stream, StreamExt, future, stream};

use crate::bindings::models::exports::hatchery::agent::guest_models as wit;
use crate::bindings::models::wit_stream;
use crate::bindings::wit::types;
use crate::content::{Content, Part, PartData};
use crate::context::Context;
use crate::error::Error;
use crate::export::{ExportList, find};
use crate::model::{LlmRequest, LlmResponse};
use crate::tool::LocalFuture;

/// A model, made from an async function by [`#[model]`](macro@crate::model).
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Name of the model. Agents refer to it as `component:NAME/model`.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: fn(LlmRequest, Answer, Context) -> LocalFuture<Result<(), Error>>,
}

impl Model {
    /// Returns the complete answer to a request. Unit tests of a model that uses its context go through [a mock
    /// host](crate::testing).
    ///
    /// # Errors
    /// The error of the model.
    pub async fn answer(&self, request: LlmRequest) -> Result<LlmResponse, Error> {
        let mut complete = LlmResponse::default();
        let mut responses = pin!(self.responses(request));
        while let Some(response) = responses.next().await {
            add(&mut complete, response?);
        }
        Ok(complete)
    }

    /// Streams the partial responses. The code advances while the next one is awaited.
    pub(crate) fn responses(&self, request: LlmRequest) -> impl Stream<Item = Result<LlmResponse, Error>> + use<> {
        let (sender, receiver) = mpsc::channel(0);
        let run = (self.run)(request, Answer(Mutex::new(sender)), Context::new());
        // The code waits until each response is taken, so its end comes after all of them.
        let end = run.into_stream().filter_map(|end| future::ready(end.err().map(Err)));
        stream::select(receiver.map(Ok), end)
    }
}

/// The stream that a model's code writes its answer to. For a request without streaming, the partial responses are
/// joined.
pub struct Answer(Mutex<mpsc::Sender<LlmResponse>>);

impl Answer {
    /// Sends a part of the text.
    ///
    /// # Errors
    /// See [`Answer::send`].
    pub async fn say(&self, text: impl Into<String>) -> Result<(), Error> {
        self.send(Part::text(text)).await
    }

    /// Sends the next part of the answer: a part such as a function call, a content, or a response with the finish
    /// reason and the token usage. It contains only new content. Waits until it is taken.
    ///
    /// # Errors
    /// `CANCELLED` if the answer is no longer read: return this error.
    pub async fn send(&self, response: impl Into<LlmResponse>) -> Result<(), Error> {
        let sent = self.0.lock().await.send(response.into()).await;
        sent.map_err(|_| Error::new("CANCELLED", "this model's answer is no longer read"))
    }
}

/// Merges a partial response into the complete one.
pub(crate) fn add(complete: &mut LlmResponse, response: LlmResponse) {
    complete.finish_reason = response.finish_reason.or(complete.finish_reason.take());
    complete.error_code = response.error_code.or(complete.error_code.take());
    complete.error_message = response.error_message.or(complete.error_message.take());
    complete.turn_complete = response.turn_complete.or(complete.turn_complete);
    complete.interrupted = response.interrupted.or(complete.interrupted);
    complete.extra.extend(response.extra);
    if let Some(content) = response.content {
        let into = complete.content.get_or_insert_with(|| Content { role: content.role.clone(), parts: Vec::new() });
        for part in content.parts {
            add_part(&mut into.parts, part);
        }
    }
}

/// Adds a part. A text that continues the last text part is appended to it.
fn add_part(parts: &mut Vec<Part>, part: Part) {
    if let Some(last) = parts.last_mut()
        && (last.thought, &last.extra) == (part.thought, &part.extra)
        && last.thought_signature.is_none()
        && let (PartData::Text(text), PartData::Text(more)) = (&mut last.data, &part.data)
    {
        text.push_str(more);
        last.thought_signature = part.thought_signature;
    } else {
        parts.push(part);
    }
}

/// Converts a partial response, or the error that ends an answer.
fn to_wit(response: Result<LlmResponse, Error>) -> types::LlmResponse {
    let response = match response {
        Ok(response) => LlmResponse { partial: true, ..response },
        Err(Error { code, message }) => {
            LlmResponse { error_code: Some(code), error_message: Some(message), ..LlmResponse::default() }
        }
    };
    response.into()
}

impl<S: ExportList<Model>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|model| model.name.into()).collect()
    }

    async fn generate(
        name: String,
        request: types::LlmRequest,
        streaming: bool,
    ) -> Result<wit_bindgen::StreamReader<types::LlmResponse>, types::Error> {
        let model = find(S::items(), "model", &name, |model| model.name)?;
        let request = request.try_into()?;
        if !streaming {
            let complete = model.answer(request).await?;
            let (mut writer, responses) = wit_stream::new();
            wit_bindgen::spawn_local(async move {
                // If the answer is not read, there is nothing to report.
                let _unread = writer.write_one(complete.into()).await;
            });
            return Ok(responses);
        }
        let mut responses = Box::pin(model.responses(request));
        let mut next = responses.next().await.transpose()?.map(Ok);
        let (mut writer, reader) = wit_stream::new();
        wit_bindgen::spawn_local(async move {
            while let Some(response) = next {
                if writer.write_one(to_wit(response)).await.is_some() {
                    return;
                }
                next = responses.next().await;
            }
        });
        Ok(reader)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate as hatchery_guest;
    use crate::content::FunctionCall;

    #[hatchery_guest::model]
    async fn echo(request: LlmRequest, answer: Answer) -> Result<(), Error> {
        let text: String = request.contents.iter().map(Content::text).collect();
        for word in text.split_inclusive(' ') {
            answer.say(word).await?;
        }
        if text == "fail" {
            return Err(Error::new("BROKEN", "it broke"));
        }
        let call = FunctionCall { name: "f".into(), ..FunctionCall::default() };
        answer.send(Part::from(PartData::FunctionCall(call))).await?;
        answer.send(LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() }).await
    }

    fn responses(text: &str) -> Vec<Result<LlmResponse, Error>> {
        block_on(echo().responses(LlmRequest::new("", text)).collect())
    }

    #[test]
    fn partial_responses_are_sent_one_by_one() {
        let texts: Vec<_> = responses("one two").into_iter().map(|response| response.unwrap().text_content()).collect();
        assert_eq!(texts, ["one ", "two", "", ""]);
    }

    #[test]
    fn an_error_comes_after_earlier_responses() {
        let responses = responses("fail");
        assert_eq!(responses.first().unwrap().as_ref().unwrap().text_content(), "fail");
        let failed = to_wit(responses.last().unwrap().clone());
        assert_eq!((failed.error_code.as_deref(), failed.error_message.as_deref()), (Some("BROKEN"), Some("it broke")));
        assert!(!failed.partial);
    }

    #[test]
    fn the_complete_answer_joins_the_partial_responses() {
        let complete = block_on(echo().answer(LlmRequest::new("", "one two"))).unwrap();
        assert_eq!(complete.text_content(), "one two");
        let content = complete.content.unwrap();
        assert_eq!((content.parts.len(), content.function_calls().count()), (2, 1));
        assert_eq!((complete.finish_reason.as_deref(), complete.partial), (Some("STOP"), false));
        assert_eq!(block_on(echo().answer(LlmRequest::new("", "fail"))), Err(Error::new("BROKEN", "it broke")));
    }

    #[test]
    fn sending_to_a_dropped_receiver_is_cancelled() {
        let (sender, receiver) = mpsc::channel(0);
        drop(receiver);
        let error = block_on(Answer(Mutex::new(sender)).say("hello")).unwrap_err();
        assert_eq!(error.code, "CANCELLED");
    }

    #[test]
    fn thoughts_and_signed_texts_are_not_merged() {
        let mut parts = vec![Part { thought: true, ..Part::text("hm") }];
        let signed = Part { thought_signature: Some(vec![1]), ..Part::text("ye") };
        for part in [signed, Part::text("s")] {
            add_part(&mut parts, part);
        }
        assert_eq!(parts.len(), 3);
    }
}
