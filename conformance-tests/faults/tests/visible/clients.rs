//! Faults of pauses, and of clients that open and close.

use crate::Fault;
use crate::lab::*;
use anyqueue::Page;

seen! {
    PauseMissesWaiting: "", not "a", async |lab| {
        let client = lab.open().await;
        let pause_and_push = async {
            sleep(SHORT).await;
            client.set_paused(true).await;
            client.push([m("a")]).await;
        };
        tokio::join!(client.wait(), pause_and_push).0
    };
    PauseTakesDead: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.set_paused(true).await;
        client.all_of(&dead()).await
    };
    PausedUnlisted: "\"jobs\"", not "\"\"", async |lab| {
        let client = lab.open().await;
        client.set_paused(true).await;
        let listed = client.inspect().partitions(Page::of(10)).await.unwrap();
        shown(listed.iter().map(anyqueue::PartitionId::name).collect::<Vec<_>>().join(" "))
    };
    PauseForgottenWhenEmpty: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        client.set_paused(true).await;
        client.settle(&held, anyqueue::adapter::Action::Remove).await;
        shown(client.pauser().is_paused(&jobs()).await.unwrap())
    };
    PauseDiesWithClient: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.set_paused(true).await;
        client.0.close().await.unwrap();
        shown(lab.open().await.pauser().is_paused(&jobs()).await.unwrap())
    };
    InitResumes: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.set_paused(true).await;
        lab.open().await.0.init().await.unwrap();
        shown(client.pauser().is_paused(&jobs()).await.unwrap())
    };
    InitReleasesLeased: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.one().await;
        let newcomer = lab.open().await;
        newcomer.0.init().await.unwrap();
        newcomer.all().await
    };
    CloseReleasesAll: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.one().await;
        lab.open().await.0.close().await.unwrap();
        client.all().await
    };
    ClosedKeepsLeases: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.pull_for(25 * SHORT, 1).await;
        client.0.close().await.unwrap();
        lab.open().await.wait().await
    };
    MovedByItsPullerOnly: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("b")]).await;
        let held = lab.open().await.one().await;
        let _ = client.0.settle(&[anyqueue::adapter::Settlement::new(held.lease.clone(), move_to(&other()))]).await;
        client.all_of(&other()).await
    };
    DelayedDieWithPusher: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(25 * SHORT)]).await;
        client.0.close().await.unwrap();
        lab.open().await.wait().await
    };
    PostponedDieWithClient: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, postpone(25 * SHORT)).await;
        client.0.close().await.unwrap();
        lab.open().await.wait().await
    };
}
