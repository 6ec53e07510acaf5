//! Successors in a cluster: together with the end within a slot, and never lost across slots.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, MoveGuarantee, PullQueueStorage, PullRequest, QueueStorage, Settlement,
};
use anyqueue::{ErrorKind, MessageData, RetryClass, SettleOutcome};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Redis, RedisCluster};
use redis::Value;

use crate::common::{LEASE, command, messages, part, pull, pull_wait, push, settle, texts};
use crate::successors::{all, bring, settle_one};

/// A cluster, and a partition on each of its masters.
pub(crate) struct Beds {
    pub(crate) cluster: RedisCluster,
    names: [String; 3],
}

impl Beds {
    async fn find() -> Option<Self> {
        Self::with(Redis::new()).await
    }

    pub(crate) async fn with(redis: Redis) -> Option<Self> {
        // A node that gets no time on a busy machine must not be taken for dead.
        let redis = redis.setting("cluster-node-timeout", "30000");
        let cluster = RedisCluster::start_if_installed(redis).await.unwrap()?;
        let mut names: [Option<String>; 3] = [const { None }; 3];
        for number in 0.. {
            let name = format!("p{number}");
            let slot = command(&cluster.nodes()[0], &format!("CLUSTER KEYSLOT {{{name}}}")).await;
            let Value::Int(slot) = slot else { panic!("{slot:?}") };
            names[usize::try_from(slot / 5462).unwrap()].get_or_insert(name);
            if names.iter().all(Option::is_some) {
                break;
            }
        }
        Some(Self { cluster, names: names.map(Option::unwrap) })
    }

    pub(crate) fn names(&self) -> [&str; 3] {
        self.names.each_ref().map(String::as_str)
    }

    pub(crate) async fn open(&self) -> RedisQueue {
        RedisQueue::open(self.cluster.url()).await.unwrap()
    }
}

#[tokio::test]
async fn successors_in_any_slot_are_stored_once_and_wake_who_waits() {
    let Some(beds) = Beds::find().await else { return };
    let [p, q, r] = beds.names();
    let builder = RedisQueue::builder(beds.cluster.url()).unwrap().poll_interval(Duration::from_mins(1));
    let (queue, other) = (beds.open().await, builder.open().await.unwrap());
    assert_eq!(queue.capabilities().successors, Some(MoveGuarantee::AtLeastOnce));
    push(&queue, &part(p), &messages(&["1", "2", "3"])).await;
    let held = pull(&queue, &part(p), 3).await;
    let keyed = MessageData::new("keyed").with_dedup_key("k");
    let settlements = [
        bring(&held[0], Action::Remove, [(q, MessageData::new("a")), (r, MessageData::new("b")), (p, keyed)]),
        bring(&held[1], Action::Retry, [(q, MessageData::new("c"))]),
        bring(&held[2], Action::Remove, [(p, MessageData::new("4"))]),
    ];
    let far = part(r);
    let settled = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.settle(&settlements).await
    };
    let (pulled, settled) = tokio::join!(pull_wait(&other, &far, 1), settled);
    assert!(settled.into_iter().all(|outcome| outcome.unwrap() == SettleOutcome::Settled));
    assert_eq!(texts(&pulled), ["b"]);
    assert_eq!(all(&queue, q).await, ["a", "c"]);
    let here = pull(&queue, &part(p), 10).await;
    let mut here = texts(&here);
    here[1..].sort_unstable();
    assert_eq!(here, ["2", "4", "keyed"]);
    for name in [q, r] {
        assert_eq!(queue.counts(&part(name)).await.unwrap().ready, Some(0));
    }
}

#[tokio::test]
async fn under_a_lost_lease_nothing_is_stored_in_another_slot() {
    let Some(beds) = Beds::find().await else { return };
    let [p, q, r] = beds.names();
    let queue = beds.open().await;
    push(&queue, &part(p), &messages(&["1", "2"])).await;
    let held = pull(&queue, &part(p), 2).await;
    settle(&queue, &held[..1], Action::Release).await;
    let moved = Action::Move { to: part(r), headers: None };
    let settlements = [
        bring(&held[0], Action::Remove, [(q, MessageData::new("lost"))]),
        bring(&held[0], moved, [(q, MessageData::new("lost"))]),
        bring(&held[1], Action::Remove, [(q, MessageData::new("child"))]),
        bring(&held[1], Action::Remove, [(q, MessageData::new("second"))]),
    ];
    let outcomes: Vec<_> = queue.settle(&settlements).await.into_iter().map(Result::unwrap).collect();
    let (lost, settled) = (SettleOutcome::Lost, SettleOutcome::Settled);
    assert_eq!(outcomes, [lost, lost, settled, lost]);
    assert_eq!(all(&queue, q).await, ["child"]);
    assert_eq!(all(&queue, r).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_message_that_moves_to_another_slot_arrives_before_its_successors() {
    let Some(beds) = Beds::find().await else { return };
    let [p, q, r] = beds.names();
    let queue = beds.open().await;
    push(&queue, &part(p), &messages(&["moved"])).await;
    let held = pull(&queue, &part(p), 1).await.remove(0);
    let same_id = || MessageData::with_id(held.lease.id, "same id");
    let then =
        [(q, MessageData::new("behind")), (q, same_id()), (r, MessageData::new("beside")), (p, same_id())];
    let moved = Action::Move { to: part(q), headers: None };
    let request = PullRequest::new(10, Duration::ZERO, LEASE);
    let (outcomes, pulled) = queue.exchange(&[bring(&held, moved, then)], &part(p), request).await;
    assert_eq!(outcomes[0].as_ref().unwrap(), &SettleOutcome::Settled);
    assert_eq!(texts(&pulled.unwrap()), ["same id"], "it is free here");
    assert_eq!(all(&queue, q).await, ["moved", "behind"]);
    assert_eq!(all(&queue, r).await, ["beside"]);
}

#[tokio::test]
async fn where_the_other_server_does_not_answer_the_delivery_is_held_until_it_does() {
    let Some(beds) = Beds::find().await else { return };
    let [p, q, _] = beds.names();
    let builder = RedisQueue::builder(beds.cluster.url()).unwrap().call_timeout(Duration::from_secs(3));
    let queue = builder.open().await.unwrap();
    push(&queue, &part(p), &messages(&["1", "2"])).await;
    let held = pull(&queue, &part(p), 2).await;
    let other = &beds.cluster.nodes()[1];
    other.freeze().await.unwrap();
    let settlement = bring(&held[0], Action::Remove, [(q, MessageData::new("child"))]);
    let plain = Settlement::new(held[1].lease.clone(), Action::Remove);
    let [refused, settled]: [_; 2] = queue.settle(&[settlement.clone(), plain]).await.try_into().unwrap();
    let error = refused.unwrap_err();
    assert_ne!(error.retry(), RetryClass::Never, "{error}");
    assert_eq!(settled.unwrap(), SettleOutcome::Settled);
    assert_eq!(queue.counts(&part(p)).await.unwrap().leased, Some(1));
    other.thaw().await.unwrap();
    assert_eq!(settle_one(&queue, settlement).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(all(&queue, q).await, ["child"], "what the first try may have stored is recognised");
}

#[tokio::test]
async fn between_the_steps_the_successor_is_there_the_delivery_is_held_and_settling_again_ends_it() {
    let Some(beds) = Beds::find().await else { return };
    let [p, q, _] = beds.names();
    let queue = beds.open().await;
    push(&queue, &part(p), &messages(&["1"])).await;
    let held = pull(&queue, &part(p), 1).await.remove(0);
    let then = [(q, MessageData::new("there")), (p, MessageData::new("here"))];
    let settlement = bring(&held, Action::Remove, then);
    // The last step, which needs memory here, is refused.
    command(&beds.cluster.nodes()[0], "CONFIG SET maxmemory 1").await;
    let error = settle_one(&queue, settlement.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(queue.counts(&part(q)).await.unwrap().ready, Some(1));
    let here = queue.counts(&part(p)).await.unwrap();
    assert_eq!((here.ready, here.leased), (Some(0), Some(1)));
    command(&beds.cluster.nodes()[0], "CONFIG SET maxmemory 0").await;
    assert_eq!(settle_one(&queue, settlement).await.unwrap(), SettleOutcome::Settled);
    assert_eq!((all(&queue, q).await, all(&queue, p).await), (vec!["there".into()], vec!["here".into()]));
}
