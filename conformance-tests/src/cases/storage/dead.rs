//! Dead letters: a message dies once, whole, and can be brought back.

use anyqueue::adapter::{Action, DEATH_BYTES};
use anyqueue::{Headers, PartitionId, header};

use super::helpers::dead_letter;
use super::payload::largest_message;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "dead.intact", [ContentIntact, DeadLetters], intact)
        .kills(&[Fault::DeadVanish, Fault::MoveKeepsHeaders]),
    case!(Storage, "dead.once", [DeadLetters], once).kills(&[Fault::MoveCopies, Fault::DeadVanish]),
    case!(Storage, "dead.redrive", [DeliveryCount, DeadLetters], redrive).kills(&[
        Fault::MoveCopies,
        Fault::MoveKeepsCount,
        Fault::RedeliveryLosesHeaders,
    ]),
    case!(Storage, "dead.head_does_not_block", [DeadLetters], head_does_not_block)
        .kills(&[Fault::DeadVanish]),
    case!(Storage, "dead.in_priority_order", [Order, DeadLetters], in_priority_order)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityInverted, Fault::MoveForgetsPriority]),
    case!(Storage, "dead.know_no_groups", [Groups, DeadLetters], know_no_groups)
        .needs(&[Need::Groups])
        .kills(&[Fault::DeadKeepGroups, Fault::DeathLocksGroup]),
    case!(Storage, "dead.largest_can_die", [Limits, DeadLetters], largest_can_die)
        .kills(&[Fault::LargeCannotDie]),
    case!(Storage, "dead.settled_like_any", [SettleActions, DeadLetters], settled_like_any)
        .kills(&[Fault::RetryDrops]),
    case!(Storage, "dead.lease_ends", [LeaseEnd, DeadLetters], lease_ends)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::DeadLeaseEndless]),
];

fn die(p: &PartitionId, headers: Option<Headers>) -> Action {
    Action::Move { to: p.dead_letters(), headers }
}

/// A dead letter has its id, payload and identity, and the headers with which it died.
async fn intact(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message().with_task_id("task").with_session_id("session").with_header("own", "kept");
    let sent = c.client().push(&p, &[message]).await?;
    let [held] = c.client().take_exact(&p).await?;
    let mut headers = held.message.headers().clone();
    headers.insert(header::DEAD_REASON.to_owned(), "it cannot be parsed".to_owned());
    c.client().settle_all(&[held], &die(&p, Some(headers.clone()))).await?;
    let [dead] = c.client().take_exact(&p.dead_letters()).await?;
    c.equal(Clause::DeadLetters, &sent, "the headers of the dead letter", &headers, dead.message.headers())?;
    c.client().remove(&[dead]).await
}

/// A message dies once: nothing of it is left where it lived.
async fn once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let held = c.client().take(&p, 3).await?;
    c.client().settle_all(&held, &die(&p, None)).await?;
    c.client().nothing(&p, c.timing().never(), Clause::DeadLetters, "nothing left where it lived").await?;
    let dead = c.client().take(&p.dead_letters(), 3).await?;
    c.same(Clause::DeadLetters, "each dead letter once", &sent, &dead)?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::DeadLetters, "no second copy").await?;
    c.client().remove(&dead).await
}

/// A redriven message is a fresh one, and no longer among the dead.
async fn redrive(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message().with_header("own", "kept")]).await?;
    for _ in 0..2 {
        let held = c.client().take(&p, 1).await?;
        c.client().settle_all(&held, &Action::Retry).await?;
    }
    let held = c.client().take(&p, 1).await?;
    c.client().settle_all(&held, &die(&p, None)).await?;
    let dead = c.client().take(&p.dead_letters(), 1).await?;
    c.client().settle_all(&dead, &Action::Move { to: p.clone(), headers: None }).await?;
    let alive = c.client().take(&p, 1).await?;
    c.in_order(Clause::DeadLetters, "the redriven message", &sent, &alive)?;
    if Need::DeliveryCount.is_declared(c.capabilities()) {
        let counts: Vec<_> = alive.iter().map(|delivery| delivery.delivery_count).collect();
        c.equal(Clause::DeliveryCount, &sent, "a delivery count of", &vec![Some(1)], &counts)?;
    }
    c.client()
        .nothing(&p.dead_letters(), c.timing().slack, Clause::DeadLetters, "nothing left among the dead")
        .await?;
    c.client().remove(&alive).await
}

/// A message that dies makes way for the rest.
async fn head_does_not_block(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, &die(&p, None)).await?;
    let rest = c.client().take(&p, 4).await?;
    let dead = c.client().take(&p.dead_letters(), 1).await?;
    c.client().remove(&rest).await?;
    c.client().remove(&dead).await?;
    c.same(Clause::DeadLetters, "the head among the dead", &ids(&head), &dead)?;
    c.same(Clause::DeadLetters, "everything, once", &sent, &[dead, rest].concat())
}

/// Dead letters are pulled by priority, like any partition.
async fn in_priority_order(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages = c.messages(2, |index, message| message.with_priority(u8::from(index == 1)));
    let mut sent = c.client().push(&p, &messages).await?;
    let held = c.client().take(&p, 2).await?;
    for delivery in held.into_iter().rev() {
        c.client().settle_all(&[delivery], &die(&p, None)).await?;
    }
    let dead = c.client().take(&p.dead_letters(), 2).await?;
    sent.reverse();
    c.in_order(Clause::Order, "the higher priority first", &sent, &dead)?;
    c.client().remove(&dead).await
}

/// Dead members of one group can be looked at side by side.
async fn know_no_groups(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message.with_group("g"))).await?;
    for _ in 0..3 {
        let head = c.client().take(&p, 1).await?;
        c.client().settle_all(&head, &die(&p, None)).await?;
    }
    let dead = c.client().pull(&p.dead_letters(), 10).await?;
    c.same(Clause::DeadLetters, "all dead members at once", &sent, &dead)?;
    c.client().remove(&dead).await
}

/// The largest message can die too, with the headers that death adds.
async fn largest_can_die(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = largest_message(c);
    let sent = c.client().push(&p, std::slice::from_ref(&message)).await?;
    let [held] = c.client().take_exact(&p).await?;
    let mut headers = held.message.headers().clone();
    let room = usize::try_from(DEATH_BYTES).unwrap_or_default() / 2;
    headers.insert(header::DEAD_REASON.to_owned(), "x".repeat(room));
    c.client().settle_all(&[held], &die(&p, Some(headers.clone()))).await?;
    let [dead] = c.client().take_exact(&p.dead_letters()).await?;
    c.equal(Clause::DeadLetters, &sent, "the headers of the dead letter", &headers, dead.message.headers())?;
    c.client().remove(&[dead]).await
}

/// A dead letter that is returned stays a dead letter.
async fn settled_like_any(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().settle_all(&held, &die(&p, None)).await?;
    for action in [Action::Release, Action::Retry, Action::Remove] {
        let dead = c.client().take(&p.dead_letters(), 1).await?;
        c.in_order(Clause::SettleActions, "the dead letter", &sent, &dead)?;
        c.client().settle_all(&dead, &action).await?;
    }
    c.client()
        .nothing(&p.dead_letters(), c.timing().slack, Clause::SettleActions, "nothing after its removal")
        .await
}

async fn lease_ends(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = dead_letter(c, &p).await?;
    let dead = p.dead_letters();
    let request = anyqueue::adapter::PullRequest::new(1, c.timing().soon, c.timing().lease);
    let held = c.client().pull_with(&dead, request).await?;
    c.in_order(Clause::DeadLetters, "the dead letter", &[id], &held)?;
    let again =
        c.client().pull_with(&dead, c.client().request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::LeaseEnd, "the dead letter again, as its lease has ended", &[id], &again)?;
    c.client().remove(&again).await
}
