//! Pausing: a paused partition delivers nothing, and everything else goes on.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;
use anyqueue::{MAX_PAGE, Page, PartitionId};

use super::helpers::{dead_letter, push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "pause.delivers_nothing", [Pause], delivers_nothing)
        .needs(NEEDS)
        .kills(&[Fault::PauseLocal]),
    case!(Storage, "pause.the_rest_goes_on", [Pause], the_rest_goes_on)
        .needs(NEEDS)
        .kills(&[Fault::PauseRefusesPush, Fault::PauseEndsLeases]),
    case!(Storage, "pause.waiting_pulls_stay_empty", [Pause], waiting_pulls_stay_empty)
        .needs(NEEDS)
        .kills(&[Fault::PauseLocal, Fault::PauseMissesWaiting]),
    case!(Storage, "pause.resume_wakes", [PushWakes, Pause], resume_wakes)
        .needs(NEEDS)
        .kills(&[Fault::ResumeDoesNotWake]),
    case!(Storage, "pause.outlives_its_client", [Pause], outlives_its_client).needs(NEEDS).kills(&[
        Fault::PauseLocal,
        Fault::PauseDiesWithClient,
        Fault::InitResumes,
    ]),
    case!(Storage, "pause.one_partition_only", [PartitionsApart, Pause], one_partition_only)
        .needs(NEEDS)
        .kills(&[Fault::PartitionIgnored]),
    case!(Storage, "pause.resumed_hears_delays", [Delays, Pause], resumed_hears_delays)
        .needs(&[Need::Pause, Need::PushDelay])
        .kills(&[Fault::ResumedDeafToDelays]),
    case!(Storage, "pause.paused_is_listed", [Inspection, Pause], paused_is_listed)
        .needs(&[Need::Pause, Need::List])
        .kills(&[Fault::PausedUnlisted]),
    case!(Storage, "pause.leaves_dead", [PartitionsApart, Pause], leaves_dead)
        .needs(&[Need::Pause])
        .kills(&[Fault::PauseTakesDead]),
    case!(Storage, "pause.of_an_empty", [Pause], of_an_empty)
        .needs(&[Need::Pause])
        .kills(&[Fault::PauseForgottenWhenEmpty]),
];

const NEEDS: &[Need] = &[Need::Pause];

async fn set_paused(c: &Context, client: &Client, p: &PartitionId, paused: bool) -> CaseResult {
    c.ok(Clause::Pause, "pausing or resuming", client.pause()?.set_paused(p, paused).await)
}

async fn is_paused(c: &Context, client: &Client, p: &PartitionId) -> CaseResult<bool> {
    c.ok(Clause::Pause, "asking for the pause", client.pause()?.is_paused(p).await)
}

/// Nobody gets anything until the partition is resumed; both calls can be repeated.
async fn delivers_nothing(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    for paused in [true, true] {
        set_paused(c, c.client(), &p, paused).await?;
    }
    c.equal(
        Clause::Pause,
        &[],
        "the pause, as another client sees it,",
        &true,
        &is_paused(c, &other, &p).await?,
    )?;
    c.client().nothing(&p, c.timing().slack, Clause::Pause, "nothing while paused").await?;
    other.nothing(&p, c.timing().never(), Clause::Pause, "nothing while paused, for any client").await?;
    for paused in [false, false] {
        set_paused(c, &other, &p, paused).await?;
    }
    c.equal(Clause::Pause, &[], "the pause", &false, &is_paused(c, c.client(), &p).await?)?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Pause, "everything after the pause", &sent, &got)?;
    c.client().remove(&got).await
}

/// Pushes are accepted, and held messages can be extended and settled.
async fn the_rest_goes_on(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let [done, released, failed] = c.client().take_exact(&p).await?;
    set_paused(c, c.client(), &p, true).await?;
    let pushed = c.client().push(&p, &[c.message()]).await?;
    c.client().extend(&done, c.timing().long_lease).await?;
    c.client().remove(&[done]).await?;
    c.client().settle_all(std::slice::from_ref(&released), &Action::Release).await?;
    c.client().settle_all(std::slice::from_ref(&failed), &Action::Retry).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Pause, "nothing while paused").await?;
    set_paused(c, c.client(), &p, false).await?;
    let got = c.client().take(&p, 3).await?;
    c.same(
        Clause::Pause,
        "what was released, and what was pushed",
        &[pushed, vec![released.lease.id, failed.lease.id]].concat(),
        &got,
    )?;
    c.client().remove(&got).await
}

/// A pull that waits when the pause begins gets none of the messages pushed then, until its wait ends.
async fn waiting_pulls_stay_empty(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let wait = c.timing().soon;
    let waiting = async {
        let start = Instant::now();
        let got = other.pull_with(&p, other.request(1, wait)).await?;
        CaseResult::Ok((got, start.elapsed()))
    };
    let pausing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        set_paused(c, c.client(), &p, true).await?;
        c.client().push(&p, &[c.message()]).await
    };
    let (waited, sent) = futures_util::join!(waiting, pausing);
    let ((got, elapsed), sent) = (waited?, sent?);
    c.in_order(Clause::Pause, "nothing from a paused partition", &[], &got)?;
    c.took(Clause::Pause, &sent, "the end of the wait", elapsed, (wait, c.timing().latest(wait)))?;
    set_paused(c, c.client(), &p, false).await?;
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}

/// A client that waits when the partition is resumed is served at once.
async fn resume_wakes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    set_paused(c, c.client(), &p, true).await?;
    let waiting = async {
        let got = other.pull_with(&p, other.request(1, c.timing().soon * 2)).await?;
        CaseResult::Ok((got, Instant::now()))
    };
    let resuming = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let at = Instant::now();
        set_paused(c, c.client(), &p, false).await?;
        CaseResult::Ok(at)
    };
    let (got, resumed) = futures_util::join!(waiting, resuming);
    let ((got, came), resumed) = (got?, resumed?);
    c.in_order(Clause::Pause, "the message, once resumed", &sent, &got)?;
    c.check(Clause::Pause, &sent, came >= resumed, "nothing before it was resumed", "it came before")?;
    let took = came.saturating_duration_since(resumed);
    c.took(Clause::PushWakes, &sent, "the wake-up", took, (Duration::ZERO, c.timing().soon))?;
    other.remove(&got).await
}

/// The pause belongs to the storage, not to the client.
async fn outlives_its_client(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let pauser = c.fresh().await?;
    set_paused(c, &pauser, &p, true).await?;
    pauser.close().await?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let other = c.fresh().await?;
    c.equal(Clause::Pause, &[], "the pause", &true, &is_paused(c, &other, &p).await?)?;
    other.nothing(&p, c.timing().slack, Clause::Pause, "nothing while paused").await?;
    set_paused(c, &other, &p, false).await?;
    let got = other.take(&p, 1).await?;
    c.in_order(Clause::Pause, "the message", &sent, &got)?;
    other.remove(&got).await
}

async fn one_partition_only(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    set_paused(c, c.client(), &p, true).await?;
    let sent = c.client().push(&other, &[c.message()]).await?;
    let got = c.client().take(&other, 1).await?;
    c.in_order(Clause::Pause, "another partition's message", &sent, &got)?;
    c.client().remove(&got).await?;
    c.equal(Clause::Pause, &[], "the other's pause", &false, &is_paused(c, c.client(), &other).await?)?;
    set_paused(c, c.client(), &p, false).await
}

/// A pull that waits through a pause and its end is woken by a delay that ends later.
async fn resumed_hears_delays(c: &Context) -> CaseResult {
    let (p, waiter, delay) = (c.partition("work")?, c.fresh().await?, c.timing().delay * 2);
    let wait = waiter.pull_with(&p, waiter.request(1, c.timing().soon * 3 + delay));
    let (got, due) = futures_util::future::join(wait, async {
        c.pull_begins(&waiter).await?;
        c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
        let due = Instant::now() + delay;
        c.client().push(&p, &[c.message().with_delay(delay)]).await?;
        c.ok(Clause::Pause, "a resumption", c.client().pause()?.set_paused(&p, false).await)?;
        CaseResult::Ok(due)
    })
    .await;
    let (at, got, due) = (Instant::now(), got?, due?);
    c.equal(Clause::Delays, &[], "deliveries when the delay is over", &1, &got.len())?;
    let bounds = (Duration::ZERO, c.timing().soon);
    c.took(Clause::Delays, &[], "an answer to who waited", at.saturating_duration_since(due), bounds)?;
    waiter.remove(&got).await
}

/// Paused partitions are found, even those into which nothing was pushed yet: a pause under a mistyped name
/// would stop whatever is pushed there later.
async fn paused_is_listed(c: &Context) -> CaseResult {
    let p = c.partition("idle")?;
    set_paused(c, c.client(), &p, true).await?;
    let other = c.fresh().await?;
    let shown = c.ok(
        Clause::Inspection,
        "a list of partitions",
        other.inspect()?.partitions(Page::of(MAX_PAGE)).await,
    )?;
    c.check(
        Clause::Pause,
        &[],
        shown.contains(&p),
        format!("{p}, which is paused, in the list"),
        format!("{shown:?}"),
    )?;
    set_paused(c, c.client(), &p, false).await
}

async fn leaves_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let dead = dead_letter(c, &p).await?;
    c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
    removes(c, Clause::PartitionsApart, "the dead letter", &p.dead_letters(), &[dead]).await
}

/// A pause outlives the last message.
async fn of_an_empty(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let held = c.client().take(&p, 1).await?;
    c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
    c.client().remove(&held).await?;
    let next = push_one(c, &p, c.message()).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Pause, "nothing from a paused partition").await?;
    c.ok(Clause::Pause, "a resumption", c.client().pause()?.set_paused(&p, false).await)?;
    removes(c, Clause::Pause, "the next, once it is resumed", &p, &[next]).await
}
