//! The first page of any filter, over HTTP and in a browser.

use std::time::{Duration, Instant, SystemTime};

use anyqueue_testkit::ends::{PARTITION, RARE_KIND, REASON, WORKER};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::browser::{Browser, Scripts};
use crate::store::filled;
use crate::stream;

/// For the first page over HTTP.
const ANSWER: Duration = Duration::from_millis(200);
/// For a count that has to read them, which stops after five seconds.
const COUNT: Duration = Duration::from_secs(10);
/// For the first paint in a browser.
const PAINT: Duration = Duration::from_millis(500);
/// Each is tried so often, and more often as long as none was quick: what else the machine does only adds time, so the quickest one counts.
const TRIES: usize = 5;
const MOST_TRIES: usize = 25;
/// As many tasks as a page has at most.
const PAGE: usize = 100;
/// When something of the page was painted first, since it was asked for.
const PAINTED: &str = "return performance.getEntriesByName('first-contentful-paint')[0].startTime";
/// Whether anything was.
const IS_PAINTED: &str = "return performance.getEntriesByName('first-contentful-paint').length > 0";

/// A filter, whether an index knows all of it, and whether it finds as many as fit on a page, in the time that there is.
struct Case {
    filter: String,
    scans: bool,
    fills: bool,
}

fn cases() -> Vec<Case> {
    let ago = |hours: u64| {
        humantime::format_rfc3339_millis(SystemTime::now() - Duration::from_hours(hours)).to_string()
    };
    let (reason, since, before) = (REASON.replace(' ', "+"), ago(9), ago(8));
    let all = [
        (String::new(), false, true),
        ("state=succeeded".to_owned(), false, true),
        ("state=failed".to_owned(), false, true),
        ("state=failed,timed_out,cancelled".to_owned(), false, true),
        (format!("since={since}&before={before}"), false, true),
        (format!("state=failed&since={since}&before={before}"), false, true),
        (format!("state=succeeded&before={}", ago(90)), false, false),
        ("state=running".to_owned(), false, false),
        ("kind=send".to_owned(), true, true),
        (format!("kind={RARE_KIND}&state=succeeded"), true, false),
        (format!("worker={WORKER}"), true, true),
        (format!("error={reason}&state=failed"), true, false),
        ("task_id_prefix=order-00000004".to_owned(), true, false),
        ("kind=nothing".to_owned(), true, false),
        ("worker=nobody".to_owned(), true, false),
    ];
    all.into_iter().map(|(filter, scans, fills)| Case { filter, scans, fills }).collect()
}

fn is_to_be_tried(all: &[Duration], quick: Duration) -> bool {
    let most = if all.iter().any(|took| *took <= quick) { TRIES } else { MOST_TRIES };
    all.len() < most
}

/// The quickest and the middle one.
fn quickest(mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort_unstable();
    (all[0], all[all.len() / 2])
}

/// How many tasks a page has.
fn shown(page: &Value) -> usize {
    page["tasks"].as_array().map_or(0, Vec::len)
}

async fn answered(bed: &Bed, case: &Case) {
    let path = format!("/v1/tasks?partition={PARTITION}&{}", case.filter);
    let (mut all, mut last) = (Vec::new(), Value::Null);
    while is_to_be_tried(&all, ANSWER) || (case.fills && shown(&last) < PAGE && all.len() < MOST_TRIES) {
        let began = Instant::now();
        let answer = bed.client.get(&path).await;
        all.push(began.elapsed());
        // How far a look comes in its time depends on the machine, too: the fullest page counts.
        let answer = answer.ok();
        if shown(&answer) >= shown(&last) {
            last = answer;
        }
    }
    let (best, middle) = quickest(all);
    println!("{path}: {best:?}, in the middle {middle:?}, {} tasks", shown(&last));
    assert!(best <= ANSWER, "{path} took {best:?}");
    assert_eq!(last["scans"], case.scans, "{path}");
    let found = shown(&last);
    if case.fills {
        assert_eq!((found, &last["more"]), (PAGE, &true.into()), "{path}");
    }
    if !case.scans {
        assert_eq!(last["unfinished"], false, "{path}: what an index knows is all there");
    } else if found == 0 {
        // Ten million are not read in this time, and it says so, and how to go on.
        assert_eq!(last["unfinished"], true, "{path}");
        let further = format!("{path}&before={}", last["look_before"].as_str().unwrap());
        let on = bed.client.get(&further).await.ok();
        assert!(on["look_before"].as_str() < last["look_before"].as_str(), "{on}");
    }
}

/// A count that has to read all of them stops in time, and says that it did.
async fn counted(bed: &Bed) {
    let began = Instant::now();
    let count = bed.client.get(&format!("/v1/tasks/count?partition={PARTITION}&kind=nothing")).await.ok();
    println!("a count that has to read all of them: {:?}, {count}", began.elapsed());
    assert!(began.elapsed() < COUNT, "it took {:?}", began.elapsed());
    assert_eq!(count, json!({ "value": 0, "exact": false }));
}

async fn painted(browser: &Browser, case: &Case) {
    let path = format!("/tasks?partition={PARTITION}&{}", case.filter);
    let mut all = Vec::new();
    while is_to_be_tried(&all, PAINT) {
        browser.go(&path).await;
        browser.until(IS_PAINTED).await;
        all.push(Duration::from_secs_f64(browser.ask(PAINTED).await.as_f64().unwrap() / 1000.0));
    }
    let (best, middle) = quickest(all);
    println!("{path}: painted after {best:?}, in the middle {middle:?}");
    assert!(best <= PAINT, "{path} was painted after {best:?}");
    assert_eq!(browser.says("No index knows part of this filter").await, case.scans, "{path}");
    if case.fills {
        assert!(browser.says("There are more").await, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_million_ended_tasks_are_looked_at_as_quickly_as_a_few() {
    let folder = tempfile::tempdir().unwrap();
    let bed = Bed::over(filled(&folder.path().join("q.db")).await).await;
    for case in cases() {
        answered(&bed, &case).await;
    }
    let count = bed.client.get(&format!("/v1/tasks/count?partition={PARTITION}")).await.ok();
    assert_eq!((&count["value"], &count["exact"]), (&10_000.into(), &false.into()));
    counted(&bed).await;
    if let Some(browser) = Browser::open(&bed, Scripts::On).await {
        for case in cases() {
            painted(&browser, &case).await;
        }
        browser.go(&format!("/tasks?partition={PARTITION}&kind=nothing")).await;
        browser.press("Look further back", "/tasks").await;
        assert!(browser.place().await.contains("before="));
        browser.close().await;
    }
    stream::a_million_take_little_memory(&bed).await;
    bed.end().await;
}
