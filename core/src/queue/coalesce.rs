//! Joining single requests from many tasks into calls.
//!
//! Requests gather per lane while as many calls as allowed are in flight. A caller that finds room for
//! another call starts one at once, and even polls it itself first: only if it is not done then does it go on
//! in a task of its own. So a lone caller never waits for others or for another thread, and under load the
//! batches grow by themselves.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::capabilities::Coalesce;
use crate::clock::Clock;
use crate::exec::Exec;

/// How long a call waits at most for the callers that the last one answered, where a call is a round trip.
pub(crate) const GATHER: Duration = Duration::from_micros(200);

/// How often it looks for them at most, on a clock that stands still.
const MOST_LOOKS: u32 = 4096;

/// In a steady flow, calls of one lane begin at least the duration of the last call, divided by this, apart.
const APART: u32 = 4;

/// The calls that a coalescer makes.
pub(crate) trait Call: Send + Sync + 'static {
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;
    type Request: Send + 'static;
    type Answer: Send + 'static;
    /// Makes one call for several requests of one lane. One result each, in order.
    fn call(
        &self,
        lane: &Self::Lane,
        requests: Vec<Self::Request>,
    ) -> impl Future<Output = Vec<Self::Answer>> + Send;
    /// The size that counts against [`Room::bytes`].
    fn size(&self, request: &Self::Request) -> u64;
}

/// How much fits into one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
}

/// A request, and where its result goes; there may be nobody who waits for it.
pub(crate) struct Pending<C: Call> {
    pub(crate) request: C::Request,
    pub(crate) reply: Option<oneshot::Sender<C::Answer>>,
    /// Whether it is the first of those that were handed over together.
    leads: bool,
}

impl<C: Call> Pending<C> {
    /// Sends the result to whoever still waits.
    pub(crate) fn answer(self, answer: C::Answer) {
        if let Some(reply) = self.reply {
            // The receiver may be gone: its caller was dropped, and the request was completed all the same.
            let _ = reply.send(answer);
        }
    }
}

pub(crate) struct Coalescer<C: Call>(Arc<Inner<C>>);

struct Inner<C: Call> {
    call: C,
    config: Coalesce,
    room: Room,
    gather: Duration,
    clock: Clock,
    lanes: Mutex<HashMap<C::Lane, Lane<C>>>,
    idle: Notify,
}

struct Lane<C: Call> {
    pending: VecDeque<Pending<C>>,
    in_flight: usize,
    /// Requests in the calls in flight, or whose callers have just been answered.
    carried: usize,
    begun: Option<Instant>,
    /// How long the last completed call took.
    took: Duration,
}

impl<C: Call> Lane<C> {
    fn new() -> Self {
        Self { pending: VecDeque::new(), in_flight: 0, carried: 0, begun: None, took: Duration::ZERO }
    }

    /// Whether the last call has been in flight for long enough.
    fn may_begin(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now >= begun + self.took / APART)
    }
}

impl<C: Call> Coalescer<C> {
    pub(crate) fn new(call: C, config: Coalesce, room: Room, gather: Duration, clock: Clock) -> Self {
        let (lanes, idle) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { call, config, room, gather, clock, lanes, idle }))
    }

    /// Hands over a request and returns where its outcome will arrive. Callers bound how many can be handed
    /// over at once: each holds a slot (a held delivery, or room in the push buffer).
    pub(crate) fn submit(
        &self,
        exec: &Exec,
        lane: C::Lane,
        request: C::Request,
    ) -> oneshot::Receiver<C::Answer> {
        let (reply, answer) = oneshot::channel();
        self.begin(exec, lane, std::iter::once(Pending { request, reply: Some(reply), leads: true }));
        answer
    }

    /// Hands over requests of one caller together. Returns one receiver per request, in order.
    pub(crate) fn submit_many(
        &self,
        exec: &Exec,
        lane: C::Lane,
        requests: Vec<C::Request>,
    ) -> Vec<oneshot::Receiver<C::Answer>> {
        let mut answers = Vec::with_capacity(requests.len());
        let pending = requests.into_iter().enumerate().map(|(position, request)| {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            Pending { request, reply: Some(reply), leads: position == 0 }
        });
        let pending: Vec<_> = pending.collect();
        self.begin(exec, lane, pending.into_iter());
        answers
    }

    fn begin(&self, exec: &Exec, lane: C::Lane, pending: impl Iterator<Item = Pending<C>>) {
        if let Some(flight) = self.join(lane, pending) {
            exec.begin(flight.run());
        }
    }

    /// Hands over a request whose outcome nobody waits for. Never blocks; callable from `Drop`.
    pub(crate) fn submit_detached(&self, exec: &Exec, lane: C::Lane, request: C::Request) {
        self.enqueue(exec, lane, std::iter::once(Pending { request, reply: None, leads: true }));
    }

    /// Hands over requests that were taken before and could not be carried along.
    pub(crate) fn enqueue(&self, exec: &Exec, lane: C::Lane, pending: impl IntoIterator<Item = Pending<C>>) {
        let mut pending = pending.into_iter().peekable();
        if pending.peek().is_none() {
            return;
        }
        if let Some(flight) = self.join(lane, pending) {
            exec.spawn(flight.run());
        }
    }

    /// Puts requests into their lane. If there is room for another call in that lane, returns it: it must be
    /// run.
    fn join(&self, lane: C::Lane, pending: impl Iterator<Item = Pending<C>>) -> Option<Flight<C>> {
        let mut lanes = self.0.lock();
        let state = lanes.entry(lane.clone()).or_insert_with(Lane::new);
        state.pending.extend(pending);
        if state.in_flight >= self.0.config.in_flight.max(1) {
            return None;
        }
        state.in_flight += 1;
        drop(lanes);
        Some(Flight { inner: self.0.clone(), lane, carries: 0, landed: false })
    }

    /// Takes waiting requests of a lane, for a call that carries them along.
    pub(crate) fn take(&self, lane: &C::Lane) -> Vec<Pending<C>> {
        let mut lanes = self.0.lock();
        lanes
            .get_mut(lane)
            .map(|state| take_batch(&mut state.pending, &self.0.call, self.0.room))
            .unwrap_or_default()
    }

    /// Waits until nothing is pending or in flight.
    pub(crate) async fn idle(&self) {
        loop {
            // Register before looking, so that the last landing cannot slip in between.
            let mut notified = std::pin::pin!(self.0.idle.notified());
            notified.as_mut().enable();
            if self.0.lock().is_empty() {
                return;
            }
            notified.await;
        }
    }
}

impl<C: Call> Inner<C> {
    fn lock(&self) -> MutexGuard<'_, HashMap<C::Lane, Lane<C>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the calls that a lane may have in flight.
struct Flight<C: Call> {
    inner: Arc<Inner<C>>,
    lane: C::Lane,
    carries: usize,
    landed: bool,
}

impl<C: Call> Flight<C> {
    async fn run(mut self) {
        let mut share = usize::MAX;
        loop {
            self.linger().await;
            let Some(batch) = self.next_batch(share) else { return };
            let company = callers(&batch);
            let (requests, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|p| (p.request, p.reply)).unzip();
            let begun = self.inner.clock.now();
            let answers = self.inner.call.call(&self.lane, requests).await;
            self.took(self.inner.clock.now().saturating_duration_since(begun));
            for (reply, answer) in replies.into_iter().zip(answers) {
                if let Some(reply) = reply {
                    let _ = reply.send(answer);
                }
            }
            let gathers = company > 1 && self.inner.config.linger.is_zero() && !self.inner.gather.is_zero();
            share = if gathers { self.gather(company).await } else { usize::MAX };
        }
    }

    fn took(&self, time: Duration) {
        if let Some(lane) = self.inner.lock().get_mut(&self.lane) {
            lane.took = time;
        }
    }

    /// Where each call costs money, waits for more requests, unless there are as many as one call can carry.
    async fn linger(&self) {
        let linger = self.inner.config.linger;
        if !linger.is_zero() && self.look(|lane| lane.pending.len()) < self.inner.room.items {
            self.inner.clock.sleep(linger).await;
        }
    }

    fn look<T: Default>(&self, at: impl Fn(&Lane<C>) -> T) -> T {
        self.inner.lock().get(&self.lane).map(at).unwrap_or_default()
    }

    /// The callers just answered are about to ask again, so wait a moment for as many callers to come along;
    /// otherwise small and large calls would alternate. A lone caller, with one request or with many, is
    /// never made to wait.
    ///
    /// Where several calls may be in flight, callers should work while the server does. So each call gets an
    /// even share, returned here, or one call would soon carry nearly everything; and calls begin some time
    /// apart, or all would return at once.
    async fn gather(&self, company: usize) -> usize {
        let clock = &self.inner.clock;
        let end = clock.now() + self.inner.gather;
        let (several, most) = (self.inner.config.in_flight > 1, self.inner.room.items);
        let around = self.look(|lane| lane.pending.len() + lane.carried);
        let share = |lane: &Lane<C>| around.div_ceil(lane.in_flight.max(1)).min(most);
        for _ in 0..MOST_LOOKS {
            tokio::task::yield_now().await;
            let now = clock.now();
            let has_gathered = self.look(|lane| {
                if several {
                    lane.pending.len() >= share(lane) && lane.may_begin(now)
                } else {
                    callers(&lane.pending) >= company
                }
            });
            if has_gathered || now >= end {
                break;
            }
        }
        if several { self.look(share) } else { most }
    }

    /// Takes what has gathered; or, if there is nothing, gives the place back under the same lock, so that no
    /// request is left behind.
    fn next_batch(&mut self, share: usize) -> Option<Vec<Pending<C>>> {
        let mut lanes = self.inner.lock();
        let state = lanes.get_mut(&self.lane)?;
        state.carried = state.carried.saturating_sub(std::mem::take(&mut self.carries));
        let room = Room { items: self.inner.room.items.min(share), ..self.inner.room };
        let batch = take_batch(&mut state.pending, &self.inner.call, room);
        if !batch.is_empty() {
            self.carries = batch.len();
            state.carried += batch.len();
            state.begun = Some(self.inner.clock.now());
            return Some(batch);
        }
        self.landed = true;
        state.in_flight -= 1;
        if state.in_flight == 0 {
            lanes.remove(&self.lane);
        }
        if lanes.is_empty() {
            self.inner.idle.notify_waiters();
        }
        None
    }
}

/// A flight that did not land was dropped with its runtime: waiting callers notice the loss of the sender.
impl<C: Call> Drop for Flight<C> {
    fn drop(&mut self) {
        if !self.landed {
            self.inner.lock().remove(&self.lane);
            self.inner.idle.notify_waiters();
        }
    }
}

fn callers<'a, C: Call>(pending: impl IntoIterator<Item = &'a Pending<C>>) -> usize {
    pending.into_iter().filter(|pending| pending.leads).count()
}

fn take_batch<C: Call>(pending: &mut VecDeque<Pending<C>>, call: &C, room: Room) -> Vec<Pending<C>> {
    let mut bytes = 0;
    let mut items = 0;
    while let Some(next) = pending.get(items) {
        bytes += call.size(&next.request);
        if items >= room.items.max(1) || (items > 0 && bytes > room.bytes) {
            break;
        }
        items += 1;
    }
    pending.drain(..items).collect()
}
