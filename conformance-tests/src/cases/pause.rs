//! Pause: a paused partition delivers nothing, and everything else goes on.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;
use anyqueue::{MAX_PAGE, PartitionId};

use crate::case::Case;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "pause.delivers_nothing", [37], delivers_nothing).needs(NEEDS).kills(&[Fault::PauseLocal]),
    case!(Storage, "pause.the_rest_goes_on", [37], the_rest_goes_on)
        .needs(NEEDS)
        .kills(&[Fault::PauseRefusesPush, Fault::PauseEndsLeases]),
    case!(Storage, "pause.waiting_pulls_stay_empty", [37], waiting_pulls_stay_empty)
        .needs(NEEDS)
        .kills(&[Fault::PauseLocal, Fault::PauseMissesWaiting]),
    case!(Storage, "pause.resume_wakes", [11, 37], resume_wakes)
        .needs(NEEDS)
        .kills(&[Fault::ResumeDoesNotWake]),
    case!(Storage, "pause.outlives_its_client", [37], outlives_its_client).needs(NEEDS).kills(&[
        Fault::PauseLocal,
        Fault::PauseDiesWithClient,
        Fault::InitResumes,
    ]),
    case!(Storage, "pause.one_partition_only", [16, 37], one_partition_only)
        .needs(NEEDS)
        .kills(&[Fault::PartitionIgnored]),
    case!(Storage, "pause.resumed_hears_delays", [30, 37], resumed_hears_delays)
        .needs(&[Need::PAUSE, Need::PUSH_DELAY])
        .kills(&[Fault::ResumedDeafToDelays]),
    case!(Storage, "pause.paused_is_listed", [35, 37], paused_is_listed)
        .needs(&[Need::PAUSE, Need::LIST])
        .kills(&[Fault::PausedUnlisted]),
];

const NEEDS: &[Need] = &[Need::PAUSE];

async fn set_paused(c: &Context, client: &Client, p: &PartitionId, paused: bool) -> CaseResult {
    c.ok(37, "pausing or resuming", client.pause()?.set_paused(p, paused).await)
}

async fn is_paused(c: &Context, client: &Client, p: &PartitionId) -> CaseResult<bool> {
    c.ok(37, "asking for the pause", client.pause()?.is_paused(p).await)
}

/// Nobody gets anything until the partition is resumed; both calls can be repeated.
async fn delivers_nothing(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    for paused in [true, true] {
        set_paused(c, c.client(), &p, paused).await?;
    }
    c.equal(37, &[], "the pause, as another client sees it,", &true, &is_paused(c, &other, &p).await?)?;
    c.client().nothing(&p, c.timing().slack, 37, "nothing while paused").await?;
    other.nothing(&p, c.timing().never(), 37, "nothing while paused, for any client").await?;
    for paused in [false, false] {
        set_paused(c, &other, &p, paused).await?;
    }
    c.equal(37, &[], "the pause", &false, &is_paused(c, c.client(), &p).await?)?;
    let got = c.client().take(&p, 2).await?;
    c.same(37, "everything after the pause", &sent, &got)?;
    c.client().remove(&got).await
}

/// Pushes are taken, and what is held can be extended and settled.
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
    c.client().nothing(&p, c.timing().slack, 37, "nothing while paused").await?;
    set_paused(c, c.client(), &p, false).await?;
    let got = c.client().take(&p, 3).await?;
    c.same(
        37,
        "what was given back, and what was pushed",
        &[pushed, vec![released.lease.id, failed.lease.id]].concat(),
        &got,
    )?;
    c.client().remove(&got).await
}

/// A pull that waits when the pause begins gets nothing of what is pushed then, until its wait ends.
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
    c.in_order(37, "nothing from a paused partition", &[], &got)?;
    c.took(37, &sent, "the end of the wait", elapsed, (wait, c.timing().latest(wait)))?;
    set_paused(c, c.client(), &p, false).await?;
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}

/// Who waits when the partition is resumed is served at once.
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
    c.in_order(37, "the message, once resumed", &sent, &got)?;
    c.check(37, &sent, came >= resumed, "nothing before it was resumed", "it came before")?;
    let took = came.saturating_duration_since(resumed);
    c.took(11, &sent, "the wake-up", took, (Duration::ZERO, c.timing().soon))?;
    other.remove(&got).await
}

/// The pause is the storage's, not the client's.
async fn outlives_its_client(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let pauser = c.fresh().await?;
    set_paused(c, &pauser, &p, true).await?;
    pauser.close().await?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let other = c.fresh().await?;
    c.equal(37, &[], "the pause", &true, &is_paused(c, &other, &p).await?)?;
    other.nothing(&p, c.timing().slack, 37, "nothing while paused").await?;
    set_paused(c, &other, &p, false).await?;
    let got = other.take(&p, 1).await?;
    c.in_order(37, "the message", &sent, &got)?;
    other.remove(&got).await
}

async fn one_partition_only(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    set_paused(c, c.client(), &p, true).await?;
    let sent = c.client().push(&other, &[c.message()]).await?;
    let got = c.client().take(&other, 1).await?;
    c.in_order(37, "another partition's message", &sent, &got)?;
    c.client().remove(&got).await?;
    c.equal(37, &[], "the other's pause", &false, &is_paused(c, c.client(), &other).await?)?;
    set_paused(c, c.client(), &p, false).await
}

/// A pull that waits through a pause and its end is woken by a delay that ends later.
async fn resumed_hears_delays(c: &Context) -> CaseResult {
    let (p, waiter, delay) = (c.partition("work")?, c.fresh().await?, c.timing().delay * 2);
    let wait = waiter.pull_with(&p, waiter.request(1, c.timing().soon * 3 + delay));
    let (got, due) = futures_util::future::join(wait, async {
        c.pull_begins(&waiter).await?;
        c.ok(37, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
        let due = Instant::now() + delay;
        c.client().push(&p, &[c.message().with_delay(delay)]).await?;
        c.ok(37, "a resumption", c.client().pause()?.set_paused(&p, false).await)?;
        CaseResult::Ok(due)
    })
    .await;
    let (at, got, due) = (Instant::now(), got?, due?);
    c.equal(30, &[], "deliveries when the delay is over", &1, &got.len())?;
    let bounds = (Duration::ZERO, c.timing().soon);
    c.took(30, &[], "an answer to who waited", at.saturating_duration_since(due), bounds)?;
    waiter.remove(&got).await
}

/// Whoever looks for what stands still finds it, also where nothing was pushed yet: a pause under a mistyped name stops what is pushed
/// there later.
async fn paused_is_listed(c: &Context) -> CaseResult {
    let p = c.partition("idle")?;
    set_paused(c, c.client(), &p, true).await?;
    let other = c.fresh().await?;
    let shown = c.ok(35, "a list of partitions", other.inspect()?.partitions(None, MAX_PAGE).await)?;
    c.check(37, &[], shown.contains(&p), format!("{p}, which is paused, in the list"), format!("{shown:?}"))?;
    set_paused(c, c.client(), &p, false).await
}
