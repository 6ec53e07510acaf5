//! The messages in flight that this handle holds. The server's own fence is weak, since a late deletion may
//! succeed. So the handle remembers when each lease ends, and settles nothing after that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{Lease, Token};
use anyqueue::{MessageData, MessageId};
use uuid::Uuid;

use crate::names::LevelQueue;

/// With this many leases, expired ones are removed.
const FIRST_PRUNE: usize = 1024;
/// The size of a token before the receipt handle: the handle that issued it, a number, and the level.
const HEAD_BYTES: usize = 16 + 8 + 1;

/// A message in flight.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) level_queue: LevelQueue,
    pub(crate) receipt_handle: Arc<str>,
    pub(crate) message: MessageData,
    /// The stored envelope of a message that cannot be read, as text.
    pub(crate) stored: Option<Arc<str>>,
    /// The server's id of the message.
    pub(crate) message_id: Arc<str>,
    /// The group of the message, on a FIFO queue.
    pub(crate) group: Option<Arc<str>>,
    /// When the message was pushed, by the server's clock.
    pub(crate) pushed_at: SystemTime,
    /// The number of deliveries, including this one.
    pub(crate) deliveries: u32,
    /// When the request was sent that received the message.
    pub(crate) received_at: Instant,
    pub(crate) until: Instant,
    /// Whether its copy is stored, so that only the deletion is left.
    pub(crate) is_copied: bool,
    /// Successors that an earlier settlement has stored, so that only its end was left.
    pub(crate) stored_successors: Vec<MessageId>,
    /// Whether a deletion was sent whose result is not known.
    pub(crate) maybe_deleted: bool,
    is_settling: bool,
}

impl Claim {
    pub(crate) fn new(
        level_queue: LevelQueue,
        receipt_handle: Arc<str>,
        message: MessageData,
        received_at: Instant,
        until: Instant,
    ) -> Self {
        let pushed_at = SystemTime::UNIX_EPOCH;
        Self {
            level_queue,
            receipt_handle,
            message,
            stored: None,
            message_id: Arc::default(),
            group: None,
            pushed_at,
            deliveries: 1,
            received_at,
            until,
            is_copied: false,
            stored_successors: Vec::new(),
            maybe_deleted: false,
            is_settling: false,
        }
    }
}

/// The lease that a token stands for.
#[derive(Debug)]
pub(crate) enum LeaseLookup {
    /// A valid lease of this handle, and its number.
    Held(u64, Box<Claim>),
    /// A lease of another handle. Only the server knows whether it is valid.
    OtherHandle(LevelQueue, String),
    /// A lease that has ended or never existed.
    Lost,
}

/// The leases of one handle.
#[derive(Debug)]
pub(crate) struct InFlight {
    handle: Uuid,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    claims: HashMap<u64, Claim>,
    next: u64,
    prune_at: usize,
}

impl Default for InFlight {
    fn default() -> Self {
        let state = State { claims: HashMap::new(), next: 0, prune_at: FIRST_PRUNE };
        Self { handle: Uuid::new_v4(), state: Mutex::new(state) }
    }
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a message. Returns the token, which proves its lease.
    pub(crate) fn hold(&self, claim: Claim) -> Token {
        let mut state = self.lock();
        if state.claims.len() >= state.prune_at {
            let now = Instant::now();
            state.claims.retain(|_, claim| claim.until > now);
            state.prune_at = FIRST_PRUNE.max(2 * state.claims.len());
        }
        let number = state.next;
        state.next += 1;
        let mut token = Vec::with_capacity(HEAD_BYTES + claim.receipt_handle.len());
        token.extend_from_slice(self.handle.as_bytes());
        token.extend_from_slice(&number.to_be_bytes());
        token.push(claim.level_queue.level);
        token.extend_from_slice(claim.receipt_handle.as_bytes());
        state.claims.insert(number, claim);
        Token::from_bytes(token)
    }

    /// Looks up a lease and reserves it for the caller until [`unreserve`](Self::unreserve) or [`end`](Self::end).
    pub(crate) fn reserve(&self, lease: &Lease) -> LeaseLookup {
        self.find(lease, |claim| !std::mem::replace(&mut claim.is_settling, true))
    }

    /// Looks up a lease.
    pub(crate) fn look(&self, lease: &Lease) -> LeaseLookup {
        self.find(lease, |_| true)
    }

    fn find(&self, lease: &Lease, accept: impl FnOnce(&mut Claim) -> bool) -> LeaseLookup {
        let Some((handle, number, level_queue, receipt_handle)) = read(lease) else {
            return LeaseLookup::Lost;
        };
        if handle != *self.handle.as_bytes() {
            return LeaseLookup::OtherHandle(level_queue, receipt_handle);
        }
        let now = Instant::now();
        let mut state = self.lock();
        match state.claims.get_mut(&number) {
            Some(claim)
                if claim.until > now
                    && claim.level_queue == level_queue
                    && *claim.receipt_handle == *receipt_handle =>
            {
                if accept(claim) {
                    LeaseLookup::Held(number, Box::new(claim.clone()))
                } else {
                    LeaseLookup::Lost
                }
            }
            _ => LeaseLookup::Lost,
        }
    }

    /// Ends the reservation of a lease, which continues with this change.
    pub(crate) fn unreserve(&self, number: u64, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.lock().claims.get_mut(&number) {
            claim.is_settling = false;
            change(claim);
        }
    }

    /// Whether the lease of this number is still valid, whoever settles it.
    pub(crate) fn is_held(&self, number: u64) -> bool {
        let now = Instant::now();
        self.lock().claims.get(&number).is_some_and(|claim| claim.until > now)
    }

    /// Extends the lease.
    pub(crate) fn extend(&self, number: u64, until: Instant) {
        if let Some(claim) = self.lock().claims.get_mut(&number) {
            claim.until = until;
        }
    }

    /// Ends the lease.
    pub(crate) fn end(&self, number: u64) {
        self.lock().claims.remove(&number);
    }
}

fn read(lease: &Lease) -> Option<([u8; 16], u64, LevelQueue, String)> {
    let (handle, rest) = lease.token.as_bytes().split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (level, receipt_handle) = rest.split_first()?;
    let level_queue = LevelQueue::new(&lease.partition, *level);
    let receipt_handle =
        std::str::from_utf8(receipt_handle).ok().filter(|receipt_handle| !receipt_handle.is_empty())?;
    Some((*handle, u64::from_be_bytes(*number), level_queue, receipt_handle.to_owned()))
}

/// Converts to whole seconds. Rounds up, so that nothing timed is early.
pub(crate) fn whole_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    fn claim(lease: Duration) -> Claim {
        let level_queue = LevelQueue::new(&PartitionId::new("p").unwrap(), 3);
        Claim::new(
            level_queue,
            "receipt".into(),
            MessageData::new("x"),
            Instant::now(),
            Instant::now() + lease,
        )
    }

    fn lease(token: Token) -> Lease {
        Lease { partition: PartitionId::new("p").unwrap(), id: MessageId::new(), token }
    }

    #[test]
    fn a_lease_is_reserved_once_and_lost_when_it_has_ended() {
        let in_flight = InFlight::default();
        let held = lease(in_flight.hold(claim(Duration::from_mins(1))));
        let LeaseLookup::Held(number, _) = in_flight.reserve(&held) else { panic!("held") };
        assert!(matches!(in_flight.reserve(&held), LeaseLookup::Lost), "somebody settles it");
        in_flight.unreserve(number, |claim| claim.is_copied = true);
        let LeaseLookup::Held(_, again) = in_flight.reserve(&held) else { panic!("kept") };
        assert!(again.is_copied);
        in_flight.end(number);
        assert!(matches!(in_flight.reserve(&held), LeaseLookup::Lost));
        let over = lease(in_flight.hold(claim(Duration::ZERO)));
        assert!(matches!(in_flight.reserve(&over), LeaseLookup::Lost));
    }

    #[test]
    fn a_reserved_lease_is_held_until_its_time_is_over_or_it_is_ended() {
        let in_flight = InFlight::default();
        let held = lease(in_flight.hold(claim(Duration::from_mins(1))));
        let LeaseLookup::Held(number, _) = in_flight.reserve(&held) else { panic!("held") };
        assert!(in_flight.is_held(number));
        in_flight.extend(number, Instant::now());
        assert!(!in_flight.is_held(number));
        in_flight.extend(number, Instant::now() + Duration::from_mins(1));
        assert!(in_flight.is_held(number));
        in_flight.end(number);
        assert!(!in_flight.is_held(number));
    }

    #[test]
    fn other_handles_leases_are_told_from_forged_ones() {
        let held = lease(InFlight::default().hold(claim(Duration::from_mins(1))));
        let in_flight = InFlight::default();
        let LeaseLookup::OtherHandle(level_queue, receipt_handle) = in_flight.reserve(&held) else {
            panic!("elsewhere")
        };
        assert_eq!((level_queue.level, receipt_handle.as_str()), (3, "receipt"));
        assert!(matches!(in_flight.reserve(&lease(Token::random())), LeaseLookup::Lost));
    }

    #[test]
    fn leases_that_ended_are_forgotten_in_time() {
        let in_flight = InFlight::default();
        for _ in 0..4 * FIRST_PRUNE {
            in_flight.hold(claim(Duration::ZERO));
        }
        assert!(in_flight.lock().claims.len() <= FIRST_PRUNE);
    }
}
