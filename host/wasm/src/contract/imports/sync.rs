//! The `sync-…` interfaces: blocking versions of the asynchronous ones, for guests without async support. A stream
//! becomes a resource in the Wasmtime store's table with a method `next`.

use std::time::Duration;

use futures::StreamExt;
use wasmtime::component::Resource;

use super::{
    Exchange, ModelAnswer, NestedLiveRun, NestedRun, agents, artifacts, credentials, http, live, memory, models,
    runner, sessions, tools, wit_error,
};
use crate::contract::bindings::hatchery::agent::{
    agents as async_agents, models as async_models, runner as async_runner, specs, sync_agents, sync_artifacts,
    sync_credentials, sync_http, sync_memory, sync_models, sync_runner, sync_sessions, sync_tools,
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

impl sync_models::Host for HostState {
    async fn generate(
        &mut self,
        request: wit::LlmRequest,
        streaming: bool,
    ) -> Result<Resource<ModelAnswer>, wit::Error> {
        let answer = models::generate(&mut *self, request, streaming).await?;
        self.add_resource(answer)
    }

    async fn list(&mut self) -> Result<Vec<String>, wit::Error> {
        async_models::Host::list(self)
    }

    async fn embed(&mut self, model: String, texts: Vec<String>) -> Result<Vec<Vec<f32>>, wit::Error> {
        models::embed(self, model, texts).await
    }
}

impl sync_models::HostResponseStream for HostState {
    async fn next(&mut self, answer: Resource<ModelAnswer>) -> Result<Option<wit::LlmResponse>, wit::Error> {
        Ok(self.resource(&answer)?.next().await)
    }

    async fn drop(&mut self, answer: Resource<ModelAnswer>) -> wasmtime::Result<()> {
        self.resources().delete(answer)?;
        Ok(())
    }
}

impl sync_credentials::Host for HostState {
    async fn get(&mut self, config: String) -> Result<Option<String>, wit::Error> {
        credentials::get(self, config).await
    }

    async fn refuse(&mut self, config: String, credential: String) -> Result<(), wit::Error> {
        credentials::refuse(self, config, credential).await
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

    async fn save_with(&mut self, name: String, part: wit::Part, custom_metadata: String) -> Result<u64, wit::Error> {
        artifacts::save_with(self, name, part, custom_metadata).await
    }

    async fn get_version(
        &mut self,
        name: String,
        version: Option<u64>,
    ) -> Result<Option<wit::ArtifactVersion>, wit::Error> {
        artifacts::get_version(self, name, version).await
    }

    async fn delete(&mut self, name: String) -> Result<(), wit::Error> {
        artifacts::delete(self, name).await
    }
}

impl sync_memory::Host for HostState {
    async fn search(&mut self, query: String) -> Result<Vec<wit::MemoryEntry>, wit::Error> {
        memory::search(self, query).await
    }

    async fn add_session(&mut self, session: Option<String>) -> Result<(), wit::Error> {
        memory::add_session(self, session).await
    }

    async fn add_events(&mut self, events: Vec<wit::Event>) -> Result<(), wit::Error> {
        memory::add_events(self, events).await
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

    fn end_invocation(&mut self) -> Result<(), wit::Error> {
        async_agents::Host::end_invocation(self)
    }

    fn skip_summarization(&mut self) -> Result<(), wit::Error> {
        async_agents::Host::skip_summarization(self)
    }
}

impl sync_agents::HostEventStream for HostState {
    async fn next(&mut self, events: Resource<SubAgent>) -> Result<Option<wit::Event>, wit::Error> {
        Ok(self.resource(&events)?.next().await)
    }

    fn drop(&mut self, events: Resource<SubAgent>) -> wasmtime::Result<()> {
        self.resources().delete(events)?;
        Ok(())
    }
}

impl sync_runner::Host for HostState {
    fn list_apps(&mut self) -> Result<Vec<String>, wit::Error> {
        async_runner::Host::list_apps(self)
    }

    async fn run(&mut self, request: wit::RunRequest) -> Result<Resource<NestedRun>, wit::Error> {
        let run = runner::run(&mut *self, request).await?;
        self.add_resource(run)
    }

    async fn run_live(&mut self, request: wit::LiveRunRequest) -> Result<Resource<NestedLiveRun>, wit::Error> {
        let run = live::run(&mut *self, request).await?;
        self.add_resource(run)
    }

    fn cancel(&mut self, invocation_id: String) -> Result<(), wit::Error> {
        async_runner::Host::cancel(self, invocation_id)
    }
}

impl sync_runner::HostLiveRun for HostState {
    fn session(&mut self, run: Resource<NestedLiveRun>) -> Result<String, wit::Error> {
        Ok(self.resource(&run)?.session().to_owned())
    }

    async fn send(&mut self, run: Resource<NestedLiveRun>, request: wit::LiveRequest) -> Result<(), wit::Error> {
        let requests = self.resource(&run)?.requests();
        requests.send(request).await
    }

    async fn next(&mut self, run: Resource<NestedLiveRun>) -> Result<Option<wit::Event>, wit::Error> {
        Ok(self.resource(&run)?.next().await)
    }

    fn close(&mut self, run: Resource<NestedLiveRun>) -> Result<(), wit::Error> {
        self.resource(&run)?.requests().close();
        Ok(())
    }

    fn drop(&mut self, run: Resource<NestedLiveRun>) -> wasmtime::Result<()> {
        self.resources().delete(run)?;
        Ok(())
    }
}

impl sync_runner::HostAppRun for HostState {
    fn info(&mut self, run: Resource<NestedRun>) -> Result<wit::RunInfo, wit::Error> {
        Ok(self.resource(&run)?.info.clone())
    }

    async fn next(&mut self, run: Resource<NestedRun>) -> Result<Option<wit::Event>, wit::Error> {
        Ok(self.resource(&run)?.next().await)
    }

    fn drop(&mut self, run: Resource<NestedRun>) -> wasmtime::Result<()> {
        self.resources().delete(run)?;
        Ok(())
    }
}

impl sync_sessions::Host for HostState {
    async fn create(
        &mut self,
        app: String,
        id: Option<String>,
        state: Vec<(String, String)>,
    ) -> Result<wit::SessionInfo, wit::Error> {
        sessions::create(self, app, id, state).await
    }

    async fn get(&mut self, app: String, id: String) -> Result<Option<wit::SessionInfo>, wit::Error> {
        sessions::get(self, app, id).await
    }

    async fn list(&mut self, app: String, offset: u64, limit: u32) -> Result<Vec<wit::SessionInfo>, wit::Error> {
        sessions::list(self, app, offset, limit).await
    }

    async fn events(
        &mut self,
        app: String,
        id: String,
        window: wit::EventWindow,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<wit::Event>, wit::Error> {
        sessions::events(self, app, id, window, offset, limit).await
    }

    async fn append(&mut self, app: String, id: String, event: wit::Event) -> Result<wit::Event, wit::Error> {
        sessions::append(self, app, id, event).await
    }

    async fn delete(&mut self, app: String, id: String) -> Result<(), wit::Error> {
        sessions::delete(self, app, id).await
    }
}

impl sync_http::Host for HostState {
    async fn send(&mut self, request: wit::HttpRequest) -> Result<wit::HttpResponse, wit::Error> {
        http::send(self, request).await
    }

    fn start(&mut self, request: wit::HttpRequest) -> Result<Resource<Exchange>, wit::Error> {
        let exchange = http::start(&mut *self, request)?;
        self.add_resource(exchange)
    }

    async fn wait(&mut self, handles: Vec<Resource<Exchange>>, timeout: Option<u64>) -> Vec<u32> {
        // Handles are always known. A handle that occurs twice is only waited for once.
        let mut exchanges: Vec<_> =
            handles.iter().map(|handle| self.resource(handle).map(std::mem::take).unwrap_or_default()).collect();
        let ended = http::wait(&mut exchanges, timeout.map(Duration::from_nanos)).await;
        for (handle, exchange) in handles.iter().zip(exchanges) {
            if let Ok(place) = self.resource(handle)
                && !exchange.is_taken()
            {
                *place = exchange;
            }
        }
        ended
    }
}

impl sync_http::HostExchange for HostState {
    fn response(&mut self, exchange: Resource<Exchange>) -> Result<Option<wit::HttpResponse>, wit::Error> {
        self.resource(&exchange)?.take_response()
    }

    fn drop(&mut self, exchange: Resource<Exchange>) -> wasmtime::Result<()> {
        self.resources().delete(exchange)?;
        Ok(())
    }
}
