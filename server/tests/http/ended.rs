//! What the pages say of tasks that ended: charts and tables that hold what the ledger counts.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::EndState::{Cancelled, Failed, Succeeded, TimedOut};
use anyqueue::{MessageData, Queue};
use anyqueue_memory::MemoryQueue;
use futures_util::future::join_all;
use serde_json::json;

use crate::bed::{Bed, memory};
use crate::counting::Counting;
use crate::pages::page;
use crate::rights::{ADMIN, ask, create};
use crate::series::uncounted;

/// The part of a page that tells of them.
fn part(page: &str) -> &str {
    let (_, rest) = page.split_once("<section id=\"ended\"").unwrap();
    rest.split_once("</section>").unwrap().0
}

/// The rows of the table, without their marks.
fn rows(part: &str) -> Vec<Vec<String>> {
    let cells = |row: &str| {
        let cells = row.split("</t").map(|cell| cell.rsplit('>').next().unwrap().trim().to_owned());
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    let body = part.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    body.split("</tr>").map(cells).filter(|row: &Vec<_>| !row.is_empty()).collect()
}

/// Two queues: what ended in the last hour, and one that ended longer ago.
async fn furnished() -> (Bed, Arc<Counting>) {
    let (queue, ledger) = Counting::queue();
    ledger.ended("mail", 0, Succeeded, 6, (17, 21));
    ledger.ended("mail", 1, Failed, 2, (24, 21));
    ledger.ended("mail", 2, TimedOut, 1, (39, 21));
    ledger.ended("orders", 0, Cancelled, 4, (0, 30));
    ledger.ended("orders", 3 * 60, Succeeded, 10, (10, 10));
    ledger.ended("mail", 3 * 24 * 60, Succeeded, 100, (10, 10));
    // Before the service looks at its queues for the first time.
    for name in ["mail", "orders"] {
        queue.push(name, MessageData::new("x")).await.unwrap();
    }
    (Bed::over(queue).await, ledger)
}

#[tokio::test]
async fn the_overview_draws_what_ended_and_says_it_in_a_table() {
    let (bed, _) = furnished().await;
    let shown = page(&bed, "/").await;
    let hour = part(&shown);
    assert!(hour.contains("<h2>Ended in the last hour</h2>"), "{hour}");
    // The present column has ten of ten, that before it the three that ended before.
    for bar in [
        "<rect class=\"succeeded\" x=\"279.2\" y=\"32.0\" width=\"18.5\" height=\"48.0\"/>",
        "<rect class=\"cancelled\" x=\"279.2\" y=\"0.0\" width=\"18.5\" height=\"32.0\"/>",
        "<rect class=\"failed\" x=\"256.2\" y=\"64.0\" width=\"18.5\" height=\"16.0\"/>",
        "<rect class=\"timed_out\" x=\"256.2\" y=\"56.0\" width=\"18.5\" height=\"8.0\"/>",
    ] {
        assert!(hour.contains(bar), "{bar}: {hour}");
    }
    assert_eq!(hour.matches("<rect class=\"succeeded\"").count(), 1);
    let label = "Ended in the last hour, by 5 minutes: succeeded 6, failed 2, timed out 1, cancelled 4; at most 10 in one step";
    assert!(hour.contains(&format!("role=\"img\" aria-label=\"{label}\"")), "{hour}");
    // Six of nine ran for less than 2¹⁷ µs, and one for longer than can be told; those that were cancelled do not count.
    let ran = "They ran in the last hour, by 5 minutes: half of them &#60; 132 ms, 95 of 100 over 3 d";
    let waited =
        "They waited in the last hour, by 5 minutes: half of them &#60; 2.1 s, 95 of 100 &#60; 2.1 s";
    assert!(hour.contains(ran) && hour.contains(waited), "{hour}");
    let times = ["&#60; 132 ms", "&#60; 132 ms", "&#60; 2.1 s", "&#60; 2.1 s"];
    let before = ["&#60; 17 s", "over 3 d", "&#60; 2.1 s", "&#60; 2.1 s"];
    let all = ["&#60; 132 ms", "over 3 d", "&#60; 2.1 s", "&#60; 2.1 s"];
    let row = |at: &str, counts: [&str; 4], times: [&str; 4]| {
        let cells = [at].into_iter().chain(counts).chain(times);
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        row("All", ["6", "2", "1", "4"], all),
        row("2026-01-01 13:10", ["6", "0", "0", "4"], times),
        row("2026-01-01 13:05", ["0", "2", "1", "0"], before),
    ];
    assert_eq!(rows(hour), expected);
}

#[tokio::test]
async fn an_hour_a_day_and_a_week_are_each_a_link_away() {
    let (bed, _) = furnished().await;
    for (path, span, succeeded, columns) in
        [("/", "hour", "6", 1), ("/?span=day", "day", "16", 2), ("/?span=week", "week", "116", 3)]
    {
        let shown = page(&bed, path).await;
        let part = part(&shown);
        assert!(part.contains(&format!("<h2>Ended in the last {span}</h2>")), "{path}: {part}");
        assert!(
            part.contains(&format!("<li class=\"succeeded\">Succeeded {succeeded}</li>")),
            "{path}: {part}"
        );
        assert_eq!(part.matches("<rect class=\"succeeded\"").count(), columns, "{path}");
        let link =
            format!("<a href=\"/?span={span}#ended\" aria-label=\"The last {span}\" aria-current=\"true\">");
        assert!(part.contains(&link) && part.matches("aria-current").count() == 1, "{path}: {part}");
        assert_eq!(part.matches("href=\"/?span=").count(), 3, "{path}");
    }
    for strange in ["/?span=year", "/?span=", "/?span=%3Cscript%3E"] {
        assert!(part(&page(&bed, strange).await).contains("in the last hour"), "{strange}");
    }
}

#[tokio::test]
async fn a_queue_and_a_kind_of_its_tasks_have_charts_of_their_own() {
    let (bed, _) = furnished().await;
    let queue = page(&bed, "/partitions/orders?span=day").await;
    assert!(part(&queue).contains("Succeeded 10</li>"), "{queue}");
    assert!(part(&queue).contains("href=\"/partitions/orders?span=week#ended\""), "{queue}");
    let tasks = page(&bed, "/tasks?partition=mail&span=week").await;
    assert!(part(&tasks).contains("Succeeded 106</li>"), "{tasks}");
    assert!(part(&tasks).contains("href=\"/tasks?partition=mail&#38;span=day#ended\""), "{tasks}");
    // What the counts know nothing of is not counted as if they did.
    for more in ["worker=w", "error=no", "state=failed", "since=2026-01-01T00:00:00Z"] {
        let shown = page(&bed, &format!("/tasks?partition=mail&{more}&span=day")).await;
        assert!(!part(&shown).contains("Ended in"), "{more}: {shown}");
    }
}

#[tokio::test]
async fn a_kind_is_text_and_only_its_own_ends_are_counted() {
    let hostile = "<script>alert(1)</script>\"'><svg onload=alert(2)>&amp;";
    let encoded = hostile.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    let bed = Bed::new().await;
    for (kind, status) in [(hostile, "processed"), (hostile, "poisonous"), ("other", "processed")] {
        bed.push("mail", json!({ "payload": "x", "kind": kind })).await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": status })).await;
    }
    let shown = page(&bed, &format!("/tasks?partition=mail&kind={encoded}")).await;
    let of_kind = part(&shown);
    let text = "Of the kind “&#60;script&#62;alert(1)&#60;/script&#62;&#34;&#39;&#62;&#60;svg onload=alert(2)&#62;&#38;amp;”.";
    assert!(of_kind.contains(text), "{of_kind}");
    assert!(!of_kind.contains("<script") && !of_kind.contains("<svg onload"), "{of_kind}");
    assert!(of_kind.contains("Succeeded 1</li>") && of_kind.contains("Failed 1</li>"), "{of_kind}");
    let link = of_kind.split("href=\"").find(|link| link.contains("span=week")).unwrap();
    let link = link.split('"').next().unwrap().replace("&#38;", "&");
    let week = page(&bed, link.trim_end_matches("#ended")).await;
    assert!(part(&week).contains("Succeeded 1</li>"), "{week}");
    let all = page(&bed, "/tasks?partition=mail").await;
    assert!(part(&all).contains("Succeeded 2</li>"), "{all}");
}

#[tokio::test]
async fn where_nothing_ended_or_is_counted_the_page_says_so_or_nothing() {
    let bed = Bed::new().await;
    assert!(!part(&page(&bed, "/").await).contains("Ended in"), "there is no queue");
    bed.push("mail", json!({ "payload": "x" })).await;
    let empty = page(&bed, "/partitions/mail").await;
    assert!(
        part(&empty).contains("No task ended in that time.") && !part(&empty).contains("<svg"),
        "{empty}"
    );
    let memory = MemoryQueue::new();
    let without = Bed::over(Queue::new(memory).unwrap()).await;
    without.push("mail", json!({ "payload": "x" })).await;
    assert!(!part(&page(&without, "/partitions/mail").await).contains("Ended in"), "no ends are kept");
    let bed = Bed::over(uncounted()).await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let shown = page(&bed, "/partitions/mail").await;
    assert!(part(&shown).contains("This backend does not count the ends of tasks."), "{shown}");
}

#[tokio::test]
async fn a_ledger_that_fails_leaves_the_rest_of_the_page() {
    let (bed, ledger) = furnished().await;
    page(&bed, "/").await;
    ledger.told(|told| told.problem = Some("it is <away>"));
    let shown = page(&bed, "/?span=day").await;
    let why = "The ends of mail and 1 more could not be counted now: it is &#60;away&#62;.";
    assert!(part(&shown).contains(why), "{shown}");
    assert!(!part(&shown).contains("No task ended"), "that is not known: {shown}");
    assert!(shown.contains("href=\"/partitions/orders\""), "{shown}");
    let tasks = page(&bed, "/tasks?partition=mail&kind=send").await;
    assert!(part(&tasks).contains("The ends could not be counted now: it is &#60;away&#62;."), "{tasks}");
    // What was known before is shown all the same.
    assert!(part(&page(&bed, "/").await).contains("Succeeded 6</li>"));
}

#[tokio::test]
async fn many_who_look_ask_as_much_as_one() {
    let (bed, ledger) = furnished().await;
    for _ in 0..3 {
        let looks = join_all((0..20).map(|_| page(&bed, "/"))).await;
        assert!(looks.iter().all(|look| part(look).contains("Succeeded 6</li>")));
    }
    // The clock of the queue stands still, and so does the pause between questions.
    let asked = ledger.told(|told| told.asked.len());
    assert_eq!(asked, 4, "twice for each of two queues");
    ledger.clock.advance(Duration::from_secs(5));
    join_all((0..20).map(|_| page(&bed, "/"))).await;
    assert_eq!(ledger.told(|told| told.asked.len()), 6);
}

#[tokio::test]
async fn nobody_sees_the_ends_of_queues_that_their_token_is_not_for() {
    let bed = Bed::with(memory(), |builder| builder.token(ADMIN)).await;
    let push = json!({ "payload": "x" });
    for name in ["mine", "concealed", "concealed"] {
        ask(&bed, ADMIN, "POST", &format!("/v1/partitions/{name}/messages"), &push).await.ok();
        let pulled = ask(&bed, ADMIN, "POST", "/v1/pull", &json!({ "partitions": [name] })).await.ok();
        let item = json!({ "delivery": pulled["deliveries"][0]["delivery"], "status": "processed" });
        ask(&bed, ADMIN, "POST", "/v1/settle", &item).await.ok();
        // A queue is listed while it has messages.
        ask(&bed, ADMIN, "POST", &format!("/v1/partitions/{name}/messages"), &push).await.ok();
    }
    let token = create(&bed, "mine", &["read"], &["mine"]).await;
    let look = async |token: &str, path: &str| {
        String::from_utf8(ask(&bed, token, "GET", path, &json!({})).await.body).unwrap()
    };
    // What is shown of the queues is up to a second old.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(part(&look(ADMIN, "/").await).contains("Succeeded 3</li>"));
    assert!(part(&look(&token, "/").await).contains("Succeeded 1</li>"));
    for path in ["/partitions/concealed", "/tasks?partition=concealed"] {
        let shown = look(&token, path).await;
        assert!(!shown.contains("Succeeded"), "{shown}");
    }
}
