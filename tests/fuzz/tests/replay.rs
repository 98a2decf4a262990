//! Replays the corpus of each target and a fixed number of deterministic mutations.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use hatchery_fuzz::mutation::Mutator;
use hatchery_fuzz::{Target, corpus, target};

fn replay(name: &str) {
    let target = target(name).unwrap();
    let files = corpus::read(name).unwrap();
    assert!(!files.is_empty(), "{name} has no corpus");
    for (file, bytes) in &files {
        run_one(&target, bytes, file);
    }
    let mut mutator = Mutator::new(1);
    for number in 0..target.mutations {
        let (file, bytes) = &files[mutator.below(files.len())];
        let (_, other) = &files[mutator.below(files.len())];
        let mutated = mutator.mutate(bytes, other, target.tokens);
        run_one(&target, &mutated, &format!("mutation {number} of {file}"));
    }
}

/// Runs a target. If it panics, the message has the input; the test harness shows the cause.
fn run_one(target: &Target, bytes: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).is_err() {
        panic!("{}: {what}: {:?}", target.name, String::from_utf8_lossy(bytes));
    }
}

macro_rules! replays {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            replay(stringify!($name));
        }
    )* };
}

replays!(agent_yaml, component, config, event, event_stream, guest_event, http, manifest, registry, script);

#[test]
fn every_target_is_replayed() {
    let source = include_str!("replay.rs");
    for target in hatchery_fuzz::TARGETS {
        assert!(source.contains(target.name), "{} is not replayed", target.name);
    }
}
