//! Contract tests of session, artifact and memory services, for all backends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

/// Runs each of the named tests, which are functions of a service, against every backend. A backend is a name and an
/// expression that creates the service in a temporary folder.
macro_rules! every_backend {
    ($tests:tt, $($backend:ident($folder:ident) => $open:expr),+ $(,)?) => {
        $( every_backend!(@backend $tests, $backend, $folder, $open); )+
    };
    (@backend [$($test:ident),+ $(,)?], $backend:ident, $folder:ident, $open:expr) => {
        mod $backend {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let temporary = tempfile::tempdir().unwrap();
                    let $folder = temporary.path();
                    let service = $open;
                    super::$test(&service).await;
                    drop(temporary);
                }
            )+
        }
    };
}

mod artifacts;
mod events;
mod history;
mod journal;
mod memory;
mod quotas;
mod runs;
mod session_state;
mod sessions;
mod support;
mod turns;
mod usage;
