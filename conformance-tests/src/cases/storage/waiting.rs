//! Long polls beside other work: what wakes them, and what they must not hold up.

use std::time::{Duration, Instant};

use anyqueue::PartitionId;
use anyqueue::adapter::{Action, RawDelivery};
use futures_util::future::{join, join_all};

use super::helpers::{push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "waiting.moved_wakes", [ReadyAtOnce, AllWaitersWake], moved_wakes_waiter)
        .kills(&[Fault::MoveWakesNobody]),
    case!(Storage, "waiting.batch_wakes_all", [AllWaitersWake], batch_wakes_all)
        .kills(&[Fault::BatchWakesOne, Fault::RestOfBatchAtDeadline]),
    case!(Storage, "waiting.returned_wakes", [ReadyAtOnce, AllWaitersWake, SettleActions], returned_wakes)
        .kills(&[Fault::ReleaseWakesNobody, Fault::ReturnedAtDeadline]),
    case!(Storage, "waiting.pulls_apart", [ReadyAtOnce, PartitionsApart], waits_apart)
        .kills(&[Fault::WaitBlocksOtherPull]),
    case!(Storage, "waiting.extends", [Extend, Recovery], extends_during_wait)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::WaitBlocksExtend]),
    case!(Storage, "waiting.exchange", [PushWakes], exchange_waits).kills(&[Fault::ExchangeDoesNotWait]),
];

async fn moved_wakes_waiter(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let id = push_one(c, &p, c.message()).await?;
    let held = c.client().take(&p, 1).await?;
    let waiter = c.fresh().await?;
    let wait = waiter.pull_with(&other, waiter.request(1, c.timing().soon));
    let (got, moved) = join(wait, async {
        tokio::time::sleep(c.timing().delay / 3).await;
        c.client().settle_all(&held, &Action::Move { to: other.clone(), headers: None }).await
    })
    .await;
    moved?;
    let got = got?;
    c.in_order(Clause::AllWaitersWake, "the moved one, during the wait", &[id], &got)?;
    waiter.remove(&got).await
}

/// Makes a pull that waits longer than a wake-up takes: a message must wake it, not the end of its wait.
async fn woken(
    c: &Context,
    clause: Clause,
    waiter: &Client,
    p: &PartitionId,
) -> CaseResult<(Vec<RawDelivery>, Instant)> {
    let got = waiter.pull_with(p, waiter.request(1, c.timing().soon * 3)).await?;
    c.equal(clause, &ids(&got), "deliveries to who waited", &1, &got.len())?;
    Ok((got, Instant::now()))
}

/// Judges that a waiter's answer came soon after what it waited for.
fn woken_in_time(
    c: &Context,
    clause: Clause,
    about: &[RawDelivery],
    since: Instant,
    at: Instant,
) -> CaseResult {
    let bounds = (Duration::ZERO, c.timing().soon);
    c.took(clause, &ids(about), "an answer to who waited", at.saturating_duration_since(since), bounds)
}

/// A batch of three wakes three waiters, each when it is pushed.
async fn batch_wakes_all(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let waiters = [c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let (woken, pushed) =
        join(join_all(waiters.iter().map(|waiter| woken(c, Clause::AllWaitersWake, waiter, &p))), async {
            for waiter in &waiters {
                c.pull_begins(waiter).await?;
            }
            tokio::time::sleep(c.timing().delay / 3).await;
            let since = Instant::now();
            let sent = c.client().push(&p, &c.messages(waiters.len(), |_, message| message)).await?;
            CaseResult::Ok((sent, since))
        })
        .await;
    let ((sent, since), mut all) = (pushed?, Vec::new());
    for (waiter, woken) in waiters.iter().zip(woken) {
        let (got, at) = woken?;
        woken_in_time(c, Clause::AllWaitersWake, &got, since, at)?;
        waiter.remove(&got).await?;
        all.extend(got);
    }
    c.same(Clause::AllWaitersWake, "one for each of the waiters", &sent, &all)
}

/// A released message wakes waiters, whichever settlement makes it ready at once.
async fn returned_wakes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (other, dead) = (c.fresh().await?, p.dead_letters());
    let (mut holder, mut waiter) = (c.client(), &other);
    let postpone = Action::Postpone { delay: Duration::ZERO, headers: None };
    let bury = Action::Move { to: dead.clone(), headers: None };
    push_one(c, &p, c.message()).await?;
    let mut held = holder.take(&p, 1).await?;
    for (action, place) in [(Action::Release, &p), (Action::Retry, &p), (postpone, &p), (bury, &dead)] {
        let (woken, settled) = join(woken(c, Clause::AllWaitersWake, waiter, place), async {
            c.pull_begins(waiter).await?;
            tokio::time::sleep(c.timing().delay / 3).await;
            let since = Instant::now();
            holder.settle_all(&held, &action).await.map(|()| since)
        })
        .await;
        let ((got, at), since) = (woken?, settled?);
        woken_in_time(c, Clause::AllWaitersWake, &got, since, at)?;
        held = got;
        // A lease can be its connection: only its holder can settle it.
        (holder, waiter) = (waiter, holder);
    }
    holder.remove(&held).await
}

/// While one pull waits, another pull of the same client, for another partition, does not.
async fn waits_apart(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let client = c.client();
    let there = push_one(c, &other, c.message()).await?;
    let (waited, sent) = join(client.pull_with(&p, client.request(1, c.timing().soon)), async {
        tokio::time::sleep(c.timing().delay / 3).await;
        removes(c, Clause::ReadyAtOnce, "what is ready elsewhere", &other, &[there]).await?;
        push_one(c, &p, c.message()).await
    })
    .await;
    let (got, sent) = (waited?, sent?);
    c.in_order(
        Clause::ReadyAtOnce,
        "what was pushed after the other pull, and within the wait",
        &[sent],
        &got,
    )?;
    client.remove(&got).await
}

/// A client that waits for messages can extend what it holds meanwhile.
async fn extends_during_wait(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let client = c.client();
    push_one(c, &other, c.message()).await?;
    let [held] = client.take_exact(&other).await?;
    let (waited, sent) = join(client.pull_with(&p, client.request(1, c.timing().soon)), async {
        tokio::time::sleep(c.timing().delay / 3).await;
        client.extend(&held, c.timing().long_lease).await?;
        push_one(c, &p, c.message()).await
    })
    .await;
    let (got, sent) = (waited?, sent?);
    c.in_order(Clause::Extend, "what was pushed after the extension, and within the wait", &[sent], &got)?;
    client.remove(&got).await?;
    client.remove(&[held]).await
}

async fn exchange_waits(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let (client, batch) = (c.fresh().await?, [settlement(&held, Action::Remove)]);
    let exchange = client.storage().exchange(&batch, &p, client.request(1, c.timing().soon));
    let ((_, pulled), sent) = join(exchange, async {
        tokio::time::sleep(c.timing().delay / 3).await;
        push_one(c, &p, c.message()).await
    })
    .await;
    let (got, sent) = (c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?, sent?);
    c.in_order(Clause::PushWakes, "what was pushed during the wait", &[sent], &got)?;
    client.remove(&got).await
}
