//! Amendments beside other work: they always happen before or after it, nothing is lost, and nobody gets a
//! disabled message.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{Amend, AmendOutcome, MessageId, PartitionId};
use futures_util::future::{join, join_all};

use super::{one_by_one, push_alike};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, polled};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.beside_pulls", [Amendments, Exclusive, Stored], beside_pulls)
        .needs(NEEDS)
        .kills(&[Fault::DisabledLate])
        .deadline(LONG),
    case!(Storage, "amend.at_the_end_of_a_lease", [Amendments, LeaseEnd], at_the_end_of_a_lease)
        .needs(&[Need::Amend, Need::TimedLease])
        .kills(&[Fault::AmendIgnored])
        .deadline(LONG),
    case!(Storage, "amend.beside_settlements", [Amendments, SettleOutcomes], beside_settlements)
        .needs(NEEDS)
        .kills(&[Fault::AmendsLeased])
        .deadline(LONG),
    case!(Storage, "amend.dropped_future", [Amendments, Recovery], dropped_future)
        .needs(&[Need::Amend, Need::Priority, Need::Groups])
        .kills(&[Fault::AmendIgnored]),
];

const NEEDS: &[Need] = &[Need::Amend];

const LONG: Duration = Duration::from_mins(1);

/// How many tasks amend at once, and how many pull.
const AMENDERS: usize = 4;
const PULLERS: usize = 4;

/// How long one check for work waits.
const LOOK: Duration = Duration::from_millis(50);

/// Tasks amend the same messages in different orders, beside pullers that never stop: no call fails, nobody
/// gets a disabled message (which the history checks), and in the end each message was removed once.
async fn beside_pulls(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let groups = c.capabilities().groups;
    let messages = c.messages(c.size(120, 1000), |index, message| {
        if groups && index % 3 == 0 { message.with_group(format!("g{}", index % 4)) } else { message }
    });
    let sent = c.client().push(&p, &messages).await?;
    let all = join_all((0..AMENDERS + PULLERS).map(|_| c.fresh())).await;
    let all = all.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let (amenders, pullers) = all.split_at(AMENDERS);
    let (over, mut seeds) = (AtomicBool::new(false), c.random());
    let amending = amenders.iter().map(|client| amend_at_random(c, client, &p, &sent, seeds.fork()));
    let amending = async {
        let amended = join_all(amending).await.into_iter().collect::<CaseResult<()>>();
        // Whatever state the amenders left behind, the messages can be pulled again.
        for part in sent.chunks(anyqueue::MAX_PAGE) {
            c.amend(c.client(), &p, part, &Amend::new().now().enable()).await?;
        }
        over.store(true, Ordering::SeqCst);
        amended
    };
    let pulling = join_all(pullers.iter().map(|client| pull_until(c, client, &p, &over)));
    let (amended, pulled) = join(amending, pulling).await;
    amended?;
    let removed = pulled.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    c.same_ids(Clause::Amendments, "everything that was pushed, once", &sent, &removed)
}

async fn amend_at_random(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    all: &[MessageId],
    mut random: fastrand::Rng,
) -> CaseResult {
    for _ in 0..c.size(25, 150) {
        let ids: Vec<_> = random.choose_multiple(all.iter().copied(), 10);
        let change = any_change(c, &mut random);
        for (id, answer) in ids.iter().zip(c.amend(client, p, &ids, &change).await?) {
            let right =
                matches!(answer, Ok(AmendOutcome::Amended | AmendOutcome::Leased | AmendOutcome::NotFound));
            let expected = "Amended, Leased or NotFound";
            c.check(Clause::Amendments, &[*id], right, expected, format!("{answer:?}"))?;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn any_change(c: &Context, random: &mut fastrand::Rng) -> Amend {
    let declared = c.capabilities();
    let change = Amend::new();
    match random.u8(..8) {
        0 if declared.priority_levels > 1 => change.with_priority(random.u8(..declared.priority_levels)),
        1 if declared.groups => change.with_group(format!("g{}", random.u8(..4))),
        2 if declared.groups => change.without_group(),
        3 if declared.push_delay.is_some() => change.due_in(c.timing().delay / 4),
        4 => change.now(),
        5 | 6 => change.disable(),
        _ => change.enable(),
    }
}

/// Pulls and removes until the work is over and nothing comes any more. Some messages are released first.
async fn pull_until(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    over: &AtomicBool,
) -> CaseResult<Vec<MessageId>> {
    let (mut removed, mut round) = (Vec::new(), 0);
    loop {
        let last = over.load(Ordering::SeqCst);
        let wait = if last { c.timing().soon / 2 } else { LOOK };
        let got = client.pull_with(p, client.request(3, wait)).await?;
        if got.is_empty() && last {
            return Ok(removed);
        }
        round += 1;
        let fate = if !last && round % 4 != 0 { Action::Release } else { Action::Remove };
        client.settle_all(&got, &fate).await?;
        if fate == Action::Remove {
            removed.extend(got.iter().map(|delivery| delivery.lease.id));
        }
        tokio::task::yield_now().await;
    }
}

/// At the moment a lease ends, a message is either still leased or amended: if it was disabled nobody gets
/// it, and in the end it comes once.
async fn at_the_end_of_a_lease(c: &Context) -> CaseResult {
    let (p, t, waiter) = (c.partition("work")?, c.timing(), c.fresh().await?);
    for round in 0..c.size(5, 40) {
        let [id] = push_alike(c, &p).await?;
        let pulled = Instant::now();
        let held = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
        c.in_order(Clause::PullBounds, "the message", &[id], &held)?;
        let nudge = Duration::from_millis(u64::try_from(round % 5).unwrap_or_default());
        tokio::time::sleep_until((pulled + t.lease + nudge).into()).await;
        let (about, disable) = ([id], Amend::new().disable());
        let amending = c.amend(c.client(), &p, &about, &disable);
        let (answers, got) = join(amending, waiter.pull_with(&p, waiter.request(1, LOOK))).await;
        let (answers, got) = (answers?, got?);
        match answers.as_slice() {
            [Ok(AmendOutcome::Amended)] => {
                let seen = format!("{} deliveries", got.len());
                c.check(Clause::Amendments, &about, got.is_empty(), "nobody to get it", seen)?;
                super::nothing(c, &p, "nothing, as it is disabled").await?;
                c.amended(&p, &about, Amend::new().enable()).await?;
                one_by_one(c, "what was enabled", &p, &about).await?;
            }
            [Ok(AmendOutcome::Leased)] => {
                let got = if got.is_empty() { waiter.take(&p, 1).await? } else { got };
                c.in_order(Clause::LeaseEnd, "the message, which was not disabled", &about, &got)?;
                waiter.remove(&got).await?;
            }
            seen => c.check(Clause::Amendments, &about, false, "Amended or Leased", format!("{seen:?}"))?,
        }
    }
    Ok(())
}

/// A concurrent settlement and amendment: whichever comes first, the holder's settlement is done, and a
/// message that remains is as one of them left it.
async fn beside_settlements(c: &Context) -> CaseResult {
    let (p, count) = (&c.partition("work")?, c.size(40, 300));
    c.client().push(p, &c.messages(count, |_, message| message)).await?;
    let held = c.client().take(p, count).await?;
    let (other, disable) = (c.fresh().await?, Amend::new().disable());
    let (other, disable) = (&other, &disable);
    let both = held.iter().enumerate().map(|(number, delivery)| async move {
        let action = if number % 2 == 0 { Action::Remove } else { Action::Release };
        let (id, delivery) = ([delivery.lease.id], std::slice::from_ref(delivery));
        let settling = c.client().settle_all(delivery, &action);
        let amending = c.amend(other, p, &id, disable);
        // If a call does not wait, the one that is polled first comes first.
        if number % 4 < 2 {
            join(settling, amending).await
        } else {
            let (amended, settled) = join(amending, settling).await;
            (settled, amended)
        }
    });
    let (settled, amended): (Vec<_>, Vec<_>) = join_all(both).await.into_iter().unzip();
    settled.into_iter().collect::<CaseResult<()>>()?;
    let (mut ready, mut disabled) = (HashSet::new(), Vec::new());
    for ((number, delivery), answers) in held.iter().enumerate().zip(amended) {
        let (removed, id) = (number % 2 == 0, delivery.lease.id);
        let answers = answers?;
        let right = match answers.as_slice() {
            [Ok(AmendOutcome::Leased)] => {
                ready.extend((!removed).then_some(id));
                true
            }
            [Ok(AmendOutcome::NotFound)] => removed,
            [Ok(AmendOutcome::Amended)] => {
                disabled.push(id);
                !removed
            }
            _ => false,
        };
        let expected = if removed { "Leased or NotFound" } else { "Leased or Amended" };
        c.check(Clause::Amendments, &[id], right, expected, format!("{answers:?}"))?;
    }
    let ready: Vec<_> = ready.into_iter().collect();
    let got = c.client().take(p, ready.len()).await?;
    c.same(Clause::Amendments, "what was released and not disabled", &ready, &got)?;
    c.client().remove(&got).await?;
    super::nothing(c, p, "nothing of what is disabled").await?;
    c.amended(p, &disabled, Amend::new().enable()).await?;
    let got = c.client().take(p, disabled.len()).await?;
    c.same(Clause::Amendments, "what was enabled", &disabled, &got)?;
    c.client().remove(&got).await
}

/// An amendment whose future is dropped is done or not, for each message as a whole; if it answered, it is
/// done.
async fn dropped_future(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let change = Amend::new().with_priority(1).with_group("new");
    for steps in 1..c.size(8, 24) {
        let sent: [MessageId; 3] = push_alike(c, &p).await?;
        let answered = polled(steps, c.amend(c.client(), &p, &sent, &change)).await;
        let done = answered.is_some_and(|answers| answers.is_ok_and(|all| all.iter().all(Result::is_ok)));
        let mut left = sent.to_vec();
        while !left.is_empty() {
            // One by one, as they may be of one group.
            let [got] = c.client().take_exact(&p).await?;
            let (id, options) = (got.lease.id, got.message.options());
            let seen = (options.priority, options.group.as_deref());
            let whole = seen == (1, Some("new")) || (seen == (0, None) && !done);
            let expected = if done { "the new priority and group" } else { "both changed, or none" };
            c.check(Clause::Amendments, &[id], whole, expected, format!("{seen:?}"))?;
            let known = left.len();
            left.retain(|other| *other != id);
            c.check(Clause::Exclusive, &[id], left.len() < known, "each message once", "one again")?;
            c.client().remove(&[got]).await?;
        }
    }
    Ok(())
}
