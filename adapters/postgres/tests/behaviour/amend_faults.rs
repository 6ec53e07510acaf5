//! Connections that are cut, calls that are dropped, and servers that are killed while what waits is amended: each message is as before or
//! as after, as a whole, and its group goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyqueue::adapter::{AmendQueueStorage, InspectQueueStorage, PushQueueStorage};
use anyqueue::{Amend, AmendOutcome, MessageData, MessageId, MessageState, Page, PartitionId, RetryClass};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Direction, Fault, Postgres, Proxy, start_if_installed};

use crate::common::{Bed, part, pull, run};
use crate::faults::{RECOVERY, client, recovered};
use crate::locks::{number, until_locked};
use crate::successors::drain;

/// Each changes a head, so that its group has to go on.
fn changes() -> [Amend; 3] {
    let moved = Amend::new().with_priority(7).with_group("other").due_in(Duration::from_hours(1));
    [Amend::new().disable(), moved, Amend::new().without_group().disable()]
}

/// Two members of a group, of which the first is to be changed.
async fn members(queue: &PostgresQueue, p: &PartitionId) -> [MessageId; 2] {
    let messages = ["head", "next"].map(|text| MessageData::new(text).with_group("g"));
    for pushed in queue.push(p, &messages).await {
        pushed.unwrap();
    }
    messages.map(|message| message.id())
}

/// Whether the head is changed, wholly; its group has a head in both cases. Nothing is left after that.
async fn is_changed(queue: &PostgresQueue, p: &PartitionId, change: &Amend, leader: MessageId) -> bool {
    let all = queue.browse(p, Page::of(9)).await.unwrap();
    let seen = all.iter().find(|seen| seen.message.id() == leader).unwrap();
    let options = seen.message.options();
    let shown = (seen.state, options.priority, options.group.as_deref());
    let is_changed = shown != (MessageState::Ready, 0, Some("g"));
    let state = if change.disabled.is_some() { MessageState::Disabled } else { MessageState::Delayed };
    let moved = change.priority.map_or((0, Some("g")), |priority| (priority, Some("other")));
    let moved = if change.group == Some(anyqueue::Regroup::Leave) { (0, None) } else { moved };
    if is_changed {
        assert_eq!(shown, (state, moved.0, moved.1));
    }
    let came = drain(queue, p).await;
    assert_eq!(came, if is_changed { &["next"][..] } else { &["head", "next"] });
    assert_eq!(queue.purge(p, 9).await.unwrap(), usize::from(is_changed));
    is_changed
}

/// After as many bytes as are needed for all of it, in steps: to the server, then back.
#[tokio::test]
async fn a_connection_cut_anywhere_leaves_a_message_as_before_or_as_after() {
    const TO_SERVER: u64 = 1300;
    const TO_CLIENT: u64 = 500;
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let proxy = Proxy::start(server.addr()).unwrap();
    let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
    assert_ne!(url, server.url());
    let direct = PostgresQueue::open(server.url()).await.unwrap();
    let cut_off = PostgresQueue::builder(&url).unwrap().max_connections(1).open().await.unwrap();
    let (p, mut failed, mut changed) = (part("p"), 0, 0);
    let cuts = (0..TO_SERVER).step_by(65).map(|bytes| (Direction::ToServer, bytes));
    let cuts = cuts.chain((0..TO_CLIENT).step_by(25).map(|bytes| (Direction::ToClient, bytes)));
    for ((direction, bytes), change) in cuts.zip(changes().iter().cycle()) {
        let [leader, _] = members(&direct, &p).await;
        pull(&cut_off, &part("none"), 1).await; // so that it has a connection
        proxy.set(Fault::CutAfter { direction, bytes }).await.unwrap();
        let outcome = cut_off.amend(&p, &[leader], change).await.remove(0);
        proxy.set(Fault::Pass).await.unwrap();
        let is_changed = is_changed(&direct, &p, change, leader).await;
        match outcome {
            Ok(outcome) => assert!(is_changed && outcome == AmendOutcome::Amended, "{direction:?} {bytes}"),
            Err(error) => {
                assert_eq!(error.retry(), RetryClass::Safe, "{error}");
                failed += 1;
            }
        }
        changed += u32::from(is_changed);
    }
    assert!(failed > 10 && changed > 5, "{failed} calls failed, {changed} changed");
}

/// Dropped while it waits for a group, with messages locked.
#[tokio::test]
async fn an_amendment_that_is_dropped_while_it_waits_changes_nothing_and_leaves_nothing_locked() {
    use sqlx::Connection;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for change in changes() {
        let [leader, _] = members(&queue, &p).await;
        let mut conn = bed.connect().await;
        let mut tx = conn.begin().await.unwrap();
        run(&mut tx, format!("SELECT FROM {}.message_group FOR UPDATE", bed.schema)).await;
        let ids = [leader];
        let amending = queue.amend(&p, &ids, &change);
        tokio::select! {
            _ = amending => panic!("the group is locked"),
            () = until_locked(&bed, 1) => {}
        }
        // The handle ends the server process of a call that is given up.
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = ";
        while number(&mut bed.connect().await, format!("{waiting}'{}'", bed.schema)).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tx.rollback().await.unwrap();
        assert!(!is_changed(&queue, &p, &change, leader).await);
    }
}

/// Each task amends a message of its own, again and again: its last change that was acknowledged, or one that was under way, is what is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_amendments_loses_none_that_was_acknowledged() {
    const TASKS: usize = 6;
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let queue = client(server.url()).await;
    let messages: Vec<_> = (0..TASKS).map(|n| MessageData::new(format!("{n}")).with_group("g")).collect();
    queue.push_many("p", messages.clone()).await.unwrap();
    let (over, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks = messages.iter().map(MessageData::id).map(|id| {
        let (queue, over, total) = (queue.clone(), Arc::clone(&over), Arc::clone(&total));
        tokio::spawn(async move {
            let (mut number, mut acknowledged) = (0_u64, 0);
            while !over.load(Ordering::Relaxed) {
                number += 1;
                let change = Amend::new().with_group(format!("{id} {number}"));
                let change = if number.is_multiple_of(2) { change.disable() } else { change.enable() };
                let outcome = queue.amend("p", &[id], change).await.map(|mut outcomes| outcomes.remove(0));
                if matches!(outcome, Ok(Ok(AmendOutcome::Amended))) {
                    acknowledged = number;
                    total.fetch_add(1, Ordering::Relaxed);
                }
            }
            (id, acknowledged..=number)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for share in [150, 300] {
        let reached = async {
            while total.load(Ordering::Relaxed) < share {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(3), reached).await.expect("amendments go on");
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        let took = recovered(&[&queue]).await;
        assert!(took < RECOVERY, "recovery after a kill took {took:?}");
    }
    over.store(true, Ordering::Relaxed);
    let (direct, p) = (PostgresQueue::open(server.url()).await.unwrap(), part("p"));
    let mut last = Vec::new();
    for task in tasks {
        last.push(task.await.unwrap());
    }
    let all = direct.browse(&p, Page::of(99)).await.unwrap();
    assert_eq!(all.len(), TASKS);
    for (id, possible) in last {
        let seen = all.iter().find(|seen| seen.message.id() == id).unwrap();
        let group = seen.message.options().group.as_deref().unwrap();
        let number: u64 = group.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(possible.contains(&number), "{number} is left, not one of {possible:?}");
        assert_eq!(seen.state == MessageState::Disabled, number.is_multiple_of(2));
    }
    let ids: Vec<_> = all.iter().map(|seen| seen.message.id()).collect();
    direct.amend(&p, &ids, &Amend::new().enable().with_group("g")).await;
    assert_eq!(drain(&direct, &p).await.len(), TASKS, "every group has a head");
}
