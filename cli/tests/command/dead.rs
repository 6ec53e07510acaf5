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
