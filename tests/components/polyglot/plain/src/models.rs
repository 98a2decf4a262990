//! A model that repeats the last message.

use std::cell::RefCell;

use crate::bindings::exports::hatchery::agent::sync_guest_models::{
    Guest, GuestResponseStream, LlmRequest, LlmResponse, ResponseStream,
};
use crate::bindings::hatchery::agent::types::Error;
use crate::{Plain, content, text_of};

impl Guest for Plain {
    type ResponseStream = Words;

    fn describe() -> Vec<String> {
        vec!["parrot".into()]
    }

    fn generate(_: String, request: LlmRequest, streaming: bool) -> Result<ResponseStream, Error> {
        let message = text_of(request.contents.last());
        if message == "nothing" {
            return Err(Error { code: "MODEL_BAD_REQUEST".into(), message: "there is nothing to say".into() });
        }
        let words =
            if streaming { message.split_inclusive(' ').rev().map(Into::into).collect() } else { vec![message] };
        Ok(ResponseStream::new(Words { left: RefCell::new(words), partial: streaming }))
    }
}

/// The remaining parts of an answer, in reverse order.
pub(crate) struct Words {
    left: RefCell<Vec<String>>,
    partial: bool,
}

impl GuestResponseStream for Words {
    fn next(&self) -> Result<Option<LlmResponse>, Error> {
        let Some(word) = self.left.borrow_mut().pop() else { return Ok(None) };
        if word == "stop" {
            return Err(Error { code: "MODEL_UNAVAILABLE".into(), message: "it stopped".into() });
        }
        Ok(Some(LlmResponse {
            content: Some(content("model", &word)),
            partial: self.partial,
            turn_complete: None,
            interrupted: None,
            finish_reason: None,
            error_code: None,
            error_message: None,
            extra: None,
        }))
    }
}
