//! Faults of priorities, groups and deduplication keys.

use anyqueue::MessageData;
use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

fn grouped(name: &str) -> MessageData {
    m(name).with_group("g")
}

fn keyed(name: &str) -> MessageData {
    m(name).with_dedup_key("k")
}

seen! {
    GroupCaseless: "a b", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_group("g"), m("b").with_group("G")]).await;
        client.all().await
    };
    GroupPerClient: "a", not "a b", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a")]).await;
        lab.open().await.push([grouped("b")]).await;
        client.all().await
    };
    GroupPerPriority: "a", not "b a", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a"), grouped("b").with_priority(1)]).await;
        client.all().await
    };
    GroupForgetsPriority: "b a", not "a b", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), grouped("b").with_priority(1)]).await;
        client.all().await
    };
    DelayedForgetsGroup: "a", not "a b", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a"), grouped("b").with_delay(SHORT)]).await;
        sleep(2 * SHORT).await;
        client.all().await
    };
    MaturesAtPull: "b", not "c", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a")]).await;
        let head = client.one().await;
        client.push([grouped("b").with_delay(SHORT)]).await;
        sleep(2 * SHORT).await;
        client.push([grouped("c")]).await;
        client.settle(&head, Action::Remove).await;
        client.all().await
    };
    DelayedForgetsPriority: "b a", not "a b", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b").with_priority(1).with_delay(SHORT)]).await;
        sleep(2 * SHORT).await;
        client.all().await
    };
    TopLevelClamped: "b a", not "a b", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_priority(8), m("b").with_priority(9)]).await;
        client.all().await
    };
    KeyFreeAfterRetry: "duplicate", not "stored", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.settle(&client.one().await, Action::Retry).await;
        client.push([keyed("b")]).await
    };
    KeyFreeWhilePostponed: "duplicate", not "stored", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.settle(&client.one().await, postpone(MINUTE)).await;
        client.push([keyed("b")]).await
    };
    KeyFreeAtLeaseEnd: "duplicate", not "stored", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.pull_for(SHORT, 1).await;
        sleep(2 * SHORT).await;
        client.push([keyed("b")]).await
    };
    DeathKeepsKey: "stored", not "duplicate", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.push([keyed("b")]).await
    };
    PurgeKeepsKeys: "stored", not "duplicate", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.inspect().purge(&jobs(), 10).await.unwrap();
        client.push([keyed("b")]).await
    };
    MoveForgetsPriority: "a b", not "b a", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_priority(1)]).await;
        client.push_to(&other(), [m("b")]).await;
        client.settle(&client.one().await, move_to(&other())).await;
        client.all_of(&other()).await
    };
    MoveForgetsGroup: "b", not "b a", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a")]).await;
        client.push_to(&other(), [grouped("b")]).await;
        client.settle(&client.one().await, move_to(&other())).await;
        client.all_of(&other()).await
    };
    MoveTakesKey: "stored", not "duplicate", async |lab| {
        let client = lab.open().await;
        client.push([keyed("a")]).await;
        client.settle(&client.one().await, move_to(&other())).await;
        client.push_to(&other(), [keyed("b")]).await
    };
    MoveRepeatsDelay: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(25 * SHORT)]).await;
        client.settle(&client.wait_one().await, move_to(&other())).await;
        client.all_of(&other()).await
    };
    FailedHeadToEnd: "a", not "b", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a"), grouped("b")]).await;
        client.settle(&client.one().await, Action::Retry).await;
        client.all().await
    };
    PostponedHeadFreesGroup: "", not "b", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a"), grouped("b")]).await;
        client.settle(&client.one().await, postpone(MINUTE)).await;
        client.all().await
    };
    DeathLocksGroup: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a"), grouped("b")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.all().await
    };
    CancelLocksGroup: "b", not "", async |lab| {
        let client = lab.open().await;
        let a = grouped("a");
        client.push([a.clone(), grouped("b")]).await;
        client.inspect().request_cancel(&jobs(), &[a.id()]).await;
        client.all().await
    };
    DeleteLocksGroup: "b", not "", async |lab| {
        let client = lab.open().await;
        let a = grouped("a");
        client.push([a.clone(), grouped("b")]).await;
        client.inspect().delete(&jobs(), &[a.id()]).await;
        client.all().await
    };
    PurgeLocksGroup: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([grouped("a")]).await;
        client.inspect().purge(&jobs(), 10).await.unwrap();
        client.push([grouped("b")]).await;
        client.all().await
    };
}
