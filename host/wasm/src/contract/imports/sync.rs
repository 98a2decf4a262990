//! The `sync-…` interfaces: blocking versions of the asynchronous ones, for guests without async support. A stream
//! becomes a resource in the Wasmtime store's table with a method `next`.

use futures::StreamExt;
use wasmtime::component::Resource;

use super::{ModelAnswer, agents, artifacts, memory, model, tools, wit_error};
use crate::contract::bindings::hatchery::agent::{
    agents as async_agents, specs, sync_agents, sync_artifacts, sync_memory, sync_model, sync_tools,
};
use crate::contract::convert::wit;
use crate::contract::sub_agent_relay::SubAgent;
use crate::runtime::store::HostState;

impl specs::Host for HostState {}

impl HostState {
    /// Adds a resource to the table. Returns the guest's handle.
    fn add_resource<R: Send + 'static>(&mut self, resource: R) -> Result<Resource<R>, wit::Error> {
        let handle = self.resources().push(resource);
        handle.map_err(|error| wit_error("LIMIT_REACHED", format!("no more resources can be opened: {error}")))
    }

    /// Returns the resource of a guest's handle.
    fn resource<R: Send + 'static>(&mut self, handle: &Resource<R>) -> Result<&mut R, wit::Error> {
        self.resources().get_mut(handle).map_err(|error| wit_error("BAD_INPUT", error.to_string()))
    }
}

impl sync_model::Host for HostState {
    async fn generate(
        &mut self,
        request: wit::LlmRequest,
        streamed: bool,
    ) -> Result<Resource<ModelAnswer>, wit::Error> {
        let answer = model::generate(&mut *self, request, streamed).await?;
        self.add_resource(answer)
    }
}

impl sync_model::HostAnswer for HostState {
    async fn next(&mut self, answer: Resource<ModelAnswer>) -> Result<Option<wit::LlmResponse>, wit::Error> {
        Ok(self.resource(&answer)?.next().await)
    }

    async fn drop(&mut self, answer: Resource<ModelAnswer>) -> wasmtime::Result<()> {
        self.resources().delete(answer)?;
        Ok(())
    }
}

impl sync_artifacts::Host for HostState {
    async fn save(&mut self, name: String, part: wit::Part) -> Result<u64, wit::Error> {
        artifacts::save(self, name, part).await
    }

    async fn load(&mut self, name: String, version: Option<u64>) -> Result<Option<wit::Part>, wit::Error> {
        artifacts::load(self, name, version).await
    }

    async fn list(&mut self) -> Result<Vec<String>, wit::Error> {
        artifacts::list(self).await
    }

    async fn versions(&mut self, name: String) -> Result<Vec<u64>, wit::Error> {
        artifacts::versions(self, name).await
    }

    async fn delete(&mut self, name: String) -> Result<(), wit::Error> {
        artifacts::delete(self, name).await
    }
}

impl sync_memory::Host for HostState {
    async fn search(&mut self, query: String) -> Result<Vec<sync_memory::Entry>, wit::Error> {
        let entries = memory::search(self, query).await?.into_iter();
        let entries =
            entries.map(|it| sync_memory::Entry { content: it.content, author: it.author, timestamp: it.timestamp });
        Ok(entries.collect())
    }
}

impl sync_tools::Host for HostState {
    async fn call(&mut self, name: String, args: String) -> Result<String, wit::ToolError> {
        tools::call(self, name, args).await
    }
}

impl sync_agents::Host for HostState {
    async fn run(&mut self, name: String) -> Result<Resource<SubAgent>, wit::Error> {
        let events = agents::run(&mut *self, name).await?;
        self.add_resource(events)
    }

    fn transfer(&mut self, agent: String) -> Result<(), wit::Error> {
        async_agents::Host::transfer(self, agent)
    }

    fn escalate(&mut self) -> Result<(), wit::Error> {
        async_agents::Host::escalate(self)
    }

    fn skip_summarization(&mut self) -> Result<(), wit::Error> {
        async_agents::Host::skip_summarization(self)
    }
}

impl sync_agents::HostEvents for HostState {
    async fn next(&mut self, events: Resource<SubAgent>) -> Result<Option<wit::Event>, wit::Error> {
        Ok(self.resource(&events)?.next().await)
    }

    fn drop(&mut self, events: Resource<SubAgent>) -> wasmtime::Result<()> {
        self.resources().delete(events)?;
        Ok(())
    }
}
