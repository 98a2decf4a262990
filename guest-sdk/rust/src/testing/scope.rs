//! Which test's host the code on this thread runs in, and for which call. A [`Scope`] is entered whenever a future of it is polled and
//! left after that, so tests at the same time, and hosts within one test, do not meet.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::relay::Relay;
use super::world::World;
use crate::confirmation::ToolConfirmation;
use crate::error::Error;
use crate::event::EventActions;

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// What a call runs in.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) world: Rc<RefCell<World>>,
    pub(super) call: Rc<Call>,
}

/// One call of a component's code.
pub(super) struct Call {
    pub(super) caller: Caller,
    /// On whose behalf it is made.
    pub(super) agent: String,
    pub(super) function_call_id: Option<String>,
    /// What a person has decided about it.
    pub(super) decision: Option<ToolConfirmation>,
    /// What it has changed so far.
    pub(super) actions: RefCell<EventActions>,
    /// What it wants a person to be asked.
    pub(super) asked: RefCell<Option<ToolConfirmation>>,
}

/// Who makes a call.
pub(super) enum Caller {
    /// Somebody who asks a model: there may be no session.
    Model,
    /// A run, of anything but a custom agent.
    Run,
    /// A run, of a custom agent that asks this model when it names none.
    Agent {
        /// The agent's own model.
        model: Option<String>,
        /// The names of its tools.
        tools: Vec<String>,
        /// The names of the agents below it.
        below: Vec<String>,
        /// The events that it may relay.
        relay: Relay,
    },
}

impl Call {
    pub(super) fn new(caller: Caller, agent: impl Into<String>) -> Self {
        Self {
            caller,
            agent: agent.into(),
            function_call_id: None,
            decision: None,
            actions: RefCell::default(),
            asked: RefCell::default(),
        }
    }
}

impl Scope {
    /// The scope of the code that runs on this thread.
    ///
    /// # Errors
    /// When it runs outside of any host.
    pub(super) fn current() -> Result<Self, Error> {
        CURRENT.with_borrow(Clone::clone).ok_or_else(|| {
            Error::new(
                "NO_HOST",
                "there is no host here: what uses its context runs in a component, or in a test by \
                 `hatchery_guest::testing::Host`, such as `Host::new().call(my_tool, json!({}))`",
            )
        })
    }

    /// The scope of code that runs for a session.
    ///
    /// # Errors
    /// As [`Scope::current`]; also while a model is asked.
    pub(super) fn of_session() -> Result<Self, Error> {
        let scope = Self::current()?;
        match scope.call.caller {
            Caller::Model => Err(Error::new("NO_SESSION", "there is no session while a component's model is asked")),
            Caller::Run | Caller::Agent { .. } => Ok(scope),
        }
    }

    /// For a call that this one makes.
    pub(super) fn with_call(&self, call: Call) -> Self {
        Self { world: self.world.clone(), call: Rc::new(call) }
    }

    /// Runs `code` in this scope.
    pub(super) fn enter<T>(&self, code: impl FnOnce() -> T) -> T {
        let _entered = Entered(CURRENT.replace(Some(self.clone())));
        code()
    }

    /// Polls a future in this scope until it ends.
    pub(super) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        Scoped { scope: self, future: pin!(future) }.await
    }
}

/// Puts back the scope from before, also when code panics.
struct Entered(Option<Scope>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

struct Scoped<'a, F> {
    scope: &'a Scope,
    future: Pin<&'a mut F>,
}

impl<F: Future> Future for Scoped<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let scope = self.scope;
        scope.enter(|| self.future.as_mut().poll(cx))
    }
}

/// Waits for a future on this thread, also within another one that is waited for: a model of a test may call a tool of the same test.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let alarm = Arc::new(Alarm { thread: std::thread::current(), rings: AtomicBool::new(false) });
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

struct Alarm {
    thread: Thread,
    rings: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rings.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
