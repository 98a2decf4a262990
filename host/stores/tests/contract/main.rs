//! Contract tests of session, artifact, memory and credential services, for all backends.

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

/// Runs each of the named tests, which are functions of a session service, against every backend, with and without
/// encryption.
macro_rules! on_every_session_backend {
    ($tests:tt) => {
        on_every_plain_session_backend!($tests);
        on_every_encrypted_session_backend!($tests);
    };
}

/// Runs each of the named tests, which are functions of a session service, against every backend without encryption.
macro_rules! on_every_plain_session_backend {
    ($tests:tt) => {
        every_backend!(
            $tests,
            memory(_folder) => hatchery_stores::MemorySessions::new(),
            idle_memory(_folder) => hatchery_stores::MemorySessions::new().with_idle_time(std::time::Duration::ZERO),
            sqlite(folder) => hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap(),
            memory_behind_quotas(_folder) => crate::support::behind_quotas(hatchery_stores::MemorySessions::new()),
            sqlite_behind_quotas(folder) => crate::support::behind_quotas(
                hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap()
            ),
            firestore(_folder) => emulated!(sessions),
            postgres(_folder) => in_postgres!(sessions),
            postgres_behind_quotas(_folder) => crate::support::behind_quotas(in_postgres!(sessions)),
        );
    };
}

/// Runs each of the named tests, which are functions of a session service, against backends with encryption.
macro_rules! on_every_encrypted_session_backend {
    ($tests:tt) => {
        every_backend!(
            $tests,
            encrypted_memory(_folder) => crate::support::encrypted(hatchery_stores::MemorySessions::new()),
            encrypted_sqlite(folder) => crate::support::encrypted(
                hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap()
            ),
            encrypted_postgres(_folder) => crate::support::encrypted(in_postgres!(sessions)),
        );
    };
}

/// Runs each of the named tests, which are functions of an artifact service, against every backend.
macro_rules! on_every_artifact_backend {
    ($tests:tt) => {
        every_backend!(
            $tests,
            memory(_folder) => hatchery_stores::MemoryArtifacts::new(),
            directory(folder) => hatchery_stores::DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap(),
            encrypted_memory(_folder) => crate::artifacts::encrypted(hatchery_stores::MemoryArtifacts::new()),
            encrypted_directory(folder) => crate::artifacts::encrypted(
                hatchery_stores::DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()
            ),
            memory_behind_quotas(_folder) => crate::artifacts::behind_quotas(hatchery_stores::MemoryArtifacts::new()),
            directory_behind_quotas(folder) => crate::artifacts::behind_quotas(
                hatchery_stores::DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()
            ),
        );

        // A server that cannot be installed is reported, and its tests end.
        #[cfg(feature = "object-store")]
        every_backend!(
            $tests,
            objects_in_memory(_folder) => crate::artifacts::objects_in_memory(""),
            encrypted_objects(_folder) => crate::artifacts::encrypted(crate::artifacts::objects_in_memory("")),
            objects_in_memory_with_a_prefix(_folder) => crate::artifacts::objects_in_memory("a/prefix"),
            s3(_folder) => match crate::object_stores::s3_artifacts().await {
                Some(artifacts) => artifacts,
                None => return,
            },
            azure(_folder) => match crate::object_stores::azure_artifacts().await {
                Some(artifacts) => artifacts,
                None => return,
            },
        );
    };
}

/// Creates a service in a new project of the Firestore emulator. Ends the test if there is none.
macro_rules! emulated {
    ($service:ident) => {
        match crate::emulator::$service() {
            Some(service) => service,
            None => return,
        }
    };
}

/// Creates a service in a new schema of PostgreSQL. Ends the test if there is no server.
macro_rules! in_postgres {
    ($service:ident) => {
        match crate::database::$service().await {
            Some(service) => service,
            None => return,
        }
    };
}

mod artifact_retrieval;
mod artifacts;
mod credentials;
#[cfg(feature = "postgres")]
mod database;
#[cfg(not(feature = "postgres"))]
mod database {
    //! A stand-in for builds without PostgreSQL.

    pub async fn sessions() -> Option<hatchery_stores::MemorySessions> {
        None
    }

    pub async fn memory() -> Option<hatchery_stores::KeywordMemory> {
        None
    }

    pub async fn memory_with_text_search() -> Option<hatchery_stores::KeywordMemory> {
        None
    }

    pub async fn memory_with_vectors() -> Option<hatchery_stores::KeywordMemory> {
        None
    }

    pub fn uri_with_vectors() -> Option<String> {
        None
    }
}
#[cfg(feature = "firestore")]
mod emulator;
#[cfg(not(feature = "firestore"))]
mod emulator {
    //! A stand-in for builds without Firestore.

    pub fn sessions() -> Option<hatchery_stores::MemorySessions> {
        None
    }

    pub fn memory() -> Option<hatchery_stores::KeywordMemory> {
        None
    }
}
mod events;
#[cfg(feature = "agent-engine")]
#[allow(dead_code)]
#[path = "../servers/agent_engine.rs"]
mod fake_engine;
#[cfg(feature = "firestore")]
mod firestore;
mod history;
mod journal;
mod memory;
#[cfg(feature = "object-store")]
#[allow(dead_code)]
#[path = "../servers/object_stores.rs"]
mod object_stores;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "firestore")]
mod proxy;
mod quotas;
mod retention;
mod runs;
mod session_state;
mod sessions;
mod similarity;
mod support;
mod turns;
mod uploads;
mod usage;
#[cfg(feature = "postgres")]
mod vectors;
