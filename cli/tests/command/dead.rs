//! Dead letters: list, show, put back, delete.

use serde_json::json;

use crate::bed::Bed;

/// Three dead letters with different reasons.
async fn three() -> Bed {
    let bed = Bed::new();
    for (payload, reason) in [("a", "no route"), ("b", "no route to host"), ("c", "too old")] {
        bed.ok(&["push", "q", payload, "--header", &format!("name={payload}")]).await;
        bed.ok(&["pull", "q", "--settle", "poisonous", "--reason", reason]).await;
    }
    assert_eq!(bed.counts("q").await, [0, 0, 0, 3]);
    bed
}

#[tokio::test]
async fn dead_letters_are_listed_by_filter() {
    let bed = three().await;
    let all = bed.ok(&["dead", "list", "q", "--json"]).await.objects();
    assert_eq!(all.iter().map(|l| l["payload"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(all.iter().all(|letter| letter["died_at"].is_string() && letter["deliveries"] == 1));
    for (filter, found) in [
        (vec!["--reason", "no route"], 2),
        (vec!["--reason", "no route", "--header", "name=b"], 1),
        (vec!["--id", all[2]["id"].as_str().unwrap()], 1),
        (vec!["--max", "1"], 1),
    ] {
        let arguments = [&["dead", "list", "q", "--json"], filter.as_slice()].concat();
        assert_eq!(bed.ok(&arguments).await.objects().len(), found, "{filter:?}");
    }
    let table = bed.ok(&["dead", "list", "q"]).await.out;
    assert!(table.contains("no route to host") && table.contains("ago"), "{table}");
    bed.run(&["dead", "list", "q", "--older-than", "1h"]).await.ended_with(4);
}

#[tokio::test]
async fn a_dead_letter_is_shown_with_all_that_is_known() {
    let bed = three().await;
    let id = bed.ok(&["dead", "list", "q", "--json"]).await.objects()[1]["id"].as_str().unwrap().to_owned();
    let shown = bed.ok(&["dead", "show", "q", &id]).await.out;
    for fact in [&id, "no route to host", "header name", "deliveries"] {
        assert!(shown.contains(fact), "{fact} is not in {shown}");
    }
    assert!(shown.ends_with("b\n"), "the payload comes last: {shown}");
    let object = bed.ok(&["dead", "show", "q", &id, "--json"]).await.objects().remove(0);
    assert_eq!((&object["dead_reason"], &object["payload"]), (&json!("no route to host"), &json!("b")));
}

#[tokio::test]
async fn a_redrive_puts_back_what_the_filter_accepts() {
    let bed = three().await;
    let would = bed.ok(&["dead", "redrive", "q", "--reason", "no route", "--dry-run"]).await;
    assert_eq!(would.out, "would put back 2\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 3], "a dry run changes nothing");
    let done = bed.ok(&["dead", "redrive", "q", "--reason", "no route", "--json"]).await.objects();
    assert_eq!(done, [json!({ "moved": 2, "scanned": 3, "more": false })]);
    assert_eq!(bed.counts("q").await, [2, 0, 0, 1]);
    bed.ok(&["dead", "redrive", "q", "--to", "other", "--limit", "1"]).await;
    assert_eq!(bed.counts("q").await, [2, 0, 0, 0]);
    assert_eq!(bed.ok(&["pull", "other"]).await.out, "c\n");
}

#[tokio::test]
async fn dead_letters_are_deleted_only_if_it_is_meant() {
    let bed = three().await;
    let would = bed.ok(&["dead", "purge", "q", "--reason", "too old", "--dry-run"]).await;
    assert_eq!(would.out, "would delete 1\n");
    bed.run(&["dead", "purge", "q"]).await.ended_with(2);
    assert_eq!(bed.counts("q").await, [0, 0, 0, 3]);
    assert_eq!(bed.ok(&["dead", "purge", "q", "--reason", "too old", "--yes"]).await.out, "deleted 1\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 2]);
    assert_eq!(bed.ok(&["dead", "purge", "q", "--yes"]).await.out, "deleted 2\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_purge_ends_at_its_limit() {
    let bed = three().await;
    let would = bed.ok(&["dead", "purge", "q", "--limit", "1", "--dry-run"]).await;
    assert_eq!(would.out, "would delete 1\n");
    let chosen = ["dead", "purge", "q", "--reason", "no route", "--limit", "1", "--yes", "--json"];
    assert_eq!(bed.ok(&chosen).await.objects(), [json!({ "deleted": 1, "more": true })]);
    assert_eq!(bed.counts("q").await, [0, 0, 0, 2]);
    let some = bed.ok(&["dead", "purge", "q", "--limit", "1", "--yes"]).await;
    assert_eq!(some.out, "deleted 1; there may be more\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 1]);
    let rest = bed.ok(&["dead", "purge", "q", "--limit", "5", "--yes", "--json"]).await;
    assert_eq!(rest.objects(), [json!({ "deleted": 1, "more": false })]);
}

#[tokio::test]
async fn each_filter_and_limit_holds_for_what_is_put_back_and_for_what_is_deleted() {
    let bed = three().await;
    let id = bed.ok(&["dead", "list", "q", "--json"]).await.objects()[1]["id"].as_str().unwrap().to_owned();
    let (by_id, by_header) = (["--id", &id], ["--header", "name=b"]);
    for filter in [by_id, by_header, ["--older-than", "1ms"], ["--older-than", "1h"]] {
        let found = if filter[1] == "1ms" { 3 } else { u64::from(filter[1] != "1h") };
        for (verb, would) in [("redrive", "put back"), ("purge", "delete")] {
            let dry = [&["dead", verb, "q", "--dry-run"], filter.as_slice()].concat();
            assert_eq!(bed.ok(&dry).await.out, format!("would {would} {found}\n"), "{dry:?}");
        }
    }
    assert_eq!(
        bed.ok(&["dead", "redrive", "q", "--limit", "2", "--dry-run"]).await.out,
        "would put back 2\n"
    );
    let some = bed.ok(&["dead", "redrive", "q", "--limit", "2", "--json"]).await.objects();
    assert_eq!(some, [json!({ "moved": 2, "scanned": 2, "more": true })]);
    assert_eq!(bed.counts("q").await, [2, 0, 0, 1]);
    assert_eq!(bed.ok(&["dead", "purge", "q", "--older-than", "1h", "--yes"]).await.out, "deleted 0\n");
    assert_eq!(bed.ok(&["dead", "purge", "q", "--older-than", "1ms", "--yes"]).await.out, "deleted 1\n");
    assert_eq!(bed.counts("q").await, [2, 0, 0, 0]);
}

/// So many dead letters.
#[cfg(any(feature = "rabbitmq", feature = "redis"))]
async fn many(bed: &Bed, count: u64) {
    use crate::bed::{numbers, soon};
    let lines = numbers(0..usize::try_from(count).unwrap());
    bed.run_with(&["push", "q", "--lines"], &lines).await.ended_with(0);
    let kill = ["pull", "q", "--max", "1000", "--wait", "1s", "--settle", "poisonous"];
    soon("all are dead", async || (bed.run(&kill).await.code == Some(4)).then_some(())).await;
}

/// A redrive of several pages whose server dies after the first.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_redrive_that_fails_tells_what_it_put_back() {
    use anyqueue_testkit::{Fault, Proxy, Redis, start_if_installed};

    use crate::bed::{ended, soon};

    const LETTERS: u64 = 5000;
    let Some(server) = start_if_installed(Redis::new()).await.unwrap() else { return };
    let bed = Bed::at(server.url());
    many(&bed, LETTERS).await;
    let proxy = Proxy::start(server.addr()).unwrap();
    proxy.set(Fault::Delay(std::time::Duration::from_millis(300))).await.unwrap(); // time to see the first page
    let slow = format!("redis://{}/", proxy.addr());
    let redrive = bed.command(&["dead", "redrive", "q", "--json", "--url", &slow]).spawn().unwrap();
    soon("a page was put back", async || (bed.counts("q").await[0] > 0).then_some(())).await;
    server.kill().await.unwrap();
    let failed = ended(redrive).await.ended_with(1);
    let account = failed.objects().remove(0);
    let [least, most] = ["moved", "moved_at_most"].map(|name| account[name].as_u64().unwrap());
    assert!(failed.err.contains("redis"), "{failed:?}");
    server.restart().await.unwrap();
    let [ready, _, leased, dead] = bed.counts("q").await;
    assert!((least..=most).contains(&ready), "{ready} were put back: {account}");
    assert!(most < LETTERS, "it was interrupted: {account}");
    assert_eq!(ready + leased + dead, LETTERS);
}

#[cfg(feature = "rabbitmq")]
#[tokio::test]
async fn what_a_list_has_seen_is_shown_before_it_fails() {
    let Some(url) = crate::bed::rabbitmq().await else { return };
    let separator = if url.contains('?') { '&' } else { '?' };
    let bed = Bed::at(&format!("{url}{separator}prefix=dead_{}", std::process::id()));
    many(&bed, 1001).await;
    let list = bed.run(&["dead", "list", "q", "--max", "2000"]).await.ended_with(1);
    assert!(list.err.contains("only the first 1000"), "{list:?}");
    assert_eq!(list.out.lines().count(), 1001, "a header and a page: {list:?}");
    let would = bed.run(&["dead", "purge", "q", "--dry-run"]).await.ended_with(1);
    assert_eq!(would.out, "would delete at least 1000\n");
    let some = bed.ok(&["dead", "purge", "q", "--limit", "999", "--yes"]).await;
    assert_eq!(some.out, "deleted 999; there may be more\n");
    assert_eq!(bed.ok(&["dead", "purge", "q", "--yes"]).await.out, "deleted 2\n");
}
