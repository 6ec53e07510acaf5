//! The account that every case closes with: everything is drained through a fresh client, and then, by message id,
//! acknowledged pushes ⊆ removed ∪ drained ⊆ attempted pushes, and nothing comes back.

mod audit;
mod ledger;

use std::time::{Duration, Instant};

use anyqueue::{Action, PartitionId, SettleOutcome};

use crate::case::CaseResult;
use crate::context::{Client, Context, settlement};
use ledger::Ledger;

/// A message that is owed at a later time than this from now on is not waited for: the case should have removed it.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// One look into each partition waits at most this long.
const LOOK: Duration = Duration::from_millis(100);

/// Drains everything and judges the whole history.
pub(crate) async fn close(c: &Context) -> CaseResult {
    give_back(c).await;
    let drain = c.fresh().await?;
    drain.note("the account: drain everything");
    drain_all(c, &drain).await?;
    let ledger = Ledger::of(c.history());
    audit::judge(c, &ledger)?;
    empty(c, &drain, &ledger).await
}

/// Returns what the case's clients still hold, and resumes what it paused. Answers do not matter here: the drain shows
/// what came of it.
async fn give_back(c: &Context) {
    let ledger = Ledger::of(c.history());
    for client in c.clients() {
        let mine = ledger.held.iter().filter(|held| *held.client == *client.name() && !held.settled);
        let settlements: Vec<_> = mine.map(|held| settlement(&held.delivery, Action::Release)).collect();
        for batch in settlements.chunks(c.capabilities().limits.settle_batch.max(1)) {
            let _ = client.storage().settle(batch).await;
        }
    }
    for partition in &ledger.paused {
        for client in c.clients() {
            if let Some(pause) = client.storage().pause()
                && pause.set_paused(partition, false).await.is_ok()
            {
                break;
            }
        }
    }
}

/// Removes whatever comes, until nothing is owed, or what is owed should have come.
async fn drain_all(c: &Context, drain: &Client) -> CaseResult {
    let ledger = Ledger::of(c.history());
    let now = Instant::now();
    let due = ledger.due_by().unwrap_or(now).clamp(now, now + MAX_WAIT);
    let deadline = due + c.timing().soon;
    loop {
        let mut found = 0;
        for partition in &ledger.partitions {
            found += sweep(c, drain, partition, Duration::ZERO).await?;
        }
        if found > 0 {
            continue;
        }
        let now_ledger = Ledger::of(c.history());
        let owed = now_ledger.owed();
        if owed.len() <= now_ledger.purged || Instant::now() > deadline {
            return Ok(());
        }
        let places = owed.first().and_then(|id| now_ledger.entries.get(id)).map(|entry| entry.places.clone());
        for place in places.into_iter().flatten() {
            sweep(c, drain, &place, LOOK).await?;
        }
    }
}

async fn sweep(c: &Context, drain: &Client, partition: &PartitionId, wait: Duration) -> CaseResult<usize> {
    let got = drain.pull_with(partition, drain.request(c.capabilities().limits.pull_batch, wait)).await?;
    let settlements: Vec<_> = got.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
    for batch in settlements.chunks(c.capabilities().limits.settle_batch.max(1)) {
        let outcomes = drain.storage().settle(batch).await;
        for (settlement, outcome) in batch.iter().zip(outcomes) {
            let ok = matches!(outcome, Ok(SettleOutcome::Settled));
            c.check(
                20,
                &[settlement.lease.id],
                ok,
                "the drain's removal to be Settled",
                format!("{outcome:?}"),
            )?;
        }
    }
    Ok(got.len())
}

/// Where the backend counts, nothing may be left, not even under a lease.
async fn empty(c: &Context, drain: &Client, ledger: &Ledger) -> CaseResult {
    let declared = c.capabilities().inspect;
    let Some(inspect) = drain.storage().inspect().filter(|_| declared.ready || declared.leased) else {
        return Ok(());
    };
    for partition in ledger.partitions.iter().filter(|partition| !partition.is_dead_letters()) {
        let deadline = Instant::now() + declared.staleness;
        loop {
            let counts = c.ok(35, "counts", inspect.counts(partition).await)?;
            let left = [counts.ready, counts.delayed, counts.leased, counts.dead];
            if left.iter().flatten().all(|count| *count == 0) {
                break;
            }
            if Instant::now() > deadline {
                let expected = format!("{partition} to be empty once everything was removed from it");
                let about: Vec<_> = ledger.entries.keys().copied().collect();
                return Err(c.failed(19, &about, expected, format!("{counts:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}
