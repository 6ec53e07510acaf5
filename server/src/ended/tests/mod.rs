//! Counts over a ledger that a test has written. The runtime's clock is paused: it goes on only where everybody
//! waits for it, so that a busy machine uses up nothing of the time that a look has.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use std::sync::Arc;

use super::EndCounts;
use super::counting::Counting;
use crate::span::Span;

mod crowded;
mod kept;

fn bed() -> (EndCounts, Arc<Counting>) {
    let (queue, ledger) = Counting::queue();
    (EndCounts::new(queue), ledger)
}

/// How many tasks ended, and how many steps before the last one.
async fn told(counts: &EndCounts, span: Span) -> Vec<(usize, u64)> {
    let counted = counts.over(span, &["p"], None).await;
    let steps = counted.steps.iter().rev().enumerate();
    steps.map(|(ago, (_, step))| (ago, step.tasks())).filter(|(_, tasks)| *tasks > 0).collect()
}

/// What was asked since the last call, in minutes before now.
fn asked(ledger: &Counting) -> Vec<(i64, i64)> {
    let before = |minute: u64| i64::try_from(minute).unwrap() - i64::try_from(ledger.now()).unwrap();
    let asked = ledger.told(|told| std::mem::take(&mut told.asked));
    asked.into_iter().map(|(_, minutes)| (before(minutes.start), before(minutes.end))).collect()
}
