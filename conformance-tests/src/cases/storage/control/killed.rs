//! Servers that die, and connections that break in the middle of a change: it is made or not, never half.

use std::time::Duration;

use anyqueue::control::{Applied, Change, Expect};
use futures_util::future::join;

use super::super::ledger::killed::{recovered, settlements_last};
use super::{Entries, LONG, after, key, numbered, put, short};
use crate::case::Case;
use crate::cases::recovery::Recovery;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.server_killed", [EntryKept, Recovery], server_killed)
        .needs(NEEDS)
        .deadline(MINUTES)
        .kills(&[Fault::RestartForgetsEntries]),
    case!(Storage, "control.unanswered", [EntryCompared, Recovery], unanswered)
        .needs(NEEDS)
        .deadline(MINUTES)
        .kills(&[Fault::EntryDoneWithoutAnswer]),
];

const NEEDS: &[Need] = &[Need::Control, Need::FaultTarget];

/// Servers need time to start.
const MINUTES: Duration = Duration::from_mins(3);

/// Entries are as durable as settlements: when the server was killed and started again, entries that were
/// written are there, and those that were deleted are not.
async fn server_killed(c: &Context) -> CaseResult {
    let (entries, names) = (Entries::first(c)?, numbered("kept/", 30)?);
    let created: Vec<_> = names.iter().map(|name| put(name, Expect::Absent)).collect();
    entries.done(&created).await?;
    let changes: Vec<_> = created
        .iter()
        .enumerate()
        .filter_map(|(number, former)| match number % 3 {
            0 => Some(Change::delete(former.key().clone(), after(former))),
            1 => Some(Change::put(former.key().clone(), after(former), "anew").with_ttl(LONG)),
            _ => None,
        })
        .collect();
    entries.done(&changes).await?;
    let before = entries.pages("", 100).await?;
    c.equal(Clause::EntryKept, &[], "how many there are:", &20, &before.len())?;
    c.disrupt(Disruption::Kill).await?;
    c.disrupt(Disruption::Start).await?;
    let client = recovered(c).await?;
    let after = Entries::of(c, &client)?.pages("", 100).await?;
    if settlements_last(c) {
        return c.equal(Clause::EntryKept, &[], "the entries as they were before:", &before, &after);
    }
    // What the server may forget, it forgets as a whole: any entry that it returns was written.
    for entry in &after {
        let written = created
            .iter()
            .chain(&changes)
            .any(|change| *change.key() == entry.key && change.version() == Some(entry.version));
        c.check(Clause::EntryKept, &[], written, "what was written", super::described(entry))?;
    }
    Ok(())
}

/// Changes whose answer does not arrive: the call fails, or they are made. Repeated, they are made once.
async fn unanswered(c: &Context) -> CaseResult {
    for (number, disruption) in
        [Disruption::Stall, Disruption::DropReplies, Disruption::Stall].into_iter().enumerate()
    {
        let client = recovered(c).await?;
        let counter = key(&format!("counter/{number}"))?;
        let first = put(&counter, Expect::Absent);
        Entries::of(c, &client)?.done(std::slice::from_ref(&first)).await?;
        let mut changes = vec![Change::put(counter.clone(), after(&first), "counted")];
        let names = numbered(&format!("batch/{number}/"), 10)?;
        changes.extend(names.iter().map(|name| put(name, Expect::Absent)));
        cut_off(c, &client, disruption, &changes).await?;
        repeated(c, &client, &changes).await?;
    }
    Ok(())
}

/// Sends the changes while no answer arrives, and judges what the call returns.
async fn cut_off(c: &Context, client: &Client, disruption: Disruption, changes: &[Change]) -> CaseResult {
    c.disrupt(disruption).await?;
    let storage = Entries::of(c, client)?.storage;
    let (answer, disrupted) = join(storage.apply(changes), async {
        // Long enough for the request to arrive; whether it did makes no difference to what is correct.
        tokio::time::sleep(Duration::from_millis(200)).await;
        c.disrupt(Disruption::Cut).await?;
        c.disrupt(Disruption::Heal).await
    })
    .await;
    disrupted?;
    let other = recovered(c).await?;
    let entries = Entries::of(c, &other)?;
    for (number, change) in changes.iter().enumerate() {
        let found = entries.one(change.key()).await?;
        let is_there = found.as_ref().is_some_and(|found| Some(found.version) == change.version());
        if is_there {
            entries.same(Clause::EntryCompared, "written whole", change, found.as_ref())?;
        }
        let result = answer.as_ref().ok().and_then(|answer| answer.value.get(number));
        let told = result.is_some_and(Applied::is_done);
        let expected = format!("{} as it was told to be written", change.key());
        c.check(Clause::EntryCompared, &[], is_there || !told, expected, format!("{found:?}"))?;
    }
    Ok(())
}

/// Repeats the changes: each is made, or finds its own result.
async fn repeated(c: &Context, client: &Client, changes: &[Change]) -> CaseResult {
    let recovery = Recovery::begins();
    let storage = Entries::of(c, client)?.storage;
    let results = loop {
        match storage.apply(changes).await {
            Ok(results) => break results.value,
            Err(_) => recovery.again(c, "a change").await?,
        }
    };
    let entries = Entries::of(c, client)?;
    for (change, result) in changes.iter().zip(&results) {
        let own = |entry: &anyqueue::control::Entry| Some(entry.version) == change.version();
        let right =
            matches!(result, Applied::Done) || matches!(result, Applied::Conflict(Some(entry)) if own(entry));
        c.check(Clause::EntryCompared, &[], right, "Done, or its own version", short(result))?;
        entries.has(Clause::EntryCompared, change).await?;
    }
    Ok(())
}
