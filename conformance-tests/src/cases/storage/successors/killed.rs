//! Processes that are killed while they settle with successors.

use std::collections::BTreeMap;
use std::time::Duration;

use anyqueue::adapter::{Action, RawDelivery};
use anyqueue::{MessageId, PartitionId};

use super::super::kill::{removed, taken, unsaid};
use crate::case::Case;
use crate::child::{Child, ChildEvent, Role};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] =
    &[case!(Storage, "successors.chains_of_killed_processes", [Successors, SettleOutcomes], chains)
        .needs(&[Need::Successors, Need::Children])
        .kills(&[Fault::SuccessorsDropped, Fault::SuccessorsLate])
        .deadline(Duration::from_secs(90))];

/// How many chains of messages there are, each message followed by the next.
const CHAINS: usize = 4;

/// How many processes carry them on at once.
const RUNNERS: usize = 2;

/// Chains that processes carry on are never broken when these are killed, wherever that is; and if the end
/// and the successor are one step, no chain forks.
async fn chains(c: &Context) -> CaseResult {
    let (p, mut random, t) = (c.partition("work")?, c.random(), c.timing());
    let first = c.messages(CHAINS, |_, message| message);
    let first: Vec<_> = first
        .into_iter()
        .enumerate()
        .map(|(chain, message)| anyqueue::MessageData::with_id(message.id(), format!("{chain} 0")))
        .collect();
    c.client().push(&p, &first).await?;
    let lease_ms = u64::try_from(t.lease.as_millis()).unwrap_or(u64::MAX);
    let mut reached = BTreeMap::new();
    for _ in 0..c.size(6, 40) {
        let mut runners = Vec::new();
        for _ in 0..RUNNERS {
            runners.push(c.spawn(&Role::Relay { partition: "work".to_owned(), lease_ms })?);
        }
        let mut said = Vec::new();
        for runner in &mut runners {
            said.push(some_events(runner, random.usize(4..32)).await?);
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..2000))).await;
        for (runner, said) in runners.iter_mut().zip(&mut said) {
            said.extend(runner.kill().await?);
        }
        let open: Vec<_> = said.iter().filter_map(|said| open(said)).collect();
        unbroken(c, &p, &open, &mut reached).await?;
    }
    for (_, ends) in take_all(c, &p).await? {
        let ends: Vec<_> = ends.into_iter().map(|(_, delivery)| delivery).collect();
        c.client().remove(&ends).await?;
    }
    Ok(())
}

/// Returns this many events of a process; fewer if it finds nothing to do.
async fn some_events(runner: &mut Child, most: usize) -> CaseResult<Vec<ChildEvent>> {
    let mut said = Vec::new();
    while said.len() < most {
        match runner.event().await? {
            None | Some(ChildEvent::Idle) => break,
            Some(event) => said.push(event),
        }
    }
    Ok(said)
}

/// Returns the message that a process was about to settle when it was killed, or had settled without
/// reporting it.
fn open(said: &[ChildEvent]) -> Option<MessageId> {
    let gone = removed(said);
    taken(said).pop().filter(|last| !gone.contains(last))
}

/// The links of each chain that are there.
type Links = BTreeMap<String, Vec<(u64, RawDelivery)>>;

/// Takes what is left of each chain, judges it, and lets the chains continue from there.
async fn unbroken(
    c: &Context,
    p: &PartitionId,
    open: &[MessageId],
    reached: &mut BTreeMap<String, u64>,
) -> CaseResult {
    let links = take_all(c, p).await?;
    let there = |id: &MessageId| links.values().flatten().any(|(_, delivery)| delivery.lease.id == *id);
    open.iter().filter(|id| !there(id)).for_each(|id| unsaid(c, *id));
    let seen = || format!("{links:?}");
    c.check(Clause::Successors, &[], links.len() == CHAINS, format!("{CHAINS} chains"), seen())?;
    if Need::AtomicSuccessors.is_declared(c.capabilities()) {
        let alone = links.values().all(|ends| ends.len() == 1);
        c.check(Clause::Successors, &[], alone, "one link of each chain", seen())?;
    }
    for (chain, ends) in links {
        let furthest = ends.iter().map(|(number, _)| *number).max().unwrap_or_default();
        let before = reached.insert(chain.clone(), furthest).unwrap_or_default();
        let (about, ends): (Vec<_>, Vec<_>) =
            ends.into_iter().map(|(_, delivery)| (delivery.lease.id, delivery)).unzip();
        let expected = format!("chain {chain} at {before} or further");
        c.check(Clause::Successors, &about, furthest >= before, expected, furthest.to_string())?;
        c.client().settle_all(&ends, &Action::Release).await?;
    }
    Ok(())
}

/// Pulls until nothing comes any more, once everything that killed processes held is back.
async fn take_all(c: &Context, p: &PartitionId) -> CaseResult<Links> {
    let mut links = Links::new();
    loop {
        let forks = !Need::AtomicSuccessors.is_declared(c.capabilities());
        let missing = links.len() < CHAINS || forks;
        let wait = if missing { c.timing().latest(c.timing().lease) } else { Duration::ZERO };
        let got = c.client().pull_with(p, c.client().request(CHAINS, wait)).await?;
        if got.is_empty() {
            return Ok(links);
        }
        for delivery in got {
            let text = String::from_utf8_lossy(delivery.message.payload()).into_owned();
            let (chain, number) = text.split_once(' ').unwrap_or_default();
            let number = number.parse().unwrap_or_default();
            links.entry(chain.to_owned()).or_default().push((number, delivery));
        }
    }
}
