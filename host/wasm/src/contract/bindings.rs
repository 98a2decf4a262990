//! Rust bindings generated from the contract in `wit/`.

#![allow(missing_docs, unused_qualifications, dead_code, clippy::all)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "component",
    imports: {
        // Guests block on these; the threads of the host do not.
        "hatchery:agent/sync-models": async,
        "hatchery:agent/sync-credentials": async,
        "hatchery:agent/sync-artifacts": async,
        "hatchery:agent/sync-memory": async,
        "hatchery:agent/sync-tools": async,
        "hatchery:agent/sync-agents.run": async,
        "hatchery:agent/sync-agents.[method]event-stream.next": async,
        "hatchery:agent/sync-runner.run": async,
        "hatchery:agent/sync-runner.[method]app-run.next": async,
        "hatchery:agent/sync-runner.run-live": async,
        "hatchery:agent/sync-runner.[method]live-run.send": async,
        "hatchery:agent/sync-runner.[method]live-run.next": async,
        "hatchery:agent/sync-sessions": async,
        "hatchery:agent/sync-http.send": async,
        "hatchery:agent/sync-http.wait": async,
    },
    // Synchronous exports are called asynchronously, too, so that a guest that loops in `describe` yields to the
    // epoch callback.
    exports: {
        "hatchery:agent/sync-guest-agents.compute-instruction": async | store,
        "hatchery:agent/sync-guest-tools.call": async | store,
        // The first rule that matches a function applies.
        "hatchery:agent/sync-guest-callbacks.describe": async,
        "hatchery:agent/sync-guest-callbacks": async | store,
        "hatchery:agent/sync-guest-plugins.describe": async,
        "hatchery:agent/sync-guest-plugins": async | store,
        "hatchery:agent/sync-guest-toolsets.describe": async,
        "hatchery:agent/sync-guest-toolsets": async | store,
        "hatchery:agent/sync-guest-code-executors.execute": async | store,
        "hatchery:agent/sync-guest-summarizers.summarize": async | store,
        "hatchery:agent/sync-guest-examples.examples": async | store,
        default: async,
    },
    with: {
        "hatchery:agent/sync-models.response-stream": crate::contract::imports::ModelAnswer,
        "hatchery:agent/sync-runner.app-run": crate::contract::imports::NestedRun,
        "hatchery:agent/sync-runner.live-run": crate::contract::imports::NestedLiveRun,
        "hatchery:agent/sync-http.exchange": crate::contract::imports::Exchange,
        "hatchery:agent/sync-agents.event-stream": crate::contract::sub_agent_relay::SubAgent,
    },
    require_store_data_send: true,
});
