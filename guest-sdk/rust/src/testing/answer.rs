//! Answers of mock models.

use crate::answer::add;
use crate::content::{Content, Part};
use crate::error::Error;
use crate::model::LlmResponse;

/// The answer of a mock model: partial responses, optionally followed by a failure. It converts from a string, a
/// response, a content or a part, from several responses (the partial ones), and from an [`Error`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelAnswer {
    responses: Vec<LlmResponse>,
    failure: Option<Error>,
}

impl ModelAnswer {
    /// Creates an answer that streams these strings.
    pub fn chunks<T: Into<String>>(responses: impl IntoIterator<Item = T>) -> Self {
        responses.into_iter().map(LlmResponse::text).collect::<Vec<_>>().into()
    }

    /// Adds a failure at the end. A call without streaming only gets the failure.
    #[must_use]
    pub fn then_fails(mut self, error: Error) -> Self {
        self.failure = Some(error);
        self
    }

    /// Returns the responses as a host sends them.
    pub(super) fn responses(self, streamed: bool) -> Result<Vec<LlmResponse>, Error> {
        let mut complete = LlmResponse::default();
        for response in &self.responses {
            add(&mut complete, response.clone());
        }
        let last = match self.failure {
            None => complete,
            Some(error) if !streamed || self.responses.is_empty() => return Err(error),
            Some(Error { code, message }) => {
                LlmResponse { error_code: Some(code), error_message: Some(message), ..LlmResponse::default() }
            }
        };
        let responses = if streamed { self.responses } else { Vec::new() };
        let responses = responses.into_iter().map(|response| LlmResponse { partial: true, ..response });
        Ok(responses.chain([last]).collect())
    }
}

impl From<LlmResponse> for ModelAnswer {
    fn from(response: LlmResponse) -> Self {
        vec![response].into()
    }
}

impl From<Vec<LlmResponse>> for ModelAnswer {
    fn from(responses: Vec<LlmResponse>) -> Self {
        Self { responses, failure: None }
    }
}

impl From<&str> for ModelAnswer {
    fn from(text: &str) -> Self {
        LlmResponse::text(text).into()
    }
}

impl From<String> for ModelAnswer {
    fn from(text: String) -> Self {
        LlmResponse::text(text).into()
    }
}

impl From<Content> for ModelAnswer {
    fn from(content: Content) -> Self {
        LlmResponse::from(content).into()
    }
}

impl From<Part> for ModelAnswer {
    fn from(part: Part) -> Self {
        LlmResponse::from(part).into()
    }
}

impl From<Error> for ModelAnswer {
    fn from(error: Error) -> Self {
        Self { responses: Vec::new(), failure: Some(error) }
    }
}

impl<T: Into<Self>> From<Result<T, Error>> for ModelAnswer {
    fn from(answer: Result<T, Error>) -> Self {
        answer.map_or_else(Self::from, Into::into)
    }
}
