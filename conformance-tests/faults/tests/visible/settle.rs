//! Faults of settling and of exchanges.

use anyqueue::adapter::{Action, RawDelivery};

use crate::Fault;
use crate::lab::*;

/// One message here and one in another partition, both held.
async fn here_and_there(client: &LabClient) -> (RawDelivery, RawDelivery) {
    client.push([m("here")]).await;
    client.push_to(&other(), [m("there")]).await;
    (client.one().await, client.pull_from(&other(), 1).await.remove(0))
}

async fn count_after(lab: Lab, action: Action) -> String {
    let client = lab.open().await;
    client.push([m("a")]).await;
    client.settle(&client.one().await, action).await;
    shown(client.one().await.delivery_count.unwrap())
}

seen! {
    ReleaseCounts: "1", not "2", async |lab| count_after(lab, Action::Release).await;
    PostponeCounts: "1", not "2", async |lab| count_after(lab, with_headers([])).await;
    EmptyHeadersIgnored: "{}", not "{\"h\": \"v\"}", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("h", "v")]).await;
        client.settle(&client.one().await, with_headers([])).await;
        shown(client.one().await.message.headers())
    };
    PostponeMergesHeaders: "{\"new\": \"2\"}", not "{\"new\": \"2\", \"old\": \"1\"}", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("old", "1")]).await;
        client.settle(&client.one().await, with_headers([("new", "2")])).await;
        shown(client.one().await.message.headers())
    };
    TwinSettled: "[Settled, Lost]", not "[Settled, Settled]", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        client.settle_all([(&held, Action::Remove), (&held, Action::Remove)]).await
    };
    OnePartitionPerBatch: "[Settled, Settled]", not "[Settled, Lost]", async |lab| {
        let client = lab.open().await;
        let (here, there) = here_and_there(&client).await;
        client.settle_all([(&here, Action::Remove), (&there, Action::Remove)]).await
    };
    AnswersByPartition: "[Settled, Lost]", not "[Lost, Settled]", async |lab| {
        let client = lab.open().await;
        let (here, there) = here_and_there(&client).await;
        client.settle(&here, Action::Remove).await;
        client.settle_all([(&there, Action::Remove), (&here, Action::Remove)]).await
    };
    LostEndsBatch: "[Lost, Settled]", not "[Lost, Lost]", async |lab| {
        let client = lab.open().await;
        let (here, there) = here_and_there(&client).await;
        client.settle(&here, Action::Remove).await;
        client.settle_all([(&here, Action::Remove), (&there, Action::Remove)]).await
    };
    MoveToNewVanishes: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, move_to(&other())).await;
        client.all_of(&other()).await
    };
    SecondReturnToBack: "a b", not "b a", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        client.settle(&client.one().await, Action::Release).await;
        client.settle(&client.one().await, Action::Release).await;
        client.all().await
    };
    ExchangeStopsAtLost: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        let held = client.one().await;
        client.settle(&held, Action::Remove).await;
        client.exchange(&held, Action::Remove, &jobs(), 0).await
    };
    ExchangePullsFirst: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_group("g"), m("b").with_group("g")]).await;
        client.exchange(&client.one().await, Action::Remove, &jobs(), 0).await
    };
    ExchangeDoesNotWait: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        let push = async {
            sleep(SHORT).await;
            client.push([m("b")]).await;
        };
        let jobs = jobs();
        let (pulled, ()) = tokio::join!(client.exchange(&held, Action::Remove, &jobs, 1000), push);
        pulled
    };
    ExchangeElsewhere: "there", not "here", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("here")]).await;
        client.push_to(&other(), [m("there")]).await;
        client.exchange(&client.one().await, Action::Remove, &other(), 0).await
    };
}
