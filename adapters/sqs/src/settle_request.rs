//! The requests that each action needs.

use std::time::Duration;

use anyqueue::adapter::{Action, Envelope};
use anyqueue::{Error, Headers, Result};

use crate::delays::delays;
use crate::entries::Outgoing;
use crate::error::ERRORS;
use crate::fifo::{FifoIds, is_alone};
use crate::in_flight::{Claim, whole_secs};
use crate::limits::MAX_LEASE;
use crate::names::LevelQueue;
use crate::record;
use crate::shared::Inner;

/// The requests that are left to be made.
pub(crate) enum SettleRequest {
    /// Store this copy in this queue, then delete the original.
    SendCopy(LevelQueue, Outgoing),
    /// Delete.
    Delete,
    /// Change the visibility timeout to this many seconds.
    ChangeVisibility(u64),
}

/// Whether a visibility timeout can postpone a message for this long, which is at most twelve hours from its
/// receive. Without a delay, a postponement to the end needs a copy: a message that only becomes visible
/// again may come before all others, forever.
fn fits_visibility_timeout(claim: &Claim, delay: Duration) -> bool {
    !delay.is_zero() && claim.received_at.elapsed() + delay + Duration::from_mins(1) < MAX_LEASE
}

impl Inner {
    /// Returns the requests for an action on a message of this handle.
    pub(crate) fn settle_request(&self, claim: &Claim, action: &Action) -> Result<SettleRequest> {
        let level_queue = &claim.level_queue;
        Ok(match action {
            _ if claim.is_copied => SettleRequest::Delete,
            Action::Remove => SettleRequest::Delete,
            Action::Release | Action::Retry => SettleRequest::ChangeVisibility(0),
            Action::Postpone { delay, headers: None }
                if fits_visibility_timeout(claim, *delay)
                    && (self.config.fifo || self.postponed.add(level_queue, *delay)) =>
            {
                SettleRequest::ChangeVisibility(whole_secs(*delay))
            }
            Action::Postpone { delay, headers } if !self.config.fifo => {
                let copy =
                    Copy { headers: headers.as_ref(), delay: *delay, prior_deliveries: claim.deliveries };
                self.copy_to(level_queue.clone(), claim, &copy)?
            }
            Action::Postpone { delay, headers } => self.postpone_in_place(claim, *delay, headers.as_ref())?,
            Action::Move { to, headers } => {
                let copy = Copy { headers: headers.as_ref(), delay: Duration::ZERO, prior_deliveries: 0 };
                self.copy_to(LevelQueue::new(to, level_queue.level), claim, &copy)?
            }
        })
    }

    /// Postpones a message on a FIFO queue. It holds up its group, so it must stay where it is. Only a
    /// message without a group can go to the end.
    fn postpone_in_place(
        &self,
        claim: &Claim,
        delay: Duration,
        headers: Option<&Headers>,
    ) -> Result<SettleRequest> {
        if headers.is_some() {
            return Err(Error::unsupported("a message on a FIFO queue cannot be changed"));
        }
        if !delay.is_zero() {
            return Err(ERRORS.invalid(
                "the service can postpone a message only up to twelve hours after its receive, and it was held for too long already",
            ));
        }
        let alone = claim.group.as_ref().is_some_and(|group| is_alone(&claim.message, group));
        if !alone {
            return Ok(SettleRequest::ChangeVisibility(0));
        }
        self.copy_to(
            claim.level_queue.clone(),
            claim,
            &Copy { headers: None, delay, prior_deliveries: claim.deliveries },
        )
    }

    fn copy_to(&self, to: LevelQueue, claim: &Claim, copy: &Copy<'_>) -> Result<SettleRequest> {
        let mut outgoing = copy.of(claim)?;
        outgoing.fifo_ids = self
            .config
            .fifo
            .then(|| FifoIds::of_copy(&claim.message, &claim.message_id, to.partition.is_dead_letters()));
        Ok(SettleRequest::SendCopy(to, outgoing))
    }
}

/// How a copy differs from the original message.
struct Copy<'c> {
    headers: Option<&'c Headers>,
    delay: Duration,
    prior_deliveries: u32,
}

impl Copy<'_> {
    fn of(&self, claim: &Claim) -> Result<Outgoing> {
        let message = match self.headers {
            Some(headers) => claim.message.clone().with_headers(headers.clone()),
            None => claim.message.clone(),
        };
        let mut envelope = Envelope::new(message, claim.pushed_at);
        envelope.prior_deliveries = self.prior_deliveries;
        let (delay_secs, due_after_secs) = delays(self.delay);
        let body = match &claim.stored {
            Some(text) => record::encode_unreadable(text, envelope, due_after_secs),
            None => record::encode(&envelope, due_after_secs),
        }?;
        Ok(Outgoing { body, delay_secs, fifo_ids: None })
    }
}

/// Returns the requests for an action on a message of another handle, whose content is not known here.
pub(crate) fn settle_request_of_other_handle(action: &Action) -> Result<SettleRequest> {
    match action {
        Action::Remove => Ok(SettleRequest::Delete),
        Action::Release | Action::Retry => Ok(SettleRequest::ChangeVisibility(0)),
        Action::Postpone { delay, headers: None } => {
            Ok(SettleRequest::ChangeVisibility(whole_secs(*delay).min(MAX_LEASE.as_secs())))
        }
        Action::Postpone { .. } | Action::Move { .. } => {
            Err(ERRORS.invalid("only the handle that pulled a message can move it or change its headers"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use anyqueue::{MessageData, PartitionId};

    use super::*;
    use crate::SqsQueue;
    use crate::postponed::MAX_POSTPONED;

    #[tokio::test]
    async fn a_postponed_message_is_sent_again_where_many_are_hidden_and_a_fifo_queue_hides_all() {
        let (delay, level_queue) =
            (Duration::from_hours(2), LevelQueue::new(&PartitionId::new("p").unwrap(), 0));
        let now = Instant::now();
        let claim =
            Claim::new(level_queue.clone(), "receipt".into(), MessageData::new("x"), now, now + delay);
        let action = Action::Postpone { delay, headers: None };
        for (url, hides) in [("sqs://k:s@r/p", false), ("sqs://k:s@r/p?fifo=true", true)] {
            let queue = SqsQueue::open(url).await.unwrap();
            assert!(matches!(
                queue.inner.settle_request(&claim, &action),
                Ok(SettleRequest::ChangeVisibility(7200))
            ));
            while queue.inner.postponed.add(&level_queue, delay) {}
            let request = queue.inner.settle_request(&claim, &action).unwrap();
            assert_eq!(matches!(request, SettleRequest::ChangeVisibility(7200)), hides);
            if let SettleRequest::SendCopy(_, copy) = request {
                assert_eq!(copy.delay_secs, 900, "the rest is said in the body, after {MAX_POSTPONED}");
            }
        }
    }
}
