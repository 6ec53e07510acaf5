//! Faults of pauses, and of clients that open and close.

use crate::Fault;
use crate::lab::*;

seen! {
    PauseMissesWaiting: "", not "a", async |lab| {
        let desk = lab.open().await;
        let pause_and_push = async {
            sleep(SHORT).await;
            desk.set_paused(true).await;
            desk.push([m("a")]).await;
        };
        tokio::join!(desk.wait(), pause_and_push).0
    };
    PauseTakesDead: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.set_paused(true).await;
        desk.all_of(&dead()).await
    };
    PausedUnlisted: "\"jobs\"", not "\"\"", async |lab| {
        let desk = lab.open().await;
        desk.set_paused(true).await;
        let listed = desk.inspect().partitions(None, 10).await.unwrap();
        shown(listed.iter().map(anyqueue::PartitionId::name).collect::<Vec<_>>().join(" "))
    };
    PauseForgottenWhenEmpty: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        desk.set_paused(true).await;
        desk.settle(&held, anyqueue::adapter::Action::Remove).await;
        shown(desk.pauser().is_paused(&jobs()).await.unwrap())
    };
    PauseDiesWithClient: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.set_paused(true).await;
        desk.0.close().await.unwrap();
        shown(lab.open().await.pauser().is_paused(&jobs()).await.unwrap())
    };
    InitResumes: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.set_paused(true).await;
        lab.open().await.0.init().await.unwrap();
        shown(desk.pauser().is_paused(&jobs()).await.unwrap())
    };
    InitReleasesLeased: "", not "a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.one().await;
        let newcomer = lab.open().await;
        newcomer.0.init().await.unwrap();
        newcomer.all().await
    };
    CloseReleasesAll: "", not "a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.one().await;
        lab.open().await.0.close().await.unwrap();
        desk.all().await
    };
    ClosedKeepsLeases: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.pull_for(25 * SHORT, 1).await;
        desk.0.close().await.unwrap();
        lab.open().await.wait().await
    };
    DelayedDieWithPusher: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_delay(25 * SHORT)]).await;
        desk.0.close().await.unwrap();
        lab.open().await.wait().await
    };
    PostponedDieWithClient: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, postpone(25 * SHORT)).await;
        desk.0.close().await.unwrap();
        lab.open().await.wait().await
    };
}
