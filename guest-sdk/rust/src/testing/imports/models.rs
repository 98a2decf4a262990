//! Model calls.

use futures::stream;

use super::super::scope::{Caller, Scope};
use super::StreamReader;
use crate::bindings::wit::types;
use crate::error::Error;
use crate::model::LlmRequest;

pub(crate) async fn generate(
    request: types::LlmRequest,
    streaming: bool,
) -> Result<StreamReader<types::LlmResponse>, types::Error> {
    let scope = Scope::for_session()?;
    let own = match &scope.call.caller {
        Caller::Agent { model, .. } => model.as_deref(),
        Caller::Run | Caller::Instruction | Caller::Model => None,
    };
    let model_call = scope.mock.borrow_mut().record_request(LlmRequest::try_from(request)?, own)?;
    let responses = model_call.answer(streaming)?;
    Ok(StreamReader::new(stream::iter(responses.into_iter().map(Into::into))))
}

pub(crate) fn list() -> Result<Vec<String>, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().models.clone())
}

pub(crate) async fn embed(model: String, texts: Vec<String>) -> Result<Vec<Vec<f32>>, types::Error> {
    let embedder = Scope::for_session()?.mock.borrow().embedder.clone();
    let nothing = || {
        let message = format!("model `{model}`: there is none; add `.embedder(|text| vec![…])` to the test's host");
        Error::new("MODEL_UNKNOWN", message)
    };
    let embedder = embedder.ok_or_else(nothing)?;
    Ok(texts.into_iter().map(|text| embedder(text)).collect())
}
