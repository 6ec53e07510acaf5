//! What this handle holds. The server's own fence is weak: a late deletion may succeed. So the handle remembers when each lease
//! ends, and settles nothing after that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::MessageData;
use anyqueue::adapter::{Lease, Token};
use uuid::Uuid;

use crate::names::Place;

/// From this many on, leases that have ended are looked for and forgotten.
const FIRST_PRUNE: usize = 1024;
/// Bytes before the receipt handle in a token: the handle that gave it out, a number, the level.
const HEAD_BYTES: usize = 16 + 8 + 1;

/// One held message.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) place: Place,
    pub(crate) receipt: Arc<str>,
    pub(crate) message: MessageData,
    /// The envelope of one that cannot be read, in the body's characters.
    pub(crate) stored: Option<Arc<str>>,
    /// What the server calls it.
    pub(crate) source: Arc<str>,
    /// Its group on a FIFO queue.
    pub(crate) group: Option<Arc<str>>,
    /// When it was pushed, by the server's clock.
    pub(crate) pushed_at: SystemTime,
    /// Deliveries, this one included.
    pub(crate) deliveries: u32,
    /// When the server was asked for it.
    pub(crate) claimed: Instant,
    pub(crate) until: Instant,
    /// Its copy is stored: what is left is to delete it.
    pub(crate) copied: bool,
    /// Whether it was deleted is not known.
    pub(crate) doubtful: bool,
    settling: bool,
}

impl Claim {
    pub(crate) fn new(
        place: Place,
        receipt: Arc<str>,
        message: MessageData,
        claimed: Instant,
        until: Instant,
    ) -> Self {
        let pushed_at = SystemTime::UNIX_EPOCH;
        Self {
            place,
            receipt,
            message,
            stored: None,
            source: Arc::default(),
            group: None,
            pushed_at,
            deliveries: 1,
            claimed,
            until,
            copied: false,
            doubtful: false,
            settling: false,
        }
    }
}

/// What a token turns out to be.
#[derive(Debug)]
pub(crate) enum Known {
    /// A lease of this handle's that holds, and its number.
    Held(u64, Box<Claim>),
    /// A lease that another handle gave out: only the server can tell.
    Elsewhere(Place, String),
    /// A lease that has ended, or never was.
    Lost,
}

/// The leases of one handle.
#[derive(Debug)]
pub(crate) struct Ledger {
    handle: Uuid,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    claims: HashMap<u64, Claim>,
    next: u64,
    prune_at: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        let state = State { claims: HashMap::new(), next: 0, prune_at: FIRST_PRUNE };
        Self { handle: Uuid::new_v4(), state: Mutex::new(state) }
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message into care; its lease is proved by the token.
    pub(crate) fn hold(&self, claim: Claim) -> Token {
        let mut state = self.lock();
        if state.claims.len() >= state.prune_at {
            let now = Instant::now();
            state.claims.retain(|_, claim| claim.until > now);
            state.prune_at = FIRST_PRUNE.max(2 * state.claims.len());
        }
        let number = state.next;
        state.next += 1;
        let mut token = Vec::with_capacity(HEAD_BYTES + claim.receipt.len());
        token.extend_from_slice(self.handle.as_bytes());
        token.extend_from_slice(&number.to_be_bytes());
        token.push(claim.place.level);
        token.extend_from_slice(claim.receipt.as_bytes());
        state.claims.insert(number, claim);
        Token::from_bytes(token)
    }

    /// What is held under this lease, reserved for the caller until [`keep`](Self::keep) or [`end`](Self::end).
    pub(crate) fn reserve(&self, lease: &Lease) -> Known {
        self.find(lease, |claim| !std::mem::replace(&mut claim.settling, true))
    }

    /// What is held under this lease.
    pub(crate) fn look(&self, lease: &Lease) -> Known {
        self.find(lease, |_| true)
    }

    fn find(&self, lease: &Lease, accept: impl FnOnce(&mut Claim) -> bool) -> Known {
        let Some((handle, number, place, receipt)) = read(lease) else { return Known::Lost };
        if handle != *self.handle.as_bytes() {
            return Known::Elsewhere(place, receipt);
        }
        let now = Instant::now();
        let mut state = self.lock();
        match state.claims.get_mut(&number) {
            Some(claim) if claim.until > now && claim.place == place && *claim.receipt == *receipt => {
                if accept(claim) {
                    Known::Held(number, Box::new(claim.clone()))
                } else {
                    Known::Lost
                }
            }
            _ => Known::Lost,
        }
    }

    /// The lease goes on, changed like this.
    pub(crate) fn keep(&self, number: u64, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.lock().claims.get_mut(&number) {
            claim.settling = false;
            change(claim);
        }
    }

    /// The lease ends later.
    pub(crate) fn prolong(&self, number: u64, until: Instant) {
        if let Some(claim) = self.lock().claims.get_mut(&number) {
            claim.until = until;
        }
    }

    /// The lease has ended.
    pub(crate) fn end(&self, number: u64) {
        self.lock().claims.remove(&number);
    }
}

fn read(lease: &Lease) -> Option<([u8; 16], u64, Place, String)> {
    let (handle, rest) = lease.token.as_bytes().split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (level, receipt) = rest.split_first()?;
    let place = Place::new(&lease.partition, *level);
    let receipt = std::str::from_utf8(receipt).ok().filter(|receipt| !receipt.is_empty())?;
    Some((*handle, u64::from_be_bytes(*number), place, receipt.to_owned()))
}

/// Whole seconds, rounded up: what is timed must not come early.
pub(crate) fn whole_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use anyqueue::{MessageId, PartitionId};

    use super::*;

    fn claim(lease: Duration) -> Claim {
        let place = Place::new(&PartitionId::new("p").unwrap(), 3);
        Claim::new(place, "receipt".into(), MessageData::new("x"), Instant::now(), Instant::now() + lease)
    }

    fn lease(token: Token) -> Lease {
        Lease { partition: PartitionId::new("p").unwrap(), id: MessageId::new(), token }
    }

    #[test]
    fn a_lease_is_reserved_once_and_lost_when_it_has_ended() {
        let ledger = Ledger::default();
        let held = lease(ledger.hold(claim(Duration::from_mins(1))));
        let Known::Held(number, _) = ledger.reserve(&held) else { panic!("held") };
        assert!(matches!(ledger.reserve(&held), Known::Lost), "somebody settles it");
        ledger.keep(number, |claim| claim.copied = true);
        let Known::Held(_, again) = ledger.reserve(&held) else { panic!("kept") };
        assert!(again.copied);
        ledger.end(number);
        assert!(matches!(ledger.reserve(&held), Known::Lost));
        let over = lease(ledger.hold(claim(Duration::ZERO)));
        assert!(matches!(ledger.reserve(&over), Known::Lost));
    }

    #[test]
    fn other_handles_leases_are_told_from_forged_ones() {
        let held = lease(Ledger::default().hold(claim(Duration::from_mins(1))));
        let ledger = Ledger::default();
        let Known::Elsewhere(place, receipt) = ledger.reserve(&held) else { panic!("elsewhere") };
        assert_eq!((place.level, receipt.as_str()), (3, "receipt"));
        assert!(matches!(ledger.reserve(&lease(Token::random())), Known::Lost));
    }

    #[test]
    fn leases_that_ended_are_forgotten_in_time() {
        let ledger = Ledger::default();
        for _ in 0..4 * FIRST_PRUNE {
            ledger.hold(claim(Duration::ZERO));
        }
        assert!(ledger.lock().claims.len() <= FIRST_PRUNE);
    }
}
