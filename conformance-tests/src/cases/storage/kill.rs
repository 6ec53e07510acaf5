//! Processes that are killed (SIGKILL) or stopped (SIGSTOP) in the middle of their work.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyqueue::adapter::SettleConfirm;
use anyqueue::{MessageId, PartitionId};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::child::{Child, ChildEvent, Role};
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::history::Op;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "kill.pusher_after_ok", [Stored], pusher_after_ok)
        .needs(&[Need::Children])
        .kills(&[Fault::OkBeforeStored, Fault::BufferLostAtClose]),
    case!(Storage, "kill.pusher_in_a_batch", [Stored, PushResults, ContentIntact], pusher_in_a_batch)
        .needs(&[Need::Children])
        .kills(&[Fault::OkBeforeStored, Fault::LosesEleventh])
        .deadline(LONG),
    case!(
        Storage,
        "kill.consumer_holding",
        [DroppedDelivery, LeaseEnd, ConnectionLease, DeliveryCount],
        consumer_holding
    )
    .needs(&[Need::Children, Need::TimedLease])
    .kills(&[Fault::LeaseEndedByItsHolder, Fault::AutoAck, Fault::CountStuck]),
    case!(
        Storage,
        "kill.consumer_on_a_connection",
        [ConnectionLease, DroppedDelivery],
        consumer_on_a_connection
    )
    .needs(&[Need::Children, Need::ConnectionLease])
    .kills(&[Fault::ConnectionHoldsForever]),
    case!(
        Storage,
        "kill.consumer_around_settle",
        [SettleOutcomes, SettleTwice, LeaseEnd],
        consumer_around_settle
    )
    .needs(&[Need::Children])
    .kills(&[Fault::RemoveLostOneIn30, Fault::LeaseEndedByItsHolder])
    .deadline(LONG),
    case!(Storage, "kill.processes_share", [Exclusive, SettleOutcomes], processes_share)
        .needs(&[Need::Children])
        .kills(&[Fault::HeldLocally])
        .deadline(LONG),
    case!(Storage, "kill.stopped_beyond_its_lease", [Fencing, LeaseEnd], stopped_beyond_its_lease)
        .needs(&[Need::Children, Need::TimedLease])
        .kills(&[Fault::LateSettled]),
];

const LONG: Duration = Duration::from_secs(90);

/// A child that will be killed during a batch pushes this many messages at once, if the backend allows it.
const BATCH: usize = 50;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn id_of(text: &str) -> Option<MessageId> {
    text.parse().ok()
}

pub(super) fn taken(events: &[ChildEvent]) -> Vec<MessageId> {
    let of = |event: &ChildEvent| if let ChildEvent::Took { id, .. } = event { id_of(id) } else { None };
    events.iter().filter_map(of).collect()
}

pub(super) fn removed(events: &[ChildEvent]) -> Vec<MessageId> {
    let of = |event: &ChildEvent| if let ChildEvent::Removed { id } = event { id_of(id) } else { None };
    events.iter().filter_map(of).collect()
}

/// Messages that a killed process pushed and had acknowledged are there.
async fn pusher_after_ok(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut child = c.spawn(&Role::Pusher { partition: "work".to_owned(), count: 20 })?;
    let pushed = child.wait_for(20, |event| matches!(event, ChildEvent::Pushed { .. })).await?;
    child.kill().await?;
    let sent: Vec<_> = pushed
        .iter()
        .filter_map(|event| if let ChildEvent::Pushed { id } = event { id_of(id) } else { None })
        .collect();
    let got = c.client().take(&p, 20).await?;
    c.same(Clause::Stored, "all that the killed process had acknowledged", &sent, &got)?;
    c.client().remove(&got).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Stored, "each once").await
}

/// A process killed anywhere in a batch leaves each message whole or not at all, keeps the acknowledged ones,
/// and blocks nobody.
async fn pusher_in_a_batch(c: &Context) -> CaseResult {
    let (p, mut random) = (c.partition("work")?, c.random());
    let batch = BATCH.min(c.capabilities().limits.push_batch);
    // Those of all children: a server may still be working on the push of one that died long ago.
    let (mut payloads, mut seen) = (HashMap::new(), HashSet::new());
    for _ in 0..c.size(5, 40) {
        let mut child = c.spawn(&Role::BatchPusher { partition: "work".to_owned(), batch })?;
        let mut events = child.wait_for(random.usize(1..4 * batch), |_| true).await?;
        tokio::time::sleep(Duration::from_micros(random.u64(0..3000))).await;
        events.extend(child.kill().await?);
        let mut acknowledged = HashSet::new();
        for event in &events {
            match event {
                ChildEvent::Pushing { id, payload, .. } => {
                    payloads.extend(id_of(id).map(|id| (id, payload.clone())));
                }
                ChildEvent::Pushed { id } => acknowledged.extend(id_of(id)),
                _ => {}
            }
        }
        judge_pushes(c, &p, &payloads, acknowledged, &mut seen).await?;
    }
    Ok(())
}

async fn judge_pushes(
    c: &Context,
    p: &PartitionId,
    payloads: &HashMap<MessageId, String>,
    mut acknowledged: HashSet<MessageId>,
    seen: &mut HashSet<MessageId>,
) -> CaseResult {
    loop {
        let max = c.capabilities().limits.pull_batch.min(1000);
        // Wait only for messages that must come.
        let wait = if acknowledged.is_empty() { Duration::ZERO } else { c.timing().soon };
        let got = c.client().pull_with(p, c.client().request(max, wait)).await?;
        if got.is_empty() {
            break;
        }
        for delivery in &got {
            let id = delivery.lease.id;
            let ok =
                payloads.get(&id).is_some_and(|payload| payload.as_bytes() == delivery.message.payload());
            c.check(
                Clause::ContentIntact,
                &[id],
                ok,
                "a message of a killed process, whole",
                format!("{:?}", delivery.message),
            )?;
            c.check(Clause::PushResults, &[id], seen.insert(id), "each message once", "it came twice")?;
            acknowledged.remove(&id);
        }
        c.client().remove(&got).await?;
    }
    let left: Vec<_> = acknowledged.iter().copied().take(5).collect();
    let told = "every message that the killed process had acknowledged";
    c.check(Clause::Stored, &left, left.is_empty(), told, format!("{} missing", acknowledged.len()))
}

/// Messages that a killed consumer held come back at the end of their leases, not earlier, and not much
/// later.
async fn consumer_holding(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let lease = t.lease * 3;
    let sent = c.client().push(&p, &c.messages(10, |_, message| message)).await?;
    let role = Role::Consumer {
        partition: "work".to_owned(),
        count: 10,
        max: 10,
        lease_ms: millis(lease),
        remove: false,
    };
    let mut child = c.spawn(&role)?;
    let first = child.wait_for(1, |event| matches!(event, ChildEvent::Took { .. })).await?;
    let told = Instant::now();
    let mut took = taken(&first);
    took.extend(taken(&child.wait_for(9, |event| matches!(event, ChildEvent::Took { .. })).await?));
    child.kill().await?;
    c.equal(Clause::DroppedDelivery, &sent, "the number taken", &10, &took.len())?;
    let mut got = Vec::new();
    while got.len() < 10 {
        let wait = t.latest(lease).saturating_sub(told.elapsed());
        let back = c.client().pull_with(&p, c.client().request(10 - got.len(), wait)).await?;
        let seen = || format!("{} back after {:?}", got.len(), told.elapsed());
        c.check(Clause::LeaseEnd, &sent, !back.is_empty(), "all ten back soon after their lease", seen())?;
        got.extend(back);
    }
    c.same(Clause::LeaseEnd, "what the killed process held", &sent, &got)?;
    let counted = got.iter().all(|delivery| delivery.delivery_count.is_none_or(|count| count == 2));
    let counts: Vec<_> = got.iter().map(|delivery| delivery.delivery_count).collect();
    c.check(Clause::DeliveryCount, &sent, counted, "a delivery count of 2", format!("{counts:?}"))?;
    c.client().remove(&got).await
}

/// If the lease is the connection, messages that a killed consumer held come back at once, however long a
/// lease it asked for.
async fn consumer_on_a_connection(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let sent = c.client().push(&p, &c.messages(10, |_, message| message)).await?;
    let lease_ms = millis(t.long_lease);
    let role = Role::Consumer { partition: "work".to_owned(), count: 10, max: 10, lease_ms, remove: false };
    let mut child = c.spawn(&role)?;
    child.wait_for(10, |event| matches!(event, ChildEvent::Took { .. })).await?;
    c.client().nothing(&p, t.slack, Clause::ConnectionLease, "nothing while the consumer lives").await?;
    child.kill().await?;
    let got = c.client().take(&p, 10).await?;
    c.same(Clause::ConnectionLease, "what the killed process held, soon after its death", &sent, &got)?;
    c.client().remove(&got).await
}

/// A consumer killed while it settles: messages whose removal was confirmed never come back, all others do.
async fn consumer_around_settle(c: &Context) -> CaseResult {
    let (p, t, mut random) = (c.partition("work")?, c.timing(), c.random());
    for _ in 0..c.size(4, 20) {
        let sent = c.client().push(&p, &c.messages(60, |_, message| message)).await?;
        let role = Role::Consumer {
            partition: "work".to_owned(),
            count: 60,
            max: 7,
            lease_ms: millis(t.lease),
            remove: true,
        };
        let mut child = c.spawn(&role)?;
        let until = random.usize(1..50);
        let mut events = Vec::new();
        while removed(&events).len() < until {
            let event = child.event().await?;
            events
                .push(event.ok_or_else(|| {
                    c.failed(Clause::SettleOutcomes, &[], "the child to go on", "it ended")
                })?);
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..500))).await;
        events.extend(child.kill().await?);
        settled_or_back(c, &p, &sent, &events).await?;
    }
    Ok(())
}

/// Messages that the killed process had not removed come back, each once, except for the one that it was
/// removing.
async fn settled_or_back(
    c: &Context,
    p: &PartitionId,
    sent: &[MessageId],
    events: &[ChildEvent],
) -> CaseResult {
    let (t, gone, last) = (c.timing(), removed(events), taken(events).last().copied());
    let open = last.filter(|last| !gone.contains(last));
    let mut left: HashSet<_> = sent.iter().filter(|id| !gone.contains(id)).copied().collect();
    // If a removal is only sent, a crash may lose those that were on their way.
    let is_confirmed = c.capabilities().settle_confirm == SettleConfirm::Confirmed;
    let mut unsent: HashSet<_> = gone.iter().filter(|_| !is_confirmed).copied().collect();
    loop {
        let only_open = left.iter().all(|id| open == Some(*id));
        let wait = if only_open { t.never() } else { t.latest(t.lease) };
        let got = c.client().pull_with(p, c.client().request(10, wait)).await?;
        if got.is_empty() {
            break;
        }
        for id in ids(&got) {
            let told = "only what the killed process had not removed, each once";
            c.check(
                Clause::SettleTwice,
                &[id],
                left.remove(&id) || unsent.remove(&id),
                told,
                "it came back",
            )?;
        }
        c.client().remove(&got).await?;
    }
    if let Some(open) = open.filter(|open| left.remove(open)) {
        unsaid(c, open);
    }
    let missing: Vec<_> = left.into_iter().collect();
    let told = "everything back that the killed process had not removed";
    c.check(Clause::LeaseEnd, &missing, missing.is_empty(), told, format!("{} missing", missing.len()))
}

/// The message was removed, but the process was killed before it could report it.
pub(super) fn unsaid(c: &Context, id: MessageId) {
    let ticket = c.history().begin(&"killed".into(), Op::ChildRemoved { id });
    c.history().end(ticket, 1, |_| ());
}

/// Collects what a child reports until told to end, then kills it.
async fn watch(child: &mut Child, done: &CancellationToken) -> CaseResult<Vec<ChildEvent>> {
    let mut events = Vec::new();
    loop {
        tokio::select! {
            () = done.cancelled() => break,
            event = child.event() => match event? {
                Some(event) => events.push(event),
                None => break,
            },
        }
    }
    events.extend(child.kill().await?);
    Ok(events)
}

/// Consumers in three processes, one of them with sixteen tasks, take each message exactly once.
async fn processes_share(c: &Context) -> CaseResult {
    const ALL: usize = 1000;
    const FIRST: usize = 100;
    let p = c.partition("work")?;
    let lease_ms = millis(c.timing().long_lease);
    let role = Role::Consumer { partition: "work".to_owned(), count: ALL, max: 3, lease_ms, remove: true };
    let (mut one, mut two) = (c.spawn(&role)?, c.spawn(&role)?);
    let mut sent = c.client().push(&p, &c.messages(FIRST, |_, message| message)).await?;
    let removal = |event: &ChildEvent| matches!(event, ChildEvent::Removed { .. });
    // Either may have taken all of them before the other was there.
    let (early_one, early_two) = tokio::select! {
        early = one.wait_for(1, removal) => (early?, Vec::new()),
        early = two.wait_for(1, removal) => (Vec::new(), early?),
    };
    let done = CancellationToken::new();
    let work = async {
        sent.extend(c.client().push(&p, &c.messages(ALL - FIRST, |_, message| message)).await?);
        let tasks = (0..16).map(|_| async {
            let mut mine = Vec::new();
            loop {
                let got = c.client().pull(&p, 2).await?;
                if got.is_empty() {
                    return CaseResult::Ok(mine);
                }
                c.client().remove(&got).await?;
                mine.extend(ids(&got));
            }
        });
        let mine = join_all(tasks).await.into_iter().collect::<CaseResult<Vec<_>>>();
        done.cancel();
        CaseResult::Ok(mine?.concat())
    };
    let (mine, ones, twos) = tokio::join!(work, watch(&mut one, &done), watch(&mut two, &done));
    let (mine, ones, twos) = (mine?, [early_one, ones?].concat(), [early_two, twos?].concat());
    let all = [mine, removed(&ones), removed(&twos)].concat();
    c.same_ids(Clause::Exclusive, "each message removed by exactly one of three processes", &sent, &all)?;
    let (by_one, by_two) = (removed(&ones).len(), removed(&twos).len());
    c.check(
        Clause::Exclusive,
        &[],
        by_one + by_two > 0,
        "work for the other processes",
        format!("{by_one} and {by_two}"),
    )
}

/// A process that was stopped beyond its lease and then continues disturbs nobody: its settlements return
/// `Lost`.
async fn stopped_beyond_its_lease(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let lease = t.lease * 3;
    let sent = c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let role = Role::LateConsumer {
        partition: "work".to_owned(),
        count: 5,
        lease_ms: millis(lease),
        hold_ms: millis(lease / 2),
    };
    let mut child = c.spawn(&role)?;
    child.wait_for(5, |event| matches!(event, ChildEvent::Took { .. })).await?;
    child.stop().await?;
    let mut mine = Vec::new();
    while mine.len() < 5 {
        let got = c.client().pull_with(&p, c.client().request(5, t.latest(lease))).await?;
        c.check(
            Clause::LeaseEnd,
            &sent,
            !got.is_empty(),
            "all five back soon after their lease",
            format!("{}", mine.len()),
        )?;
        mine.extend(got);
    }
    c.same(Clause::LeaseEnd, "what the stopped process held", &sent, &mine)?;
    child.resume().await?;
    let settling = |event: &ChildEvent| matches!(event, ChildEvent::Lost { .. } | ChildEvent::Removed { .. });
    let outcomes = child.wait_for(5, settling).await?;
    let seen = format!("{} of 5 removed", removed(&outcomes).len());
    c.check(Clause::Fencing, &sent, removed(&outcomes).is_empty(), "Lost for each late settlement", seen)?;
    c.client().nothing(&p, t.slack, Clause::Fencing, "the new owner undisturbed").await?;
    c.client().remove(&mine).await
}
