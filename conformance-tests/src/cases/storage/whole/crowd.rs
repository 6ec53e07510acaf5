//! Many pullers of the same groups at once, some of single messages and some of whole groups, while members
//! are pushed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, RawDelivery};
use anyqueue::{MessageId, PartitionId};
use futures_util::future::{join, join_all};

use super::{ALL, NEEDS, whole};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids, settlement};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] =
    &[case!(Storage, "whole.many_pullers", [WholeGroups, Groups, Exclusive, Stored], many_pullers)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsReversed, Fault::FirstEndFreesGroup, Fault::SharedDelivery])
        .deadline(Duration::from_mins(1))];

const GROUPS: usize = 6;
const PUSHERS: usize = 2;
const PULLERS: usize = 6;

/// How long one check for work waits.
const LOOK: Duration = Duration::from_millis(50);

/// A puller that found nothing this often in a row gives up: nothing more will come.
const MAX_IDLE: usize = 60;

fn group_name(group: usize) -> String {
    format!("g{group}")
}

/// Members of one group that one pull returned: when they came, when their settlement began, and which of
/// them were removed.
struct Held {
    group: String,
    came: Instant,
    settling: Instant,
    removed: Vec<MessageId>,
}

/// Each puller removes the first of the members that it holds of a group, and releases the rest. So the
/// members of each group are removed in push order, once each, and nobody gets one while another is held
/// elsewhere.
async fn many_pullers(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let members = c.size(12, 60);
    let clients = join_all((0..PUSHERS + PULLERS).map(|_| c.fresh())).await;
    let clients = clients.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let (pushers, pullers) = clients.split_at(PUSHERS);
    let left = AtomicUsize::new(GROUPS * members);
    let pushing =
        join_all(pushers.iter().enumerate().map(|(nth, client)| push_some(c, client, &p, nth, members)));
    let mut seeds = c.random();
    let pulling = join_all(pullers.iter().map(|client| pull_some(c, client, &p, &left, seeds.fork())));
    let (pushed, pulled) = join(pushing, pulling).await;
    let sent = pushed.into_iter().collect::<CaseResult<Vec<_>>>()?.into_iter().flatten().collect();
    let held = pulled.into_iter().collect::<CaseResult<Vec<_>>>()?.into_iter().flatten().collect();
    judge(c, sent, held)
}

/// Pushes the members of each of its groups, the groups in turn. Returns them by group.
async fn push_some(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    nth: usize,
    members: usize,
) -> CaseResult<Vec<(String, MessageId)>> {
    let mut sent = Vec::new();
    for _ in 0..members {
        for group in (0..GROUPS).filter(|group| group % PUSHERS == nth).map(group_name) {
            let ids = client.push(p, &[c.message().with_group(&*group)]).await?;
            sent.extend(ids.into_iter().map(|id| (group.clone(), id)));
        }
        tokio::task::yield_now().await;
    }
    Ok(sent)
}

async fn pull_some(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    left: &AtomicUsize,
    mut random: fastrand::Rng,
) -> CaseResult<Vec<Held>> {
    let (mut all, mut idle) = (Vec::new(), 0);
    while left.load(Ordering::Relaxed) > 0 && idle < MAX_IDLE {
        let members = random.choice([1, 3, ALL]).unwrap_or(1);
        let got = client.pull_with(p, whole(client, random.usize(1..9), members, LOOK)).await?;
        let came = Instant::now();
        idle = if got.is_empty() { idle + 1 } else { 0 };
        for run in got.chunk_by(|one, next| one.message.options().group == next.message.options().group) {
            tokio::task::yield_now().await;
            let settling = Instant::now();
            let removed = settle(c, client, run, random.usize(..=run.len())).await?;
            left.fetch_sub(removed.len().min(left.load(Ordering::Relaxed)), Ordering::Relaxed);
            let group =
                run.first().and_then(|one| one.message.options().group.as_deref()).unwrap_or_default();
            all.push(Held { group: group.to_owned(), came, settling, removed });
        }
    }
    Ok(all)
}

/// Removes this many of them, and releases the rest.
async fn settle(
    c: &Context,
    client: &Client,
    run: &[RawDelivery],
    removed: usize,
) -> CaseResult<Vec<MessageId>> {
    let (first, rest) = run.split_at(removed.min(run.len()));
    let removals = first.iter().map(|delivery| settlement(delivery, Action::Remove));
    let releases = rest.iter().map(|delivery| settlement(delivery, Action::Release));
    c.history().observed(run.len());
    client.settle(&removals.chain(releases).collect::<Vec<_>>()).await?;
    Ok(ids(first))
}

fn judge(c: &Context, sent: Vec<(String, MessageId)>, mut held: Vec<Held>) -> CaseResult {
    let mut expected: HashMap<String, Vec<MessageId>> = HashMap::new();
    for (group, id) in sent {
        expected.entry(group).or_default().push(id);
    }
    held.sort_by_key(|held| held.came);
    for (group, members) in &expected {
        let of_it: Vec<_> = held.iter().filter(|held| held.group == *group).collect();
        for (first, next) in of_it.iter().zip(of_it.iter().skip(1)) {
            let apart = next.came >= first.settling;
            let about = [&first.removed[..], &next.removed[..]].concat();
            let expected = "members not before those that another held have ended";
            c.check(Clause::WholeGroups, &about, apart, expected, "both were out")?;
        }
        let removed: Vec<_> = of_it.iter().flat_map(|held| held.removed.iter().copied()).collect();
        c.same_ids(Clause::Stored, "everything that was pushed, once", members, &removed)?;
        let told = format!("push order: {}", c.history().labels(members));
        c.check(Clause::WholeGroups, members, *members == removed, told, c.history().labels(&removed))?;
    }
    Ok(())
}
