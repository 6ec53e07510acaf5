//! Faults of pulls that wait.

use std::time::Instant;

use anyqueue::adapter::{Action, RawDelivery};

use crate::Fault;
use crate::lab::*;

/// What a waiting pull gets when this happens.
async fn while_waiting<T>(client: &LabClient, happens: impl Future<Output = T>) -> String {
    let happens = async {
        sleep(SHORT).await;
        happens.await;
    };
    tokio::join!(client.wait(), happens).0
}

async fn held(client: &LabClient) -> RawDelivery {
    client.push([m("a").with_group("g"), m("b").with_group("g")]).await;
    client.one().await
}

/// Whether what is done while a pull waits is done before its wait is over.
async fn not_blocked<T>(client: &LabClient, done: impl Future<Output = T>) -> String {
    let start = Instant::now();
    let done = async {
        sleep(SHORT).await;
        done.await;
        start.elapsed() < SECOND
    };
    shown(tokio::join!(client.wait(), done).1)
}

seen! {
    ReleaseWakesNobody: "a", not "", async |lab| {
        let client = lab.open().await;
        let held = held(&client).await;
        while_waiting(&client, client.settle(&held, Action::Release)).await
    };
    MoveWakesNobody: "there", not "", async |lab| {
        let client = lab.open().await;
        client.push_to(&other(), [m("there")]).await;
        let held = client.pull_from(&other(), 1).await.remove(0);
        while_waiting(&client, async { client.settle(&held, move_to(&jobs())).await }).await
    };
    FreedGroupWakesNobody: "b", not "", async |lab| {
        let client = lab.open().await;
        let held = held(&client).await;
        while_waiting(&client, client.settle(&held, Action::Remove)).await
    };
    OthersUnheard: "a", not "", async |lab| {
        let (client, another) = (lab.open().await, lab.open().await);
        while_waiting(&client, another.push([m("a")])).await
    };
    BatchWakesOne: "2", not "1", async |lab| {
        let client = lab.open().await;
        let both = async { tokio::join!(client.wait(), client.wait()) };
        let push = async {
            sleep(SHORT).await;
            client.push([m("a"), m("b")]).await;
        };
        let ((first, second), ()) = tokio::join!(both, push);
        shown((first + &second).len())
    };
    WaitersShare: "1", not "2", async |lab| {
        let (client, another) = (lab.open().await, lab.open().await);
        let both = async { tokio::join!(client.wait(), another.wait()) };
        let push = async {
            sleep(SHORT).await;
            client.push([m("a")]).await;
        };
        let ((first, second), ()) = tokio::join!(both, push);
        shown((first + &second).len())
    };
    WaitBlocksExtend: "true", not "false", async |lab| {
        let client = lab.open().await;
        let held = held(&client).await;
        not_blocked(&client, client.extend(&held, MINUTE)).await
    };
    WaitBlocksOtherPull: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push_to(&other(), [m("a")]).await;
        not_blocked(&client, client.all_of(&other())).await
    };
}
