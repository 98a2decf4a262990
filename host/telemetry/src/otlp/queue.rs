//! Queue of spans to export. A dedicated thread converts them and sends them in batches.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;
use hatchery_core::{SpanData, pluralize};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::SpanExporter;
use tokio::runtime::Handle;

use super::{Converter, OtlpError, number};

/// Maximum size in bytes of spans that wait or are being sent.
const MAX_BYTES: usize = 32 << 20;

/// Maximum length of the queue, which allocates its capacity up front. More spans do not fit into [`MAX_BYTES`].
const MAX_SPANS: usize = MAX_BYTES / size_of::<SpanData>();

/// A batch is sent at the latest with this many bytes, which collectors accept.
const MAX_BATCH_BYTES: usize = 2 << 20;

/// Waiting time of the thread if the queue is empty.
const IDLE: Duration = Duration::from_secs(3600);

/// The limits of batches, and of spans that wait for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchSettings {
    delay: Duration,
    max_queue: usize,
    max_batch: usize,
}

impl BatchSettings {
    pub(super) fn from_environment(variable: &impl Fn(&str) -> Option<String>) -> Result<Self, OtlpError> {
        let delay = number(variable, "OTEL_BSP_SCHEDULE_DELAY")?.unwrap_or(5000);
        let size = |name, default| -> Result<usize, OtlpError> {
            Ok(number(variable, name)?.map_or(default, |size| usize::try_from(size).unwrap_or(default)))
        };
        let max_queue = size("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?.clamp(1, MAX_SPANS);
        let max_batch = size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?.clamp(1, max_queue);
        Ok(Self { delay: Duration::from_millis(delay), max_queue, max_batch })
    }
}

/// A queue that is bounded in spans and bytes. Spans that do not fit are dropped.
pub(super) struct ExportQueue {
    /// `None` once the queue is closed.
    spans: Mutex<Option<SyncSender<Arc<SpanData>>>>,
    /// Disconnected once everything is sent.
    done: Mutex<Receiver<()>>,
    converter: Converter,
    /// Bytes of spans that wait or are being sent.
    bytes: Arc<AtomicUsize>,
    is_full: AtomicBool,
}

impl ExportQueue {
    /// Starts the thread. `runtime` awaits its requests.
    pub(super) fn start<E: SpanExporter + 'static>(
        exporter: E,
        converter: Converter,
        settings: BatchSettings,
        runtime: Handle,
    ) -> std::io::Result<Self> {
        let (sender, spans) = sync_channel(settings.max_queue);
        let (done_sender, done) = sync_channel(1);
        let bytes = Arc::new(AtomicUsize::new(0));
        let exporter =
            BatchExporter { exporter, converter: converter.clone(), settings, runtime, bytes: bytes.clone() };
        let run = move || {
            exporter.run(&spans);
            drop(done_sender);
        };
        std::thread::Builder::new().name("otlp".into()).spawn(run)?;
        let (spans, done) = (Mutex::new(Some(sender)), Mutex::new(done));
        Ok(Self { spans, done, converter, bytes, is_full: AtomicBool::new(false) })
    }

    /// Appends a span, unless the queue is full.
    pub(super) fn add(&self, span: &Arc<SpanData>) {
        let size = self.converter.size(span);
        let fits = self.bytes.fetch_add(size, Ordering::SeqCst).saturating_add(size) <= MAX_BYTES;
        let is_added = fits && {
            let sender = self.spans.lock_unpoisoned();
            sender.as_ref().is_some_and(|sender| sender.try_send(span.clone()).is_ok())
        };
        let was_full = self.is_full.swap(!is_added, Ordering::SeqCst);
        if !is_added {
            self.bytes.fetch_sub(size, Ordering::SeqCst);
            if !was_full {
                tracing::warn!("spans are dropped: the collector is slower than the runs, or the host stops");
            }
        }
    }

    /// Closes the queue, and waits until everything is sent.
    ///
    /// # Errors
    /// If that takes longer than `timeout`.
    pub(super) fn close(&self, timeout: Duration) -> OTelSdkResult {
        drop(self.spans.lock_unpoisoned().take());
        match self.done.lock_unpoisoned().recv_timeout(timeout) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(OTelSdkError::Timeout(timeout)),
        }
    }
}

/// The state of the thread.
struct BatchExporter<E> {
    exporter: E,
    converter: Converter,
    settings: BatchSettings,
    runtime: Handle,
    bytes: Arc<AtomicUsize>,
}

impl<E: SpanExporter> BatchExporter<E> {
    /// Sends spans until the queue is closed and empty.
    fn run(&self, spans: &Receiver<Arc<SpanData>>) {
        let (mut batch, mut bytes, mut due) = (Vec::new(), 0, None::<Instant>);
        loop {
            let wait = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()));
            let is_open = match spans.recv_timeout(wait) {
                Ok(span) => {
                    bytes += self.converter.size(&span);
                    batch.push(span);
                    due.get_or_insert_with(|| Instant::now() + self.settings.delay);
                    if batch.len() < self.settings.max_batch && bytes < MAX_BATCH_BYTES {
                        continue;
                    }
                    true
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            self.send(std::mem::take(&mut batch));
            self.bytes.fetch_sub(std::mem::take(&mut bytes), Ordering::SeqCst);
            due = None;
            if !is_open {
                return;
            }
        }
    }

    fn send(&self, batch: Vec<Arc<SpanData>>) {
        if batch.is_empty() {
            return;
        }
        let spans = pluralize(batch.len(), "span was", "spans were");
        let converted = batch.iter().map(|span| self.converter.convert(span)).collect();
        if let Err(error) = self.runtime.block_on(self.exporter.export(converted)) {
            tracing::warn!("{spans} not exported: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use hatchery_core::{SessionKey, SpanContext, SpanOperation, TraceParent};

    use super::*;

    /// Counts spans, and waits before each batch until it is released.
    #[derive(Debug)]
    struct Collector {
        batches: Mutex<Receiver<()>>,
        sizes: Arc<Mutex<Vec<usize>>>,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<opentelemetry_sdk::trace::SpanData>) -> OTelSdkResult {
            // Disconnected once all batches are released.
            let _ = self.batches.lock().unwrap().recv();
            self.sizes.lock().unwrap().push(batch.len());
            Ok(())
        }
    }

    struct Front(ExportQueue);

    impl hatchery_core::SpanExporter for Front {
        fn export(&self, span: &Arc<SpanData>) {
            self.0.add(span);
        }

        fn captures_content(&self) -> bool {
            false
        }

        fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
            true
        }
    }

    fn queue(variables: &'static [(&str, &str)]) -> (Arc<Front>, Sender<()>, Arc<Mutex<Vec<usize>>>) {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let settings = BatchSettings::from_environment(&variable).unwrap();
        let (release, batches) = channel();
        let sizes = Arc::<Mutex<Vec<usize>>>::default();
        let collector = Collector { batches: Mutex::new(batches), sizes: sizes.clone() };
        let queue = ExportQueue::start(collector, Converter::new(false), settings, Handle::current()).unwrap();
        (Arc::new(Front(queue)), release, sizes)
    }

    fn add_spans(front: &Arc<Front>, count: usize, bytes: usize) {
        let trace = SpanContext::new(front.clone(), SessionKey::new("app", "ada", "s"), "e-1", None);
        for _ in 0..count {
            let mut span = trace.start(SpanOperation::Tool, "t");
            span.record(|data| data.set("text", "x".repeat(bytes)));
            span.finish();
        }
    }

    async fn close(front: Arc<Front>) {
        let closing = tokio::task::spawn_blocking(move || front.0.close(Duration::from_secs(20)));
        closing.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_of_more_than_32_mib_are_dropped_and_batches_are_limited_in_bytes() {
        let (front, release, sizes) = queue(&[]);
        add_spans(&front, 100, 1 << 20);
        drop(release);
        close(front).await;
        let sizes = sizes.lock().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 31, "each has some bytes of its own: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn batches_and_the_queue_are_limited_in_spans() {
        let (front, release, sizes) =
            queue(&[("OTEL_BSP_MAX_QUEUE_SIZE", "4"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")]);
        add_spans(&front, 100, 1);
        drop(release);
        close(front.clone()).await;
        add_spans(&front, 1, 1);
        let sizes = sizes.lock().unwrap();
        assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
        assert!((4..=6).contains(&sizes.iter().sum::<usize>()), "{sizes:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_larger_queue_than_the_memory_allows_starts() {
        let (front, release, sizes) = queue(&[("OTEL_BSP_MAX_QUEUE_SIZE", "18446744073709551615")]);
        add_spans(&front, 3, 1);
        drop(release);
        close(front).await;
        assert_eq!(sizes.lock().unwrap().iter().sum::<usize>(), 3);
    }

    #[test]
    fn a_size_that_is_no_number_is_refused() {
        let variable = |name: &str| (name == "OTEL_BSP_MAX_QUEUE_SIZE").then(|| "many".to_owned());
        let error = BatchSettings::from_environment(&variable).unwrap_err();
        assert_eq!(
            error.to_string(),
            "OTEL_BSP_MAX_QUEUE_SIZE=many is not supported: set it to a whole number, or leave it out"
        );
    }
}
