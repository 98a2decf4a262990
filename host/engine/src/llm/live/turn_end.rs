//! The end of a model's turn: its words and the recorded speech are stored.

use std::sync::Arc;

use hatchery_core::{Aggregator, Event, EventData, LlmResponse, RunError, USER_AUTHOR, UsageMetadata, new_event_id};

use super::Conversation;
use super::recording::RecordedAudio;

/// The chunks of a text event.
pub(super) struct ModelText {
    pub(super) event_id: String,
    pub(super) text: Aggregator,
}

impl ModelText {
    pub(super) fn new() -> Self {
        Self { event_id: new_event_id(), text: Aggregator::default() }
    }
}

/// The end of a model's turn.
#[derive(Default)]
pub(super) struct TurnEnd {
    pub(super) turn_complete: Option<bool>,
    pub(super) interrupted: Option<bool>,
}

impl Conversation<'_> {
    /// Stores speech and text. The last event has the reason of the end and the usage.
    pub(super) async fn end_turn(&mut self, end: TurnEnd) -> Result<(), RunError> {
        self.is_in_turn = false;
        self.save_recordings().await?;
        let usage = self.usage.take();
        let event = self.store_words(end, usage).await?;
        self.end_span(event.as_ref());
        Ok(())
    }

    /// Stores speech and text. Returns the last event.
    pub(super) async fn store_words(
        &mut self,
        end: TurnEnd,
        usage: Option<UsageMetadata>,
    ) -> Result<Option<Arc<Event>>, RunError> {
        let user_speech = self.user_speech.finish();
        self.emit_user_speech(user_speech).await?;
        let ModelText { event_id: id, text } = std::mem::replace(&mut self.model_text, ModelText::new());
        let (speech, text) = (self.model_speech.finish(), text.finish());
        let Some(response) = text else { return self.emit_model_speech(speech, end, usage).await };
        self.emit_model_speech(speech, TurnEnd::default(), None).await?;
        let TurnEnd { turn_complete, interrupted } = end;
        let response = LlmResponse { partial: false, turn_complete, interrupted, usage_metadata: usage, ..response };
        let response = self.driver.call_after_model(response).await?;
        self.driver.emit_response(id, response).await.map(Some)
    }

    /// Saves the speech since the last turn as artifacts. The next event has their names.
    async fn save_recordings(&mut self) -> Result<(), RunError> {
        let run = self.run_id();
        let recorded = self.recordings.as_mut().map(|recordings| recordings.each_mut().map(|side| side.finish(run)));
        for audio in recorded.into_iter().flatten() {
            self.save(audio).await?;
        }
        Ok(())
    }

    pub(super) async fn save(&mut self, audio: Option<RecordedAudio>) -> Result<(), RunError> {
        if let Some(RecordedAudio { name, part }) = audio {
            self.driver.cx.call.save_artifact(&name, &part).await?;
        }
        Ok(())
    }

    /// Emits the user's speech as an event of the user.
    pub(super) async fn emit_user_speech(&mut self, event: Option<EventData>) -> Result<(), RunError> {
        let Some(data) = event else { return Ok(()) };
        let call = &self.driver.cx.call;
        let mut data = EventData {
            author: USER_AUTHOR.into(),
            invocation_id: call.invocation.id.clone(),
            branch: call.branch.as_deref().map(Into::into),
            input_transcription: data.output_transcription,
            output_transcription: None,
            ..data
        };
        call.invocation.run_config.add_custom_metadata(&mut data);
        self.driver.cx.sink.emit(Event::new(data)).await.map(drop)
    }

    /// Emits the model's speech, and the end of its turn. An end alone is not stored, unless there are artifacts.
    pub(super) async fn emit_model_speech(
        &mut self,
        event: Option<EventData>,
        TurnEnd { turn_complete, interrupted }: TurnEnd,
        usage: Option<UsageMetadata>,
    ) -> Result<Option<Arc<Event>>, RunError> {
        let is_end = turn_complete.is_some() || interrupted.is_some();
        let data = match event {
            Some(data) => data,
            None if self.has_artifacts() => EventData::default(),
            None if is_end => EventData { partial: true, ..EventData::default() },
            None => return Ok(None),
        };
        let usage_metadata = usage.map(Box::new);
        let data = EventData { turn_complete, interrupted, usage_metadata, ..data };
        self.driver.cx.emit(data).await.map(Some)
    }

    fn has_artifacts(&self) -> bool {
        !self.driver.cx.call.actions().artifact_delta.is_empty()
    }
}
