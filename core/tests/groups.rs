//! Groups that a partition gives to what is pushed there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;

/// Memory that declares to have no groups.
#[derive(Debug)]
struct Groupless(MemoryQueue, Capabilities);

impl Forward for Groupless {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

#[tokio::test]
async fn a_partition_gives_its_messages_the_group_that_their_header_says() {
    let by_customer = PartitionOptions::default().with_group_by("customer");
    let queue = Queue::builder(MemoryQueue::new()).partition("orders", by_customer.clone()).build().unwrap();
    let of = |customer: &str| MessageData::new("order").with_header("customer", customer);
    queue.push("orders", of("7")).await.unwrap();
    queue
        .push_many("orders", vec![of("7").with_group("mine"), of(""), MessageData::new("no order")])
        .await
        .unwrap();
    queue.push("elsewhere", of("7")).await.unwrap();
    let mut held = queue.pull("elsewhere").await.unwrap();
    assert_eq!(held[0].message().options().group, None, "it is an option of one partition");
    let then = Successors::new().then("orders", of("8")).unwrap();
    held[0].settle_with(Processed, then).await.unwrap();

    let groups: Vec<_> = queue.pull("orders").max(9).await.unwrap();
    let groups: Vec<_> = groups.iter().map(|it| it.message().options().group.clone()).collect();
    assert_eq!(groups, [Some("7".into()), Some("mine".into()), None, None, Some("8".into())]);
    let long = queue.push("orders", of(&"x".repeat(MAX_KEY_BYTES + 1))).await.unwrap_err();
    assert!(long.message().contains("the group has 257 bytes"), "{long}");

    let capabilities = Capabilities { groups: false, ..MemoryQueue::new().capabilities().clone() };
    let groupless = Groupless(MemoryQueue::new(), capabilities);
    let refused = Queue::builder(groupless).defaults(by_customer).build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
