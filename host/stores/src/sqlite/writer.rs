//! The writing thread: group commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hatchery_core::StoreError;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::Failure;
use super::failure::is_busy;
use super::queue::Queue;

/// Maximum number of writes in one transaction, which limits how long the first of them waits for the last.
pub(super) const MAX_GROUP: usize = 64;

/// A write that waits for its turn.
pub(super) trait Job: Send {
    /// Makes the change within the current transaction.
    fn run(&mut self, connection: &Connection) -> Result<(), Failure>;

    /// Sends the result of the last [`Job::run`], once it is committed.
    fn answer(self: Box<Self>);

    /// Sends a failure.
    fn fail(self: Box<Self>, failure: Failure);

    /// Returns true if no task waits for the result any more.
    fn is_abandoned(&self) -> bool;
}

struct Write<F, T> {
    change: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, Failure>>,
}

/// Returns a job and the receiver of its result.
pub(super) fn job<T: Send + 'static>(
    change: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (Box<dyn Job>, oneshot::Receiver<Result<T, Failure>>) {
    let (reply, result) = oneshot::channel();
    (Box::new(Write { change, result: None, reply }), result)
}

impl<T: Send, F: Fn(&Connection) -> rusqlite::Result<T> + Send> Job for Write<F, T> {
    fn run(&mut self, connection: &Connection) -> Result<(), Failure> {
        let result = catch_unwind(AssertUnwindSafe(|| (self.change)(connection))).map_err(|_| Failure::Panic)?;
        self.result = Some(result?);
        Ok(())
    }

    fn answer(self: Box<Self>) {
        // The caller may have been dropped.
        let _ = self.reply.send(self.result.ok_or(Failure::Closed));
    }

    fn fail(self: Box<Self>, failure: Failure) {
        let _ = self.reply.send(Err(failure));
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A deferred write.
struct DeferredWrite<F, R> {
    change: F,
    report: R,
}

/// Returns a job without a waiting caller, which reports a failure to `report`.
pub(super) fn deferred_job(
    change: impl Fn(&Connection) -> rusqlite::Result<()> + Send + 'static,
    report: impl FnOnce(Failure) + Send + 'static,
) -> Box<dyn Job> {
    Box::new(DeferredWrite { change, report })
}

impl<F, R> Job for DeferredWrite<F, R>
where
    F: Fn(&Connection) -> rusqlite::Result<()> + Send,
    R: FnOnce(Failure) + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), Failure> {
        Ok(catch_unwind(AssertUnwindSafe(|| (self.change)(connection))).map_err(|_| Failure::Panic)??)
    }

    fn answer(self: Box<Self>) {}

    fn fail(self: Box<Self>, failure: Failure) {
        (self.report)(failure);
    }

    fn is_abandoned(&self) -> bool {
        false
    }
}

/// Starts the writing thread, which opens its connection by `open` and then takes writes from the queue. Returns once
/// the connection is open.
///
/// # Errors
/// The errors of `open`.
pub(super) async fn start(
    name: String,
    open: impl FnOnce() -> Result<Connection, StoreError> + Send + 'static,
    queue: Arc<Queue>,
) -> Result<(), StoreError> {
    let (opened, is_open) = oneshot::channel();
    let failed = format!("cannot start the {name}");
    let run = move || {
        let (connection, result) = match open() {
            Ok(connection) => (Some(connection), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // If the opening task is gone, there will be no writes.
        if opened.send(result).is_ok()
            && let Some(connection) = connection
        {
            serve(connection, &queue);
        }
        queue.set_ended();
    };
    std::thread::Builder::new().name(name).spawn(run).map_err(|error| StoreError::backend(failed.clone(), error))?;
    is_open.await.map_err(|error| StoreError::backend(failed, error))?
}

/// Makes writes until the queue is closed, then closes the connection.
fn serve(connection: Connection, queue: &Queue) {
    let mut group = Vec::with_capacity(MAX_GROUP);
    while let Some(deferred) = queue.take(&mut group, MAX_GROUP) {
        group.retain(|job| !job.is_abandoned());
        commit(&connection, &mut group);
        queue.set_committed(deferred);
    }
}

/// Makes the changes of a group in one transaction and answers them. If that fails, each gets a separate transaction.
fn commit(connection: &Connection, group: &mut Vec<Box<dyn Job>>) {
    let failure = match run(connection, group) {
        Ok(()) => return group.drain(..).for_each(Job::answer),
        Err(failure) => failure,
    };
    roll_back(connection);
    let is_locked = matches!(&failure, Failure::Sqlite(error) if is_busy(error));
    if group.len() == 1 || is_locked {
        return group.drain(..).for_each(|job| job.fail(failure.clone()));
    }
    for job in std::mem::take(group) {
        commit(connection, &mut vec![job]);
    }
}

fn run(connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<(), Failure> {
    if group.is_empty() {
        return Ok(());
    }
    execute(connection, "BEGIN IMMEDIATE")?;
    for job in group {
        job.run(connection)?;
    }
    Ok(execute(connection, "COMMIT")?)
}

/// Ends the transaction, unless SQLite has ended it by itself, as after some errors.
fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = execute(connection, "ROLLBACK")
    {
        tracing::error!(%error, "a transaction cannot be rolled back");
    }
}

fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}
