//! What an amendment returns, and what it leaves alone.

use std::time::Instant;

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{Amend, AmendOutcome, MAX_PAGE, MessageId};

use super::{nothing, one_by_one, push, push_alike};
use crate::case::Case;
use crate::cases::storage::helpers::{dead_letter, removes};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.outcomes", [Amendments], outcomes)
        .needs(NEEDS)
        .kills(&[Fault::AmendedDeadNotFound]),
    case!(Storage, "amend.leased_untouched", [Amendments, Exclusive], leased_untouched)
        .needs(&[Need::Amend, Need::StrictPriority])
        .kills(&[Fault::AmendsLeased]),
    case!(Storage, "amend.after_lease_end", [Amendments, LeaseEnd], after_lease_end)
        .needs(&[Need::Amend, Need::TimedLease])
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.twice_in_one_call", [Amendments], twice_in_one_call)
        .needs(NEEDS)
        .kills(&[Fault::AmendsFirstOnly]),
    case!(Storage, "amend.a_page_of_them", [Amendments, Limits], a_page_of_them)
        .needs(NEEDS)
        .kills(&[Fault::AmendsFirstOnly])
        .deadline(std::time::Duration::from_mins(1)),
    case!(Storage, "amend.several_changes", [Amendments], several_changes)
        .needs(&[Need::Amend, Need::StrictPriority, Need::PushDelay, Need::Groups])
        .kills(&[Fault::AmendsOneThing]),
];

const NEEDS: &[Need] = &[Need::Amend];

/// Each id gets the outcome for what was found: in this partition, and now.
async fn outcomes(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    let dead = dead_letter(c, &p).await?;
    let dead_elsewhere = dead_letter(c, &elsewhere).await?;
    let [gone] = push_alike(c, &p).await?;
    one_by_one(c, "the one that will be gone", &p, &[gone]).await?;
    let [leased] = push_alike(c, &p).await?;
    let held = c.client().take(&p, 1).await?;
    let [waiting, also_waiting] = push_alike(c, &p).await?;
    let [other] = push_alike(c, &elsewhere).await?;
    let expected = [
        (waiting, AmendOutcome::Amended),
        (leased, AmendOutcome::Leased),
        (dead, AmendOutcome::Dead),
        (MessageId::new(), AmendOutcome::NotFound),
        (gone, AmendOutcome::NotFound),
        (dead_elsewhere, AmendOutcome::NotFound),
        (other, AmendOutcome::NotFound),
        (also_waiting, AmendOutcome::Amended),
    ];
    c.amends(&p, Amend::new().disable(), &expected).await?;
    nothing(c, &p, "nothing, as all that waits is disabled").await?;
    c.client().remove(&held).await?;
    removes(c, Clause::Amendments, "what is elsewhere, as it was", &elsewhere, &[other]).await?;
    let never = c.partition("never_pushed_to")?;
    c.amends(&never, Amend::new().now(), &[(waiting, AmendOutcome::NotFound)]).await?;
    c.amended(&p, &[waiting, also_waiting], Amend::new().enable()).await?;
    one_by_one(c, "those that waited", &p, &[waiting, also_waiting]).await
}

/// A leased message stays with its holder, and comes back as it was.
async fn leased_untouched(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [id, after] = push(c, &p, [c.message().with_priority(1), c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    for change in [Amend::new().with_priority(0), Amend::new().disable()] {
        c.amends(&p, change, &[(id, AmendOutcome::Leased)]).await?;
    }
    c.client().settle_all(&held, &Action::Release).await?;
    let back = c.client().take(&p, 2).await?;
    c.in_order(Clause::Amendments, "what was leased, with its own priority", &[id, after], &back)?;
    let priorities: Vec<_> = back.iter().map(|delivery| delivery.message.options().priority).collect();
    c.equal(Clause::Amendments, &[id], "the priorities", &vec![1, 0], &priorities)?;
    c.client().remove(&back).await
}

/// A lease that is over is no lease: the message can be amended, whether anybody has noticed or not.
async fn after_lease_end(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [id] = push_alike(c, &p).await?;
    let held = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
    c.in_order(Clause::PullBounds, "the message", &[id], &held)?;
    tokio::time::sleep(t.lease + t.slack).await;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    nothing(c, &p, "nothing, as it is disabled").await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    one_by_one(c, "the message", &p, &[id]).await
}

/// If an id occurs twice, the second finds what the first left.
async fn twice_in_one_call(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, second] = push_alike(c, &p).await?;
    c.amended(&p, &[first, second, first, second], Amend::new().disable()).await?;
    nothing(c, &p, "nothing, as both are disabled").await?;
    c.amended(&p, &[second, second, first], Amend::new().enable()).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Amendments, "both, once each", &[first, second], &got)?;
    c.client().remove(&got).await
}

/// No ids return no outcomes; a full page returns all of them, in order.
async fn a_page_of_them(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.amends(&p, Amend::new().disable(), &[]).await?;
    let sent = c.client().push(&p, &c.messages(MAX_PAGE - 2, |_, message| message)).await?;
    let mut expected: Vec<_> = sent.iter().map(|id| (*id, AmendOutcome::Amended)).collect();
    expected.insert(MAX_PAGE / 2, (MessageId::new(), AmendOutcome::NotFound));
    expected.push((MessageId::new(), AmendOutcome::NotFound));
    let asked = Instant::now();
    c.amends(&p, Amend::new().disable(), &expected).await?;
    c.client().note(format!("a page was disabled in {:?}", asked.elapsed()));
    nothing(c, &p, "nothing, as all are disabled").await?;
    c.amends(&p, Amend::new().enable(), &expected).await?;
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::Amendments, "all of them", &sent, &got)?;
    c.client().remove(&got).await
}

/// Several changes in one call are all made.
async fn several_changes(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let later = c.message().with_delay(t.delay * 40).with_group("old");
    let [ready, id] = push(c, &p, [c.message(), later]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let change = Amend::new().with_priority(1).with_group("new").now().enable();
    c.amended(&p, &[id], change).await?;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Amendments, "the amended one first", &[id, ready], &got)?;
    let seen = got.first().map(|delivery| {
        let options = delivery.message.options();
        (options.priority, options.group.as_deref().map(str::to_owned))
    });
    let expected = Some((1, Some("new".to_owned())));
    c.equal(Clause::Amendments, &[id], "its priority and its group", &expected, &seen)?;
    c.client().remove(&got).await
}
