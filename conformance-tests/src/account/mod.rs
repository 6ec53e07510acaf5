//! The account that closes every case: everything is drained through a fresh client, and then the whole
//! history is judged. By message id: acknowledged pushes ⊆ removed ∪ drained ⊆ attempted pushes, and nothing
//! comes back.

mod drain;

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;
use anyqueue::{Clock, MessageId};

use crate::check::{Fate, Rules, Timeline, Violation};
use crate::clause::Clause;
use crate::context::{Client, Context, settlement};
use crate::history::Exported;
use crate::run::on_a_thread;
use crate::verdict::{CaseResult, Stop};
pub(crate) use drain::{Drain, Stuck};

/// The pause between two checks of counts.
const LOOK: Duration = Duration::from_millis(100);

/// What is left once everything was drained.
pub(crate) struct Drained {
    client: Client,
    exported: Exported,
}

/// Drains everything.
pub(crate) async fn drain(c: &Context) -> CaseResult<Drained> {
    let rules = Rules::of(c.capabilities());
    release(c, &rules).await;
    let client = c.fresh().await?;
    client.note("the account: drain everything");
    let drain =
        Drain { storage: &**client.storage(), history: c.history(), clock: &Clock::system(), rules: &rules };
    drain
        .run()
        .await
        .map_err(|stuck| c.failed(stuck.clause, &Vec::from_iter(stuck.about), stuck.expected, stuck.seen))?;
    Ok(Drained { client, exported: c.history().export(rules) })
}

/// Judges the whole history.
///
/// This runs on a thread of its own: on a runtime's thread, it would leave no turn to others while it reads
/// thousands of calls.
pub(crate) async fn judge(c: &Context, drained: Drained) -> CaseResult<Drained> {
    let check = move || (Timeline::of(&drained.exported.trace).check(), drained);
    let (verdict, drained) = on_a_thread("history checker", check).await.map_err(Stop::Inconclusive)?;
    c.history().observed(1);
    verdict.map_err(|violation| broken(c, &drained.exported, violation))?;
    Ok(drained)
}

fn broken(c: &Context, exported: &Exported, violation: Violation) -> Stop {
    let about: Vec<MessageId> =
        violation.about.iter().filter_map(|number| exported.messages.get(*number).copied()).collect();
    let stop = c.failed(violation.clause, &about, violation.expected, violation.seen);
    if violation.late { stop.late() } else { stop }
}

/// Releases what the case's clients still hold, and resumes what it paused. The answers do not matter here:
/// the drain shows the result.
async fn release(c: &Context, rules: &Rules) {
    let exported = c.history().export(rules.clone());
    let timeline = Timeline::of(&exported.trace);
    for client in c.clients() {
        let open = timeline.holds.iter().filter(|hold| {
            hold.call.process == client.name() && matches!(hold.fate, Fate::Lapsed | Fate::Unknown)
        });
        let open = open.filter_map(|hold| exported.deliveries.get(hold.delivered.delivery));
        let settlements: Vec<_> = open.map(|delivery| settlement(delivery, Action::Release)).collect();
        for batch in settlements.chunks(c.capabilities().limits.settle_batch.max(1)) {
            let _ = client.storage().settle(batch).await;
        }
    }
    for partition in timeline.pauses.iter().filter(|pause| pause.paused).map(|pause| pause.place) {
        for client in c.clients() {
            if let Some(pause) = client.storage().pause()
                && pause.set_paused(partition, false).await.is_ok()
            {
                break;
            }
        }
    }
}

/// If the backend counts, nothing may be left, not even under a lease.
pub(crate) async fn empty(c: &Context, drained: &Drained) -> CaseResult {
    let (declared, storage) = (c.capabilities().inspect, drained.client.storage());
    let Some(inspect) = storage.inspect().filter(|_| declared.ready || declared.leased) else {
        return Ok(());
    };
    let partitions = Timeline::of(&drained.exported.trace).partitions;
    for partition in partitions.iter().filter(|partition| !partition.is_dead_letters()) {
        let deadline = Instant::now() + declared.staleness;
        loop {
            let counts = c.ok(Clause::Inspection, "counts", inspect.counts(partition).await)?;
            let left = [counts.ready, counts.delayed, counts.leased, counts.dead];
            if left.iter().flatten().all(|count| *count == 0) {
                break;
            }
            if Instant::now() > deadline {
                let expected = format!("{partition} to be empty once everything was removed from it");
                return Err(c.failed(Clause::SettleActions, &[], expected, format!("{counts:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}
