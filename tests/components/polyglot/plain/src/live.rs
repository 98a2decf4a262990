//! A live model that repeats messages.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::bindings::exports::hatchery::agent::sync_guest_live_models::{
    Connection, Guest, GuestConnection, LiveRequest, LiveResponse, LlmRequest,
};
use crate::bindings::hatchery::agent::types::{Error, Transcription};
use crate::{Plain, content, text_of};

impl Guest for Plain {
    type Connection = Starling;

    fn describe() -> Vec<String> {
        vec!["starling".into()]
    }

    fn connect(_: String, _: LlmRequest, _: String) -> Result<Connection, Error> {
        Ok(Connection::new(Starling(RefCell::default())))
    }
}

/// The responses that are not sent yet.
pub(crate) struct Starling(RefCell<VecDeque<LiveResponse>>);

impl GuestConnection for Starling {
    fn send(&self, request: LiveRequest) -> Result<(), Error> {
        let mut unsaid = self.0.borrow_mut();
        match request {
            LiveRequest::Content(message) => {
                let text = text_of(Some(&message.content));
                if text == "stop" {
                    return Err(Error { code: "MODEL_RATE_LIMITED".into(), message: "it stopped".into() });
                }
                unsaid.push_back(LiveResponse::Content(content("model", &text)));
            }
            LiveRequest::Blob(blob) => {
                let heard = Transcription { text: format!("{} bytes", blob.data.len()), finished: true };
                unsaid.push_back(LiveResponse::OutputTranscription(heard));
            }
            LiveRequest::ActivityStart
            | LiveRequest::ActivityEnd
            | LiveRequest::AudioStreamEnd
            | LiveRequest::ToolResponses(_) => {}
        }
        unsaid.push_back(LiveResponse::TurnComplete);
        Ok(())
    }

    fn receive(&self) -> Result<Option<LiveResponse>, Error> {
        Ok(self.0.borrow_mut().pop_front())
    }
}
