//! Several clients change one entry at once: no change is lost, and nobody waits forever.

use anyqueue::control::{Applied, Change, Expect, Key};
use futures_util::future::join_all;

use super::{Entries, NEEDS, after, key, numbered, put};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.counter", [EntryCompared], counter).needs(NEEDS).kills(&[Fault::EntryRace]),
    case!(Storage, "control.one_creates", [EntryCompared], one_creates)
        .needs(NEEDS)
        .kills(&[Fault::EntryRace, Fault::EntryAbsentIgnored]),
    case!(Storage, "control.one_deletes", [EntryCompared], one_deletes)
        .needs(NEEDS)
        .kills(&[Fault::EntryRace, Fault::EntryDeleteUnasked]),
    case!(Storage, "control.crossing_orders", [EntryCompared], crossing_orders)
        .needs(NEEDS)
        .kills(&[Fault::EntriesDeadlock]),
];

/// How many tasks change one entry at once.
const TASKS: usize = 8;
/// How much each of them adds to a counter.
const EACH: u64 = 15;

async fn clients(c: &Context, n: usize) -> CaseResult<Vec<Client>> {
    join_all((0..n).map(|_| c.fresh())).await.into_iter().collect()
}

/// Adds one: reads, writes if the entry is still as it was read, and starts again if it is not.
async fn add_one(entries: &Entries<'_>, name: &Key) -> CaseResult {
    loop {
        let (expect, count) = match entries.one(name).await? {
            Some(entry) => (Expect::Version(entry.version), number(&entry.value)),
            None => (Expect::Absent, 0),
        };
        let change = Change::put(name.clone(), expect, (count + 1).to_string());
        if entries.one_applied(&change).await?.is_done() {
            return Ok(());
        }
        tokio::task::yield_now().await; // to who was faster
    }
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Several tasks over several clients count up by compare-and-set: each increment is counted.
async fn counter(c: &Context) -> CaseResult {
    let (clients, name) = (clients(c, 3).await?, key("counter")?);
    let tasks = (0..TASKS).zip(clients.iter().cycle()).map(|(_, client)| {
        let name = &name;
        async move {
            let entries = Entries::of(c, client)?;
            for _ in 0..EACH {
                add_one(&entries, name).await?;
            }
            Ok(())
        }
    });
    join_all(tasks).await.into_iter().collect::<CaseResult>()?;
    let counted = Entries::first(c)?.one(&name).await?.map_or(0, |entry| number(&entry.value));
    c.equal(Clause::EntryCompared, &[], "the count:", &(TASKS as u64 * EACH), &counted)
}

/// Several clients make the same change at once, and one succeeds. Returns the winner's number.
async fn race(c: &Context, clients: &[Client], changes: &[Change]) -> CaseResult<usize> {
    let racers = clients
        .iter()
        .zip(changes)
        .map(|(client, change)| async move { Entries::of(c, client)?.one_applied(change).await });
    let results = join_all(racers).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let winners: Vec<_> =
        results.iter().enumerate().filter(|(_, it)| it.is_done()).map(|(number, _)| number).collect();
    c.equal(Clause::EntryCompared, &[], "how many were told Done:", &1, &winners.len())?;
    let winner = winners.first().copied().unwrap_or(0);
    for result in &results {
        let (Some(change @ Change::Put { .. }), Applied::Conflict(there)) = (changes.get(winner), result)
        else {
            continue;
        };
        Entries::first(c)?.same(Clause::EntryCompared, "told to those who lost", change, there.as_ref())?;
    }
    Ok(winner)
}

/// Of several clients that create an entry at once, one succeeds, and the others learn whose it is.
async fn one_creates(c: &Context) -> CaseResult {
    let (clients, entries) = (clients(c, TASKS).await?, Entries::first(c)?);
    for name in numbered("created/", c.size(10, 100))? {
        let changes: Vec<_> = (0..TASKS)
            .map(|racer| Change::put(name.clone(), Expect::Absent, format!("racer {racer}")))
            .collect();
        let winner = race(c, &clients, &changes).await?;
        if let Some(change) = changes.get(winner) {
            entries.has(Clause::EntryCompared, change).await?;
        }
    }
    Ok(())
}

/// Of several clients that delete one content at once, one succeeds.
async fn one_deletes(c: &Context) -> CaseResult {
    let (clients, entries) = (clients(c, TASKS).await?, Entries::first(c)?);
    for name in numbered("deleted/", c.size(10, 100))? {
        let written = put(&name, Expect::Absent);
        entries.done(std::slice::from_ref(&written)).await?;
        let changes = vec![Change::delete(name.clone(), after(&written)); TASKS];
        race(c, &clients, &changes).await?;
        entries.lacks(Clause::EntryCompared, &name, "it was deleted").await?;
    }
    Ok(())
}

/// Calls that change the same entries in different orders all end, each with all its changes made.
async fn crossing_orders(c: &Context) -> CaseResult {
    let (clients, names) = (clients(c, 4).await?, numbered("crossed/", 20)?);
    for round in 0..c.size(10, 100) {
        let calls = clients.iter().enumerate().map(|(number, client)| {
            let mut names = names.clone();
            match number {
                0 => {}
                1 => names.reverse(),
                _ => names.rotate_left(number * 5 + round % 5),
            }
            async move {
                let changes: Vec<_> = names.iter().map(|name| put(name, Expect::Any)).collect();
                Entries::of(c, client)?.done(&changes).await
            }
        });
        let all = tokio::time::timeout(c.timing().soon * 2, join_all(calls)).await;
        let told = "changes in crossing orders to end";
        let ended = all.map_err(|_| c.failed(Clause::EntryCompared, &[], told, "they wait still"))?;
        ended.into_iter().collect::<CaseResult>()?;
    }
    Entries::first(c)?.lists("crossed/", 100, &names).await
}
