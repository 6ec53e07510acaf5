//! What a ledger must have at the end of a run: the ends of tasks that were settled with one, and no others.

use std::collections::HashMap;

use anyqueue::adapter::{LedgerQueueStorage, TaskEnd};
use anyqueue::{EndState, MAX_PAGE, MessageId, PartitionId, SettleOutcome};

use crate::account::Stuck;
use crate::clause::Clause;
use crate::history::{History, Op};

/// Returns the end of a task that a process of a plan settles. No two are alike.
pub(super) fn end(process: usize, number: usize, successors: usize) -> TaskEnd {
    let mut end = TaskEnd::new(EndState::Succeeded)
        .with_reason(format!("end {number} of process {process}"))
        .with_result(number.to_string());
    end.successors = u32::try_from(successors).unwrap_or(u32::MAX);
    end
}

/// The ends of one task that may be there, and whether one must be.
#[derive(Default)]
struct Possible {
    ends: Vec<TaskEnd>,
    certain: bool,
}

/// Judges what is found for each task that anybody wanted to end.
pub(super) async fn judge(
    history: &History,
    ledger: &dyn LedgerQueueStorage,
) -> std::result::Result<(), Stuck> {
    for (partition, tasks) in possible(history) {
        let tasks: Vec<_> = tasks.into_iter().collect();
        for page in tasks.chunks(MAX_PAGE) {
            let ids: Vec<_> = page.iter().map(|(id, _)| *id).collect();
            for ((id, possible), found) in page.iter().zip(ledger.find_ended(&partition, &ids).await) {
                let right = match &found {
                    Ok(Some(found)) => possible.ends.contains(&TaskEnd::clone(&found.end)),
                    Ok(None) => !possible.certain,
                    Err(_) => false,
                };
                if !right {
                    return Err(Stuck {
                        clause: Clause::EndStored,
                        about: Some(*id),
                        expected: "the end of what was settled with one, and none of what was not",
                        seen: format!("{found:?} of {:?}", possible.ends),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Returns, by partition and task, what the history says about ends: those that were stored, and those of
/// which nobody knows.
fn possible(history: &History) -> HashMap<PartitionId, HashMap<MessageId, Possible>> {
    let mut all: HashMap<PartitionId, HashMap<MessageId, Possible>> = HashMap::new();
    for event in history.events() {
        let Op::Settle { settlements, outcomes } = event.op else { continue };
        for (at, settlement) in settlements.into_iter().enumerate() {
            let Some(end) = settlement.end else { continue };
            let tasks = all.entry(settlement.lease.partition).or_default();
            let possible = tasks.entry(settlement.lease.id).or_default();
            let outcome = outcomes.get(at);
            possible.certain |= matches!(outcome, Some(Ok(SettleOutcome::Settled)));
            if !matches!(outcome, Some(Ok(SettleOutcome::Lost))) {
                possible.ends.push(TaskEnd::clone(&end));
            }
        }
    }
    all
}
