//! The entries belong to the storage, not to a client, and are not messages: others see them, clients come
//! and go, and partitions know nothing of them.

use anyqueue::control::{Change, Expect};
use anyqueue::{ErrorKind, Page, PartitionId};

use super::{Entries, LONG, NEEDS, after, key, numbered, put};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.other_clients", [EntryKept, EntryCompared], other_clients)
        .needs(NEEDS)
        .kills(&[Fault::EntriesOfOneClient]),
    case!(Storage, "control.reopened", [EntryKept, Init], reopened)
        .needs(NEEDS)
        .kills(&[Fault::EntriesDieWithClient, Fault::InitForgetsEntries]),
    case!(Storage, "control.closed", [Close], closed).needs(NEEDS).kills(&[Fault::CloseDoesNothing]),
    case!(Storage, "control.namespaces", [EntryKept], namespaces)
        .needs(NEEDS)
        .kills(&[Fault::EntriesShareNamespaces]),
    case!(Storage, "control.not_purged", [EntryKept, Deletion], not_purged)
        .needs(&[Need::Control, Need::Purge])
        .kills(&[Fault::EntriesPurged]),
    case!(Storage, "control.not_counted", [EntryKept, Inspection], not_counted)
        .needs(&[Need::Control, Need::ReadyCounts])
        .kills(&[Fault::EntriesCounted]),
    case!(Storage, "control.no_partition", [EntryKept, Inspection], no_partition)
        .needs(&[Need::Control, Need::List])
        .kills(&[Fault::EntriesArePartitions]),
];

/// What one client writes another sees at once, and may expect, change and delete.
async fn other_clients(c: &Context) -> CaseResult {
    let (other, name) = (c.fresh().await?, key("shared")?);
    let (one, other) = (Entries::first(c)?, Entries::of(c, &other)?);
    for (writer, reader) in [(one, other), (other, one)] {
        let created = put(&name, Expect::Absent);
        writer.done(std::slice::from_ref(&created)).await?;
        reader.has(Clause::EntryKept, &created).await?;
        let changed = Change::put(name.clone(), after(&created), "theirs");
        reader.done(std::slice::from_ref(&changed)).await?;
        let there = writer.conflict(&put(&name, after(&created))).await?;
        writer.same(Clause::EntryCompared, "in a conflict", &changed, there.as_ref())?;
        writer.has(Clause::EntryKept, &changed).await?;
        reader.done(&[Change::delete(name.clone(), after(&changed))]).await?;
        writer.lacks(Clause::EntryKept, &name, "another client deleted it").await?;
    }
    Ok(())
}

/// When all clients have closed, a new one, which initialises the storage again, finds every entry.
async fn reopened(c: &Context) -> CaseResult {
    let (entries, names) = (Entries::first(c)?, numbered("kept/", 20)?);
    let lapsing = |(number, name)| {
        let change = put(name, Expect::Absent);
        if number % 2 == 0 { change } else { change.with_ttl(LONG) }
    };
    let written: Vec<_> = names.iter().enumerate().map(lapsing).collect();
    entries.done(&written).await?;
    c.ok(Clause::Init, "init", c.client().storage().init().await)?;
    let before = entries.pages("", 100).await?;
    c.equal(Clause::EntryKept, &[], "how many there are after an init:", &names.len(), &before.len())?;
    c.client().close().await?;
    let client = c.fresh().await?;
    let entries = Entries::of(c, &client)?;
    let after = entries.pages("", 100).await?;
    c.equal(Clause::EntryKept, &[], "the entries as they were before:", &before, &after)?;
    for change in &written {
        entries.has(Clause::EntryKept, change).await?;
    }
    Ok(())
}

/// A closed client returns `Closed` to every call, and changes nothing.
async fn closed(c: &Context) -> CaseResult {
    let (client, name) = (c.fresh().await?, key("closed")?);
    let entries = Entries::of(c, &client)?;
    let written = put(&name, Expect::Absent);
    entries.done(std::slice::from_ref(&written)).await?;
    client.close().await?;
    let (storage, kind) = (entries.storage, ErrorKind::Closed);
    c.error(Clause::Close, "reading", kind, &storage.get(std::slice::from_ref(&name)).await)?;
    c.error(Clause::Close, "a list", kind, &storage.list("", Page::of(10)).await)?;
    c.error(Clause::Close, "a change", kind, &storage.apply(&[put(&name, Expect::Any)]).await)?;
    Entries::first(c)?.has(Clause::EntryKept, &written).await
}

/// An entry in one namespace is not seen, met or changed in another.
async fn namespaces(c: &Context) -> CaseResult {
    let (harness, name) = (c.harness(), key("same")?);
    let mine = put(&name, Expect::Absent);
    Entries::first(c)?.done(std::slice::from_ref(&mine)).await?;
    let namespace = format!("other_{}", uuid::Uuid::new_v4().simple());
    let other = c.ok(Clause::Init, "another namespace", harness.open(&namespace).await)?;
    c.ok(Clause::Init, "initialising it", other.init().await)?;
    let judged = async {
        let theirs = Entries::over(c, &*other)?;
        theirs.lacks(Clause::EntryKept, &name, "it is in another namespace").await?;
        let change = Change::put(name.clone(), Expect::Absent, "theirs");
        theirs.done(std::slice::from_ref(&change)).await?;
        Entries::first(c)?.has(Clause::EntryKept, &mine).await?;
        theirs.done(&[Change::delete(name.clone(), after(&change))]).await?;
        Entries::first(c)?.has(Clause::EntryKept, &mine).await
    }
    .await;
    c.ok(Clause::Close, "close", other.close().await)?;
    drop(other);
    harness.remove(&namespace).await;
    judged
}

/// Entries with the same name as the partition.
async fn beside_messages(c: &Context, p: &PartitionId) -> CaseResult<Vec<Change>> {
    c.client().push(p, &c.messages(3, |_, message| message)).await?;
    let names = ["work", "work/1", "queue", "messages", "1"];
    let names = names.map(key).into_iter().collect::<CaseResult<Vec<_>>>()?;
    let written: Vec<_> = names.iter().map(|name| put(name, Expect::Absent)).collect();
    Entries::first(c)?.done(&written).await?;
    Ok(written)
}

/// Purging a partition takes no entry with it.
async fn not_purged(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let written = beside_messages(c, &p).await?;
    if let Some(inspect) = c.client().storage().inspect() {
        let purged = c.ok(Clause::Deletion, "a purge", inspect.purge(&p, 100).await)?;
        c.equal(Clause::Deletion, &[], "how many are purged:", &3, &purged)?;
    }
    for change in &written {
        Entries::first(c)?.has(Clause::EntryKept, change).await?;
    }
    Ok(())
}

/// Entries are not messages: they are not counted, and not delivered.
async fn not_counted(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let written = beside_messages(c, &p).await?;
    if let Some(inspect) = c.client().storage().inspect() {
        let counts = c.ok(Clause::Inspection, "counting", inspect.counts(&p).await)?;
        c.equal(Clause::Inspection, &[], "how many are ready:", &Some(3), &counts.ready)?;
    }
    let got = c.client().take(&p, 3).await?;
    c.client().remove(&got).await?;
    for change in &written {
        Entries::first(c)?.has(Clause::EntryKept, change).await?;
    }
    Ok(())
}

/// Entries create no partition.
async fn no_partition(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    beside_messages(c, &p).await?;
    if let Some(inspect) = c.client().storage().inspect() {
        let listed = c.ok(Clause::Inspection, "partitions", inspect.partitions(Page::of(100)).await)?;
        c.equal(Clause::Inspection, &[], "the partitions:", &vec![p], &listed)?;
    }
    Ok(())
}
