//! `anyqueue cron` and `work --cron`: real processes, one of them killed.

use std::collections::BTreeMap;

use crate::bed::{Bed, ended, until};

#[tokio::test]
async fn schedules_are_put_listed_paused_run_and_deleted() {
    let bed = Bed::new();
    let put = ["cron", "put", "report", "0 7 * * MON-FRI", "--zone", "Europe/Berlin", "--queue", "reports"];
    let said = bed.ok(&[&put[..], &["pay", "--kind", "k", "--header", "a=b"]].concat()).await.out;
    assert!(said.starts_with("report is due next at 20"), "{said}");
    let line = bed.ok(&["cron", "list", "--json"]).await.objects().remove(0);
    for (field, value) in
        [("spec", "0 7 * * MON-FRI"), ("zone", "Europe/Berlin"), ("queue", "reports"), ("payload", "pay")]
    {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!((&line["headers"]["task-kind"], &line["headers"]["a"]), (&"k".into(), &"b".into()));
    assert_eq!(bed.ok(&["cron", "list", "report", "--json"]).await.objects(), [line]);

    assert_eq!(bed.ok(&["cron", "pause", "report"]).await.out, "paused report\n");
    assert!(bed.ok(&["cron", "list"]).await.out.contains("paused"));
    let ran = bed.ok(&["cron", "run", "report", "--json"]).await.objects().remove(0);
    assert_eq!(ran["outcome"], "stored");
    assert_eq!(bed.ok(&["cron", "run", "report", "--json"]).await.objects()[0]["outcome"], "duplicate");
    let message = bed.ok(&["pull", "reports", "--json"]).await.objects().remove(0);
    assert_eq!((&message["id"], &message["task_id"]), (&ran["id"], &"cron/report".into()));
    let resumed = bed.ok(&["cron", "resume", "report", "--json"]).await.objects().remove(0);
    assert_eq!(resumed["done"], "resumed");
    bed.ok(&["cron", "delete", "report"]).await;
    for command in ["list", "delete", "pause", "resume", "run"] {
        bed.run(&["cron", command, "report"]).await.ended_with(4);
    }
    bed.run(&["cron", "list"]).await.ended_with(4);
    bed.run(&["work", "reports", "--cron", "--once", "--exec", "true"]).await.ended_with(0);
}

#[tokio::test]
async fn a_preview_needs_no_queue() {
    let bed = Bed::at("");
    let preview = ["cron", "preview", "30 2 * * *", "--zone", "Europe/Berlin"];
    let after = ["--after", "2026-03-27T23:00:00Z", "--count", "2"];
    let shown = bed.ok(&[&preview[..], &after].concat()).await.out;
    let expected = "2026-03-28T02:30:00+01:00\n2026-03-29T03:00:00+02:00  the clocks skip its time\n";
    assert_eq!(shown, expected);
    let json = bed.ok(&[&preview[..], &after, &["--gap", "skip", "--json"]].concat()).await.objects();
    assert_eq!((&json[1]["at"], &json[1]["shifted"]), (&"2026-03-30T00:30:00Z".into(), &false.into()));
    assert_eq!(bed.ok(&preview).await.out.lines().count(), 5);
}

#[tokio::test]
async fn mistakes_are_told_with_what_to_do() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let put = ["cron", "put", "a", "@daily", "--queue", "q"];
    for (arguments, why) in [
        (&["cron", "preview", "0 0 31 4 *"][..], "`0 0 30 4 *`"),
        (&["cron", "preview", "@daily", "--zone", "Europe/Berln"], "Europe/Berlin"),
        (&[&put[..], &["--missed", "some"]].concat(), "write latest, none, or all:N"),
        (&[&put[..], &["--missed", "all:3"]].concat(), "`allow`"),
        (&[&put[..], &["--priority", "99"]].concat(), "priority"),
        (&["cron", "put", "", "@daily", "--queue", "q"], "1 to 200"),
        (&["cron", "put", "a", "@daily", "--queue", "no queue"], "not a partition name"),
    ] {
        let ran = bed.run(arguments).await.ended_with(2);
        assert!(ran.err.contains(why), "{arguments:?}: {}", ran.err);
    }
    bed.run(&["cron", "list"]).await.ended_with(4);
}

/// Notes a run. One line is written in one go.
pub(crate) const NOTE: &str =
    "echo \"$ANYQUEUE_MESSAGE_ID $ANYQUEUE_HEADER_CRON_NAME $ANYQUEUE_HEADER_CRON_AT\" >> runs";

/// The messages of each time of each schedule, as [`NOTE`] has written them.
pub(crate) fn runs(bed: &Bed) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(bed.path("runs")).unwrap_or_default();
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (id, of) = line.split_once(' ').unwrap();
        let ids = runs.entry(of.to_owned()).or_default();
        // Delivered again after a kill, it is the same message.
        if !ids.contains(&id.to_owned()) {
            ids.push(id.to_owned());
        }
    }
    runs
}

#[tokio::test]
async fn of_two_workers_one_is_killed_and_each_time_is_run_once() {
    let bed = Bed::new();
    for name in ["a", "b"] {
        bed.ok(&["cron", "put", name, "* * * * * *", "--queue", "q", "--running", "allow"]).await;
    }
    let work = ["work", "q", "--cron", "--lease", "5s", "--exec"];
    let work = [&work[..], &[NOTE]].concat();
    let mut first = bed.command(&work).spawn().unwrap();
    let mut second = Some(bed.command(&work).spawn().unwrap());
    until("some are run", async || (runs(&bed).len() >= 6).then_some(())).await;
    first.kill().await.unwrap();
    let before = runs(&bed).len();
    until("the other one goes on", async || (runs(&bed).len() >= before + 10).then_some(())).await;
    crate::bed::signal(second.as_ref().unwrap(), rustix::process::Signal::TERM);
    ended(second.take().unwrap()).await.ended_with(0);
    let runs = runs(&bed);
    assert!(runs.values().all(|ids| ids.len() == 1), "{runs:?}");
    let last = bed.ok(&["cron", "list", "a", "--json"]).await.objects().remove(0);
    assert_eq!(last["last"]["outcome"], "pushed", "{last}");
}

#[tokio::test]
async fn schedules_can_be_kept_in_another_store() {
    let bed = Bed::new();
    let elsewhere = ["--control-url", "sqlite:control.db?create=true"];
    let put = ["cron", "put", "a", "* * * * * *", "--queue", "q"];
    bed.ok(&[&put[..], &elsewhere].concat()).await;
    let work = ["work", "q", "--cron", "--exec", "echo run > run"];
    let mut worker = bed.command(&[&work[..], &elsewhere].concat()).spawn().unwrap();
    bed.line_of("run").await;
    worker.kill().await.unwrap();
    bed.run(&["cron", "list"]).await.ended_with(4);
    assert_eq!(bed.ok(&[&["cron", "list", "--json"][..], &elsewhere].concat()).await.objects().len(), 1);
}

#[tokio::test]
async fn a_schedule_counts_from_the_end_of_its_last_run_or_cancels_it() {
    let bed = Bed::new();
    bed.ok(&["cron", "put", "a", "@after 2s", "--queue", "q"]).await;
    let put = ["cron", "put", "b", "* * * * * *", "--queue", "r", "--running", "cancel_old"];
    let line = bed.ok(&[&put[..], &["--json"]].concat()).await.objects().remove(0);
    assert_eq!(line["running"], "cancel_old", "{line}");
    let shown = bed.ok(&["cron", "list", "a", "--json"]).await.objects().remove(0);
    assert_eq!(shown["spec"], "@after 2s");
    let work = ["work", "q", "--cron", "--exec", "date +%s%N >> ran; sleep 1"];
    let mut worker = bed.command(&work).spawn().unwrap();
    let times = || -> Vec<u64> {
        let text = std::fs::read_to_string(bed.path("ran")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    until("it comes three times", async || (times().len() >= 3).then_some(())).await;
    for pair in times().windows(2) {
        assert!(pair[1] - pair[0] >= 3_000_000_000, "a second of work and two of pause: {:?}", times());
    }
    // Nobody works on the other one: of its messages, of which there were some by now, the latest waits. One is taken out before the next comes in.
    until("only the latest is left", async || (bed.counts("r").await == [1, 0, 0, 0]).then_some(())).await;
    worker.kill().await.unwrap();
}
