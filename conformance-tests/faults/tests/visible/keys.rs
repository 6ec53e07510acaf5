//! Faults of how keys and groups are compared.

use crate::Fault;
use crate::lab::*;

async fn two_keys(lab: Lab, first: &str, second: &str) -> String {
    lab.open().await.push([m("a").with_dedup_key(first), m("b").with_dedup_key(second)]).await
}

seen! {
    KeyTrimmed: "stored stored", not "stored duplicate", async |lab| two_keys(lab, "k", "k ").await;
    KeyCaseless: "stored stored", not "stored duplicate", async |lab| two_keys(lab, "k", "K").await;
    KeyComposed: "stored stored", not "stored duplicate", async |lab| {
        two_keys(lab, "\u{e9}", "e\u{301}").await
    };
    GroupTrimmed: "a b", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_group("g"), m("b").with_group("g ")]).await;
        client.all().await
    };
    PurgeFreesHeldKeys: "duplicate", not "stored", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_dedup_key("k")]).await;
        let _held = client.one().await;
        client.inspect().purge(&jobs(), 10).await.unwrap();
        client.push([m("b").with_dedup_key("k")]).await
    };
}
