//! One small example of each use of the services of the host.

mod apps;
mod live;
mod memory;
mod models;
mod run;
mod settings;
mod toolsets;

use apps::{abandon, chatterbox, courier, delegate, failing, list_apps, office, sessions};
use live::switchboard;
use memory::memory;
use models::compare;
use run::{divert, hand_over, info, night_watch, porter, scribe, stop, stopper};
use settings::{Advice, arguments, plugins, shred};
use toolsets::{foreman, trades};

hatchery_guest::export! {
    agents: [night_watch, scribe, office, courier, chatterbox, failing, foreman, porter, switchboard],
    tools: [info, stop, hand_over, delegate, list_apps, abandon, sessions, memory, arguments, plugins, shred, compare],
    toolsets: [trades],
    plugins: [Advice],
    callbacks: [stopper, divert],
}
