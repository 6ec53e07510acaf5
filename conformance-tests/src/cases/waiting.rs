//! Long polls beside other things: what wakes them, and what they must not hold up.

use anyqueue::Action;
use futures_util::future::{join, join3};

use super::together::{push_one, removes};
use crate::case::{Case, CaseResult, Need};
use crate::context::{Context, settlement};
use crate::faulty::Fault;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "waiting.moved_wakes", [9, 18], moved_wakes_waiter).kills(&[Fault::MoveWakesNobody]),
    case!(Storage, "waiting.batch_wakes_all", [18], batch_wakes_all).kills(&[Fault::BatchWakesOne]),
    case!(Storage, "waiting.pulls_apart", [9, 16], waits_apart).kills(&[Fault::WaitBlocksOtherPull]),
    case!(Storage, "waiting.extends", [26, 40], extends_during_wait)
        .needs(&[Need::TIMED_LEASE])
        .kills(&[Fault::WaitBlocksExtend]),
    case!(Storage, "waiting.exchange", [11], exchange_waits).kills(&[Fault::ExchangeDoesNotWait]),
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
    c.in_order(18, "the moved one, during the wait", &[id], &got)?;
    waiter.remove(&got).await
}

async fn batch_wakes_all(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (one, two) = (c.fresh().await?, c.fresh().await?);
    let (first, second, sent) = join3(
        one.pull_with(&p, one.request(1, c.timing().soon)),
        two.pull_with(&p, two.request(1, c.timing().soon)),
        async {
            tokio::time::sleep(c.timing().delay / 3).await;
            c.client().push(&p, &c.messages(2, |_, message| message)).await
        },
    )
    .await;
    let (first, second) = (first?, second?);
    let got = [first.as_slice(), second.as_slice()].concat();
    c.same(18, "one for each of two waiters", &sent?, &got)?;
    one.remove(&first).await?;
    two.remove(&second).await
}

/// While one pull waits, another of the same client, of another partition, does not.
async fn waits_apart(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let client = c.client();
    let there = push_one(c, &other, c.message()).await?;
    let (waited, sent) = join(client.pull_with(&p, client.request(1, c.timing().soon)), async {
        tokio::time::sleep(c.timing().delay / 3).await;
        removes(c, 9, "what is ready elsewhere", &other, &[there]).await?;
        push_one(c, &p, c.message()).await
    })
    .await;
    let (got, sent) = (waited?, sent?);
    c.in_order(9, "what was pushed after the other pull, and within the wait", &[sent], &got)?;
    client.remove(&got).await
}

/// A client that waits for messages extends what it holds meanwhile.
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
    c.in_order(26, "what was pushed after the extension, and within the wait", &[sent], &got)?;
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
    let (got, sent) = (c.ok(9, "pulling in an exchange", pulled)?, sent?);
    c.in_order(11, "what was pushed during the wait", &[sent], &got)?;
    client.remove(&got).await
}
