//! The control store through the portable queue: limits, times in whole milliseconds, and changes whose
//! answers are lost.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::control::{
    Applied, Change, ControlStore, Entry, Expect, Key, MAX_CONTROL_CHANGES, MAX_CONTROL_VALUE_BYTES,
};
use anyqueue::{ErrorKind, Queue};
use futures_util::future::{join, join_all};

use crate::case::Case;
use crate::cases::recovery::Recovery;
use crate::clause::Clause;
use crate::context::{Altered, Context};
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_control.used", [EntryKept, EntryCompared, EntriesListed], used).needs(NEEDS).kills(
        &[
            Fault::EntryDeleteForgotten,
            Fault::EntryVersionOfServer,
            Fault::EntryPagesSkip,
            Fault::EntryPagesRepeat,
        ],
    ),
    case!(Queue, "queue_control.counter", [EntryCompared], counter).needs(NEEDS).kills(&[Fault::EntryRace]),
    case!(Queue, "queue_control.limits", [EntryKept, Limits], limits)
        .needs(NEEDS)
        .kills(&[Fault::EntryValueCut, Fault::EntryAnyKeeps]),
    case!(Queue, "queue_control.whole_milliseconds", [EntryLapses], whole_milliseconds)
        .needs(NEEDS)
        .kills(&[Fault::EntryNeverLapses, Fault::EntryLapsesInSeconds, Fault::EntryEndUntold]),
    case!(Queue, "queue_control.undeclared", [Unsupported], undeclared)
        .needs(NEEDS)
        .kills(&[Fault::EntryDeleteForgotten]),
    case!(Queue, "queue_control.cut", [EntryCompared, Recovery], cut)
        .needs(&[Need::Control, Need::FaultTarget])
        .deadline(Duration::from_mins(3))
        .kills(&[Fault::EntryDoneWithoutAnswer]),
];

const NEEDS: &[Need] = &[Need::Control];

/// More than any of these cases has.
const MANY: usize = 1000;

fn store(c: &Context, queue: &Queue) -> CaseResult<ControlStore> {
    c.ok(Clause::EntryKept, "the control store of a queue", queue.control())
}

fn key(text: &str) -> CaseResult<Key> {
    Key::new(text).map_err(|error| Stop::Inconclusive(error.to_string()))
}

/// Makes a change that must succeed.
async fn done(c: &Context, store: &ControlStore, change: Change) -> CaseResult {
    let applied = c.ok(Clause::EntryCompared, "a change", store.apply(change).await)?.value;
    c.check(Clause::EntryCompared, &[], applied.is_done(), "Done", format!("{applied:?}"))
}

async fn value(c: &Context, store: &ControlStore, name: &Key) -> CaseResult<Option<String>> {
    let found = c.ok(Clause::EntryKept, "reading an entry", store.get(name).await)?.value;
    Ok(found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
}

/// Two queues share entries: written, compared, listed over several pages, deleted.
async fn used(c: &Context) -> CaseResult {
    let (one, other) = (store(c, &c.queue()?)?, store(c, &c.fresh_queue().await?)?);
    let n = MAX_CONTROL_CHANGES * 2 + 1;
    let names = (0..n).map(|number| key(&format!("worker/{number:03}"))).collect::<CaseResult<Vec<_>>>()?;
    for some in names.chunks(MAX_CONTROL_CHANGES) {
        let changes =
            some.iter().map(|name| Change::put(name.clone(), Expect::Absent, name.as_str().to_owned()));
        let applied = c.ok(Clause::EntryCompared, "changes", one.apply_all(changes.collect()).await)?.value;
        let right = applied.len() == some.len() && applied.iter().all(Applied::is_done);
        c.check(Clause::EntryCompared, &[], right, "all done", format!("{applied:?}"))?;
    }
    done(c, &one, Change::put(key("workers")?, Expect::Absent, "")).await?;
    let listed = c.ok(Clause::EntriesListed, "a list", other.list_all("worker/", MANY).await)?.value;
    let seen: Vec<_> = listed.iter().map(|entry| entry.key.clone()).collect();
    c.equal(Clause::EntriesListed, &[], "all that are listed:", &names, &seen)?;
    for entry in listed.iter().take(3) {
        let change = Change::put(entry.key.clone(), Expect::Version(entry.version), "other");
        let version = change.version();
        done(c, &other, change).await?;
        let found = c.ok(Clause::EntryKept, "reading an entry", one.get(&entry.key).await)?.value;
        c.equal(Clause::EntryKept, &[], "its version:", &version, &found.map(|entry| entry.version))?;
        let stale = Change::delete(entry.key.clone(), Expect::Version(entry.version));
        let refused = c.ok(Clause::EntryCompared, "a change", one.apply(stale).await)?.value;
        let right = matches!(&refused, Applied::Conflict(Some(there)) if there.value == "other");
        c.check(Clause::EntryCompared, &[], right, "a conflict with what is there", format!("{refused:?}"))?;
        done(c, &one, Change::delete(entry.key.clone(), Expect::Any)).await?;
        c.equal(Clause::EntryKept, &[], "what was deleted:", &None, &value(c, &other, &entry.key).await?)?;
    }
    Ok(())
}

/// Queues that count up one entry by compare-and-set lose no count.
async fn counter(c: &Context) -> CaseResult {
    const EACH: usize = 10;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(store(c, &c.fresh_queue().await?)?);
    }
    let name = key("counter")?;
    let counting = stores.iter().map(|store| async {
        let mut left = EACH;
        while left > 0 {
            let found = c.ok(Clause::EntryKept, "reading an entry", store.get(&name).await)?.value;
            let expect = found.as_ref().map_or(Expect::Absent, |entry| Expect::Version(entry.version));
            let count = found.map_or(0, |entry| entry.value.len());
            let change = Change::put(name.clone(), expect, vec![b'|'; count + 1]);
            let applied = c.ok(Clause::EntryCompared, "a change", store.apply(change).await)?.value;
            left -= usize::from(applied.is_done());
        }
        Ok(())
    });
    let count = stores.len() * EACH;
    join_all(counting).await.into_iter().collect::<CaseResult>()?;
    let counted = value(c, &store(c, &c.queue()?)?, &name).await?.map_or(0, |value| value.len());
    c.equal(Clause::EntryCompared, &[], "the count:", &count, &counted)
}

/// Anything too large, or too many, is refused before anything is changed; values just within the limits are
/// accepted.
async fn limits(c: &Context) -> CaseResult {
    let (store, name) = (store(c, &c.queue()?)?, key("limits")?);
    let put = |bytes: usize| Change::put(name.clone(), Expect::Any, vec![7; bytes]);
    done(c, &store, put(1)).await?;
    let beyond = store.apply_all(vec![put(2), put(MAX_CONTROL_VALUE_BYTES + 1)]).await;
    c.error(Clause::Limits, "a value beyond the limit", ErrorKind::TooLarge, &beyond)?;
    let many = store.apply_all(vec![put(2); MAX_CONTROL_CHANGES + 1]).await;
    c.error(Clause::Limits, "changes beyond the limit", ErrorKind::InvalidInput, &many)?;
    let none = store.apply(put(2).with_ttl(Duration::ZERO)).await;
    c.error(Clause::Limits, "a time to live of nothing", ErrorKind::InvalidInput, &none)?;
    let size = |value: Option<String>| value.map(|value| value.len());
    c.equal(Clause::Limits, &[], "the value as it was:", &Some(1), &size(value(c, &store, &name).await?))?;
    done(c, &store, put(MAX_CONTROL_VALUE_BYTES)).await?;
    let largest = Some(MAX_CONTROL_VALUE_BYTES);
    c.equal(Clause::EntryKept, &[], "the largest value:", &largest, &size(value(c, &store, &name).await?))
}

/// A time to live is rounded up to whole milliseconds, and one beyond all clocks means forever.
async fn whole_milliseconds(c: &Context) -> CaseResult {
    let (store, name) = (store(c, &c.queue()?)?, key("times")?);
    let minute = Duration::from_mins(1);
    for (asked, rounded) in [
        (minute + Duration::from_nanos(1), minute + Duration::from_millis(1)),
        (minute + Duration::from_micros(4_001), minute + Duration::from_millis(5)),
        (minute, minute),
    ] {
        let before = c.ok(Clause::EntryLapses, "reading", store.get(&name).await)?.now;
        done(c, &store, Change::put(name.clone(), Expect::Any, "").with_ttl(asked)).await?;
        let found = c.ok(Clause::EntryLapses, "reading", store.get(&name).await)?;
        let grain = Duration::from_millis(1);
        let bounds = before + rounded - grain..=found.now + rounded + grain;
        let end = found.value.and_then(|entry| entry.expires_at);
        let right = end.is_some_and(|end| bounds.contains(&end));
        c.check(Clause::EntryLapses, &[], right, format!("an end in {bounds:?}"), format!("{end:?}"))?;
    }
    done(c, &store, Change::put(name.clone(), Expect::Any, "").with_ttl(Duration::MAX)).await?;
    let found = c.ok(Clause::EntryLapses, "reading", store.get(&name).await)?.value;
    let end = found.map(|entry| entry.expires_at);
    c.equal(Clause::EntryLapses, &[], "the end of what is kept for good:", &Some(None), &end)
}

/// A queue on a backend that declares no control store has none; and the other queues' entries are unchanged.
async fn undeclared(c: &Context) -> CaseResult {
    let (own, name) = (store(c, &c.queue()?)?, key("undeclared")?);
    done(c, &own, Change::put(name.clone(), Expect::Absent, "1")).await?;
    let storage: Arc<dyn Storage> = Altered::new(c.client().storage(), |declared| declared.control = false);
    let queue = c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).build())?;
    let refused = queue.control().map(drop);
    c.error(Clause::Unsupported, "a control store", ErrorKind::Unsupported, &refused)?;
    c.equal(Clause::EntryKept, &[], "the entry:", &Some("1".to_owned()), &value(c, &own, &name).await?)?;
    done(c, &own, Change::delete(name.clone(), Expect::Any)).await?;
    c.equal(Clause::EntryKept, &[], "what was deleted:", &None, &value(c, &own, &name).await?)
}

/// Reads an entry as soon as the server can be reached again.
async fn read_again(c: &Context, store: &ControlStore, name: &Key) -> CaseResult<Option<Entry>> {
    let recovery = Recovery::begins();
    loop {
        match store.get(name).await {
            Ok(found) => return Ok(found.value),
            Err(_) => recovery.again(c, "reading an entry").await?,
        }
    }
}

/// Changes on connections that break before they arrive or before they are answered: a change that was
/// reported as done is done once.
async fn cut(c: &Context) -> CaseResult {
    let queue = c.queue_over(c.client(), |builder| builder)?;
    let (store, name) = (store(c, &queue)?, key("counter")?);
    let mut count = 0;
    for round in 0..6_u32 {
        let there = read_again(c, &store, &name).await?;
        let expect = there.map_or(Expect::Absent, |entry| Expect::Version(entry.version));
        let change = Change::put(name.clone(), expect, vec![b'|'; count + 1]);
        c.disrupt(if round % 2 == 0 { Disruption::Stall } else { Disruption::DropReplies }).await?;
        let (applied, disrupted) = join(store.apply(change.clone()), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            c.disrupt(Disruption::Cut).await?;
            c.disrupt(Disruption::Heal).await
        })
        .await;
        disrupted?;
        let found = read_again(c, &store, &name).await?;
        let is_there = found.as_ref().is_some_and(|entry| Some(entry.version) == change.version());
        let right = match &applied {
            Ok(applied) => applied.value.is_done() && is_there,
            Err(_) => true,
        };
        c.check(
            Clause::EntryCompared,
            &[],
            right,
            "done, and found",
            format!("{applied:?}, then {found:?}"),
        )?;
        count = found.map_or(0, |entry| entry.value.len());
    }
    Ok(())
}
