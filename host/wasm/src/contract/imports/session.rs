//! `session`: state, confirmations, progress and history.

use std::collections::BTreeMap;

use hatchery_core::{StreamingMode, ToolProgress, truncate_bytes};

use super::wit_error;
use crate::contract::bindings::hatchery::agent::session::{
    Host, Info, RemainingLimits, StreamingMode as WitStreamingMode,
};
use crate::contract::convert::{EstimateSize, ITEM_SIZE, ToWit, parse_json, to_json, wit};
use crate::policy::{Access, Permission};
use crate::runtime::store::meter::parsed_size;
use crate::runtime::store::pending_writes::WriteKey;
use crate::runtime::store::{CallOrigin, HostState};

/// Maximum number of events of one call, for any `limit`.
pub(super) const MAX_EVENTS: u32 = 1000;

/// Maximum size in bytes of a message about progress.
const MAX_PROGRESS_MESSAGE: usize = 500;

impl Host for HostState {
    fn current(&mut self) -> Result<Info, wit::Error> {
        let cx = self.context()?;
        let (key, left) = (&cx.invocation.session_key, cx.invocation.remaining());
        Ok(Info {
            app: key.app.to_string(),
            user: key.user.to_string(),
            session: key.id.to_string(),
            invocation_id: cx.invocation.id.clone(),
            agent: cx.agent.to_string(),
            branch: cx.branch.as_deref().map(Into::into),
            function_call_id: cx.function_call_id.as_deref().map(Into::into),
            streaming_mode: match cx.invocation.run_config.streaming_mode {
                StreamingMode::Off => WitStreamingMode::None,
                StreamingMode::On => WitStreamingMode::Sse,
            },
            is_resumable: cx.invocation.is_resumable,
            depth: cx.invocation.depth,
            remaining: RemainingLimits {
                model_calls: left.llm_calls,
                tokens: left.tokens,
                events: left.events,
                bytes: left.bytes,
            },
        })
    }

    fn user_content(&mut self) -> Result<wit::Content, wit::Error> {
        Ok(self.context()?.invocation.user_content().to_wit())
    }

    fn run_metadata(&mut self) -> Result<String, wit::Error> {
        let metadata = self.context()?.invocation.run_config.event_metadata();
        Ok(to_json(&metadata.collect::<BTreeMap<_, _>>()))
    }

    fn get_state(&mut self, key: String) -> Result<Option<String>, wit::Error> {
        let cx = self.context()?;
        self.check(Permission::State(Access::Read, &key))?;
        Ok(cx.state(&key).as_ref().map(to_json))
    }

    fn get_all_state(&mut self) -> Result<Vec<(String, String)>, wit::Error> {
        let state = self.context()?.full_state();
        let readable = state.iter().filter(|(key, _)| self.grants.can_read_state(key));
        Ok(readable.map(|(key, value)| (key.into(), to_json(value))).collect())
    }

    fn set_state(&mut self, key: String, json: String) -> Result<(), wit::Error> {
        self.writable()?;
        self.check(Permission::State(Access::Write, &key))?;
        // The parsed value can take many times its text.
        let reservation = self.usage.reserve(parsed_size(&json)).map_err(|error| {
            wit_error("LIMIT_REACHED", format!("state key `{}` is not set: {}", short(&key), error.for_callers()))
        })?;
        let value = parse_json(&json, "the state value")?;
        self.writes.record(WriteKey::State(key.clone()), key.len() + json.len()).map_err(|exceeded| {
            self.log.report_limit("limits.result", &exceeded);
            let message = format!("state key `{}` is not set, because this call has set too much", short(&key));
            wit_error("LIMIT_REACHED", format!("{message}: {}", exceeded.for_callers()))
        })?;
        self.writes.hold(WriteKey::State(key.clone()), reservation);
        self.context()?.set_state(key, value);
        Ok(())
    }

    fn idempotency_key(&mut self) -> Result<Option<String>, wit::Error> {
        Ok(self.context()?.idempotency_key())
    }

    fn confirmation(&mut self) -> Result<Option<wit::ToolConfirmation>, wit::Error> {
        Ok(self.context()?.confirmation().map(ToWit::to_wit))
    }

    fn request_confirmation(&mut self, hint: String, payload: Option<String>) -> Result<(), wit::Error> {
        self.writable()?;
        let size = hint.len() + payload.as_ref().map_or(0, String::len);
        let reservation = self.usage.reserve(hint.len() as u64 + payload.as_deref().map_or(0, parsed_size));
        let reservation = reservation.map_err(|error| {
            wit_error("LIMIT_REACHED", format!("no confirmation is requested: {}", error.for_callers()))
        })?;
        let payload = payload.map(|json| parse_json(&json, "the payload of a confirmation")).transpose()?;
        self.writes.record(WriteKey::Confirmation, size).map_err(|exceeded| {
            self.log.report_limit("limits.result", &exceeded);
            wit_error(
                "LIMIT_REACHED",
                format!("no confirmation is requested, because this call has set too much: {}", exceeded.for_callers()),
            )
        })?;
        self.writes.hold(WriteKey::Confirmation, reservation);
        Ok(self.context()?.request_confirmation(hint, payload)?)
    }

    fn report_progress(
        &mut self,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Result<(), wit::Error> {
        self.writable()?;
        let Some(CallOrigin::Tool(_, reporter)) = &self.origin else {
            let message = "only the code of a tool call can report progress; an agent yields partial events instead";
            return Err(wit_error("NOT_A_TOOL", message));
        };
        if !(progress.is_finite() && total.is_none_or(f64::is_finite)) {
            return Err(wit_error(
                "BAD_INPUT",
                "progress and its total must be finite numbers; leave an unknown total out",
            ));
        }
        let message = message.map(|message| truncate_bytes(&message, MAX_PROGRESS_MESSAGE));
        reporter.report(ToolProgress { progress, total, message });
        Ok(())
    }

    fn event_count(&mut self) -> Result<u64, wit::Error> {
        Ok(self.context()?.invocation.events().len() as u64)
    }

    fn events(&mut self, offset: u64, limit: u32) -> Result<Vec<wit::Event>, wit::Error> {
        let events = self.context()?.invocation.events();
        let first = usize::try_from(offset).unwrap_or(usize::MAX).min(events.len());
        let end = first.saturating_add(limit.min(MAX_EVENTS) as usize).min(events.len());
        let events =
            (first..end).filter_map(|index| events.get(index)).map(|event| self.grants.redact_state(event.to_wit()));
        Ok(take_within(self.writes.limit(), events))
    }
}

/// Returns items up to `max` bytes in total, but at least one, so that a reader makes progress.
pub(super) fn take_within<T: EstimateSize>(max: u64, items: impl Iterator<Item = T>) -> Vec<T> {
    let (mut page, mut total) = (Vec::new(), 0);
    for item in items {
        total += ITEM_SIZE + item.estimated_size();
        if total > max && !page.is_empty() {
            break;
        }
        page.push(item);
    }
    page
}

/// Returns the first 64 bytes of a key, for a message.
fn short(key: &str) -> &str {
    key.get(..key.floor_char_boundary(64)).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use hatchery_core::EventData;

    use super::*;

    #[test]
    fn events_are_returned_up_to_the_limit_but_at_least_one() {
        let event = || EventData { author: "x".repeat(1000), ..EventData::default() }.to_wit();
        let each = ITEM_SIZE + event().estimated_size();
        let count = |max| take_within(max, std::iter::repeat_with(event).take(10)).len();
        assert_eq!(count(3 * each), 3);
        assert_eq!(count(3 * each - 1), 2);
        assert_eq!(count(0), 1);
        assert_eq!(count(u64::MAX), 10);
    }

    #[test]
    fn events_that_are_not_returned_are_not_converted() {
        let mut converted = 0;
        let events = std::iter::repeat_with(|| {
            converted += 1;
            EventData::default().to_wit()
        });
        assert_eq!(take_within(0, events.take(10)).len(), 1);
        assert_eq!(converted, 2);
    }
}
