//! Thread-local scope: the mock host and the call that the code on this thread runs in. A [`Scope`] is entered while
//! one of its futures is polled, so concurrent tests, and several hosts in one test, do not interfere.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::mock_state::MockState;
use super::relay::Relay;
use crate::confirmation::ToolConfirmation;
use crate::error::Error;
use crate::event::EventActions;

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The mock host and the call that code runs in.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) mock: Rc<RefCell<MockState>>,
    pub(super) call: Rc<Call>,
}

/// One call into a component's code.
pub(super) struct Call {
    pub(super) caller: Caller,
    /// The agent that the call runs for.
    pub(super) agent: String,
    pub(super) function_call_id: Option<String>,
    pub(super) idempotency_key: Option<String>,
    /// A person's decision about the call.
    pub(super) decision: Option<ToolConfirmation>,
    /// Its changes so far.
    pub(super) actions: RefCell<EventActions>,
    /// The confirmation that it requests.
    pub(super) requested_confirmation: RefCell<Option<ToolConfirmation>>,
}

/// The kind of a call.
pub(super) enum Caller {
    /// A call of a model, possibly without a session.
    Model,
    /// A run of anything but a custom agent or an instruction.
    Run,
    /// The computation of an instruction, which only reads.
    Instruction,
    /// A run of a custom agent.
    Agent {
        /// Model of requests that name none.
        model: Option<String>,
        /// Names of its tools.
        tools: Vec<String>,
        /// Names of its sub-agents.
        sub_agents: Vec<String>,
        /// Sub-agent events that it may relay.
        relay: Relay,
    },
}

impl Call {
    pub(super) fn new(caller: Caller, agent: impl Into<String>) -> Self {
        Self {
            caller,
            agent: agent.into(),
            function_call_id: None,
            idempotency_key: None,
            decision: None,
            actions: RefCell::default(),
            requested_confirmation: RefCell::default(),
        }
    }
}

impl Scope {
    /// Returns the scope of the code that runs on this thread.
    ///
    /// # Errors
    /// If it runs outside of a mock host.
    pub(super) fn current() -> Result<Self, Error> {
        CURRENT.with_borrow(Clone::clone).ok_or_else(|| {
            Error::new(
                "NO_HOST",
                "there is no host here: what uses its context runs in a component, or in a test by \
                 `hatchery_guest::testing::Host`, such as `Host::new().call(my_tool, json!({}))`",
            )
        })
    }

    /// Returns the scope of code that runs for a session.
    ///
    /// # Errors
    /// See [`Scope::current`]; also in the call of a model.
    pub(super) fn for_session() -> Result<Self, Error> {
        let scope = Self::current()?;
        match scope.call.caller {
            Caller::Model => Err(Error::new("NO_SESSION", "there is no session in a call of a component's model")),
            Caller::Run | Caller::Instruction | Caller::Agent { .. } => Ok(scope),
        }
    }

    /// Returns the scope of code that makes a change.
    ///
    /// # Errors
    /// See [`Scope::for_session`]; also in the computation of an instruction.
    pub(super) fn for_change() -> Result<Self, Error> {
        let scope = Self::for_session()?;
        match scope.call.caller {
            Caller::Instruction => {
                let message = "an instruction only reads: make this change in a tool, a callback or an agent";
                Err(Error::new("READ_ONLY", message))
            }
            Caller::Model | Caller::Run | Caller::Agent { .. } => Ok(scope),
        }
    }

    /// Returns a scope for a nested call.
    pub(super) fn with_call(&self, call: Call) -> Self {
        Self { mock: self.mock.clone(), call: Rc::new(call) }
    }

    /// Runs `code` in this scope.
    pub(super) fn enter<T>(&self, code: impl FnOnce() -> T) -> T {
        let _entered = ScopeGuard(CURRENT.replace(Some(self.clone())));
        code()
    }

    /// Polls a future in this scope until it ends.
    pub(super) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        ScopedFuture { scope: self, future: pin!(future) }.await
    }
}

/// Restores the previous scope, also after a panic.
struct ScopeGuard(Option<Scope>);

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

struct ScopedFuture<'a, F> {
    scope: &'a Scope,
    future: Pin<&'a mut F>,
}

impl<F: Future> Future for ScopedFuture<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let scope = self.scope;
        scope.enter(|| self.future.as_mut().poll(cx))
    }
}

/// Blocks on a future. May be nested: a mock model may call a tool of the same test.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let alarm = Arc::new(ThreadWaker { thread: std::thread::current(), rings: AtomicBool::new(false) });
    let waker = Waker::from(alarm.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !alarm.rings.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

struct ThreadWaker {
    thread: Thread,
    rings: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.rings.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
