//! Models that a component offers: [`Model`], and the [`Answer`] that its code gives piece by piece.
//!
//! The code runs as its pieces are read, so a model never runs ahead of its readers by more than one piece.

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
use crate::export::{Offer, find};
use crate::model::{LlmRequest, LlmResponse};
use crate::tool::LocalFuture;

/// A model, as [`#[model]`](macro@crate::model) makes it of an async function.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// What agents call it by, after the component's name: `component:NAME/model`.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: fn(LlmRequest, Answer, Context) -> LocalFuture<Result<(), Error>>,
}

impl Model {
    /// The whole answer to a request. Unit tests of a model that uses its context go through [a host](crate::testing).
    ///
    /// # Errors
    /// As the model.
    pub async fn answer(&self, request: LlmRequest) -> Result<LlmResponse, Error> {
        let mut whole = LlmResponse::default();
        let mut pieces = pin!(self.pieces(request));
        while let Some(piece) = pieces.next().await {
            add(&mut whole, piece?);
        }
        Ok(whole)
    }

    /// The pieces as they come; the code goes on while the next one is waited for.
    pub(crate) fn pieces(&self, request: LlmRequest) -> impl Stream<Item = Result<LlmResponse, Error>> + use<> {
        let (sender, receiver) = mpsc::channel(0);
        let run = (self.run)(request, Answer(Mutex::new(sender)), Context::new());
        // The code waits until each piece is taken, so that its end comes after all of them.
        let end = run.into_stream().filter_map(|end| future::ready(end.err().map(Err)));
        stream::select(receiver.map(Ok), end)
    }
}

/// Where a model's code puts its answer, piece by piece. Who asks for the whole gets the pieces joined.
pub struct Answer(Mutex<mpsc::Sender<LlmResponse>>);

impl Answer {
    /// Says a piece of the text.
    ///
    /// # Errors
    /// As [`Answer::send`].
    pub async fn say(&self, text: impl Into<String>) -> Result<(), Error> {
        self.send(Part::text(text)).await
    }

    /// Sends what comes next, or all at once: a part such as a function call, a content, or a response with the reason why it ends and
    /// with the tokens used. It holds only what is new. Waits until it is taken.
    ///
    /// # Errors
    /// `CANCELLED` when nobody wants more: end with it.
    pub async fn send(&self, piece: impl Into<LlmResponse>) -> Result<(), Error> {
        let sent = self.0.lock().await.send(piece.into()).await;
        sent.map_err(|_| Error::new("CANCELLED", "nobody reads this model's answer any more"))
    }
}

/// Adds a piece to what has come before it.
pub(crate) fn add(whole: &mut LlmResponse, piece: LlmResponse) {
    whole.finish_reason = piece.finish_reason.or(whole.finish_reason.take());
    whole.error_code = piece.error_code.or(whole.error_code.take());
    whole.error_message = piece.error_message.or(whole.error_message.take());
    whole.extra.extend(piece.extra);
    if let Some(content) = piece.content {
        let into = whole.content.get_or_insert_with(|| Content { role: content.role.clone(), parts: Vec::new() });
        for part in content.parts {
            add_part(&mut into.parts, part);
        }
    }
}

/// Adds a part; a text that goes on where the last part ended becomes one with it.
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

/// A piece as the contract has it, or the error that ends an answer.
fn response(piece: Result<LlmResponse, Error>) -> types::LlmResponse {
    let response = match piece {
        Ok(piece) => LlmResponse { partial: true, ..piece },
        Err(Error { code, message }) => {
            LlmResponse { error_code: Some(code), error_message: Some(message), ..LlmResponse::default() }
        }
    };
    response.into()
}

impl<S: Offer<Model>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|model| model.name.into()).collect()
    }

    async fn generate(
        name: String,
        request: types::LlmRequest,
        streamed: bool,
    ) -> Result<wit_bindgen::StreamReader<types::LlmResponse>, types::Error> {
        let model = find(S::items(), "model", &name, |model| model.name)?;
        let request = request.try_into()?;
        if !streamed {
            let whole = model.answer(request).await?;
            let (mut writer, responses) = wit_stream::new();
            wit_bindgen::spawn_local(async move {
                // When nobody reads the answer, nobody is to be told either.
                let _unread = writer.write_one(whole.into()).await;
            });
            return Ok(responses);
        }
        let mut pieces = Box::pin(model.pieces(request));
        let mut next = pieces.next().await.transpose()?.map(Ok);
        let (mut writer, responses) = wit_stream::new();
        wit_bindgen::spawn_local(async move {
            while let Some(piece) = next {
                if writer.write_one(response(piece)).await.is_some() {
                    return;
                }
                next = pieces.next().await;
            }
        });
        Ok(responses)
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
        let said: String = request.contents.iter().map(Content::text).collect();
        for word in said.split_inclusive(' ') {
            answer.say(word).await?;
        }
        if said == "fail" {
            return Err(Error::new("BROKEN", "it broke"));
        }
        let call = FunctionCall { name: "f".into(), ..FunctionCall::default() };
        answer.send(Part::from(PartData::FunctionCall(call))).await?;
        answer.send(LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() }).await
    }

    fn pieces(text: &str) -> Vec<Result<LlmResponse, Error>> {
        block_on(echo().pieces(LlmRequest::new("", text)).collect())
    }

    #[test]
    fn pieces_come_one_by_one() {
        let said: Vec<_> = pieces("one two").into_iter().map(|piece| piece.unwrap().said()).collect();
        assert_eq!(said, ["one ", "two", "", ""]);
    }

    #[test]
    fn an_error_comes_after_what_was_said_before() {
        let pieces = pieces("fail");
        assert_eq!(pieces.first().unwrap().as_ref().unwrap().said(), "fail");
        let failed = response(pieces.last().unwrap().clone());
        assert_eq!((failed.error_code.as_deref(), failed.error_message.as_deref()), (Some("BROKEN"), Some("it broke")));
        assert!(!failed.partial);
    }

    #[test]
    fn the_whole_answer_is_the_pieces_joined() {
        let whole = block_on(echo().answer(LlmRequest::new("", "one two"))).unwrap();
        assert_eq!(whole.said(), "one two");
        let content = whole.content.unwrap();
        assert_eq!((content.parts.len(), content.function_calls().count()), (2, 1));
        assert_eq!((whole.finish_reason.as_deref(), whole.partial), (Some("STOP"), false));
        assert_eq!(block_on(echo().answer(LlmRequest::new("", "fail"))), Err(Error::new("BROKEN", "it broke")));
    }

    #[test]
    fn code_that_nobody_listens_to_is_told_so() {
        let (sender, receiver) = mpsc::channel(0);
        drop(receiver);
        let error = block_on(Answer(Mutex::new(sender)).say("hello")).unwrap_err();
        assert_eq!(error.code, "CANCELLED");
    }

    #[test]
    fn thoughts_and_signed_texts_stay_apart() {
        let mut parts = vec![Part { thought: true, ..Part::text("hm") }];
        let signed = Part { thought_signature: Some(vec![1]), ..Part::text("ye") };
        for part in [signed, Part::text("s")] {
            add_part(&mut parts, part);
        }
        assert_eq!(parts.len(), 3);
    }
}
