//! `session`: state and history.

use crate::bindings::hatchery::agent::session::{Host, Info};
use crate::convert::{ToWit, text, value, wit};
use crate::store::HostState;

/// Most events of one call, whatever its `limit` says.
const MAX_EVENTS: u32 = 1000;

impl Host for HostState {
    fn current(&mut self) -> Result<Info, wit::Error> {
        let cx = self.context()?;
        let key = &cx.invocation.session_key;
        Ok(Info {
            app: key.app.to_string(),
            user: key.user.to_string(),
            session: key.id.to_string(),
            invocation_id: cx.invocation.id.clone(),
            agent: cx.agent.to_string(),
            branch: cx.branch.as_deref().map(Into::into),
            function_call_id: cx.function_call_id.as_deref().map(Into::into),
        })
    }

    fn user_content(&mut self) -> Result<wit::Content, wit::Error> {
        Ok(self.context()?.invocation.user_content().to_wit())
    }

    fn get_state(&mut self, key: String) -> Result<Option<String>, wit::Error> {
        Ok(self.context()?.state(&key).as_ref().map(text))
    }

    fn all_state(&mut self) -> Result<Vec<(String, String)>, wit::Error> {
        Ok(self.context()?.full_state().iter().map(|(key, value)| (key.into(), text(value))).collect())
    }

    fn set_state(&mut self, key: String, json: String) -> Result<(), wit::Error> {
        let cx = self.context()?;
        cx.set_state(key, value(&json, "the state value")?);
        Ok(())
    }

    fn event_count(&mut self) -> Result<u64, wit::Error> {
        Ok(self.context()?.invocation.events().len() as u64)
    }

    fn events(&mut self, offset: u64, limit: u32) -> Result<Vec<wit::Event>, wit::Error> {
        let events = self.context()?.invocation.events();
        let first = usize::try_from(offset).unwrap_or(usize::MAX).min(events.len());
        let end = first.saturating_add(limit.min(MAX_EVENTS) as usize).min(events.len());
        Ok((first..end).filter_map(|index| events.get(index)).map(|event| event.to_wit()).collect())
    }
}
