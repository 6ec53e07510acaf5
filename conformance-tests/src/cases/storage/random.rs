//! Random plans, and what must be true of every history.

use std::time::Duration;

use anyqueue::adapter::Reach;
use futures_util::{StreamExt as _, stream};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::random::{Budget, Search, Shape, apart, during, is_coarse};
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(
        Storage,
        "random.histories",
        [Stored, ContentIntact, Exclusive, Fencing, SettleTwice, LeaseEnd],
        histories
    )
    .kills(&[Fault::RemoveDoesNothing])
    .deadline(Duration::from_mins(2)),
    case!(
        Storage,
        "random.small_histories",
        [Stored, ContentIntact, Exclusive, SettleActions, DeliveryCount],
        small_histories
    )
    .kills(&[Fault::RemoveDoesNothing, Fault::RetryLosesMaxRetries])
    .deadline(Duration::from_mins(2)),
    case!(
        Storage,
        "random.soak",
        [Stored, ContentIntact, Exclusive, Fencing, SettleTwice, LeaseEnd],
        histories
    )
    .kills(&[Fault::RemoveDoesNothing])
    .deadline(Duration::from_mins(2))
    .soak(),
    case!(
        Storage,
        "random.replay",
        [
            ReadyAtOnce,
            Order,
            SettleActions,
            DeliveryCount,
            Delays,
            Groups,
            Deduplication,
            DeadLetters,
            Inspection,
            Deletion,
            Pause
        ],
        replay
    )
    .needs(&[Need::ControlledClock])
    .kills(&[Fault::RemoveDoesNothing])
    .deadline(Duration::from_mins(2)),
];

/// How many small plans run at once.
const AT_ONCE: usize = 10;

/// How many plans run on a controlled clock: a fixed number, not as many as fit into a second, so that a busy
/// machine finds as much as an idle one.
const PLANS: usize = 24;

/// Several processes at once, on the machine's own clock.
async fn histories(c: &Context) -> CaseResult {
    let search = Search {
        harness: c.harness(),
        capabilities: c.capabilities().clone(),
        shape: Shape { processes: 5, steps: 160, waits: true },
        controlled: false,
        budget: Budget { attempts: 12, time: Duration::from_secs(10) },
    };
    let time = c.lasting(Duration::ZERO, Duration::from_mins(1));
    let seed = c.seed();
    let tried = apart(move || async move { search.run(seed, during(time)).await }).await?;
    c.check(Clause::Stored, &[], tried > 0, "a plan carried out", "none")
}

/// Many small plans side by side, each in a storage of its own: a fixed number whatever the speed of the
/// machine, even where no clock can be controlled.
async fn small_histories(c: &Context) -> CaseResult {
    let search = Search {
        harness: c.harness(),
        capabilities: c.capabilities().clone(),
        shape: Shape { processes: 3, steps: 45, waits: true },
        controlled: false,
        budget: Budget { attempts: 6, time: Duration::from_secs(6) },
    };
    // If all times are in seconds, a plan takes most of a minute.
    let coarse = is_coarse(c.capabilities());
    let (seed, plans) = (c.seed(), if coarse { 2 } else { c.size(10, 100) as u64 });
    let tried = apart(move || async move {
        let traces = (0..plans).map(|plan| search.trace(seed.wrapping_sub(plan + 1)));
        let tried: Vec<_> = stream::iter(traces).buffer_unordered(AT_ONCE).collect().await;
        tried.into_iter().collect::<CaseResult<Vec<_>>>()
    })
    .await?;
    c.check(Clause::Stored, &[], !tried.is_empty(), "plans carried out", "none")
}

/// On a controlled clock the same seed produces the same history, to the byte; and many small plans take no
/// time.
async fn replay(c: &Context) -> CaseResult {
    let search = Search {
        harness: c.harness(),
        capabilities: c.capabilities().clone(),
        // A wait ends when another process pushes, at a moment that the clock decides only within this
        // process.
        shape: Shape { processes: 4, steps: 120, waits: c.capabilities().reach == Reach::Process },
        controlled: true,
        budget: Budget { attempts: 400, time: Duration::from_secs(5) },
    };
    let (seed, plans) = (c.seed(), c.size(PLANS, 30 * PLANS) as u64);
    let (first, second) = apart(move || async move {
        let (first, second) = (search.trace(seed).await?, search.trace(seed).await?);
        search.run(seed.wrapping_add(1), |tried| tried < plans).await?;
        Ok((first.to_jsonl(), second.to_jsonl()))
    })
    .await?;
    let parted = first.lines().zip(second.lines()).find(|(first, second)| first != second);
    let (expected, instead) = parted.unwrap_or((&first, &second));
    c.check(
        Clause::ServerTime,
        &[],
        first == second,
        format!("the same history again, with {expected}"),
        instead,
    )
}
