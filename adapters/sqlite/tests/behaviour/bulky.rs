//! Pulls of more than should be in memory at once.

use std::time::Duration;

use anyqueue::MessageData;
use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery};

use crate::common::{Bed, LEASE, SOON, part};

const MIB: usize = 1024 * 1024;
/// How many messages of a MiB come in one pull.
const MOST: usize = 32;

async fn fill(bed: &Bed, count: usize, group: Option<&str>) {
    let messages: Vec<_> = (0..count)
        .map(|_| MessageData::new(vec![7; MIB]))
        .map(|message| group.map_or(message.clone(), |group| message.with_group(group)))
        .collect();
    for outcome in bed.queue.push(&part("p"), &messages).await {
        outcome.unwrap();
    }
}

fn ids(held: &[RawDelivery]) -> Vec<anyqueue::MessageId> {
    held.iter().map(|held| held.lease.id).collect()
}

#[tokio::test]
async fn a_pull_brings_no_more_than_32_mib_and_leaves_the_rest_in_order() {
    for (group, members) in [(None, 1), (Some("g"), 1000)] {
        let bed = Bed::new().await;
        fill(&bed, MOST + 8, group).await;
        let request = PullRequest::new(1000, Duration::ZERO, LEASE).with_group_members(members);
        let held = bed.queue.pull(&part("p"), request.clone()).await.unwrap();
        assert_eq!(held.len(), MOST, "in groups: {}", group.is_some());
        let rest = bed.queue.pull(&part("p"), request).await.unwrap();
        let all = [ids(&held), ids(&rest)].concat();
        // A group whose members are held gives nothing more.
        assert_eq!(all.len(), if group.is_some() { MOST } else { MOST + 8 });
        assert!(all.is_sorted());
    }
}

#[tokio::test]
async fn who_waits_gets_what_another_pull_could_not_carry() {
    let bed = Bed::new().await;
    let (queue, p) = (bed.queue.clone(), part("p"));
    let request = PullRequest::new(1000, SOON, LEASE);
    let waiting = [0, 1].map(|_| {
        let (queue, p, request) = (queue.clone(), p.clone(), request.clone());
        tokio::spawn(async move { queue.pull(&p, request).await.unwrap().len() })
    });
    for _ in 0..100 {
        tokio::task::yield_now().await; // until both wait
    }
    fill(&bed, MOST + 8, None).await;
    let mut got = 0;
    for pull in waiting {
        got += pull.await.unwrap();
    }
    assert_eq!(got, MOST + 8);
}
