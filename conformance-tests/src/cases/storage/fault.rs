//! A server that dies, freezes and is cut off, while its clients stay open.
//!
//! Every case has its own server, heals it before the end, and lets the account find what was lost.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Extension, PullRequest, RawDelivery};
use anyqueue::{MessageData, MessageId, PartitionId, RetryClass, SettleOutcome};
use futures_util::future::join;
use tokio::sync::watch;

use crate::case::Case;
use crate::cases::recovery::{AGAIN, RECOVERY, Recovery};
use crate::clause::Clause;
use crate::context::{Client, Context, ids, settlement};
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "fault.killed_idle", [Stored, Check, Recovery], killed_idle)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::RestartForgets, Fault::HealthIgnoresOutage])
        .deadline(MINUTES),
    case!(Storage, "fault.killed_under_load", [Stored, Recovery], killed_under_load)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::RestartForgets, Fault::RestartForgetsRemovals, Fault::NeverReconnects])
        .deadline(MINUTES),
    case!(Storage, "fault.push_unanswered", [Stored, PushErrors], push_unanswered)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::StoredWithoutAnswer, Fault::NeverReconnects])
        .deadline(MINUTES),
    case!(Storage, "fault.cut_in_pull", [DroppedPull, Recovery], cut_in_pull)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::NeverReconnects])
        .deadline(MINUTES),
    case!(Storage, "fault.settle_unanswered", [SettleOutcomes, SettleTwice], settle_unanswered)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::SettledWithoutAnswer])
        .deadline(MINUTES),
    case!(Storage, "fault.extend_unanswered", [Extend, Recovery], extend_unanswered)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::ExtendedWithoutAnswer])
        .deadline(MINUTES),
];

/// Servers need time to start.
const MINUTES: Duration = Duration::from_mins(3);

impl Context {
    /// Pushes until all messages are stored. If ids are not unique, a message whose push was not answered may
    /// be there twice.
    async fn push_again(&self, client: &Client, p: &PartitionId, messages: &[MessageData]) -> CaseResult {
        self.push_within(Recovery::begins(), client, p, messages).await
    }

    async fn push_within(
        &self,
        recovery: Recovery,
        client: &Client,
        p: &PartitionId,
        messages: &[MessageData],
    ) -> CaseResult {
        let mut left = messages.to_vec();
        loop {
            let answers = client.storage().push(p, &left).await;
            let mut answers = answers.iter();
            left.retain(|_| !answers.next().is_some_and(Result::is_ok));
            if left.is_empty() {
                return Ok(());
            }
            recovery.again(self, "a push").await?;
        }
    }

    /// Pulls and removes until all of these have come.
    async fn remove_all(&self, client: &Client, p: &PartitionId, left: Vec<MessageId>) -> CaseResult {
        self.remove_all_since(client, p, left, &watch::Sender::new(Instant::now())).await
    }

    /// Does the same within the time that a server takes to recover, counted from the given moment, which may
    /// still change.
    async fn remove_all_since(
        &self,
        client: &Client,
        p: &PartitionId,
        mut left: Vec<MessageId>,
        since: &watch::Sender<Instant>,
    ) -> CaseResult {
        let soon = self.timing().act_lease + self.timing().soon;
        while !left.is_empty() {
            let request = PullRequest::new(20, self.timing().slack, self.timing().act_lease);
            let pulled = client.storage().pull(p, request).await;
            if pulled.is_err() {
                tokio::time::sleep(AGAIN).await; // it may fail at once, and a history has no limit
            }
            let got = pulled.unwrap_or_default();
            self.removed(client, &got).await?;
            left.retain(|id| !ids(&got).contains(id));
            if Instant::now() > *since.borrow() + RECOVERY + soon * 3 {
                return Err(self.failed(
                    Clause::Stored,
                    &left,
                    "every stored message to be delivered",
                    "these were not",
                ));
            }
        }
        Ok(())
    }

    /// Removes until the server has answered. `Lost` is an answer too: an earlier attempt may have been
    /// carried out without an answer, and if it was not, the account finds the message.
    async fn removed(&self, client: &Client, got: &[RawDelivery]) -> CaseResult {
        let settlements: Vec<_> = got.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
        let recovery = Recovery::begins();
        while client.storage().settle(&settlements).await.iter().any(Result::is_err) {
            recovery.again(self, "a settlement").await?;
        }
        Ok(())
    }
}

/// The server is killed and started again while nobody works: stored messages are there, and the same clients
/// go on.
async fn killed_idle(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (client, other) = (c.client(), c.fresh().await?);
    let sent = client.push(&p, &c.messages(10, |_, message| message)).await?;
    c.ok(Clause::Check, "a check", client.storage().check().await)?;
    c.disrupt(Disruption::Kill).await?;
    let down = client.storage().check().await;
    c.check(
        Clause::Check,
        &[],
        down.is_err(),
        "a check to fail while the server is down",
        format!("{down:?}"),
    )?;
    c.disrupt(Disruption::Start).await?;
    let recovery = Recovery::begins();
    while client.storage().check().await.is_err() || other.storage().check().await.is_err() {
        recovery.again(c, "a good check").await?;
    }
    c.remove_all(&other, &p, sent).await
}

/// The server is killed twice while one client pushes and another pulls.
async fn killed_under_load(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (client, other) = (c.client(), c.fresh().await?);
    let messages = c.messages(c.size(300, 3000), |_, message| message);
    let sent: Vec<_> = messages.iter().map(MessageData::id).collect();
    // A start takes as long as the server takes; the consumer's time starts again with it.
    let since = watch::Sender::new(Instant::now());
    let push = async {
        for (number, batch) in messages.chunks(10).enumerate() {
            if number == 5 || number == 20 {
                let restart = async {
                    since.send_replace(Instant::now() + MINUTES);
                    c.disrupt(Disruption::Kill).await?;
                    let started = c.disrupt(Disruption::Start).await;
                    since.send_replace(Instant::now());
                    started
                };
                let pushed = c.push_within(Recovery::since(&since), client, &p, batch);
                let (stored, restarted) = join(pushed, restart).await;
                restarted.and(stored)?;
            } else {
                c.push_again(client, &p, batch).await?;
            }
        }
        CaseResult::Ok(())
    };
    let (all_stored, all_removed) = join(push, c.remove_all_since(&other, &p, sent, &since)).await;
    all_stored.and(all_removed)
}

/// The request arrives, the answer does not: the push is not a success, and the error says what repeating
/// would do.
async fn push_unanswered(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.client();
    client.push(&p, &c.messages(1, |_, message| message)).await?;
    c.disrupt(Disruption::DropReplies).await?;
    let message = c.message();
    let answer = unanswered(c, client.storage().push(&p, std::slice::from_ref(&message))).await?;
    let expected = if c.capabilities().unique_ids { RetryClass::Safe } else { RetryClass::MayDuplicate };
    let right = |answer: &anyqueue::Result<_>| answer.as_ref().is_err_and(|error| error.retry() == expected);
    let told = format!("one error whose class is {expected:?}");
    c.check(
        Clause::PushErrors,
        &[message.id()],
        answer.len() == 1 && answer.iter().all(right),
        told,
        format!("{answer:?}"),
    )?;
    c.push_again(client, &p, &[message]).await
}

/// Lets a call wait for an answer that never comes, then breaks its connection, and heals the network.
async fn unanswered<T>(c: &Context, call: impl Future<Output = T>) -> CaseResult<T> {
    let (answer, disrupted) = join(call, async {
        // Long enough for the request to arrive; whether it did makes no difference to what is correct.
        tokio::time::sleep(Duration::from_millis(200)).await;
        // In this order: a request that the network holds back must not arrive after all.
        c.disrupt(Disruption::Cut).await?;
        c.disrupt(Disruption::Heal).await
    })
    .await;
    disrupted.map(|()| answer)
}

/// A pull whose connection breaks while it waits loses no message.
async fn cut_in_pull(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (client, other) = (c.client(), c.fresh().await?);
    for _ in 0..c.size(3, 20) {
        let request = PullRequest::new(1, c.timing().soon, c.timing().act_lease);
        let message = c.message();
        let cut = async {
            c.disrupt(Disruption::Cut).await?;
            c.push_again(&other, &p, std::slice::from_ref(&message)).await
        };
        let (pulled, pushed) = join(client.storage().pull(&p, request), cut).await;
        pushed?;
        let got = pulled.unwrap_or_default();
        c.removed(client, &got).await?;
        let left = if ids(&got).contains(&message.id()) { Vec::new() } else { vec![message.id()] };
        c.remove_all(client, &p, left).await?;
    }
    Ok(())
}

/// A settlement without an answer is not `Settled`; settled again it is, and the message is gone.
async fn settle_unanswered(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.client();
    client.push(&p, &c.messages(1, |_, message| message)).await?;
    let [held] = client.take_exact(&p).await?;
    // The connection is stalled, not just muted: the request itself is lost, so that a false `Settled` would
    // be noticed.
    c.disrupt(Disruption::Stall).await?;
    let settlements = [settlement(&held, Action::Remove)];
    let answer = unanswered(c, client.storage().settle(&settlements)).await?;
    let about = [held.lease.id];
    let right = answer.len() == 1 && answer.iter().all(Result::is_err);
    let right = right || c.capabilities().settle_confirm == anyqueue::adapter::SettleConfirm::Sent;
    c.check(
        Clause::SettleOutcomes,
        &about,
        right,
        "an error: the server confirmed nothing",
        format!("{answer:?}"),
    )?;
    let recovery = Recovery::begins();
    let again = loop {
        match client.storage().settle(&settlements).await.pop() {
            Some(Ok(outcome)) => break outcome,
            _ => recovery.again(c, "a settlement").await?,
        }
    };
    let owned = again == SettleOutcome::Settled
        || c.capabilities().lease.kind == anyqueue::adapter::LeaseKind::Connection;
    c.check(Clause::SettleTwice, &about, owned, "Settled under a lease that holds", format!("{again:?}"))
}

/// An extension without an answer is not an extension.
async fn extend_unanswered(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.client();
    client.push(&p, &c.messages(1, |_, message| message)).await?;
    let [held] = client.take_exact(&p).await?;
    c.disrupt(Disruption::Stall).await?;
    let extension = Extension { lease: held.lease.clone(), duration: c.timing().long_lease };
    let answer = unanswered(c, client.storage().extend(std::slice::from_ref(&extension))).await?;
    let about = [held.lease.id];
    // If the lease is the connection, no server is asked.
    let right = c.capabilities().lease.kind == anyqueue::adapter::LeaseKind::Connection
        || (answer.len() == 1 && answer.iter().all(Result::is_err));
    c.check(Clause::Extend, &about, right, "an error: the server confirmed nothing", format!("{answer:?}"))?;
    let recovery = Recovery::begins();
    while !matches!(client.storage().extend(std::slice::from_ref(&extension)).await.as_slice(), [Ok(_)]) {
        recovery.again(c, "an extension").await?;
    }
    c.removed(client, &[held]).await
}
