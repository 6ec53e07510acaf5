//! The single heartbeat for everything that a queue holds.
//!
//! Extensions run in tasks of their own, so that a server that does not respond cannot delay the moment at
//! which a handler learns that its lease can no longer be trusted.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::caller::StorageCaller;
use super::crossing::Crossing;
use crate::clock::far;
use crate::exec::Exec;
use crate::storage::{ExtendOutcome, Extension, Lease};

const LOST: u8 = 1;
const CANCEL_REQUESTED: u8 = 2;

/// What a handler and the keeper share about one held delivery.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    slot: usize,
    flags: AtomicU8,
    lost: OnceLock<CancellationToken>,
    cancel_requested: OnceLock<CancellationToken>,
}

impl Held {
    pub(crate) fn is_lost(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & LOST != 0
    }

    /// Tokens are created on first use: most handlers never ask.
    pub(crate) fn lost(&self) -> &CancellationToken {
        self.token(&self.lost, LOST)
    }

    pub(crate) fn cancel_requested(&self) -> &CancellationToken {
        self.token(&self.cancel_requested, CANCEL_REQUESTED)
    }

    fn token<'a>(&self, token: &'a OnceLock<CancellationToken>, flag: u8) -> &'a CancellationToken {
        let token = token.get_or_init(CancellationToken::new);
        // The flag may have been set before the token was there; `fire` sets the flag before it looks for the token.
        if self.flags.load(Ordering::SeqCst) & flag != 0 {
            token.cancel();
        }
        token
    }

    pub(crate) fn fire_lost(&self) {
        self.fire(&self.lost, LOST);
    }

    pub(crate) fn fire_cancel_requested(&self) {
        self.fire(&self.cancel_requested, CANCEL_REQUESTED);
    }

    fn fire(&self, token: &OnceLock<CancellationToken>, flag: u8) {
        self.flags.fetch_or(flag, Ordering::SeqCst);
        if let Some(token) = token.get() {
            token.cancel();
        }
    }
}

/// What the keeper learns about a delivery on receipt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) lease: Duration,
    pub(crate) received: Instant,
    /// Until when the lease can be trusted without an extension.
    pub(crate) trusted_until: Instant,
    /// No extension goes beyond this.
    pub(crate) extend_until: Instant,
    pub(crate) keep_alive: bool,
}

#[derive(Debug)]
struct Entry {
    held: Arc<Held>,
    hold: Hold,
    /// How long the lease could be trusted when that was last determined: the heartbeat goes by this.
    beat: Duration,
    extend_at: Instant,
    /// Only for deliveries that were ever extended: most are settled long before, and all would pay for the
    /// room.
    crossing: Option<Box<Crossing>>,
}

/// Everything a queue holds, and the heartbeat that keeps it.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    state: Mutex<State>,
    wake: Notify,
    /// The backend's shortest lease.
    least: Duration,
    /// How long one call may take.
    call_timeout: Duration,
}

#[derive(Debug, Default)]
struct State {
    held: Slab<Entry>,
    /// When the heartbeat next looks; `None` while it has nothing to look after.
    next: Option<Instant>,
    /// The number of the extension that was asked for last.
    asked: u64,
}

impl LeaseKeeper {
    /// Creates a keeper for a backend whose leases last at least `least`, and whose calls take no longer than
    /// `call_timeout`.
    pub(crate) fn new(least: Duration, call_timeout: Duration) -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), least, call_timeout }
    }

    /// Takes charge of deliveries.
    pub(crate) fn hold(&self, leases: impl Iterator<Item = (Lease, Hold)>) -> Vec<Arc<Held>> {
        let mut state = self.lock();
        let mut earliest: Option<Instant> = None;
        let held = leases
            .map(|(lease, hold)| {
                let entry = state.held.vacant_entry();
                let held = Arc::new(Held {
                    lease,
                    slot: entry.key(),
                    flags: AtomicU8::new(0),
                    lost: OnceLock::new(),
                    cancel_requested: OnceLock::new(),
                });
                let entry = entry.insert(Entry {
                    held: held.clone(),
                    beat: hold.lease,
                    extend_at: far(hold.received, hold.lease / 3),
                    crossing: None,
                    hold,
                });
                earliest = Some(earliest.map_or(entry.due(), |e| e.min(entry.due())));
                held
            })
            .collect();
        if let Some(due) = earliest {
            self.look_at(state, due);
        }
        held
    }

    /// Makes the heartbeat look no later than `due`.
    fn look_at(&self, mut state: MutexGuard<'_, State>, due: Instant) {
        if state.next.is_none_or(|next| due < next) {
            state.next = Some(due);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Lets go of a delivery: it was settled, dropped or lost.
    pub(crate) fn release(&self, held: &Held) {
        self.lock().remove(held);
    }

    /// Returns until when the lease can be trusted; `None` once it is no longer held.
    pub(crate) fn trusted_until(&self, held: &Held) -> Option<Instant> {
        self.lock().get(held).map(|entry| entry.hold.trusted_until)
    }

    /// Notes that an extension is being asked for: the longest one up to `wanted` that the hold allows.
    /// `None` if the delivery is no longer held or its hold has reached its end.
    pub(crate) fn ask(self: &Arc<Self>, held: &Arc<Held>, now: Instant, wanted: Duration) -> Option<Asked> {
        let mut state = self.lock();
        let asked = state.ask(self, held, now, wanted)?;
        // Only a lease that is shorter than before is due before the heartbeat looks anyway.
        if let Some(due) = state.get(held).map(Entry::due) {
            self.look_at(state, due);
        }
        Some(asked)
    }

    /// Notes that everything due is being extended by its lease.
    fn ask_all(self: &Arc<Self>, due: &[Arc<Held>], now: Instant) -> Vec<Asked> {
        let mut state = self.lock();
        let asked = due.iter().filter_map(|held| {
            let lease = state.get(held)?.hold.lease;
            state.ask(self, held, now, lease)
        });
        asked.collect()
    }

    /// Takes out everything held, for a close that releases it all.
    pub(crate) fn drain(&self) -> Vec<Arc<Held>> {
        let mut state = self.lock();
        state.next = None;
        state.held.drain().map(|entry| entry.held).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn get(&self, held: &Held) -> Option<&Entry> {
        self.held.get(held.slot).filter(|entry| std::ptr::eq(&raw const *entry.held, held))
    }

    fn get_mut(&mut self, held: &Held) -> Option<&mut Entry> {
        self.held.get_mut(held.slot).filter(|entry| std::ptr::eq(&raw const *entry.held, held))
    }

    fn ask(
        &mut self,
        keeper: &Arc<LeaseKeeper>,
        held: &Arc<Held>,
        now: Instant,
        wanted: Duration,
    ) -> Option<Asked> {
        self.asked += 1;
        let number = self.asked;
        let entry = self.get_mut(held)?;
        let duration = entry.hold.extension(now, wanted, keeper.least)?;
        entry.crossing.get_or_insert_default().begin(number, now, duration);
        // The server may apply it at any time from now on, and a shorter lease ends sooner.
        let end = far(now, duration);
        if end < entry.hold.trusted_until {
            entry.trust(now, end);
        }
        let (keeper, held) = (keeper.clone(), held.clone());
        Some(Asked { keeper, held, number, at: now, duration, is_over: false })
    }

    fn remove(&mut self, held: &Held) {
        if self.get(held).is_some() {
            self.held.remove(held.slot);
        }
    }
}

impl Entry {
    /// Whether the heartbeat extends the lease again: as long as there is something to gain.
    fn keeps_on(&self) -> bool {
        self.hold.keep_alive && self.hold.trusted_until < self.hold.extend_until
    }

    fn due(&self) -> Instant {
        if self.keeps_on() { self.extend_at.min(self.hold.trusted_until) } else { self.hold.trusted_until }
    }
}

impl Entry {
    /// Trusts the lease until `until`, as learned by a request sent at `asked_at`.
    fn trust(&mut self, asked_at: Instant, until: Instant) {
        self.hold.trusted_until = until;
        self.beat = until.saturating_duration_since(asked_at);
        self.extend_at = far(asked_at, self.beat / 3);
    }
}

impl Hold {
    /// Returns the longest extension up to `wanted` that does not go beyond the end of the hold; `None` if
    /// too little is left.
    fn extension(&self, now: Instant, wanted: Duration, least: Duration) -> Option<Duration> {
        let duration = wanted.min(self.extend_until.saturating_duration_since(now));
        (duration >= least).then_some(duration)
    }
}

/// What the heartbeat found when it looked.
struct Look {
    lost: Vec<Arc<Held>>,
    extend: Vec<Arc<Held>>,
}

/// Runs the heartbeat until the queue is gone. Calls `on_lost` for leases that ran out here; it releases
/// those held by a connection.
pub(crate) async fn heartbeat(
    keeper: Arc<LeaseKeeper>,
    caller: StorageCaller,
    exec: Exec,
    gone: CancellationToken,
    on_lost: impl Fn(&Held) + Send + Sync + 'static,
) {
    loop {
        let next = keeper.lock().next;
        let due = async {
            match next {
                Some(next) => caller.clock.sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = gone.cancelled() => return,
            () = keeper.wake.notified() => continue,
            () = due => {}
        }
        let look = keeper.look(caller.clock.now());
        for held in &look.lost {
            held.fire_lost();
            on_lost(held);
        }
        let room = caller.storage.capabilities().limits.settle_batch.max(1);
        for part in look.extend.chunks(room) {
            exec.spawn(extend(keeper.clone(), caller.clone(), part.to_vec()));
        }
    }
}

impl LeaseKeeper {
    /// Sorts what is due into lost and to be extended, and sets when to look next.
    fn look(&self, now: Instant) -> Look {
        let mut state = self.lock();
        let mut look = Look { lost: Vec::new(), extend: Vec::new() };
        let mut next: Option<Instant> = None;
        state.held.retain(|_, entry| {
            if entry.hold.trusted_until <= now {
                look.lost.push(entry.held.clone());
                return false;
            }
            // What is nearly due is extended too: one call instead of many.
            if entry.keeps_on() && entry.extend_at <= far(now, entry.beat / 10) {
                if entry.hold.extension(now, entry.hold.lease, self.least).is_some() {
                    look.extend.push(entry.held.clone());
                    // If this attempt fails, there is time for more before the lease ends.
                    entry.extend_at = far(now, entry.beat / 6);
                } else {
                    entry.extend_at = entry.hold.trusted_until; // no extension is short enough
                }
            }
            next = Some(next.map_or(entry.due(), |n| n.min(entry.due())));
            true
        });
        state.next = next;
        look
    }

    /// Handles the loss of a lease that the server reported.
    fn lost(&self, held: &Held) {
        let mut state = self.lock();
        // Only if it is still held: a settlement that was quicker is no loss.
        if state.get(held).is_some() {
            state.remove(held);
            drop(state);
            held.fire_lost();
        }
    }
}

/// An extension in flight. Dropped without a response it is in doubt: the server may still apply it.
pub(crate) struct Asked {
    keeper: Arc<LeaseKeeper>,
    held: Arc<Held>,
    number: u64,
    at: Instant,
    duration: Duration,
    is_over: bool,
}

impl Asked {
    /// What to ask the server for.
    pub(crate) fn extension(&self) -> Extension {
        Extension { lease: self.held.lease.clone(), duration: self.duration }
    }

    /// Notes the server's response. If the application asked for the extension, the heartbeat renews the
    /// lease by its duration from now on.
    pub(crate) fn answered(mut self, outcome: ExtendOutcome, by_hand: bool) {
        self.is_over = true;
        if outcome == ExtendOutcome::Lost {
            return self.keeper.lost(&self.held);
        }
        let mut state = self.keeper.lock();
        if let Some(entry) = state.get_mut(&self.held) {
            if by_hand {
                entry.hold.lease = self.duration;
            }
            if let Some(until) = entry.crossing.as_mut().and_then(|crossing| crossing.granted(self.number))
                && until >= entry.hold.trusted_until
            {
                entry.trust(self.at, until);
            }
            let due = entry.due();
            self.keeper.look_at(state, due);
        } else {
            drop(state);
        }
        if outcome == ExtendOutcome::CancelRequested {
            self.held.fire_cancel_requested();
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_over {
            // By then the server has given up what it had not applied.
            let until = far(self.at, self.keeper.call_timeout.saturating_mul(2));
            if let Some(crossing) =
                self.keeper.lock().get_mut(&self.held).and_then(|entry| entry.crossing.as_mut())
            {
                crossing.doubted(self.number, until);
            }
        }
    }
}

async fn extend(keeper: Arc<LeaseKeeper>, caller: StorageCaller, due: Vec<Arc<Held>>) {
    let asked = keeper.ask_all(&due, caller.clock.now());
    // Wait no longer than the shortest lease: after that the response is useless.
    let Some(shortest) = asked.iter().map(|asked| asked.duration).min() else { return };
    let extensions: Vec<Extension> = asked.iter().map(Asked::extension).collect();
    let answers = caller.extend(&extensions, shortest.min(caller.call_timeout)).await;
    for (asked, answer) in asked.into_iter().zip(answers) {
        match answer {
            Ok(outcome) => asked.answered(outcome, false),
            Err(error) => {
                let id = asked.held.lease.id;
                tracing::warn!(%id, %error, "a lease could not be extended; trying again until it ends");
            }
        }
    }
}
