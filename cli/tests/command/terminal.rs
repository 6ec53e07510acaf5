//! What strangers wrote, shown on a terminal: nothing of it is obeyed, and nothing deceives.

use std::process::Stdio;

use tokio::process::Command;

use crate::bed::{Bed, Ran, ended};

/// A title for the terminal, colours, a C1 introducer, and a mark that turns the direction of writing.
const HOSTILE: &str = "A\x1b]0;own\x07\x1b[31m\u{9b}31mB\u{202e}C";

/// Runs it with a terminal as its standard output, which `script` makes.
async fn on_a_terminal(bed: &Bed, arguments: &[&str]) -> Ran {
    let line: Vec<String> = [&[env!("CARGO_BIN_EXE_anyqueue")], arguments]
        .concat()
        .iter()
        .map(|word| format!("'{word}'"))
        .collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    bed.place(&mut script);
    ended(script.stdin(Stdio::null()).spawn().unwrap()).await
}

#[track_caller]
fn is_harmless(ran: &Ran) {
    let deceives = |c: char| (c.is_control() && !"\n\r".contains(c)) || c == '\u{202e}';
    assert!(!ran.out.contains(deceives), "{:?}", ran.out);
}

#[tokio::test]
async fn a_payload_commands_no_terminal() {
    let bed = Bed::new();
    bed.ok(&["push", "q", HOSTILE]).await;
    bed.ok(&["work", "q", "--once", "--exec", "exit 65"]).await;
    let id = bed.ok(&["dead", "list", "q", "--json"]).await.objects()[0]["id"].as_str().unwrap().to_owned();
    bed.ok(&["push", "q", HOSTILE]).await;
    for arguments in [
        &["dead", "show", "q", &id][..],
        &["dead", "list", "q"],
        &["dead", "show", "q", &id, "--json"],
        &["peek", "q"],
        &["peek", "q", "--json"],
        &["pull", "q", "--settle", "waiting", "--json"],
        &["pull", "q", "--settle", "waiting"],
    ] {
        let ran = on_a_terminal(&bed, arguments).await.ended_with(0);
        is_harmless(&ran);
        assert!(ran.out.contains('B'), "{arguments:?} shows nothing: {ran:?}");
    }
}

#[tokio::test]
async fn what_goes_to_a_program_is_the_payload_itself() {
    let bed = Bed::new();
    bed.ok(&["push", "q", HOSTILE]).await;
    let object = bed.ok(&["peek", "q", "--json"]).await.objects().remove(0);
    assert_eq!(object["payload"], HOSTILE);
    assert_eq!(bed.ok(&["pull", "q"]).await.out, format!("{HOSTILE}\n"));
}

#[tokio::test]
async fn errors_repeat_no_commands_either() {
    let bed = Bed::new();
    let line = format!("{{\"payload\":\"a\",\"{HOSTILE}\":1}}\n");
    // JSON allows no raw control characters below U+0020; those above it are the stranger's way in.
    let line = line.replace(|c: char| c < ' ' && c != '\n', "");
    let ran = bed.run_with(&["push", "q", "--ndjson"], line.as_bytes()).await.ended_with(1);
    assert!(ran.err.contains("unknown field") && !ran.err.contains(['\u{9b}', '\u{202e}']), "{:?}", ran.err);
    let ran = bed.run(&["peek", HOSTILE]).await.ended_with(2);
    assert!(!ran.err.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{:?}", ran.err);
}
