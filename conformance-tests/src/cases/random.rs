//! Random plans, and what must be true of every history.

use std::time::Duration;

use anyqueue::Reach;

use crate::case::{Case, CaseResult, Need};
use crate::context::Context;
use crate::faulty::Fault;
use crate::random::{Budget, Search, Shape, apart, during};

pub(super) const CASES: &[Case] = &[
    case!(Storage, "random.histories", [1, 5, 14, 21, 22, 25], histories)
        .kills(&[Fault::RemoveDoesNothing])
        .deadline(Duration::from_mins(2)),
    case!(Storage, "random.soak", [1, 5, 14, 21, 22, 25], histories)
        .kills(&[Fault::RemoveDoesNothing])
        .deadline(Duration::from_mins(2))
        .soak(),
    case!(Storage, "random.replay", [9, 15, 19, 28, 30, 31, 32, 33, 35, 36, 37], replay)
        .needs(&[Need::CONTROLLED_CLOCK])
        .kills(&[Fault::RemoveDoesNothing])
        .deadline(Duration::from_mins(2)),
];

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
    c.check(1, &[], tried > 0, "a plan carried out", "none")
}

/// On a controlled clock the same seed makes the same history, to the byte; and many small plans take no time.
async fn replay(c: &Context) -> CaseResult {
    let search = Search {
        harness: c.harness(),
        capabilities: c.capabilities().clone(),
        // Waiting ends when another process pushes: at a moment that the clock decides only within this process.
        shape: Shape { processes: 4, steps: 120, waits: c.capabilities().reach == Reach::Process },
        controlled: true,
        budget: Budget { attempts: 400, time: Duration::from_secs(5) },
    };
    let (seed, time) = (c.seed(), Duration::from_secs(c.size(1, 30) as u64));
    let (first, second) = apart(move || async move {
        let (first, second) = (search.trace(seed).await?, search.trace(seed).await?);
        search.run(seed.wrapping_add(1), during(time)).await?;
        Ok((first.to_jsonl(), second.to_jsonl()))
    })
    .await?;
    let parted = first.lines().zip(second.lines()).find(|(first, second)| first != second);
    let (expected, instead) = parted.unwrap_or((&first, &second));
    c.check(29, &[], first == second, format!("the same history again, with {expected}"), instead)
}
