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
        let desk = lab.open().await;
        desk.push([m("a").with_group("g"), m("b").with_group("G")]).await;
        desk.all().await
    };
    GroupPerClient: "a", not "a b", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a")]).await;
        lab.open().await.push([grouped("b")]).await;
        desk.all().await
    };
    GroupPerPriority: "a", not "b a", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a"), grouped("b").with_priority(1)]).await;
        desk.all().await
    };
    GroupForgetsPriority: "b a", not "a b", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), grouped("b").with_priority(1)]).await;
        desk.all().await
    };
    DelayedForgetsGroup: "a", not "a b", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a"), grouped("b").with_delay(SHORT)]).await;
        sleep(2 * SHORT).await;
        desk.all().await
    };
    DelayedForgetsPriority: "b a", not "a b", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("b").with_priority(1).with_delay(SHORT)]).await;
        sleep(2 * SHORT).await;
        desk.all().await
    };
    TopLevelClamped: "b a", not "a b", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_priority(8), m("b").with_priority(9)]).await;
        desk.all().await
    };
    KeyFreeAfterRetry: "duplicate", not "stored", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.settle(&desk.one().await, Action::Retry).await;
        desk.push([keyed("b")]).await
    };
    KeyFreeWhilePostponed: "duplicate", not "stored", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.settle(&desk.one().await, postpone(MINUTE)).await;
        desk.push([keyed("b")]).await
    };
    KeyFreeAtLeaseEnd: "duplicate", not "stored", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.pull_for(SHORT, 1).await;
        sleep(2 * SHORT).await;
        desk.push([keyed("b")]).await
    };
    DeathKeepsKey: "stored", not "duplicate", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.push([keyed("b")]).await
    };
    PurgeKeepsKeys: "stored", not "duplicate", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.inspect().purge(&jobs(), 10).await.unwrap();
        desk.push([keyed("b")]).await
    };
    MoveForgetsPriority: "a b", not "b a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_priority(1)]).await;
        desk.push_to(&other(), [m("b")]).await;
        desk.settle(&desk.one().await, move_to(&other())).await;
        desk.all_of(&other()).await
    };
    MoveForgetsGroup: "b", not "b a", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a")]).await;
        desk.push_to(&other(), [grouped("b")]).await;
        desk.settle(&desk.one().await, move_to(&other())).await;
        desk.all_of(&other()).await
    };
    MoveTakesKey: "stored", not "duplicate", async |lab| {
        let desk = lab.open().await;
        desk.push([keyed("a")]).await;
        desk.settle(&desk.one().await, move_to(&other())).await;
        desk.push_to(&other(), [keyed("b")]).await
    };
    MoveRepeatsDelay: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_delay(25 * SHORT)]).await;
        desk.settle(&desk.wait_one().await, move_to(&other())).await;
        desk.all_of(&other()).await
    };
    FailedHeadToEnd: "a", not "b", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a"), grouped("b")]).await;
        desk.settle(&desk.one().await, Action::Retry).await;
        desk.all().await
    };
    PostponedHeadFreesGroup: "", not "b", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a"), grouped("b")]).await;
        desk.settle(&desk.one().await, postpone(MINUTE)).await;
        desk.all().await
    };
    DeathLocksGroup: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a"), grouped("b")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.all().await
    };
    CancelLocksGroup: "b", not "", async |lab| {
        let desk = lab.open().await;
        let a = grouped("a");
        desk.push([a.clone(), grouped("b")]).await;
        desk.inspect().request_cancel(&jobs(), &[a.id()]).await;
        desk.all().await
    };
    DeleteLocksGroup: "b", not "", async |lab| {
        let desk = lab.open().await;
        let a = grouped("a");
        desk.push([a.clone(), grouped("b")]).await;
        desk.inspect().delete(&jobs(), &[a.id()]).await;
        desk.all().await
    };
    PurgeLocksGroup: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([grouped("a")]).await;
        desk.inspect().purge(&jobs(), 10).await.unwrap();
        desk.push([grouped("b")]).await;
        desk.all().await
    };
}
