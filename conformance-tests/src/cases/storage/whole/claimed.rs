//! What one pull brings of each group.

use std::collections::HashSet;

use anyqueue::MessageId;
use anyqueue::adapter::Action;

use super::{ALL, NEEDS, claim, claims, member, nothing, pull_members, push, push_members, whole};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "whole.in_order", [WholeGroups, Groups], in_order)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsHeadOnly, Fault::WholeGroupsReversed]),
    case!(Storage, "whole.as_many_as_asked_for", [WholeGroups], as_many_as_asked_for)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsWithoutBound, Fault::WholeGroupsHeadOnly]),
    case!(Storage, "whole.cut_by_max", [WholeGroups, PullBounds], cut_by_max)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsBeyondMax, Fault::CutMembersHeld]),
    case!(Storage, "whole.beside_others", [WholeGroups, Groups, Order], beside_others)
        .needs(&[Need::WholeGroups, Need::PushOrder])
        .kills(&[Fault::WholeGroupsScattered, Fault::WholeGroupsHeadOnly]),
    case!(Storage, "whole.over_priorities", [WholeGroups, Order], over_priorities)
        .needs(&[Need::WholeGroups, Need::TenPriorities])
        .kills(&[Fault::WholeGroupsByPriority]),
    case!(Storage, "whole.counted", [WholeGroups, DeliveryCount], counted)
        .needs(&[Need::WholeGroups, Need::DeliveryCount])
        .kills(&[Fault::WholeGroupsCountHead]),
    case!(Storage, "whole.by_exchange", [WholeGroups], by_exchange)
        .needs(NEEDS)
        .kills(&[Fault::ExchangeTakesHeads]),
    case!(Storage, "whole.singly_afterwards", [WholeGroups, Groups], singly_afterwards)
        .needs(NEEDS)
        .kills(&[Fault::WholeGroupsForGood]),
    case!(Storage, "whole.dead_letters", [WholeGroups, DeadLetters], dead_letters)
        .needs(NEEDS)
        .kills(&[Fault::DeadKeepGroups]),
];

/// All members come at once, in push order, each under its own lease.
async fn in_order(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 5] = push_members(c, &p).await?;
    let got = claim(c, "the whole group", &p, &sent).await?;
    let leases: HashSet<_> = got.iter().map(|delivery| &delivery.lease).collect();
    c.equal(Clause::WholeGroups, &sent, "the number of leases", &got.len(), &leases.len())?;
    for delivery in &got {
        c.client().remove(std::slice::from_ref(delivery)).await?;
    }
    nothing(c, &p, "nothing, as all were removed").await
}

/// No more members come than were requested; the next pull brings the rest, once those have ended.
async fn as_many_as_asked_for(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 5] = push_members(c, &p).await?;
    for part in [&sent[..2], &sent[2..4], &sent[4..]] {
        let got = pull_members(c, &p, 2).await?;
        c.in_order(Clause::WholeGroups, "up to two members", part, &got)?;
        nothing(c, &p, "the others to wait for those that are held").await?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// The largest number of messages counts members too, and cuts the last group short. The members that it cut
/// off are not lost, and wait for their turn.
async fn cut_by_max(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let first: [MessageId; 3] = push_members(c, &p).await?;
    let other: [MessageId; 3] = push(c, &p, std::array::from_fn(|_| c.message().with_group("h"))).await?;
    let mut left = [first, other].concat();
    for max in [2, 4] {
        let got = client.pull_with(&p, whole(client, max, ALL, c.timing().soon)).await?;
        c.equal(Clause::PullBounds, &left, "of two groups a pull brings", &max, &got.len())?;
        let taken = ids(&got);
        left.retain(|id| !taken.contains(id));
        for group in [&first[..], &other[..]] {
            starts_with(c, group, &taken)?;
        }
        client.remove(&got).await?;
    }
    nothing(c, &p, "nothing, as all were removed").await
}

/// Judges that the members that came of a group are the first of those that are left.
fn starts_with(c: &Context, group: &[MessageId], taken: &[MessageId]) -> CaseResult {
    let came: Vec<_> = taken.iter().filter(|id| group.contains(id)).copied().collect();
    let from = came.first().and_then(|first| group.iter().position(|id| id == first)).unwrap_or_default();
    let expected = group.get(from..from + came.len()).unwrap_or_default();
    let told = format!("members in their order: {}", c.history().labels(expected));
    c.check(Clause::WholeGroups, &came, expected == came, told, c.history().labels(&came))
}

/// Members come one after another at the place of the first; messages without a group, and other groups, come
/// where they stand.
async fn beside_others(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = || c.message().with_group("h");
    let messages = [member(c), c.message(), other(), member(c), other(), c.message(), member(c)];
    let [g1, alone1, h1, g2, h2, alone2, g3] = push(c, &p, messages).await?;
    claims(c, "each group as a whole", &p, &[g1, g2, g3, alone1, h1, h2, alone2]).await
}

/// The first member comes by its priority, and the others with it, in the group's order whatever their own
/// priorities.
async fn over_priorities(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages = [3, 1, 9, 0, 5].map(|priority| member(c).with_priority(priority));
    let members = push(c, &p, messages).await?;
    let [lower, higher] = push(c, &p, [c.message().with_priority(2), c.message().with_priority(4)]).await?;
    let expected = [&[higher], &members[..], &[lower]].concat();
    claims(c, "members in push order", &p, &expected).await
}

/// Each member's deliveries are counted.
async fn counted(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    for count in [1, 2] {
        let got = claim(c, "the whole group", &p, &sent).await?;
        let counts: Vec<_> = got.iter().map(|delivery| delivery.delivery_count).collect();
        c.equal(Clause::DeliveryCount, &sent, "delivery counts", &vec![Some(count); 3], &counts)?;
        let action = if count == 1 { Action::Retry } else { Action::Remove };
        c.client().settle_all(&got, &action).await?;
    }
    Ok(())
}

/// An exchange also brings whole groups, once it has settled what was held of them.
async fn by_exchange(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let sent: [MessageId; 5] = push_members(c, &p).await?;
    let (first, rest) = sent.split_at(2);
    let held = pull_members(c, &p, 2).await?;
    c.in_order(Clause::WholeGroups, "up to two members", first, &held)?;
    let batch: Vec<_> = held.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
    let (_, pulled) = client.storage().exchange(&batch, &p, whole(client, ALL, ALL, c.timing().soon)).await;
    let got = c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?;
    c.in_order(Clause::WholeGroups, "the rest of the group", rest, &got)?;
    client.remove(&got).await
}

/// A pull for the first member alone gets it alone, even if another pull claimed the whole group before; and
/// the reverse.
async fn singly_afterwards(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let (head, rest) = sent.split_at(1);
    let got = claim(c, "the whole group", &p, &sent).await?;
    c.client().settle_all(&got, &Action::Release).await?;
    let got = c.client().pull(&p, ALL).await?;
    c.in_order(Clause::WholeGroups, "the first alone", head, &got)?;
    nothing(c, &p, "the others to wait for the first").await?;
    c.client().remove(&got).await?;
    claims(c, "what is left of the group", &p, rest).await
}

/// Dead letters have no groups, so there is nothing to claim whole.
async fn dead_letters(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 4] = push_members(c, &p).await?;
    let got = claim(c, "the whole group", &p, &sent).await?;
    let dead = p.dead_letters();
    c.client().settle_all(&got, &Action::Move { to: dead.clone(), headers: None }).await?;
    let got = pull_members(c, &dead, 2).await?;
    c.same(Clause::DeadLetters, "all four, though two members were asked for", &sent, &got)?;
    c.client().remove(&got).await
}
