//! Faults of pushing and of names.

use std::time::Instant;

use anyqueue::{MessageData, PushOutcome};

use crate::Fault;
use crate::lab::*;

seen! {
    EmptyHeaderDropped: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("empty", "")]).await;
        shown(client.one().await.message.headers().contains_key("empty"))
    };
    HeaderTrimmed: "\" v \"", not "\"v\"", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("h", " v ")]).await;
        shown(&client.one().await.message.headers()["h"])
    };
    SecondChunkFirst: "0", not "128", async |lab| {
        let client = lab.open().await;
        client.push(many(129)).await;
        name(&client.one().await)
    };
    BatchSortedById: "second first", not "first second", async |lab| {
        let client = lab.open().await;
        let (first, second) = (m("first"), m("second"));
        client.push([second, first]).await;
        client.all().await
    };
    DuplicateEndsBatch: "duplicate stored: a b", not "duplicate stored: a", async |lab| {
        let client = lab.open().await;
        let a = m("a");
        client.push([a.clone()]).await;
        let answers = client.push([a, m("b")]).await;
        format!("{answers}: {}", client.all().await)
    };
    DuplicateNamesItself: "true", not "false", async |lab| {
        let client = lab.open().await;
        let (first, second) = (m("a").with_dedup_key("k"), m("b").with_dedup_key("k"));
        client.push([first.clone()]).await;
        let answer = client.0.push(&jobs(), &[second]).await.remove(0).unwrap();
        shown(answer == PushOutcome::Duplicate(Some(first.id())))
    };
    RepeatRevivesLeased: "", not "a", async |lab| {
        let client = lab.open().await;
        let a = m("a");
        client.push([a.clone()]).await;
        client.one().await;
        client.push([a]).await;
        client.all().await
    };
    RepeatRestartsDelay: "true", not "false", async |lab| {
        let client = lab.open().await;
        let a = m("a").with_delay(50 * SHORT);
        let start = Instant::now();
        client.push([a.clone()]).await;
        sleep(45 * SHORT).await;
        client.push([a]).await;
        client.wait_one().await;
        shown(start.elapsed() < 95 * SHORT)
    };
    NameCutAt63: "", not "a", async |lab| {
        let client = lab.open().await;
        let name = "n".repeat(63);
        client.push_to(&partition(&format!("{name}1")), [m("a")]).await;
        client.all_of(&partition(&format!("{name}2"))).await
    };
    DeadNameCollides: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.all_of(&partition("jobs-dead")).await
    };
    TwinKeysInBatch: "stored duplicate", not "stored stored", async |lab| {
        lab.open().await.push([m("a").with_dedup_key("k"), m("b").with_dedup_key("k")]).await
    };
    KeyCutAt255: "stored stored", not "stored duplicate", async |lab| {
        let key = "k".repeat(255);
        let with_key = |last| MessageData::new("x").with_dedup_key(format!("{key}{last}"));
        lab.open().await.push([with_key(1), with_key(2)]).await
    };
    DedupPerPriority: "stored duplicate", not "stored stored", async |lab| {
        let keyed = m("a").with_dedup_key("k");
        lab.open().await.push([keyed, m("b").with_dedup_key("k").with_priority(1)]).await
    };
    DedupPerClient: "duplicate", not "stored", async |lab| {
        lab.open().await.push([m("a").with_dedup_key("k")]).await;
        lab.open().await.push([m("b").with_dedup_key("k")]).await
    };
}
