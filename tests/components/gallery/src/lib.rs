//! A small example of each kind of item and of each import.

mod agents;
mod callbacks;
mod plugins;
mod slots;
mod tools;

use agents::{butler, clerk, curious, equipped, forger, streamer};
use callbacks::{blot, check_key, farewell, house_rules, mend_agent, mend_model, mend_tool, stamp, welcome};
use plugins::Censor;
use slots::{counter, echo, parrot, shout, sums};
use tools::{asks, chatter, configured, guarded, panics};

hatchery_guest::export! {
    agents: [butler, clerk, streamer, forger, curious, equipped],
    tools: [configured, chatter, panics, guarded, asks],
    callbacks: [welcome, farewell, house_rules, blot, check_key, stamp, mend_agent, mend_model, mend_tool],
    plugins: [Censor],
    code_executors: [shout],
    summarizers: [counter],
    examples: [sums],
    models: [echo],
    live_models: [parrot],
}
