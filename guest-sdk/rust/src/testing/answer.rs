//! [`ModelAnswer`]: what a test's model says.

use crate::answer::add;
use crate::content::{Content, Part};
use crate::error::Error;
use crate::model::LlmResponse;

/// What a test's model says: pieces, and perhaps a failure after them. It is made of text, a response, a content or a part, of several
/// responses, which are the pieces, and of an [`Error`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelAnswer {
    pieces: Vec<LlmResponse>,
    failure: Option<Error>,
}

impl ModelAnswer {
    /// An answer that comes in these pieces of text.
    pub fn pieces<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        pieces.into_iter().map(LlmResponse::text).collect::<Vec<_>>().into()
    }

    /// With a failure after it. Who asked for the whole gets nothing else.
    #[must_use]
    pub fn then_fails(mut self, error: Error) -> Self {
        self.failure = Some(error);
        self
    }

    /// The responses as a host gives them.
    pub(super) fn responses(self, streamed: bool) -> Result<Vec<LlmResponse>, Error> {
        let mut whole = LlmResponse::default();
        for piece in &self.pieces {
            add(&mut whole, piece.clone());
        }
        let last = match self.failure {
            None => whole,
            Some(error) if !streamed || self.pieces.is_empty() => return Err(error),
            Some(Error { code, message }) => {
                LlmResponse { error_code: Some(code), error_message: Some(message), ..LlmResponse::default() }
            }
        };
        let pieces = if streamed { self.pieces } else { Vec::new() };
        let pieces = pieces.into_iter().map(|piece| LlmResponse { partial: true, ..piece });
        Ok(pieces.chain([last]).collect())
    }
}

impl From<LlmResponse> for ModelAnswer {
    fn from(response: LlmResponse) -> Self {
        vec![response].into()
    }
}

impl From<Vec<LlmResponse>> for ModelAnswer {
    fn from(pieces: Vec<LlmResponse>) -> Self {
        Self { pieces, failure: None }
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
        Self { pieces: Vec::new(), failure: Some(error) }
    }
}

impl<T: Into<Self>> From<Result<T, Error>> for ModelAnswer {
    fn from(answer: Result<T, Error>) -> Self {
        answer.map_or_else(Self::from, Into::into)
    }
}
