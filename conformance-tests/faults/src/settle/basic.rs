//! Faults of settling and extending.

use std::time::Duration;

use anyqueue::adapter::{Action, Extension, Lease, Settlement};
use anyqueue::{
    DeleteOutcome, Error, ErrorKind, ExtendOutcome, Page, PartitionId, Result, SettleOutcome, TaskOptions,
};
use anyqueue_conformance::Fault;

use crate::basic::Basic;

impl Basic {
    pub(crate) async fn faulty_settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let done = if self.is(Fault::OnlyFirstSettled) { 1 } else { settlements.len() };
        let mut outcomes = Vec::new();
        for (position, settlement) in settlements.iter().enumerate() {
            if position >= done {
                outcomes.push(Ok(SettleOutcome::Settled));
                continue;
            }
            let lease = self.place_lease(&settlement.lease);
            outcomes.push(self.settle_one(lease, settlement).await);
        }
        outcomes
    }

    async fn settle_one(&self, lease: Lease, asked: &Settlement) -> Result<SettleOutcome> {
        let action = &asked.action;
        if self.is(Fault::AutoAck) || self.shared.lock().phantom_leases.remove(&lease) {
            return Ok(SettleOutcome::Settled);
        }
        let lease = self.accepted(lease);
        let Some(changed) = self.changed_action(&lease, action) else { return Ok(SettleOutcome::Settled) };
        let outcome = self.do_settle(&lease, &changed, asked).await?;
        self.aftermath(&lease, action, outcome).await
    }

    fn accepted(&self, lease: Lease) -> Lease {
        let owner = || self.shared.lock().owners.get(&lease.id).cloned();
        if self.is(Fault::TokenIgnored) { owner().unwrap_or(lease) } else { lease }
    }

    async fn do_settle(&self, lease: &Lease, action: &Action, asked: &Settlement) -> Result<SettleOutcome> {
        if self.is(Fault::HeldLocally) {
            return self.settle_what_it_let_go(lease, action).await;
        }
        if self.is(Fault::RequeueLosesPriority) && matches!(action, Action::Release | Action::Retry) {
            return self.requeue_at_lowest(lease).await;
        }
        if self.is(Fault::PostponeToFront)
            && let Action::Postpone { delay, headers: None } = action
            && !delay.is_zero()
        {
            return self.let_lapse(lease, *delay).await;
        }
        if self.is(Fault::LargeCannotDie)
            && matches!(action, Action::Move { headers: Some(_), .. })
            && self.shared.lock().sizes.get(&lease.id).is_some_and(|size| *size > 1 << 20)
        {
            return Err(Error::new(ErrorKind::TooLarge, "too large with these headers"));
        }
        let action = match action {
            Action::Move { to, headers } => Action::Move { to: self.place(to), headers: headers.clone() },
            other => other.clone(),
        };
        let mut then = asked.then.clone();
        for successor in &mut then {
            successor.partition = self.place(&successor.partition);
        }
        let settlement = Settlement::new(lease.clone(), action).with_then(then).with_end(asked.end.clone());
        let mut outcomes = self.inner.settle(&[settlement]).await;
        outcomes.pop().unwrap_or(Ok(SettleOutcome::Lost))
    }

    /// Returns the action that the fault performs instead; `None` if it does nothing.
    fn changed_action(&self, lease: &Lease, action: &Action) -> Option<Action> {
        let Some(fault) = self.fault else { return Some(action.clone()) };
        let to_dead = |to: &PartitionId| to.is_dead_letters();
        Some(match (fault, action) {
            (Fault::RemoveDoesNothing, Action::Remove) | (Fault::ReleaseWaitsForLease, Action::Release) => {
                return None;
            }
            (Fault::RemoveLostOneIn30, Action::Remove) => {
                let mut memory = self.shared.lock();
                memory.removals += 1;
                if memory.removals.is_multiple_of(30) {
                    return None;
                }
                Action::Remove
            }
            (Fault::RetryDrops, Action::Retry)
            | (Fault::PostponeDrops, Action::Postpone { delay: Duration::ZERO, .. }) => Action::Remove,
            (Fault::ThirdRetryDrops, Action::Retry) => {
                let mut memory = self.shared.lock();
                let retries = memory.retries.entry(lease.id).or_default();
                *retries += 1;
                if *retries == 3 { Action::Remove } else { Action::Retry }
            }
            (Fault::RetryToBack, Action::Retry) => Action::Postpone { delay: Duration::ZERO, headers: None },
            (Fault::PostponeAtOnce, Action::Postpone { headers, .. }) => {
                Action::Postpone { delay: Duration::ZERO, headers: headers.clone() }
            }
            (Fault::EarlyDelay | Fault::DelayWholeSeconds, Action::Postpone { delay, headers }) => {
                Action::Postpone { delay: self.changed_delay(*delay), headers: headers.clone() }
            }
            (Fault::PostponeToFront, Action::Postpone { delay: Duration::ZERO, headers: None }) => {
                Action::Release
            }
            (Fault::PostponeKeepsHeaders, Action::Postpone { delay, .. }) => {
                Action::Postpone { delay: *delay, headers: None }
            }
            (Fault::MoveKeepsHeaders, Action::Move { to, .. }) => {
                Action::Move { to: to.clone(), headers: None }
            }
            (Fault::DeadVanish, Action::Move { to, .. }) if to_dead(to) => Action::Remove,
            _ => action.clone(),
        })
    }

    async fn aftermath(
        &self,
        lease: &Lease,
        action: &Action,
        outcome: SettleOutcome,
    ) -> Result<SettleOutcome> {
        let settled = outcome == SettleOutcome::Settled;
        match (self.fault, action) {
            (Some(Fault::SecondSettled), _) => {
                let again = !self.shared.lock().settled.insert(lease.clone());
                return Ok(if again { SettleOutcome::Settled } else { outcome });
            }
            (Some(Fault::LateSettled), _) => return Ok(SettleOutcome::Settled),
            (Some(Fault::StaleRemoves), Action::Remove) if !settled => {
                let owner = self.shared.lock().owners.get(&lease.id).cloned();
                if let Some(owner) = owner {
                    self.inner.settle(&[Settlement::new(owner, Action::Remove)]).await;
                }
            }
            (Some(Fault::EndedStillGood), Action::Remove) if !settled && self.owns(lease) => {
                return self.delete_unleased(lease).await;
            }
            (Some(Fault::StaleRetryCopies), Action::Retry) if !settled => {
                self.copy(lease, &lease.partition).await;
            }
            (Some(Fault::MoveCopies), Action::Move { to, .. }) if settled => {
                self.copy(lease, to).await;
            }
            (Some(Fault::MoveKeepsCount), Action::Move { .. }) if settled => {
                let mut memory = self.shared.lock();
                let count = memory.counts.get(&lease.id).copied().unwrap_or_default();
                memory.added.insert(lease.id, count);
            }
            (Some(Fault::LeasePerBatch), Action::Release | Action::Retry) if settled => {
                let batch = self.shared.lock().batches.get(lease).cloned().unwrap_or_default();
                for other in batch {
                    self.inner.settle(&[Settlement::new(other, Action::Release)]).await;
                }
            }
            (Some(Fault::CountsLocal), Action::Remove) if settled => {
                let mut local = self.local();
                let count = local.pushed.entry(lease.partition.clone()).or_default();
                *count = count.saturating_sub(1);
            }
            _ => {}
        }
        if settled && matches!(action, Action::Remove | Action::Move { .. }) {
            self.free_key(lease.id);
        }
        Ok(outcome)
    }

    /// Returns whether nobody has taken the message since.
    fn owns(&self, lease: &Lease) -> bool {
        self.shared.lock().owners.get(&lease.id) == Some(lease)
    }

    async fn delete_unleased(&self, lease: &Lease) -> Result<SettleOutcome> {
        let Some(inspect) = self.inner.inspect() else { return Ok(SettleOutcome::Lost) };
        let outcomes = inspect.delete(&lease.partition, &[lease.id]).await;
        let deleted = matches!(outcomes.as_slice(), [Ok(DeleteOutcome::Deleted)]);
        Ok(if deleted { SettleOutcome::Settled } else { SettleOutcome::Lost })
    }

    /// Makes the message that is stored in `stored_in` deliverable once more where it was pulled from.
    async fn copy(&self, lease: &Lease, stored_in: &PartitionId) {
        let Some(inspect) = self.inner.inspect() else { return };
        let page = inspect.browse(stored_in, Page::of(anyqueue::MAX_PAGE)).await.unwrap_or_default();
        for browsed in page.into_iter().filter(|browsed| browsed.message.id() == lease.id) {
            self.shared.lock().phantoms.push((lease.partition.clone(), browsed.message));
        }
    }

    async fn requeue_at_lowest(&self, lease: &Lease) -> Result<SettleOutcome> {
        let Some(inspect) = self.inner.inspect() else { return Ok(SettleOutcome::Lost) };
        let page = inspect.browse(&lease.partition, Page::of(anyqueue::MAX_PAGE)).await?;
        let message =
            page.into_iter().map(|browsed| browsed.message).find(|message| message.id() == lease.id);
        let remove = Settlement::new(lease.clone(), Action::Remove);
        let outcome = self.inner.settle(&[remove]).await.pop().unwrap_or(Ok(SettleOutcome::Lost))?;
        if let (SettleOutcome::Settled, Some(message)) = (outcome, message) {
            let original =
                self.shared.lock().originals.entry(message.id()).or_insert_with(|| message.clone()).clone();
            let mut lowest: TaskOptions = original.options().clone();
            lowest.priority = 0;
            self.inner.push(&lease.partition, &[message.with_options(lowest)]).await;
        }
        Ok(outcome)
    }

    /// Leaves the message to its lease, which ends after `delay`; the message then comes back ahead of
    /// others.
    async fn let_lapse(&self, lease: &Lease, delay: Duration) -> Result<SettleOutcome> {
        let extension = Extension { lease: lease.clone(), duration: delay };
        let outcome = self.inner.extend(&[extension]).await.pop().unwrap_or(Ok(ExtendOutcome::Lost))?;
        Ok(if outcome == ExtendOutcome::Lost { SettleOutcome::Lost } else { SettleOutcome::Settled })
    }

    pub(crate) async fn faulty_extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if self.is(Fault::ExtendDoesNothing) || self.is(Fault::AutoAck) {
            return extensions.iter().map(|_| Ok(ExtendOutcome::Extended)).collect();
        }
        if self.is(Fault::LeaseEndedByItsHolder) {
            return self.extend_its_watch(extensions).await;
        }
        let placed: Vec<_> = extensions
            .iter()
            .map(|extension| Extension {
                lease: self.place_lease(&extension.lease),
                duration: extension.duration,
            })
            .collect();
        let mut outcomes = self.inner.extend(&placed).await;
        for outcome in outcomes.iter_mut().flatten() {
            let hidden = match self.fault {
                Some(Fault::ExtendNeverLost | Fault::EndedStillGood) => ExtendOutcome::Lost,
                Some(Fault::CancelNotTold) => ExtendOutcome::CancelRequested,
                _ => continue,
            };
            if *outcome == hidden {
                *outcome = ExtendOutcome::Extended;
            }
        }
        outcomes
    }
}
