//! The leases of one partition, stored by claim.
//!
//! All messages claimed by one pull share a token and an end, so they are stored as one claim, which costs
//! the same for one message as for a thousand. Messages leave it one by one, and it is forgotten with the
//! last one. An extension takes its message out and puts it into a new claim with the same token. The price:
//! ids stay listed until their claim ends, so one message that is held for long keeps up to a batch of ids.

use std::collections::BTreeMap;
use std::time::Instant;

use anyqueue::MessageId;
use anyqueue::adapter::Token;

use crate::record::{ClaimId, Message, Place};

#[derive(Debug, Default)]
pub(super) struct Claims {
    by_id: BTreeMap<ClaimId, Claim>,
    last_number: u64,
    /// The number of leased messages, over all claims.
    held: usize,
}

#[derive(Debug)]
struct Claim {
    token: Token,
    /// The messages that it began with. Whether one still belongs to it is recorded in the message's place.
    ids: Vec<MessageId>,
    /// How many still belong to it.
    held: usize,
}

impl Claims {
    /// Returns an id for a new claim.
    pub(super) fn next_id(&mut self, until: Instant) -> ClaimId {
        self.last_number += 1;
        ClaimId { until, number: self.last_number }
    }

    /// Begins a claim of messages, which the caller has marked with its id.
    pub(super) fn begin(&mut self, id: ClaimId, token: Token, ids: Vec<MessageId>) {
        let held = ids.len();
        self.held += held;
        self.by_id.insert(id, Claim { token, ids, held });
    }

    /// Whether the token is that of the message's current lease.
    pub(super) fn holds(&self, message: &Message, token: &Token) -> bool {
        match message.place {
            Place::Leased { claim } => self.by_id.get(&claim).is_some_and(|claim| claim.token == *token),
            _ => false,
        }
    }

    /// Ends the lease of one message of a claim.
    pub(super) fn end_one(&mut self, id: ClaimId) {
        let Some(claim) = self.by_id.get_mut(&id) else { return };
        self.held -= 1;
        claim.held -= 1;
        if claim.held == 0 {
            self.by_id.remove(&id);
        }
    }

    /// Removes a claim that has expired. Returns the messages that it began with.
    pub(super) fn pop_lapsed(&mut self, now: Instant) -> Option<(ClaimId, Vec<MessageId>)> {
        let first = self.by_id.first_entry().filter(|first| first.key().until <= now)?;
        let (id, claim) = first.remove_entry();
        self.held -= claim.held;
        Some((id, claim.ids))
    }

    /// When the next lease ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.by_id.first_key_value().map(|(id, _)| id.until)
    }

    pub(super) fn len(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::MessageData;

    use super::*;

    #[test]
    fn a_claim_is_forgotten_with_its_last_message_and_rings_no_alarm_after() {
        let now = Instant::now();
        let mut claims = Claims::default();
        let id = claims.next_id(now + Duration::from_secs(1));
        let ids: Vec<_> = (0..2).map(|_| MessageData::new("x").id()).collect();
        claims.begin(id, Token::random(), ids);
        claims.end_one(id);
        assert_eq!((claims.len(), claims.next_end()), (1, Some(id.until)));
        claims.end_one(id);
        assert_eq!((claims.len(), claims.next_end()), (0, None));
        assert!(claims.by_id.is_empty());
    }
}
