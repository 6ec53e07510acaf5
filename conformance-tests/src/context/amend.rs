//! Amendments, as cases use them.

use std::time::{Duration, Instant};

use anyqueue::adapter::RawDelivery;
use anyqueue::{Amend, AmendOutcome, MessageId, PartitionId, Result};
use futures_util::future::join;

use super::{Client, Context, ids};
use crate::clause::Clause;
use crate::verdict::CaseResult;

impl Context {
    /// Amends, and returns what the backend answers: one outcome for each id.
    ///
    /// # Errors
    /// Fails the case if amendment is declared but not implemented, or if there is not one answer for each
    /// id.
    pub(crate) async fn amend(
        &self,
        client: &Client,
        p: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> CaseResult<Vec<Result<AmendOutcome>>> {
        let missing =
            || self.failed(Clause::Amendments, &[], "amendment, as declared", "`amend()` returns None");
        let amend = client.storage().amend().ok_or_else(missing)?;
        let answers = amend.amend(p, ids, change).await;
        self.equal(Clause::Amendments, &[], "the number of outcomes", &ids.len(), &answers.len())?;
        Ok(answers)
    }

    /// Amends through the first client, and checks the outcomes.
    ///
    /// # Errors
    /// Fails the case on any other outcome.
    pub(crate) async fn amends(
        &self,
        p: &PartitionId,
        change: Amend,
        expected: &[(MessageId, AmendOutcome)],
    ) -> CaseResult {
        let ids: Vec<_> = expected.iter().map(|(id, _)| *id).collect();
        let answers = self.amend(self.client(), p, &ids, &change).await?;
        for ((id, expected), answer) in expected.iter().zip(answers) {
            let right = answer.as_ref().is_ok_and(|answer| answer == expected);
            self.check(
                Clause::Amendments,
                &[*id],
                right,
                format!("{expected:?} for {}", self.label(*id)),
                format!("{answer:?}"),
            )?;
        }
        Ok(())
    }

    /// Amends waiting messages through the first client: each must be amended.
    ///
    /// # Errors
    /// Fails the case on any other outcome.
    pub(crate) async fn amended(&self, p: &PartitionId, ids: &[MessageId], change: Amend) -> CaseResult {
        let expected: Vec<_> = ids.iter().map(|id| (*id, AmendOutcome::Amended)).collect();
        self.amends(p, change, &expected).await
    }

    /// Returns what a pull gets that waited before `act` began. It must come soon after `act`, not at the end
    /// of the wait.
    ///
    /// # Errors
    /// Fails the case if it comes late, or if `act` fails.
    pub(crate) async fn wakes(
        &self,
        p: &PartitionId,
        act: impl Future<Output = CaseResult>,
    ) -> CaseResult<Vec<RawDelivery>> {
        let (waiter, t) = (self.fresh().await?, self.timing());
        let waiting = async {
            let got = waiter.pull_with(p, waiter.request(1, t.soon * 3)).await;
            got.map(|got| (got, Instant::now()))
        };
        let acting = async {
            self.pull_begins(&waiter).await?;
            tokio::time::sleep(t.delay / 3).await; // so that it waits, and does not look for the first time
            let since = Instant::now();
            act.await.map(|()| since)
        };
        let (came, acted) = join(waiting, acting).await;
        let (since, (got, at)) = (acted?, came?);
        let bounds = (Duration::ZERO, t.soon);
        let took = at.saturating_duration_since(since);
        self.took(Clause::AllWaitersWake, &ids(&got), "an answer to who waited", took, bounds)?;
        Ok(got)
    }
}
