//! Processes that are killed between settlements, and servers that are killed: each task lives, or has ended.

use std::collections::HashSet;
use std::time::Duration;

use anyqueue::adapter::{DurabilityLevel, PullRequest, TaskEnd};
use anyqueue::{EndState, MessageData, MessageId, PartitionId, SettleOutcome};
use futures_util::future::join;

use super::super::kill::{removed, taken, unsaid};
use super::{LONG, Ledger, bare, end_numbered, ending, numbered};
use crate::case::Case;
use crate::cases::recovery::Recovery;
use crate::child::{ChildEvent, Role};
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.of_killed_processes", [EndStored, SettleOutcomes], of_killed_processes)
        .needs(&[Need::Ledger, Need::Children])
        .deadline(Duration::from_secs(90))
        .kills(&[Fault::EndLate]),
    case!(Storage, "ledger.server_killed", [EndedTold, Recovery], server_killed)
        .needs(&[Need::Ledger, Need::FaultTarget])
        .deadline(MINUTES)
        .kills(&[Fault::RestartForgetsEnds]),
    case!(Storage, "ledger.server_killed_under_load", [EndStored, Recovery], server_killed_under_load)
        .needs(&[Need::Ledger, Need::FaultTarget])
        .deadline(MINUTES)
        .kills(&[Fault::RestartForgets]),
    case!(Storage, "ledger.settle_unanswered", [EndStored, SettleTwice], settle_unanswered)
        .needs(&[Need::Ledger, Need::FaultTarget, Need::TimedLease])
        .deadline(MINUTES)
        .kills(&[Fault::EndLate]),
];

/// Servers need time to start.
const MINUTES: Duration = Duration::from_mins(3);

/// How many tasks each round has.
const TASKS: usize = 40;

/// A process is killed anywhere between its settlements: each task that it had ended has its end, and is
/// gone; every other task lives, and has none.
async fn of_killed_processes(c: &Context) -> CaseResult {
    let (p, t, mut random) = (c.partition("work")?, c.timing(), c.random());
    let lease_ms = u64::try_from(t.lease.as_millis()).unwrap_or(u64::MAX);
    for _ in 0..c.size(4, 20) {
        let sent = c.messages(TASKS, |_, message| message);
        c.client().push(&p, &sent).await?;
        let mut child = c.spawn(&Role::Ender { partition: "work".to_owned(), lease_ms })?;
        let until = random.usize(1..TASKS - 5);
        let mut said = child.wait_for(until, |event| matches!(event, ChildEvent::Removed { .. })).await?;
        tokio::time::sleep(Duration::from_micros(random.u64(0..500))).await;
        said.extend(child.kill().await?);
        lives_or_has_ended(c, &p, &sent, &said).await?;
    }
    Ok(())
}

/// Takes the live tasks, and judges that each task lives or has ended, as the killed process reported.
async fn lives_or_has_ended(
    c: &Context,
    p: &PartitionId,
    sent: &[MessageData],
    said: &[ChildEvent],
) -> CaseResult {
    let (t, told_removed) = (c.timing(), removed(said));
    let ledger = Ledger::first(c, p)?;
    let ids: Vec<_> = sent.iter().map(MessageData::id).collect();
    // The one that it was settling, had settled without reporting it, or had just taken.
    let open = taken(said).last().copied().filter(|last| !told_removed.contains(last));
    let mut living = HashSet::new();
    loop {
        let ended = ledger.find(&ids).await?.iter().flatten().count();
        let owed = ids.len().saturating_sub(ended + living.len());
        if owed == 0 {
            break;
        }
        let got = c.client().pull_with(p, c.client().request(10, t.latest(t.lease))).await?;
        if got.is_empty() {
            break;
        }
        for held in &got {
            let first = living.insert(held.lease.id);
            c.check(Clause::EndStored, &[held.lease.id], first, "each that lives once", "it came twice")?;
        }
        let mine: Vec<_> = got.iter().map(|held| held.lease.id).collect();
        ledger.lacks(Clause::EndStored, &mine, "it lives").await?;
        c.client().remove(&got).await?;
    }
    for (message, found) in sent.iter().zip(ledger.find(&ids).await?) {
        let id = message.id();
        let one = found.is_some() != living.contains(&id);
        let seen = if found.is_some() { "both" } else { "neither" };
        c.check(Clause::EndStored, &[id], one, "an end, or a task that lives", seen)?;
        let kept = found.is_some() || !told_removed.contains(&id);
        c.check(Clause::EndStored, &[id], kept, "the end of what was Settled", "none")?;
        if let Some(found) = found {
            let end = TaskEnd::new(EndState::Succeeded).with_result(message.payload().to_vec());
            c.equal(Clause::EndStored, &[id], "its own end", &end, &bare(&found))?;
            if !told_removed.contains(&id) {
                c.equal(Clause::EndStored, &[id], "ended, and not said so", &open, &Some(id))?;
                unsaid(c, id);
            }
        }
    }
    Ok(())
}

/// Acknowledged settlements have their ends after the server was killed and started again, with everything
/// that belongs to them.
async fn server_killed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let settled = end_numbered(c, &p, 30).await?;
    let recorded: Vec<_> =
        (0..5).map(|number| (MessageId::new(), numbered(number).with_keep(LONG))).collect();
    Ledger::first(c, &p)?.record(&recorded).await?;
    let all = super::EndedQuery::default();
    let before = Ledger::first(c, &p)?.list(&all).await?;
    c.disrupt(Disruption::Kill).await?;
    c.disrupt(Disruption::Start).await?;
    let client = recovered(c).await?;
    let ledger = Ledger::of(c, &client, &p)?;
    if !settlements_last(c) {
        // Settlements that the server may forget, it may forget with their ends; what it still returns is
        // whole.
        let ends: Vec<_> = [settled, recorded].concat();
        for ((id, end), found) in ends.iter().zip(ledger.find(&super::ids_of(&ends)).await?) {
            let right = found.as_ref().is_none_or(|found| bare(found) == end.clone().with_keep(None));
            c.check(Clause::EndStored, &[*id], right, format!("{end:?}, or none"), format!("{found:?}"))?;
        }
        return Ok(());
    }
    ledger.has(Clause::EndedTold, &[settled, recorded].concat()).await?;
    let after = ledger.list(&all).await?;
    c.equal(Clause::EndedTold, &[], "the list as it was before:", &before, &after)
}

/// Returns whether an acknowledged settlement survives the server's death.
pub(in crate::cases::storage) fn settlements_last(c: &Context) -> bool {
    c.capabilities().durability.settle >= DurabilityLevel::ProcessCrash
}

/// Opens a new client, once the server is back.
pub(in crate::cases::storage) async fn recovered(c: &Context) -> CaseResult<Client> {
    let recovery = Recovery::begins();
    while c.client().storage().check().await.is_err() {
        recovery.again(c, "a good check").await?;
    }
    c.fresh().await
}

/// A server is killed while tasks end: a task that was `Settled` has its end; one that comes back has none;
/// in the end each task has one.
async fn server_killed_under_load(c: &Context) -> CaseResult {
    let (p, t, n) = (c.partition("work")?, c.timing(), c.size(400, 1000));
    let sent = c.client().push(&p, &c.messages(n, |_, message| message)).await?;
    let mut owed: HashSet<MessageId> = HashSet::new();
    let working = async {
        // Until the server is gone: then calls fail.
        let mut number = 0;
        loop {
            let request = PullRequest::new(4, t.slack, t.act_lease);
            let Ok(got) = c.client().storage().pull(&p, request).await else { break };
            if got.is_empty() {
                break;
            }
            let batch: Vec<_> = got
                .iter()
                .map(|held| {
                    number += 1;
                    ending(held, &numbered(number))
                })
                .collect();
            let answers = c.client().storage().settle(&batch).await;
            let settled = got.iter().zip(&answers).filter(|(_, it)| matches!(it, Ok(SettleOutcome::Settled)));
            owed.extend(settled.map(|(held, _)| held.lease.id));
        }
    };
    let killing = async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        c.disrupt(Disruption::Kill).await?;
        c.disrupt(Disruption::Start).await
    };
    let ((), killed) = join(working, killing).await;
    killed?;
    let client = recovered(c).await?;
    let ledger = Ledger::of(c, &client, &p)?;
    if settlements_last(c) {
        let owed: Vec<_> = owed.iter().copied().collect();
        ledger.lists_once(Clause::EndStored, &owed).await?;
    }
    loop {
        let ended = ledger.find(&sent).await?.iter().flatten().count();
        if ended == sent.len() {
            break;
        }
        let got = client.pull_with(&p, client.request(10, t.latest(t.act_lease))).await?;
        let missing = sent.len() - ended;
        let told = format!("the {missing} tasks that have no end to be there");
        c.check(Clause::EndStored, &[], !got.is_empty(), told, "nothing comes")?;
        let living: Vec<_> = got.iter().map(|held| held.lease.id).collect();
        ledger.lacks(Clause::EndStored, &living, "it lives").await?;
        client.settle(&got.iter().map(|held| ending(held, &numbered(0))).collect::<Vec<_>>()).await?;
    }
    ledger.lists_once(Clause::EndStored, &sent).await
}

/// A settlement without an answer is settled again: there is one end, and it is the one that was `Settled`,
/// if one was.
async fn settle_unanswered(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for number in 0..3 {
        let client = recovered(c).await?;
        client.push(&p, &[c.message()]).await?;
        let [held] = client.take_exact(&p).await?;
        let batch = [ending(&held, &numbered(number))];
        c.disrupt(Disruption::DropReplies).await?;
        let settling = client.storage().settle(&batch);
        let (first, disrupted) = join(settling, async {
            // Long enough for the request to arrive; whether it did makes no difference to what is correct.
            tokio::time::sleep(Duration::from_millis(200)).await;
            c.disrupt(Disruption::Cut).await?;
            c.disrupt(Disruption::Heal).await
        })
        .await;
        disrupted?;
        drop(first);
        let recovery = Recovery::begins();
        while client.storage().settle(&batch).await.iter().any(Result::is_err) {
            recovery.again(c, "a settlement").await?;
        }
        let other = recovered(c).await?;
        Ledger::of(c, &other, &p)?.has(Clause::EndStored, &[(held.lease.id, numbered(number))]).await?;
    }
    Ok(())
}
