//! `anyqueue amend`, `disable` and `enable`.

use serde_json::json;

use crate::bed::Bed;

/// Pushes messages; their ids, in order.
async fn pushed(bed: &Bed, arguments: &[&str]) -> Vec<String> {
    let mut all = vec!["push", "q"];
    all.extend_from_slice(arguments);
    bed.ok(&all).await;
    let found = bed.ok(&["peek", "q", "--json"]).await.objects();
    found.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn priority_moment_and_group_of_what_waits_change() {
    let bed = Bed::new();
    let ids = pushed(&bed, &["first", "second", "third", "--delay", "1h"]).await;
    let told = bed.ok(&["amend", "q", &ids[1], "--due", "now", "--json"]).await.objects();
    assert_eq!(told, [json!({ "queue": "q", "id": ids[1], "outcome": "amended" })]);
    bed.ok(&["amend", "q", &ids[2], "--due", "now", "--priority", "9", "--group", "g"]).await;
    let found = bed.ok(&["peek", "q", "--json", "--id", &ids[2]]).await.objects().remove(0);
    assert_eq!(
        (&found["priority"], &found["group"], &found["state"]),
        (&json!(9), &json!("g"), &json!("ready"))
    );
    let out = bed.ok(&["amend", "q", &ids[2], "--no-group"]).await.out;
    assert_eq!(out, format!("{} amended\n", ids[2]));
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "third\nsecond\n");
    assert_eq!(bed.counts("q").await, [0, 1, 0, 0], "the first is not due yet");
}

#[tokio::test]
async fn what_is_disabled_is_given_to_nobody_until_it_is_enabled() {
    let bed = Bed::new();
    let ids = pushed(&bed, &["aside", "stays"]).await;
    bed.ok(&["disable", "q", &ids[0]]).await;
    let stats = bed.ok(&["stats", "q", "--json"]).await.objects().remove(0);
    assert_eq!((&stats["ready"], &stats["disabled"]), (&json!(1), &json!(1)));
    let found = bed.ok(&["peek", "q", "--json", "--id", &ids[0]]).await.objects().remove(0);
    assert_eq!(found["state"], "disabled");
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "stays\n");
    bed.run(&["pull", "q"]).await.ended_with(4);
    assert_eq!(bed.ok(&["enable", "q", &ids[0]]).await.out, format!("{} enabled\n", ids[0]));
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "aside\n");
}

#[tokio::test]
async fn what_cannot_be_amended_is_named() {
    let bed = Bed::new();
    let ids = pushed(&bed, &["dies", "waits"]).await;
    bed.ok(&["pull", "q", "--settle", "poisonous"]).await;
    let unknown = "00000000-0000-7000-8000-000000000000";
    let some = bed.run(&["amend", "q", &ids[0], &ids[1], unknown, "--priority", "1", "--json"]).await;
    let some = some.ended_with(1);
    let outcomes: Vec<_> = some.objects().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["dead", "amended", "not_found"]);
    assert!(some.err.contains("2 of 3"), "{some:?}");
    bed.run(&["disable", "q", unknown]).await.ended_with(4);

    bed.run(&["amend", "q", &ids[1]]).await.ended_with(2);
    bed.run(&["amend", "q", &ids[1], "--group", "g", "--no-group"]).await.ended_with(2);
    bed.run(&["amend", "q", "no-id", "--priority", "1"]).await.ended_with(2);
    let wrong = bed.run(&["amend", "q", &ids[1], "--priority", "99"]).await.ended_with(2);
    assert!(wrong.err.contains("0 (least urgent) to"), "{wrong:?}");
}

#[tokio::test]
async fn what_has_waited_for_long_enough_goes_first() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "usual", "--priority", "5"]).await;
    bed.ok(&["push", "q", "overdue", "--urgent-after", "0s"]).await;
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "overdue\nusual\n");
}
