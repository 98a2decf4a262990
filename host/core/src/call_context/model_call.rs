//! Model calls of tools, callbacks and agents in code: recorded in the journal of the run, each in a span.

use std::sync::Arc;

use futures::{StreamExt, stream};

use super::CallContext;
use crate::error::{ModelError, ModelErrorKind, RunError};
use crate::journal::{EarlierCall, RunJournal};
use crate::model::{LlmRequest, LlmResponse, Model, ResponseStream, StreamingMode};
use crate::trace::{ModelCallProgress, Span, SpanOperation};

impl CallContext {
    /// Calls a model for the code that has this context. If the run is continued, a call that was completed before
    /// returns the same responses.
    ///
    /// # Errors
    /// As [`Invocation::generate`].
    pub async fn generate(
        &self,
        model: &dyn Model,
        request: LlmRequest,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, RunError> {
        let invocation = &self.invocation;
        let contents: Vec<_> = request.contents.iter().map(|content| &**content).collect();
        let tools: Vec<_> = request.tools.iter().map(|tool| &**tool).collect();
        let arguments = (contents, &request.system_instructions, tools, &request.model_tools, &request.config);
        let key = self.next_call_key(&format!("model:{}", request.model), &arguments);
        let (Some(key), Some(journal)) = (key, &invocation.journal) else {
            return self.generate_in_span(model, request, streaming_mode).await;
        };
        if let EarlierCall::Completed(responses) = journal.earlier::<Vec<LlmResponse>>(&key) {
            return if journal.count_call(&key) {
                invocation.replay_responses(&self.agent, responses)
            } else {
                // A pause has stored the counters with this call.
                Ok(stream::iter(responses.into_iter().map(Ok)).boxed())
            };
        }
        let name = request.model.clone();
        let responses = self.generate_in_span(model, request, streaming_mode).await?;
        journal.count_call(&key);
        Ok(record_responses(journal.clone(), key, name, responses))
    }

    /// Calls a model. The span ends with the responses.
    async fn generate_in_span(
        &self,
        model: &dyn Model,
        request: LlmRequest,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, RunError> {
        let mut span = self.span.start(SpanOperation::CodeModel, &request.model);
        if !span.is_recorded() {
            return self.invocation.generate(&self.agent, model, request, streaming_mode).await;
        }
        let progress = span.begin_model_call();
        let request = Arc::new(LlmRequest { progress: progress.clone(), ..request });
        span.set_request(&request);
        let request = LlmRequest::clone(&request);
        let responses = self.invocation.generate(&self.agent, model, request, streaming_mode).await;
        let mut call = CodeModelCall { span, progress };
        let responses = responses.inspect_err(|error| call.span.set_error(error))?;
        Ok(stream::unfold((responses, call), next_in_span).boxed())
    }
}

/// Returns the next response of a call in its span, which ends with the complete response.
async fn next_in_span(
    (mut responses, mut call): (ResponseStream, CodeModelCall),
) -> Option<(Result<LlmResponse, ModelError>, (ResponseStream, CodeModelCall))> {
    let Some(response) = responses.next().await else {
        call.end();
        return None;
    };
    match &response {
        Ok(response) => {
            response.usage_metadata.iter().for_each(|usage| call.span.set_usage(usage));
            if response.partial {
                call.progress.set_responded();
            } else {
                call.end();
            }
        }
        Err(error) => call.span.set_error(&error.clone().into()),
    }
    Some((response, (responses, call)))
}

/// Records the responses of a model call when the last one has arrived. A failed call is not recorded.
fn record_responses(journal: Arc<RunJournal>, key: String, model: String, responses: ResponseStream) -> ResponseStream {
    let state = (responses.fuse(), Some(Vec::new()), journal);
    let recorded = stream::unfold(state, move |(mut responses, mut received, journal)| {
        let (key, model) = (key.clone(), model.clone());
        async move {
            let item = match responses.next().await {
                Some(item) => item,
                None => {
                    let error = journal.complete(&key, &received.take()?).await.err()?;
                    Err(ModelError::new(ModelErrorKind::Cancelled, model, error.to_string()))
                }
            };
            match &item {
                Ok(response) => received.iter_mut().for_each(|received| received.push(response.clone())),
                Err(_) => received = None,
            }
            Some((item, (responses, received, journal)))
        }
    });
    recorded.boxed()
}

/// The span of a model call by code, which gets its last attributes when it ends.
struct CodeModelCall {
    span: Span,
    progress: ModelCallProgress,
}

impl CodeModelCall {
    /// Ends the span, unless it has ended.
    fn end(&mut self) {
        if !self.span.has_ended() {
            self.span.end();
        }
    }
}

impl Drop for CodeModelCall {
    fn drop(&mut self) {
        self.span.set_progress(&self.progress);
    }
}
