//! A server that freezes, and a network that is slow or swallows everything, while a queue stays open.
//!
//! Every case has its own server, heals it before the end, and lets the account find what was lost.

use std::time::{Duration, Instant};

use anyqueue::{
    MessageData, PartitionId, PartitionOptions, Queue, QueueMessageStatus::Processed, SettleOutcome,
};
use futures_util::future::join;

use crate::case::Case;
use crate::cases::recovery::Recovery;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "fault.frozen", [Recovery], frozen)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::NeverReconnects])
        .deadline(MINUTES),
    case!(Queue, "fault.black_hole", [Recovery], black_hole)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::NeverReconnects])
        .deadline(MINUTES),
    case!(Queue, "fault.slow_and_cut", [Stored, DroppedPull, Recovery], slow_and_cut)
        .needs(&[Need::FaultTarget])
        .kills(&[Fault::NeverReconnects])
        .deadline(MINUTES),
];

/// Servers need time to start.
const MINUTES: Duration = Duration::from_mins(3);

/// How long a queue of these cases gives a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

fn short_queue(c: &Context) -> CaseResult<Queue> {
    let options = PartitionOptions::default().with_lease(c.timing().act_lease);
    c.queue_over(c.client(), |builder| builder.defaults(options).call_timeout(CALL_TIMEOUT))
}

/// Pushes through a queue until the message is stored.
async fn queue_again(c: &Context, queue: &Queue, p: &PartitionId, message: &MessageData) -> CaseResult {
    let recovery = Recovery::begins();
    while queue.push(p, message.clone()).await.is_err() {
        recovery.again(c, "a push").await?;
    }
    Ok(())
}

/// The server is stopped as it stands: every call ends, and everything continues when the server does.
async fn frozen(c: &Context) -> CaseResult {
    out_of_reach(c, Disruption::Freeze, Disruption::Thaw).await
}

/// The network swallows everything: the same.
async fn black_hole(c: &Context) -> CaseResult {
    out_of_reach(c, Disruption::Stall, Disruption::Heal).await
}

async fn out_of_reach(c: &Context, disruption: Disruption, end: Disruption) -> CaseResult {
    let p = c.partition("work")?;
    let queue = short_queue(c)?;
    let before = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    c.disrupt(disruption).await?;
    let start = Instant::now();
    // A retried call may take its timeout once more for each attempt that is safe to repeat.
    let bound = CALL_TIMEOUT * 6 + c.timing().soon;
    let message = c.message();
    let pushed = tokio::time::timeout(bound, queue.push(&p, message.clone())).await;
    c.check(Clause::Recovery, &[], pushed.is_ok(), format!("a push to end within {bound:?}"), "it hangs")?;
    let pulled = tokio::time::timeout(bound, queue.pull(&p)).await;
    c.check(Clause::Recovery, &[], pulled.is_ok(), format!("a pull to end within {bound:?}"), "it hangs")?;
    let settled = tokio::time::timeout(bound, held.settle(Processed)).await;
    c.check(
        Clause::Recovery,
        &[],
        settled.is_ok(),
        format!("a settlement to end within {bound:?}"),
        "it hangs",
    )?;
    let least = Duration::from_secs(c.size(3, 30) as u64);
    tokio::time::sleep(least.saturating_sub(start.elapsed())).await;
    c.disrupt(end).await?;
    if disruption == Disruption::Stall {
        c.disrupt(Disruption::Cut).await?; // as a network does that was away for so long
    }
    queue_again(c, &queue, &p, &message).await?;
    drop((held, pulled));
    let mut left: Vec<_> = before.into_iter().chain([message.id()]).collect();
    let gone = settled.is_ok_and(|outcome| matches!(outcome, Ok(SettleOutcome::Settled)));
    let deadline = Instant::now() + c.timing().latest(c.timing().act_lease) * 3;
    while left.len() > usize::from(gone) && Instant::now() < deadline {
        for mut got in queue.pull(&p).max(10).wait(c.timing().slack).await.unwrap_or_default() {
            if matches!(got.settle(Processed).await, Ok(SettleOutcome::Settled)) {
                left.retain(|id| *id != got.id());
            }
        }
    }
    c.check(
        Clause::Stored,
        &left,
        left.len() <= usize::from(gone),
        "every message to come",
        format!("{} did not", left.len()),
    )
}

/// A slow network that breaks connections all the time: everything is processed in the end.
async fn slow_and_cut(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = short_queue(c)?;
    let messages = c.messages(c.size(60, 600), |_, message| message);
    let mut left: Vec<_> = messages.iter().map(MessageData::id).collect();
    c.disrupt(Disruption::Delay(Duration::from_millis(5))).await?;
    let work = async {
        for message in &messages {
            queue_again(c, &queue, &p, message).await?;
        }
        let deadline = Instant::now() + MINUTES / 2;
        while !left.is_empty() && Instant::now() < deadline {
            for mut got in queue.pull(&p).max(8).wait(c.timing().slack).await.unwrap_or_default() {
                if got.settle(Processed).await.is_ok() {
                    left.retain(|id| *id != got.id());
                }
            }
        }
        c.check(
            Clause::Stored,
            &left,
            left.is_empty(),
            "every message to be processed",
            format!("{} were not", left.len()),
        )
    };
    let disturb = async {
        for _ in 0..c.size(20, 200) {
            tokio::time::sleep(Duration::from_millis(75)).await;
            c.disrupt(Disruption::Cut).await?;
        }
        c.disrupt(Disruption::Heal).await
    };
    let (worked, disturbed) = join(work, disturb).await;
    disturbed.and(worked)
}
