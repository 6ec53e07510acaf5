//! What becomes of processes that end by themselves.

use std::time::Duration;

use anyqueue::ErrorKind;
use anyqueue_control::supervisor::{Event, Supervisor, SupervisorOptions};
use tokio::process::Command;

use crate::bed::{Bed, end, quick, start};

/// Lives until its supervisor ends it.
const LIVE: &str = "echo $$ >> \"$0\"; cat; exit 0";

#[tokio::test]
async fn what_fails_is_started_anew_and_the_others_live_on() {
    let bed = Bed::new();
    let script = format!("test $0 = good || {{ echo $$ >> bad; exit 3; }}; {LIVE}");
    let supervisor = bed.supervisor(&["good", "bad"], &script, quick());
    let running = start(&supervisor);
    let lives = bed.until_lines("bad", 4).await;
    bed.until_lines("good", 1).await;
    assert_ne!(lives[0], lives[1]);
    supervisor.shutdown();
    let report = end(running).await.unwrap();
    assert_eq!((bed.lines("good").len(), report.killed), (1, 0), "{report:?}");
    assert!(report.failed >= 3 && report.started > report.failed, "{report:?}");
    let events = bed.events.lock().unwrap();
    let failed = |event: &&Event| matches!(event, Event::Failed { name, how, .. } if name == "bad" && how == "exited with 3");
    assert!(events.iter().filter(failed).count() >= 3, "{events:?}");
}

#[tokio::test]
async fn what_was_killed_is_started_anew() {
    let bed = Bed::new();
    let supervisor = bed.supervisor(&["w"], LIVE, quick());
    let running = start(&supervisor);
    let pid = bed.until_lines("w", 1).await[0].parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    bed.until_lines("w", 2).await;
    supervisor.shutdown();
    assert_eq!(end(running).await.unwrap().failed, 1);
}

#[tokio::test]
async fn what_is_done_is_not_started_anew_and_a_run_ends_when_all_are() {
    let bed = Bed::new();
    let supervisor = bed.supervisor(&["a", "b", "c"], "echo done >> $0", quick());
    let report = end(start(&supervisor)).await.unwrap();
    assert_eq!((report.started, report.failed), (3, 0));
    assert!(["a", "b", "c"].iter().all(|name| bed.lines(name).len() == 1));
}

#[tokio::test]
async fn what_is_recycled_is_started_anew_at_once_and_has_not_failed() {
    let bed = Bed::new();
    let hour = Duration::from_hours(1);
    let options = SupervisorOptions::default().with_pauses(hour, hour).with_most_failures(1, hour);
    let script = "echo x >> lives; test $(wc -l < lives) -ge 4 || exit 6";
    let report = end(start(&bed.supervisor(&["w"], script, options))).await.unwrap();
    assert_eq!((report.started, report.recycled, report.failed), (4, 3, 0));
}

#[tokio::test]
async fn when_all_fail_again_and_again_it_gives_up_and_says_why() {
    let bed = Bed::new();
    let options = quick().with_most_failures(3, Duration::from_mins(10));
    let error = end(start(&bed.supervisor(&["a", "b"], "echo x >> $0; exit 78", options))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("3 times in a row") && text.contains("exited with 78"), "{text}");
    assert!(bed.lines("a").len() >= 3 && bed.lines("b").len() >= 3);
}

#[tokio::test]
async fn failures_after_a_life_long_enough_are_no_reason_to_give_up() {
    let bed = Bed::new();
    let options = quick().with_most_failures(1, Duration::ZERO);
    let supervisor = bed.supervisor(&["w"], "echo x >> $0; exit 1", options);
    let running = start(&supervisor);
    bed.until_lines("w", 5).await;
    supervisor.shutdown();
    assert!(end(running).await.is_ok());
}

#[tokio::test]
async fn a_command_that_does_not_exist_fails_like_others() {
    let bed = Bed::new();
    let options = quick().with_most_failures(2, Duration::from_mins(10));
    let command = |_: &str| Command::new("/does/not/exist");
    let error = end(start(&bed.supervisor_of(&["w"], command, options))).await.unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_supervised_is_refused() {
    let refused = |names: &[&str], options| {
        let names = names.iter().map(|name| (*name).to_owned());
        Supervisor::new(names, |_: &str| Command::new("true"), options).unwrap_err().kind()
    };
    let default = SupervisorOptions::default();
    assert_eq!(refused(&[], default), ErrorKind::InvalidInput);
    assert_eq!(refused(&["a", "a"], default), ErrorKind::InvalidInput);
    let options =
        [default.with_look_every(Duration::ZERO), default.with_pauses(Duration::ZERO, Duration::ZERO)];
    for options in options {
        assert_eq!(refused(&["a"], options), ErrorKind::InvalidInput);
    }
    let bed = Bed::new();
    let supervisor = bed.supervisor(&["a"], "exit 0", quick());
    end(start(&supervisor)).await.unwrap();
    assert_eq!(end(start(&supervisor)).await.unwrap_err().kind(), ErrorKind::InvalidInput, "it has run");
}
