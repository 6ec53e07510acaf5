//! Faults of settling and of exchanges.

use anyqueue::adapter::{Action, RawDelivery};

use crate::Fault;
use crate::lab::*;

/// One message here and one in another partition, both held.
async fn here_and_there(desk: &Desk) -> (RawDelivery, RawDelivery) {
    desk.push([m("here")]).await;
    desk.push_to(&other(), [m("there")]).await;
    (desk.one().await, desk.pull_from(&other(), 1).await.remove(0))
}

async fn count_after(lab: Lab, action: Action) -> String {
    let desk = lab.open().await;
    desk.push([m("a")]).await;
    desk.settle(&desk.one().await, action).await;
    shown(desk.one().await.delivery_count.unwrap())
}

seen! {
    ReleaseCounts: "1", not "2", async |lab| count_after(lab, Action::Release).await;
    PostponeCounts: "1", not "2", async |lab| count_after(lab, with_headers([])).await;
    EmptyHeadersIgnored: "{}", not "{\"h\": \"v\"}", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_header("h", "v")]).await;
        desk.settle(&desk.one().await, with_headers([])).await;
        shown(desk.one().await.message.headers())
    };
    PostponeMergesHeaders: "{\"new\": \"2\"}", not "{\"new\": \"2\", \"old\": \"1\"}", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_header("old", "1")]).await;
        desk.settle(&desk.one().await, with_headers([("new", "2")])).await;
        shown(desk.one().await.message.headers())
    };
    TwinSettled: "[Settled, Lost]", not "[Settled, Settled]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        desk.settle_all([(&held, Action::Remove), (&held, Action::Remove)]).await
    };
    OnePartitionPerBatch: "[Settled, Settled]", not "[Settled, Lost]", async |lab| {
        let desk = lab.open().await;
        let (here, there) = here_and_there(&desk).await;
        desk.settle_all([(&here, Action::Remove), (&there, Action::Remove)]).await
    };
    AnswersByPartition: "[Settled, Lost]", not "[Lost, Settled]", async |lab| {
        let desk = lab.open().await;
        let (here, there) = here_and_there(&desk).await;
        desk.settle(&here, Action::Remove).await;
        desk.settle_all([(&there, Action::Remove), (&here, Action::Remove)]).await
    };
    LostEndsBatch: "[Lost, Settled]", not "[Lost, Lost]", async |lab| {
        let desk = lab.open().await;
        let (here, there) = here_and_there(&desk).await;
        desk.settle(&here, Action::Remove).await;
        desk.settle_all([(&here, Action::Remove), (&there, Action::Remove)]).await
    };
    MoveToNewVanishes: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, move_to(&other())).await;
        desk.all_of(&other()).await
    };
    SecondReturnToBack: "a b", not "b a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("b")]).await;
        desk.settle(&desk.one().await, Action::Release).await;
        desk.settle(&desk.one().await, Action::Release).await;
        desk.all().await
    };
    ExchangeStopsAtLost: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("b")]).await;
        let held = desk.one().await;
        desk.settle(&held, Action::Remove).await;
        desk.exchange(&held, Action::Remove, &jobs(), 0).await
    };
    ExchangePullsFirst: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_group("g"), m("b").with_group("g")]).await;
        desk.exchange(&desk.one().await, Action::Remove, &jobs(), 0).await
    };
    ExchangeDoesNotWait: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        let push = async {
            sleep(SHORT).await;
            desk.push([m("b")]).await;
        };
        let jobs = jobs();
        let (pulled, ()) = tokio::join!(desk.exchange(&held, Action::Remove, &jobs, 1000), push);
        pulled
    };
    ExchangeElsewhere: "there", not "here", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("here")]).await;
        desk.push_to(&other(), [m("there")]).await;
        desk.exchange(&desk.one().await, Action::Remove, &other(), 0).await
    };
}
