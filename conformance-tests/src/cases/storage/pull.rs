//! Pulls: how many, how soon, and who wakes up.

use std::time::{Duration, Instant};

use anyqueue::PartitionId;
use anyqueue::adapter::{PullRequest, RawDelivery};
use futures_util::future::join_all;

use super::helpers::{postpone, push_one};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "pull.max_bounds", [PullBounds], max_bounds).kills(&[Fault::OneTooMany, Fault::OneByOne]),
    case!(Storage, "pull.large_max", [PullBounds], large_max).kills(&[Fault::LargeMaxEmpty]),
    case!(Storage, "pull.ready_at_once", [ReadyAtOnce], ready_at_once)
        .kills(&[Fault::FillsUp, Fault::OneByOne]),
    case!(Storage, "pull.empty_waits", [PullWait], empty_waits)
        .kills(&[Fault::WaitHalved, Fault::WaitMultiplied]),
    case!(Storage, "pull.zero_wait", [PullWait], zero_wait).kills(&[Fault::ZeroWaits]),
    case!(Storage, "pull.push_wakes", [PushWakes], push_wakes).kills(&[Fault::SleepsThroughPush]),
    case!(Storage, "pull.other_client_wakes", [PushWakes], other_client_wakes)
        .kills(&[Fault::SleepsThroughPush, Fault::OthersUnheard]),
    case!(Storage, "pull.unknown_partition", [PullWait, PushWakes], unknown_partition)
        .kills(&[Fault::SleepsThroughPush]),
    case!(Storage, "pull.holds_nothing_back", [NoPrefetch], holds_nothing_back).kills(&[Fault::Prefetches]),
    case!(Storage, "pull.one_push_wakes_one", [AllWaitersWake], one_push_wakes_one)
        .kills(&[Fault::WaitersGiveUp, Fault::WaitersShare]),
    case!(Storage, "pull.pushes_wake_as_many", [AllWaitersWake], pushes_wake_as_many)
        .kills(&[Fault::WaitersGiveUp]),
    case!(Storage, "pull.push_order", [Order], push_order)
        .needs(&[Need::PushOrder])
        .kills(&[Fault::TiesReversed]),
    case!(Storage, "pull.age", [ServerTime], age).kills(&[Fault::AgeZero]),
    case!(Storage, "pull.age_of_a_delayed", [Expiry], age_of_a_delayed)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::AgeFromMaturity]),
    case!(Storage, "pull.age_of_a_postponed", [Expiry], age_of_a_postponed)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::AgeAnewAfterPostpone]),
];

/// A wait that a case lets pass in full.
const WAIT: Duration = Duration::from_millis(400);

/// A waiter is certainly waiting after this long.
const SETTLED_IN: Duration = Duration::from_millis(150);

/// A pull returns never more than `max`, and exactly `max` if more are ready.
async fn max_bounds(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(25, |_, message| message)).await?;
    let mut all = Vec::new();
    for max in [1, 2, 3, 7, 10] {
        let got = c.client().pull(&p, max).await?;
        c.equal(Clause::PullBounds, &[], "a pull's deliveries, of a larger backlog,", &max, &got.len())?;
        all.extend(got);
    }
    let rest = c.client().pull(&p, 10).await?;
    c.equal(Clause::PullBounds, &[], "the deliveries left", &2, &rest.len())?;
    all.extend(rest);
    c.same(Clause::PullBounds, "everything, once", &sent, &all)?;
    c.client().remove(&all).await
}

/// A `max` above what servers often cap at still works.
async fn large_max(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(130, |_, message| message)).await?;
    let mut all = Vec::new();
    for max in [11, 100, 1000].map(|max: usize| max.min(c.capabilities().limits.pull_batch)) {
        let left = sent.len() - all.len();
        let got = c.client().pull(&p, max).await?;
        c.equal(
            Clause::PullBounds,
            &[],
            &format!("the deliveries of a pull of max {max}"),
            &max.min(left),
            &got.len(),
        )?;
        all.extend(got);
    }
    all.extend(c.client().take(&p, sent.len() - all.len()).await?);
    c.same(Clause::PullBounds, "everything, once", &sent, &all)?;
    c.client().remove(&all).await
}

/// If three messages are ready, a pull of up to ten returns them without waiting for more.
async fn ready_at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let (start, wait) = (Instant::now(), c.timing().soon * 2);
    let got = c.client().pull_with(&p, c.client().request(10, wait)).await?;
    c.same(Clause::ReadyAtOnce, "all that is ready", &sent, &got)?;
    c.took(Clause::ReadyAtOnce, &sent, "an answer", start.elapsed(), (Duration::ZERO, c.timing().soon))?;
    c.client().remove(&got).await
}

/// An empty pull takes its whole wait, and not much more.
async fn empty_waits(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.client().push(&p, &[c.message()]).await?;
    let got = c.client().take(&p, 1).await?; // the partition exists, and holds a leased message
    for wait in [WAIT, WAIT * 2] {
        let start = Instant::now();
        let none = c.client().pull_with(&p, c.client().request(1, wait)).await?;
        c.in_order(Clause::PullWait, "an empty pull", &[], &none)?;
        c.took(
            Clause::PullWait,
            &message,
            "the end of the wait",
            start.elapsed(),
            (wait, c.timing().latest(wait)),
        )?;
    }
    c.client().remove(&got).await
}

/// Without a wait, an empty pull returns at once.
async fn zero_wait(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message()]).await?;
    let got = c.client().take(&p, 1).await?;
    let start = Instant::now();
    let none = c.client().pull_now(&p, 1).await?;
    c.in_order(Clause::PullWait, "an empty pull", &[], &none)?;
    c.took(Clause::PullWait, &[], "an answer", start.elapsed(), (Duration::ZERO, c.timing().soon))?;
    c.client().remove(&got).await
}

async fn push_wakes(c: &Context) -> CaseResult {
    let client = c.client().clone();
    let got = wake(c, &client, &client).await?;
    client.remove(&got).await
}

async fn other_client_wakes(c: &Context) -> CaseResult {
    let waiter = c.fresh().await?;
    let got = wake(c, &waiter, c.client()).await?;
    waiter.remove(&got).await
}

/// A waiting pull gets what is pushed meanwhile, within the declared latency.
async fn wake(c: &Context, waiter: &Client, pusher: &Client) -> CaseResult<Vec<RawDelivery>> {
    let p = c.partition("work")?;
    pusher.push(&p, &[c.message()]).await?;
    let first = waiter.take(&p, 1).await?;
    waiter.remove(&first).await?;
    let wait = c.timing().soon * 2;
    let waiting = waiter.pull_with(&p, waiter.request(5, wait));
    let pushing = async {
        tokio::time::sleep(SETTLED_IN).await;
        let sent = pusher.push(&p, &[c.message()]).await?;
        CaseResult::Ok((sent, Instant::now()))
    };
    let (got, told) = futures_util::join!(waiting, pushing);
    let (got, (sent, at)) = (got?, told?);
    c.in_order(Clause::PushWakes, "what was pushed during the wait", &sent, &got)?;
    c.took(Clause::PushWakes, &sent, "the wake-up", at.elapsed(), (Duration::ZERO, c.timing().soon))?;
    Ok(got)
}

/// A partition that nobody has used is empty, and the first push into it wakes those who wait there.
async fn unknown_partition(c: &Context) -> CaseResult {
    let p = c.partition("never-used-before")?;
    let none = c.client().pull_now(&p, 1).await?;
    c.in_order(Clause::PullWait, "an empty pull", &[], &none)?;
    let waiting = c.client().pull(&p, 1);
    let pushing = async {
        tokio::time::sleep(SETTLED_IN).await;
        c.client().push(&p, &[c.message()]).await
    };
    let (got, sent) = futures_util::join!(waiting, pushing);
    let (got, sent) = (got?, sent?);
    c.in_order(Clause::PushWakes, "the first message of a new partition", &sent, &got)?;
    c.client().remove(&got).await
}

/// One consumer takes one of two messages; the other one is there for the next consumer at once.
async fn holds_nothing_back(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let mut got = c.client().pull(&p, 1).await?;
    let second = if c.capabilities().overfetch == 0 && c.capabilities().wake_latency < WAIT {
        other.pull_now(&p, 1).await?
    } else {
        other.pull(&p, 1).await?
    };
    c.check(
        Clause::NoPrefetch,
        &sent,
        second.len() == 1,
        "the second message, at once, for another client",
        "nothing came",
    )?;
    other.remove(&second).await?;
    c.client().remove(&got).await?;
    got.extend(second);
    c.same(Clause::NoPrefetch, "both", &sent, &got)
}

/// Of many waiters one gets the only message; the others go on waiting.
async fn one_push_wakes_one(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let wait = c.timing().latest(SETTLED_IN);
    let waiters = (0..20).map(|index| {
        let client = if index % 2 == 0 { c.client() } else { &other };
        let (request, p) = (client.request(1, wait), &p);
        async move {
            let start = Instant::now();
            let got = client.pull_with(p, request).await?;
            CaseResult::Ok((got, start.elapsed(), client))
        }
    });
    let pushing = async {
        tokio::time::sleep(SETTLED_IN).await;
        c.client().push(&p, &[c.message()]).await
    };
    let (waited, sent) = futures_util::join!(join_all(waiters), pushing);
    let (waited, sent) = (waited.into_iter().collect::<CaseResult<Vec<_>>>()?, sent?);
    let got: Vec<RawDelivery> = waited.iter().flat_map(|(got, ..)| got.clone()).collect();
    c.in_order(Clause::AllWaitersWake, "the one message, for one waiter", &sent, &got)?;
    for (got, elapsed, client) in waited {
        if got.is_empty() {
            c.took(
                Clause::AllWaitersWake,
                &[],
                "the end of an unlucky wait",
                elapsed,
                (wait, c.timing().latest(wait)),
            )?;
        }
        client.remove(&got).await?;
    }
    Ok(())
}

/// If there are as many pushes as waiters, each waiter gets one message.
async fn pushes_wake_as_many(c: &Context) -> CaseResult {
    const WAITERS: usize = 50;
    let p = c.partition("work")?;
    let (other, wait) = (c.fresh().await?, c.timing().latest(c.timing().soon));
    let pushing = async {
        tokio::time::sleep(SETTLED_IN).await;
        let mut sent = Vec::new();
        for _ in 0..WAITERS / 2 {
            sent.push(c.client().push(&p, &[c.message()]).await?);
            tokio::task::yield_now().await; // each wakes its waiter while the others go on waiting
        }
        let at_once = (0..WAITERS / 2).map(|_| async { c.client().push(&p, &[c.message()]).await });
        sent.extend(join_all(at_once).await.into_iter().collect::<CaseResult<Vec<_>>>()?);
        CaseResult::Ok(sent)
    };
    let (mine, others, sent) = futures_util::join!(
        c.client().pull_at_once(&p, WAITERS / 2, wait),
        other.pull_at_once(&p, WAITERS / 2, wait),
        pushing
    );
    let (mine, others, sent) = (mine?, others?, sent?.concat());
    c.client().remove(&mine).await?;
    other.remove(&others).await?;
    c.same(Clause::AllWaitersWake, "one message for each waiter", &sent, &[mine, others].concat())
}

/// Messages come in the order in which they were pushed, over batches and pulls of any size.
async fn push_order(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = Vec::new();
    for size in [1, 20, 7, 13] {
        sent.extend(c.client().push(&p, &c.messages(size, |_, message| message)).await?);
    }
    let mut got = Vec::new();
    for max in [3, 10, 1, 30] {
        got.extend(c.client().take(&p, max.min(sent.len() - got.len())).await?);
    }
    c.in_order(Clause::Order, "push order", &sent, &got)?;
    c.client().remove(&got).await
}

/// A delivery says how long ago its message was pushed.
async fn age(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let start = Instant::now();
    let sent = c.client().push(&p, &[c.message()]).await?;
    let pushed = Instant::now();
    tokio::time::sleep(WAIT).await;
    let at_least = pushed.elapsed();
    let request = PullRequest::new(1, c.timing().soon, c.timing().long_lease);
    let got = c.client().pull_with(&p, request).await?;
    let at_most = start.elapsed();
    for delivery in &got {
        let ok = delivery.age + CLOCK_GRAIN >= at_least && delivery.age <= at_most + CLOCK_GRAIN;
        c.check(
            Clause::ServerTime,
            &sent,
            ok,
            format!("an age of {at_least:?} to {at_most:?}"),
            format!("{:?}", delivery.age),
        )?;
    }
    c.in_order(Clause::ServerTime, "the message", &sent, &got)?;
    c.client().remove(&got).await
}

async fn age_of_a_delayed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_delay(c.timing().delay)).await?;
    aged(c, &p, Instant::now()).await
}

/// The next message is at least as old as the time since its push was answered.
async fn aged(c: &Context, p: &PartitionId, pushed_by: Instant) -> CaseResult {
    tokio::time::sleep(c.timing().delay).await;
    let age = pushed_by.elapsed().saturating_sub(CLOCK_GRAIN);
    let [got] = c.client().take_exact(p).await?;
    let told = format!("an age of at least {age:?}");
    c.check(Clause::Expiry, &[got.lease.id], got.age >= age, told, format!("{:?}", got.age))?;
    c.client().remove(&[got]).await
}

async fn age_of_a_postponed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let pushed_by = Instant::now();
    tokio::time::sleep(c.timing().delay).await;
    let held = c.client().take(&p, 1).await?;
    postpone(c.client(), &held, c.timing().delay, None).await?;
    aged(c, &p, pushed_by).await
}
