//! Runs the target that `HATCHERY_FUZZ_TARGET` names. There is one binary for all, because each would contain the whole
//! host.
#![no_main]

use std::sync::LazyLock;

use hatchery_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("HATCHERY_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("HATCHERY_FUZZ_TARGET: there is no target `{name}`"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
