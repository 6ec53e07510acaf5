//! Faults of what a message carries.

use anyqueue::MessageData;
use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

fn full() -> MessageData {
    m("a")
        .with_session_id("s")
        .with_task_id("t")
        .with_max_retries(3)
        .with_max_duration(MINUTE)
        .with_time_to_live(MINUTE)
}

/// Session, task, retries, duration, expiry: what is there after it.
async fn left_after(lab: Lab, action: Action) -> String {
    let client = lab.open().await;
    client.push([full()]).await;
    let to = if let Action::Move { to, .. } = &action { to.clone() } else { jobs() };
    client.settle(&client.one().await, action).await;
    let message = client.pull_from(&to, 1).await.remove(0).message;
    let options = message.options();
    let there = [
        message.session_id().is_some(),
        message.task_id().is_some(),
        options.max_retries.is_some(),
        options.max_duration.is_some(),
        options.expiry.is_some(),
    ];
    there.map(|there| if there { '1' } else { '0' }).iter().collect()
}

async fn redriven(lab: Lab, messages: [MessageData; 2]) -> String {
    let client = lab.open().await;
    let [first, second] = messages;
    client.push([first]).await;
    client.settle(&client.one().await, move_to(&dead())).await;
    client.push([second]).await;
    client.settle(&client.pull_from(&dead(), 1).await[0], move_to(&jobs())).await;
    client.all().await
}

seen! {
    PostponeLosesSession: "11111", not "01111", async |lab| left_after(lab, with_headers([])).await;
    ReleaseLosesTask: "11111", not "10111", async |lab| left_after(lab, Action::Release).await;
    RetryLosesMaxRetries: "11111", not "11011", async |lab| left_after(lab, Action::Retry).await;
    MoveLosesMaxDuration: "11111", not "11101", async |lab| left_after(lab, move_to(&other())).await;
    RedeliveryLosesExpiry: "11111", not "11110", async |lab| left_after(lab, Action::Release).await;
    RedriveForgetsPriority: "a b", not "b a", async |lab| redriven(lab, [m("a").with_priority(1), m("b")]).await;
    RedriveForgetsGroup: "b", not "b a", async |lab| {
        redriven(lab, [m("a").with_group("g"), m("b").with_group("g")]).await
    };
}
