//! What every session, artifact and memory service does, whatever it keeps its data in.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

/// Runs each of the named tests, a function of a service, against every backend. A backend is a name and how to make the service from
/// a folder of its own.
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
mod memory;
mod quotas;
mod sessions;
mod usage;
