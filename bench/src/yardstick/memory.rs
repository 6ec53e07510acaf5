//! A hand-written client in memory: a table of messages and a queue of ids per priority, under one mutex.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use tokio::sync::Notify;

use crate::client::{Client, LEASE, Result, Source, Yardstick};
use crate::scenario::Scenario;

const LEVELS: usize = 10;

#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// One permit per push is enough: whoever takes some messages and leaves others passes the permit on.
    pushed: Notify,
}

#[derive(Default)]
struct State {
    ready: [VecDeque<MessageId>; LEVELS],
    messages: HashMap<MessageId, Stored, BuildHasherDefault<IdHasher>>,
    /// Claims in the order of their tokens. All leases are equally long, so they end in this order too.
    claims: VecDeque<Claim>,
    /// The token of the first of `claims`.
    first_token: u64,
}

struct Stored {
    payload: Bytes,
    priority: u8,
    deliveries: u32,
    token: Option<u64>,
}

struct Claim {
    until: Instant,
    held: usize,
}

pub(crate) struct RawDelivery {
    id: MessageId,
    token: u64,
    payload: Bytes,
    _deliveries: u32,
    window: Option<Arc<Window>>,
}

impl State {
    fn push(&mut self, id: MessageId, payload: Bytes, priority: u8) -> Result<()> {
        let stored = Stored { payload, priority, deliveries: 0, token: None };
        if self.messages.insert(id, stored).is_some() {
            return Err("an id was used twice".into());
        }
        let level = self.ready.get_mut(usize::from(priority)).ok_or("no such priority")?;
        level.push_back(id);
        Ok(())
    }

    fn claim(&mut self, max: usize, window: Option<&Arc<Window>>) -> Vec<RawDelivery> {
        let now = Instant::now();
        self.reap(now);
        let token = self.first_token + self.claims.len() as u64;
        let mut claimed = Vec::with_capacity(max.min(self.messages.len()));
        for level in self.ready.iter_mut().rev() {
            while claimed.len() < max {
                let Some(id) = level.pop_front() else { break };
                let Some(stored) = self.messages.get_mut(&id) else { continue };
                stored.token = Some(token);
                stored.deliveries += 1;
                let (payload, deliveries) = (stored.payload.clone(), stored.deliveries);
                claimed.push(RawDelivery {
                    id,
                    token,
                    payload,
                    _deliveries: deliveries,
                    window: window.cloned(),
                });
            }
        }
        if !claimed.is_empty() {
            self.claims.push_back(Claim { until: now + LEASE, held: claimed.len() });
        }
        claimed
    }

    /// Removes a message if this token still holds it. Returns the payload, so that it is freed outside the
    /// lock.
    fn settle(&mut self, delivery: &RawDelivery) -> Option<Bytes> {
        self.messages.get(&delivery.id).filter(|stored| stored.token == Some(delivery.token))?;
        let removed = self.messages.remove(&delivery.id)?;
        let index = usize::try_from(delivery.token - self.first_token).ok()?;
        if let Some(claim) = self.claims.get_mut(index) {
            claim.held -= 1;
        }
        self.forget_ended_claims();
        Some(removed.payload)
    }

    /// Releases messages whose leases have ended.
    fn reap(&mut self, now: Instant) {
        while self.claims.front().is_some_and(|claim| claim.until <= now) {
            for (id, stored) in &mut self.messages {
                if stored.token == Some(self.first_token) {
                    stored.token = None;
                    if let Some(level) = self.ready.get_mut(usize::from(stored.priority)) {
                        level.push_front(*id);
                    }
                }
            }
            self.claims.pop_front();
            self.first_token += 1;
        }
    }

    fn forget_ended_claims(&mut self) {
        while self.claims.front().is_some_and(|claim| claim.held == 0) {
            self.claims.pop_front();
            self.first_token += 1;
        }
    }

    fn any_ready(&self) -> bool {
        self.ready.iter().any(|level| !level.is_empty())
    }
}

impl Shared {
    /// A panic inside leaves nothing half done that matters to a measurement, which fails anyway.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, max: usize, window: Option<&Arc<Window>>) -> Vec<RawDelivery> {
        let mut state = self.lock();
        let claimed = state.claim(max, window);
        let more = !claimed.is_empty() && state.any_ready();
        drop(state);
        if more {
            self.pushed.notify_one();
        }
        claimed
    }
}

impl Client for Memory {
    type RawDelivery = RawDelivery;
    type Source = Windowed;

    async fn open(_url: &str) -> Result<Self> {
        Ok(Self::default())
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        let id = MessageId::new();
        self.0.lock().push(id, payload, 0)?;
        self.0.pushed.notify_one();
        Ok(id)
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        let mut state = self.0.lock();
        for (id, payload) in ids.iter().zip(payloads) {
            state.push(*id, payload, 0)?;
        }
        drop(state);
        self.0.pushed.notify_one();
        Ok(ids)
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        let end = tokio::time::Instant::now() + wait;
        loop {
            let claimed = self.0.claim(max, None);
            if !claimed.is_empty() || wait.is_zero() {
                return Ok(claimed);
            }
            if tokio::time::timeout_at(end, self.0.pushed.notified()).await.is_err() {
                return Ok(self.0.claim(max, None));
            }
        }
    }

    async fn settle(&self, delivery: RawDelivery) -> Result<()> {
        let payload = self.0.lock().settle(&delivery);
        payload.ok_or("a lease was lost")?;
        if let Some(window) = delivery.window {
            window.settled();
        }
        Ok(())
    }

    async fn settle_batch(&self, deliveries: Vec<RawDelivery>) -> Result<()> {
        let mut state = self.0.lock();
        let payloads: Vec<_> = deliveries.iter().map(|delivery| state.settle(delivery)).collect();
        drop(state);
        payloads
            .into_iter()
            .try_for_each(|payload| payload.map(drop).ok_or_else(|| "a lease was lost".into()))
    }

    async fn source(&self, window: usize) -> Result<Windowed> {
        let window = Arc::new(Window { size: window, held: AtomicUsize::new(0), room: Notify::new() });
        Ok(Windowed { shared: self.0.clone(), window, buffer: VecDeque::new() })
    }

    async fn remaining(&self) -> Result<u64> {
        Ok(self.0.lock().messages.len() as u64)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    fn id(delivery: &RawDelivery) -> MessageId {
        delivery.id
    }

    fn payload(delivery: &RawDelivery) -> &[u8] {
        &delivery.payload
    }
}

impl Yardstick for Memory {
    const NAME: &'static str = "memory";
    const ACROSS_PROCESSES: bool = false;

    fn messages(scenario: Scenario) -> usize {
        match scenario {
            Scenario::Latency | Scenario::LatencyAcross => 300,
            _ => 20_000,
        }
    }

    async fn place(_scratch: &Path) -> Result<String> {
        Ok("memory:".to_owned())
    }
}

/// How much of a puller's window is taken.
struct Window {
    size: usize,
    held: AtomicUsize,
    room: Notify,
}

impl Window {
    fn settled(&self) {
        let before = self.held.fetch_sub(1, Ordering::AcqRel);
        if before == self.size - self.quarter() + 1 {
            self.room.notify_one();
        }
    }

    /// Claiming one by one costs more than it gains: the puller waits until this much is free.
    fn quarter(&self) -> usize {
        (self.size / 4).max(1)
    }
}

/// A puller that refills its buffer from the table, never holding more than its window.
pub(crate) struct Windowed {
    shared: Arc<Shared>,
    window: Arc<Window>,
    buffer: VecDeque<RawDelivery>,
}

impl Source<RawDelivery> for Windowed {
    async fn next(&mut self) -> Result<RawDelivery> {
        loop {
            if let Some(delivery) = self.buffer.pop_front() {
                return Ok(delivery);
            }
            let free = self.window.size - self.window.held.load(Ordering::Acquire);
            if free < self.window.quarter() {
                self.window.room.notified().await;
                continue;
            }
            let claimed = self.shared.claim(free, Some(&self.window));
            if claimed.is_empty() {
                self.shared.pushed.notified().await;
                continue;
            }
            self.window.held.fetch_add(claimed.len(), Ordering::AcqRel);
            self.buffer.extend(claimed);
        }
    }
}

/// The last bytes of an id are random already: one multiplication spreads that over all bits.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(tail) = bytes.last_chunk() {
            self.0 = u64::from_be_bytes(*tail).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
