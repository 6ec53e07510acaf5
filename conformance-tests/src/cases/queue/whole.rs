//! Groups claimed whole through the portable queue: what it makes of them, what it releases, and what it
//! refuses.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{ErrorKind, GroupDelivery, MessageId, PartitionId, Queue, QueueMessageStatus as Status};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids};
use crate::fault::Fault;
use crate::history::Op;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_whole.groups", [WholeGroups, ContentIntact], groups)
        .needs(&[Need::WholeGroups, Need::PushOrder])
        .kills(&[Fault::WholeGroupsHeadOnly, Fault::WholeGroupsScattered]),
    case!(Queue, "queue_whole.settled_together", [WholeGroups, SettleOutcomes], settled_together)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsReversed, Fault::OnlyFirstSettled]),
    case!(Queue, "queue_whole.dropped", [WholeGroups, DroppedDelivery], dropped)
        .needs(NEEDS)
        .kills(&[Fault::ReleasedMemberToEnd, Fault::WholeGroupsHeadOnly]),
    case!(Queue, "queue_whole.max_held", [WholeGroups, NoPrefetch], max_held)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsBeyondMax, Fault::CutMembersHeld]),
    case!(Queue, "queue_whole.undeclared", [Unsupported], undeclared).kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_whole.none_asked_for", [Unsupported], none_asked_for).kills(&[Fault::SharedDelivery]),
];

const NEEDS: &[Need] = &[Need::WholeGroups];

/// More than any group of these cases has.
const ALL: usize = 20;

async fn store_members(c: &Context, queue: &Queue, p: &PartitionId, n: usize) -> CaseResult<Vec<MessageId>> {
    c.store(queue, p, c.messages(n, |_, message| message.with_group("g"))).await
}

async fn pull(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult<Vec<GroupDelivery>> {
    let pulled = queue.pull(p).max(ALL).wait(c.timing().soon).whole_groups(ALL).await;
    let groups = c.ok(Clause::WholeGroups, "a pull of whole groups", pulled)?;
    groups.iter().flat_map(GroupDelivery::members).try_for_each(|member| c.whole(member))?;
    Ok(groups)
}

/// Makes one pull, which must return these members, as one group.
async fn pull_one(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    expected: &[MessageId],
) -> CaseResult<GroupDelivery> {
    let mut groups = pull(c, queue, p).await?;
    let seen: Vec<_> = groups.iter().map(|group| labels(c, group)).collect();
    let one = vec![c.history().labels(expected)];
    c.equal(Clause::WholeGroups, expected, "groups", &one, &seen)?;
    groups.pop().ok_or_else(|| c.failed(Clause::WholeGroups, expected, "a group", "none"))
}

fn labels(c: &Context, group: &GroupDelivery) -> String {
    c.history().labels(&handler_ids(group.members()))
}

/// Settles all members as processed; each must return `Settled`.
async fn processed(c: &Context, group: &mut GroupDelivery) -> CaseResult {
    settled(c, group, Status::Processed).await
}

async fn settled(c: &Context, group: &mut GroupDelivery, status: Status) -> CaseResult {
    let about = handler_ids(group.members());
    let answers = group.settle(status).await;
    c.equal(Clause::SettleOutcomes, &about, "the number of outcomes", &about.len(), &answers.len())?;
    for (id, answer) in about.iter().zip(answers) {
        let ok = matches!(answer, Ok(anyqueue::SettleOutcome::Settled));
        c.check(Clause::SettleOutcomes, &[*id], ok, "Settled, as it is held", format!("{answer:?}"))?;
    }
    Ok(())
}

/// Each group comes with its name and its members in order; a message without a group is alone.
async fn groups(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let of = |group| c.message().with_group(group);
    let messages = vec![of("a"), c.message(), c.message(), of("b"), of("a"), of("b"), of("a")];
    let sent = c.store(&queue, &p, messages).await?;
    let [a1, alone, other, b1, a2, b2, a3] = sent.as_slice() else { return Ok(()) };
    let mut groups = pull(c, &queue, &p).await?;
    let named = |group: &GroupDelivery| (group.group().map(str::to_owned), labels(c, group));
    let expected = [
        (Some("a"), vec![*a1, *a2, *a3]),
        (None, vec![*alone]),
        (None, vec![*other]),
        (Some("b"), vec![*b1, *b2]),
    ];
    let expected = expected.map(|(name, ids)| (name.map(str::to_owned), c.history().labels(&ids)));
    let seen: Vec<_> = groups.iter().map(named).collect();
    c.equal(Clause::WholeGroups, &sent, "groups", &expected.to_vec(), &seen)?;
    for group in &mut groups {
        processed(c, group).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::WholeGroups, "nothing, as all were processed").await
}

/// A group that failed comes back as a whole; once it is processed as a whole, the next members come.
async fn settled_together(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let first = store_members(c, &queue, &p, 3).await?;
    let mut group = pull_one(c, &queue, &p, &first).await?;
    let next = store_members(c, &queue, &p, 2).await?;
    settled(c, &mut group, Status::Failed).await?;
    let all = [first, next].concat();
    let mut group = pull_one(c, &queue, &p, &all).await?;
    processed(c, &mut group).await?;
    c.client().nothing(&p, c.timing().slack, Clause::WholeGroups, "nothing, as all were processed").await
}

/// When a group is dropped, it releases the members that were not settled: long before their leases end, in
/// order, ahead of members that came later.
async fn dropped(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = store_members(c, &queue, &p, 4).await?;
    let mut group = pull_one(c, &queue, &p, &sent).await?;
    let later = store_members(c, &queue, &p, 1).await?;
    let mut left = sent;
    if let Some(second) = group.members_mut().get_mut(1) {
        c.settle(second, Status::Processed).await?;
        left.remove(1);
    }
    drop(group);
    let mut group = pull_one(c, &queue, &p, &[left, later].concat()).await?;
    processed(c, &mut group).await
}

/// A queue that may hold three messages gets three members of a group, and the rest once those have ended.
async fn max_held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.max_held(3))?;
    let sent = store_members(c, &queue, &p, 5).await?;
    let (first, rest) = sent.split_at(3);
    for part in [first, rest] {
        let mut group = pull_one(c, &queue, &p, part).await?;
        processed(c, &mut group).await?;
    }
    Ok(())
}

fn over(c: &Context, storage: &Arc<Altered>) -> CaseResult<Queue> {
    let storage: Arc<dyn Storage> = storage.clone();
    c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(c.long_options()).build())
}

/// If whole groups are not declared, they are refused, and nothing is claimed. One member at a time is what
/// every backend offers.
async fn undeclared(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = over(c, &Altered::new(c.client().storage(), |declared| declared.whole_groups = false))?;
    let sent = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    let answer = queue.pull(&p).max(ALL).whole_groups(2).await;
    c.error(Clause::Unsupported, "a pull of whole groups", ErrorKind::Unsupported, &answer)?;
    nothing_claimed(c)?;
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let pulled = queue.pull(&p).max(ALL).wait(c.timing().soon).whole_groups(1).await;
        let mut groups = c.ok(Clause::WholeGroups, "a pull of one member of each group", pulled)?;
        c.check(Clause::WholeGroups, &sent, !groups.is_empty(), "both messages", format!("{}", seen.len()))?;
        for group in &mut groups {
            seen.extend(handler_ids(group.members()));
            processed(c, group).await?;
        }
    }
    c.same_ids(Clause::WholeGroups, "both messages, each as a group of its own", &sent, &seen)
}

/// Asking for no member at all is an error, and nothing is claimed.
async fn none_asked_for(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(1, |_, message| message)).await?;
    let answer = queue.pull(&p).max(ALL).whole_groups(0).await;
    c.error(Clause::Unsupported, "a pull of groups of no members", ErrorKind::InvalidInput, &answer)?;
    nothing_claimed(c)?;
    let got = c.drain(&queue, &p, Duration::ZERO).await?;
    c.same_ids(Clause::Unsupported, "what is there still", &sent, &got)
}

/// Judges that the backend was asked for nothing.
fn nothing_claimed(c: &Context) -> CaseResult {
    let pulls = c.history().events().iter().filter(|event| matches!(event.op, Op::Pull { .. })).count();
    c.equal(Clause::Unsupported, &[], "the number of pulls", &0, &pulls)
}
