//! A bulk push that meets trouble: bad lines, an input that breaks, a server that goes away.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;

use rustix::process::Signal;

use crate::bed::{Bed, ended, numbers, signal, until};

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_push_stops_where_the_server_went_away_and_says_how_to_go_on() {
    let redis = anyqueue_testkit::Redis::new();
    let Some(server) = anyqueue_testkit::start_if_installed(redis).await.unwrap() else { return };
    let bed = Bed::at(server.url());
    let mut push = bed.command(&["push", "q", "--lines", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = push.stdin.take().unwrap();
    lines.write_all(&numbers(0..10)).await.unwrap();
    until("the first lines are stored", async || (bed.counts("q").await[0] == 10).then_some(())).await;
    server.kill().await.unwrap();
    lines.write_all(&numbers(10..15)).await.unwrap();
    // It ends by itself: more lines could come.
    let stopped = ended(push).await.ended_with(1);
    let account = serde_json::json!({
        "stored": 10, "duplicates": 0, "refused": 0, "settled_to": 10, "resume_from": 11, "not_stored": 0,
        "unknown": 5, "unknown_lines": [[11, 15]], "stored_lines": [],
    });
    assert_eq!(stopped.objects(), [account]);
    for words in
        ["stopped at line 11: redis", "up to 10 are settled", "Lines 11-15 may or may not", "tail -n +11"]
    {
        assert!(stopped.err.contains(words), "{words} is not in {}", stopped.err);
    }
    server.restart().await.unwrap();
    assert_eq!(bed.counts("q").await, [10, 0, 0, 0]);
    drop(lines);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_reported_and_harms_no_other() {
    let bed = Bed::new();
    let long = vec![b'x'; (64 << 20) + 1];
    let lines = [b"first\n".as_slice(), &long, b"\nlast\n"].concat();
    let pushed = bed.run_with(&["push", "q", "--lines"], &lines).await.ended_with(1);
    assert_eq!(pushed.out, "stored 2, duplicates 0, refused 1\n");
    assert!(pushed.err.contains("line 2: it has more than 67108864 bytes"), "{pushed:?}");
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "first\nlast\n");
}

/// A socket whose other end goes away with unread data breaks with an error, unlike a pipe.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn lines_before_a_read_error_are_pushed_and_the_line_is_named() {
    let bed = Bed::new();
    let (mut writer, mut input) = UnixStream::pair().unwrap();
    input.write_all(b"never read").unwrap();
    writer.write_all(b"one\ntwo\nhal").unwrap();
    drop(writer);
    let push = bed.command(&["push", "q", "--lines"]).stdin(OwnedFd::from(input)).spawn().unwrap();
    let pushed = ended(push).await.ended_with(1);
    assert_eq!(pushed.out, "stored 2, duplicates 0, refused 0, not stored 0, unknown 0\n");
    for words in ["stopped at line 3: ", "up to 2 are settled", "tail -n +3"] {
        assert!(pushed.err.contains(words), "{words} is not in {}", pushed.err);
    }
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "one\ntwo\n");
}

#[tokio::test]
async fn standard_input_is_read_no_further_than_a_message_can_be_long() {
    let bed = Bed::at("sqlite:jobs.db?message_bytes=1024");
    let mut push = bed.command(&["push", "q"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut endless = push.stdin.take().unwrap();
    endless.write_all(&[b'x'; 1025]).await.unwrap();
    // It ends although more could come.
    let refused = ended(push).await.ended_with(1);
    assert!(refused.err.contains("more than 1024 bytes") && refused.out.is_empty(), "{refused:?}");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    drop(endless);
}

/// Shown on a terminal alone, so it is given one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn progress_is_shown_on_a_terminal_and_nowhere_else() {
    let bed = Bed::new();
    let lines = crate::bed::numbers(0..20_000);
    std::fs::write(bed.path("lines"), &lines).unwrap();
    let plain = bed.run_with(&["push", "q", "--lines"], &lines).await.ended_with(0);
    assert_eq!(plain.err, "");
    let push = format!("{} push q --lines < lines", env!("CARGO_BIN_EXE_anyqueue"));
    let mut terminal = tokio::process::Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &push, "/dev/null"]);
    terminal.current_dir(bed.path(".")).env("ANYQUEUE_URL", &bed.url).stdin(Stdio::null()).kill_on_drop(true);
    let child = terminal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let shown = ended(child).await.ended_with(0);
    assert!(shown.out.contains("stored 20000"), "{shown:?}");
    assert!(shown.out.contains("pushed") && shown.out.contains("/s"), "{shown:?}");
}

#[tokio::test]
async fn an_interrupted_push_ends_with_an_account() {
    let bed = Bed::new();
    bed.ok(&["push", "other", "makes the file"]).await;
    let mut child = bed.command(&["push", "q", "--lines", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&numbers(0..500)).await.unwrap();
    stdin.flush().await.unwrap();
    // The rest is still to come.
    until("the first lines are stored", async || (bed.counts("q").await[0] == 500).then_some(())).await;
    signal(&child, Signal::INT);
    let ran = ended(child).await.ended_with(1);
    let account = ran.objects().remove(0);
    assert_eq!((&account["stored"], &account["resume_from"]), (&500.into(), &501.into()), "{ran:?}");
    assert!(ran.err.contains("interrupted") && ran.err.contains("tail -n +501"), "{ran:?}");
}

#[tokio::test]
async fn an_empty_standard_input_is_no_message_by_mistake() {
    let bed = Bed::new();
    let ran = bed.run(&["push", "q"]).await.ended_with(2);
    assert!(ran.err.contains("standard input is empty"), "{ran:?}");
    bed.ok(&["push", "q", ""]).await;
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
}
