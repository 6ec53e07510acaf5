//! Punctuality, by the backend's own measure. Bounds that a busy machine keeps are seconds wide, and a
//! backend that polls once a second keeps them too. So each of these cases measures several times, and takes
//! the best. Beyond what is declared, it allows for this machine's own delay at that moment: the time that
//! the backend needs at its quickest for the same work without any waiting.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{PartitionId, SettleOutcome};
use futures_util::future::join;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

pub(super) const CASES: &[Case] = &[
    case!(Storage, "punctual.wakes", [PushWakes], wakes).kills(&[Fault::PollsEachSecond]),
    case!(Storage, "punctual.delays", [Delays], delays)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::DelayEndsLate]),
    case!(Storage, "punctual.leases", [LeaseEnd], leases)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseEndsLate]),
    case!(Storage, "punctual.lease_until", [LeaseEnd], lease_until)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseUntilFromAnswer]),
];

/// How many tries are made before the best is judged.
const TRIES: usize = 8;

/// The time that an otherwise idle machine needs to run what is due.
const TURN: Duration = Duration::from_millis(60);

/// The best lateness of several tries, which end as soon as one was in time.
struct Best {
    late: Duration,
    allowed: Duration,
    tries: usize,
}

impl Best {
    fn new() -> Self {
        Self { late: Duration::MAX, allowed: Duration::ZERO, tries: 0 }
    }

    /// Returns whether to try again. `quick` is how long it takes without any waiting.
    fn note(&mut self, late: Duration, declared: Duration, quick: Duration) {
        let allowed = declared + TURN + quick * 2;
        if self.tries == 0 || late.saturating_sub(allowed) < self.late.saturating_sub(self.allowed) {
            (self.late, self.allowed) = (late, allowed);
        }
        self.tries += 1;
    }

    fn goes_on(&self) -> bool {
        self.tries < TRIES && self.late > self.allowed
    }

    fn judge(self, c: &Context, clause: Clause, what: &str) -> CaseResult {
        let Self { late, allowed, tries } = self;
        let told = format!("{what} within {allowed:?} at least once in {tries} times");
        c.check(clause, &[], late <= allowed, told, format!("after {late:?} at best"))
    }
}

/// Returns how long a push takes together with a pull that finds it.
async fn quick(c: &Context, p: &PartitionId) -> CaseResult<Duration> {
    let start = Instant::now();
    c.client().push(p, &[c.message()]).await?;
    let got = c.client().take(p, 1).await?;
    let took = start.elapsed();
    c.client().remove(&got).await?;
    Ok(took)
}

/// A push wakes a pull that has just begun to wait.
async fn wakes(c: &Context) -> CaseResult {
    let (p, beside) = (c.partition("work")?, c.partition("beside")?);
    let (waiter, mut best, mut random) = (c.fresh().await?, Best::new(), c.random());
    while best.goes_on() {
        let quick = quick(c, &beside).await?;
        let wait = waiter.pull_with(&p, waiter.request(1, c.timing().soon));
        let (got, pushed) = join(wait, async {
            c.pull_begins(&waiter).await?;
            // Soon after it began: a pull that polls from time to time still has its next poll ahead.
            tokio::time::sleep(Duration::from_millis(random.u64(20..60))).await;
            let pushed = Instant::now();
            c.client().push(&p, &[c.message()]).await.map(|_| pushed)
        })
        .await;
        let (got, late) = (got?, pushed?.elapsed());
        c.equal(Clause::PushWakes, &[], "deliveries to who waited", &1, &got.len())?;
        waiter.remove(&got).await?;
        best.note(late, c.capabilities().wake_latency, quick);
    }
    best.judge(c, Clause::PushWakes, "a waiting pull to be woken")
}

/// A pull is waiting when a delay ends.
async fn delays(c: &Context) -> CaseResult {
    let (p, beside, delay) = (c.partition("work")?, c.partition("beside")?, c.timing().delay);
    let mut best = Best::new();
    while best.goes_on() {
        let quick = quick(c, &beside).await?;
        let pushed = Instant::now();
        c.client().push(&p, &[c.message().with_delay(delay)]).await?;
        let got = c.client().pull_with(&p, c.client().request(1, c.timing().latest(delay))).await?;
        let late = pushed.elapsed().saturating_sub(delay);
        c.equal(Clause::Delays, &[], "deliveries when the delay is over", &1, &got.len())?;
        c.client().remove(&got).await?;
        best.note(late, c.capabilities().slack, quick);
    }
    best.judge(c, Clause::Delays, "what was delayed, when its delay is over,")
}

/// A pull is waiting when somebody's lease ends.
async fn leases(c: &Context) -> CaseResult {
    let (p, beside, lease) = (c.partition("work")?, c.partition("beside")?, c.timing().lease);
    let (other, mut best) = (c.fresh().await?, Best::new());
    c.client().push(&p, &[c.message()]).await?;
    while best.goes_on() {
        let quick = quick(c, &beside).await?;
        let pulled = Instant::now();
        let lost = c.client().pull_with(&p, PullRequest::new(1, c.timing().soon, lease)).await?;
        c.equal(Clause::PullBounds, &[], "deliveries", &1, &lost.len())?;
        let got = other.pull_with(&p, other.request(1, c.timing().latest(lease))).await?;
        let late = pulled.elapsed().saturating_sub(lease);
        c.equal(Clause::LeaseEnd, &[], "deliveries when the lease is over", &1, &got.len())?;
        other.settle_all(&got, &Action::Release).await?;
        best.note(late, c.capabilities().slack, quick);
    }
    best.judge(c, Clause::LeaseEnd, "what somebody held, when the lease is over,")
}

/// The holder can trust its lease until `lease_until`: a settlement shortly before it succeeds, however long
/// the pull's answer took. A later answer proves nothing, so the moment is chosen earlier and earlier until
/// one is in time.
async fn lease_until(c: &Context) -> CaseResult {
    let (p, lease) = (c.partition("work")?, c.timing().lease);
    let mut judged = 0;
    for before in [20, 20, 40, 40, 80, 160, 300].map(Duration::from_millis) {
        c.client().push(&p, &[c.message()]).await?;
        let held = c.client().pull_with(&p, PullRequest::new(1, c.timing().soon, lease)).await?;
        let [delivery] = held.as_slice() else {
            return Err(c.failed(Clause::PullBounds, &ids(&held), "a delivery", format!("{}", held.len())));
        };
        let until = delivery.lease_until.unwrap_or_else(Instant::now);
        tokio::time::sleep_until(until.checked_sub(before).unwrap_or(until).into()).await;
        let outcome = c.client().try_settle(delivery, Action::Remove).await?;
        if Instant::now() < until {
            let about = [delivery.lease.id];
            c.equal(
                Clause::LeaseEnd,
                &about,
                "before `lease_until` the outcome",
                &SettleOutcome::Settled,
                &outcome,
            )?;
            judged += 1;
        } else if outcome != SettleOutcome::Settled {
            let again = c.client().take(&p, 1).await?;
            c.client().remove(&again).await?;
        }
        if judged == 2 {
            break;
        }
    }
    if judged > 0 { Ok(()) } else { Err(Stop::Inconclusive("this machine is too slow".to_owned())) }
}
