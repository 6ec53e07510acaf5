//! Faults of pulls that wait.

use std::time::Instant;

use anyqueue::adapter::{Action, RawDelivery};

use crate::Fault;
use crate::lab::*;

/// What a waiting pull gets when this happens.
async fn while_waiting<T>(desk: &Desk, happens: impl Future<Output = T>) -> String {
    let happens = async {
        sleep(SHORT).await;
        happens.await;
    };
    tokio::join!(desk.wait(), happens).0
}

async fn held(desk: &Desk) -> RawDelivery {
    desk.push([m("a").with_group("g"), m("b").with_group("g")]).await;
    desk.one().await
}

/// Whether what is done while a pull waits is done before its wait is over.
async fn not_blocked<T>(desk: &Desk, done: impl Future<Output = T>) -> String {
    let start = Instant::now();
    let done = async {
        sleep(SHORT).await;
        done.await;
        start.elapsed() < SECOND
    };
    shown(tokio::join!(desk.wait(), done).1)
}

seen! {
    ReleaseWakesNobody: "a", not "", async |lab| {
        let desk = lab.open().await;
        let held = held(&desk).await;
        while_waiting(&desk, desk.settle(&held, Action::Release)).await
    };
    MoveWakesNobody: "there", not "", async |lab| {
        let desk = lab.open().await;
        desk.push_to(&other(), [m("there")]).await;
        let held = desk.pull_from(&other(), 1).await.remove(0);
        while_waiting(&desk, async { desk.settle(&held, move_to(&jobs())).await }).await
    };
    FreedGroupWakesNobody: "b", not "", async |lab| {
        let desk = lab.open().await;
        let held = held(&desk).await;
        while_waiting(&desk, desk.settle(&held, Action::Remove)).await
    };
    OthersUnheard: "a", not "", async |lab| {
        let (desk, another) = (lab.open().await, lab.open().await);
        while_waiting(&desk, another.push([m("a")])).await
    };
    BatchWakesOne: "2", not "1", async |lab| {
        let desk = lab.open().await;
        let both = async { tokio::join!(desk.wait(), desk.wait()) };
        let push = async {
            sleep(SHORT).await;
            desk.push([m("a"), m("b")]).await;
        };
        let ((first, second), ()) = tokio::join!(both, push);
        shown((first + &second).len())
    };
    WaitersShare: "1", not "2", async |lab| {
        let (desk, another) = (lab.open().await, lab.open().await);
        let both = async { tokio::join!(desk.wait(), another.wait()) };
        let push = async {
            sleep(SHORT).await;
            desk.push([m("a")]).await;
        };
        let ((first, second), ()) = tokio::join!(both, push);
        shown((first + &second).len())
    };
    WaitBlocksExtend: "true", not "false", async |lab| {
        let desk = lab.open().await;
        let held = held(&desk).await;
        not_blocked(&desk, desk.extend(&held, MINUTE)).await
    };
    WaitBlocksOtherPull: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.push_to(&other(), [m("a")]).await;
        not_blocked(&desk, desk.all_of(&other())).await
    };
}
