//! Pages for people, as they are without a script.

use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_worker::{Partition, Worker};
use serde_json::json;

use crate::bed::{Bed, memory};
use crate::client::Answer;

/// What somebody might push who means harm.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";

pub(crate) async fn page(bed: &Bed, path: &str) -> String {
    text(bed.client.get(path).await)
}

fn text(answer: Answer) -> String {
    let body = String::from_utf8(answer.body).unwrap();
    assert_eq!(answer.status, 200, "{body}");
    assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{}", answer.head);
    assert!(!body.contains("<script>") && !body.contains(" onclick") && !body.contains(" style="), "{body}");
    body
}

/// Sends a form as a browser does, and opens the page that it leads to.
pub(crate) async fn submit(bed: &Bed, path: &str, form: &str) -> String {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = bed.client.send("POST", path, &headers, form.as_bytes()).await;
    assert_eq!(answer.status, 303, "{}", String::from_utf8_lossy(&answer.body));
    let place = answer.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    page(bed, &place).await
}

#[tokio::test]
async fn the_overview_shows_queues_and_what_to_look_at() {
    let bed = Bed::new().await;
    assert!(page(&bed, "/").await.contains("There are no queues yet"));
    bed.push("mail", json!({ "payload": "x" })).await;
    bed.push("mail", json!({ "payload": "bad" })).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": "no" })).await;
    bed.queue.pause("mail").await.unwrap();
    let says =
        ["href=\"/partitions/mail\"", "1 dead letter in mail.", "mail is paused, and 1 message waits."];
    // What it shows of the queues is up to a second old, and more on a busy machine.
    let since = std::time::Instant::now();
    loop {
        let overview = page(&bed, "/").await;
        if says.iter().all(|text| overview.contains(text)) {
            return;
        }
        assert!(since.elapsed() < std::time::Duration::from_mins(1), "{overview}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed_by_a_form() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x", "kind": "send" })).await;
    let shown = page(&bed, "/partitions/mail").await;
    assert!(shown.contains(&id) && shown.contains("send") && shown.contains("It delivers."), "{shown}");
    let paused = submit(&bed, "/do/partitions/mail/pause", "").await;
    assert!(paused.contains("It is paused and delivers nothing."), "{paused}");
    assert!(bed.queue.is_paused("mail").await.unwrap());
    submit(&bed, "/do/partitions/mail/resume", "").await;
    assert!(!bed.queue.is_paused("mail").await.unwrap());
}

#[tokio::test]
async fn tasks_are_found_by_the_address_and_one_tells_all_that_is_known() {
    let bed = Bed::new().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut task = json!({ "payload": "x", "kind": "send", "task_id": "order 7", "max_retries": 1 });
    task["headers"] = json!({ "traceparent": trace });
    let id = bed.push("mail", task).await;
    let first = bed.pull("mail").await;
    bed.settle(
        json!({ "delivery": first["delivery"], "status": "failed", "error": "no route", "delay_ms": 0 }),
    )
    .await;
    let second = bed.pull("mail").await;
    bed.settle(json!({ "delivery": second["delivery"], "status": "processed", "result": { "sent": 7 }, "worker": "w1" })).await;
    assert!(page(&bed, "/tasks").await.contains("Name a queue"));
    let found = page(&bed, "/tasks?partition=mail&state=succeeded&kind=send&since=").await;
    assert!(found.contains("1 found") && found.contains("order 7") && found.contains("w1"), "{found}");
    assert!(page(&bed, "/tasks?partition=mail&state=failed").await.contains("No task matches"));
    assert!(page(&bed, "/tasks?partition=mail&state=done").await.contains("there is no state"));
    let task = page(&bed, &format!("/tasks/{id}?partition=mail")).await;
    let traced = format!("<dt>Trace</dt><dd>{trace}</dd>");
    for text in ["Task order 7", "no route", "&#34;sent&#34;: 7", "succeeded", "w1", " UTC</dd>", &traced] {
        assert!(task.contains(text), "{text}: {task}");
    }
    let unknown = bed.client.get("/tasks/00000000-0000-0000-0000-000000000000?partition=mail").await;
    assert_eq!(unknown.status, 404);
    assert!(String::from_utf8_lossy(&unknown.body).contains("nothing is known of this task"));
}

#[tokio::test]
async fn a_task_is_run_now_and_cancelled_by_forms() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x", "delay_ms": 600_000 })).await;
    let path = format!("/do/tasks/{id}/retry?partition=mail");
    assert!(submit(&bed, &path, "").await.contains("It is due now."));
    let path = format!("/do/tasks/{id}/cancel?partition=mail");
    assert!(submit(&bed, &path, "").await.contains("It is cancelled."));
    let again = bed.client.send("POST", &path, &[], b"").await;
    assert_eq!(again.status, 404);
}

#[tokio::test]
async fn dead_letters_are_grouped_and_put_back_or_deleted_after_a_look() {
    let bed = Bed::new().await;
    for (payload, reason) in [("1", "timeout after 10 s"), ("2", "timeout after 20 s"), ("3", "bad & input")]
    {
        bed.push("mail", json!({ "payload": payload })).await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": reason })).await;
    }
    let dead = page(&bed, "/dead?partition=mail").await;
    assert!(dead.contains("timeout after # s") && dead.contains("bad &#38; input"), "{dead}");
    let asked =
        page(&bed, "/dead/confirm?action=redrive&partition=mail&reason=timeout%20after%20%23%20s").await;
    assert!(asked.contains("2 dead letters of mail"), "{asked}");
    assert_eq!(bed.queue.counts("mail").await.unwrap().dead, Some(3), "nothing was done yet");
    let done = submit(&bed, "/do/dead/redrive", "partition=mail&reason=timeout+after+%23+s").await;
    assert!(done.contains("2 are put back."), "{done}");
    assert!(page(&bed, "/dead/confirm?action=purge&partition=mail").await.contains("for good"));
    let done = submit(&bed, "/do/dead/purge", "partition=mail").await;
    assert!(done.contains("1 is deleted.") && done.contains("There are no dead letters."), "{done}");
}

#[tokio::test]
async fn workers_are_shown_and_told() {
    let bed = Bed::new().await;
    assert!(page(&bed, "/workers").await.contains("No worker is registered"));
    let worker = Worker::builder(bed.queue.clone())
        .name("w/1")
        .partition(Partition::new(anyqueue::PartitionId::new("mail").unwrap()))
        .any_handler(|_, _| async { Ok(()) })
        .build()
        .unwrap();
    let registry = Registry::new(bed.queue.control().unwrap());
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    let shown = page(&bed, "/workers").await;
    assert!(shown.contains("action=\"/do/workers/w%2F1/quiet\""), "{shown}");
    assert!(shown.contains("<button aria-label=\"quiet w/1\">quiet</button>"), "{shown}");
    assert!(shown.contains("A worker that is quiet finishes what it has"), "{shown}");
    let told = submit(&bed, "/do/workers/w%2F1/quiet", "").await;
    assert!(told.contains("told: quiet"), "{told}");
    drop(member);
}

#[tokio::test]
async fn whatever_a_pusher_says_is_text_on_every_page() {
    let bed = Bed::new().await;
    let hostile = json!({ "payload": HOSTILE, "kind": HOSTILE, "task_id": HOSTILE, "session_id": HOSTILE, "headers": { "x": HOSTILE }, "group": HOSTILE });
    let id = bed.push("mail", hostile.clone()).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "failed", "error": HOSTILE, "delay_ms": 0 }))
        .await;
    let again = bed.pull("mail").await;
    let task = format!("/tasks/{id}?partition=mail");
    let encoded = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27%3E%3Cimg%20src%3Dx%20onerror%3Dalert(2)%3E";
    let mut pages = Vec::new();
    for path in ["/", "/partitions/mail", "/tasks?partition=mail", &task] {
        pages.push(page(&bed, path).await);
    }
    bed.settle(
        json!({ "delivery": again["delivery"], "status": "poisonous", "error": HOSTILE, "worker": HOSTILE }),
    )
    .await;
    let confirm = format!("/dead/confirm?action=redrive&partition=mail&reason={encoded}");
    let said = format!("/workers?said={encoded}");
    let filter = format!("/tasks?partition={encoded}&kind={encoded}&error={encoded}");
    for path in ["/dead?partition=mail", &task, &confirm, &said, &filter] {
        pages.push(page(&bed, path).await);
    }
    for page in pages {
        assert!(!page.contains("<img src=x") && !page.contains("<script>alert"), "{page}");
    }
}

#[tokio::test]
async fn people_enter_with_a_token_and_a_page_elsewhere_cannot_use_their_session() {
    let bed = Bed::with(memory(), |builder| builder.token("correct-horse-battery")).await;
    let html = ("accept", "text/html");
    let sent_away = bed.client.send("GET", "/", &[html], b"").await;
    assert!(sent_away.status == 303 && sent_away.head.contains("location: /login"), "{}", sent_away.head);
    let form = ("content-type", "application/x-www-form-urlencoded");
    let wrong = bed.client.send("POST", "/login", &[form, html], b"token=wrong-horse-battery").await;
    assert_eq!(wrong.status, 401);
    let entered = bed.client.send("POST", "/login", &[form, html], b"token=correct-horse-battery").await;
    let cookie = entered.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains("horse"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(bed.client.send("GET", "/", &[html, ("cookie", &cookie)], b"").await.status, 200);
    let elsewhere = [form, ("cookie", &cookie), ("origin", "https://evil.example")];
    let refused = bed.client.send("POST", "/do/partitions/mail/pause", &elsewhere, b"").await;
    assert_eq!(refused.status, 403);
    let forged = [html, ("cookie", "anyqueue_session=00000000000000000000000000000000")];
    assert_eq!(bed.client.send("GET", "/", &forged, b"").await.status, 303);
}

#[tokio::test]
async fn a_service_that_only_reads_has_no_buttons_and_does_nothing() {
    let bed = Bed::with(memory(), |builder| builder.read_only(true)).await;
    bed.queue.push("mail", anyqueue::MessageData::new("x")).await.unwrap();
    for path in ["/", "/partitions/mail", "/dead?partition=mail", "/workers"] {
        let shown = page(&bed, path).await;
        assert!(shown.contains("reads only") && !shown.contains("/do/"), "{shown}");
    }
    for path in ["/do/partitions/mail/pause", "/do/dead/purge", "/do/workers/w/stop"] {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        assert_eq!(bed.client.send("POST", path, &form, b"partition=mail").await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_watcher_hears_of_each_change_and_the_first_picture_at_once() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let mut stream = tokio::net::TcpStream::connect(bed.client.0).await.unwrap();
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", bed.client.0);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    let mut until = async |text: &str| {
        let hear = async {
            let mut buffer = [0; 4096];
            while !heard.contains(text) {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "{heard}");
                heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), hear).await.unwrap();
    };
    until("\"ready\":1").await;
    bed.push("mail", json!({ "payload": "y" })).await;
    until("\"ready\":2").await;
    bed.end().await;
    assert!(heard.contains("event: sample"), "{heard}");
}
