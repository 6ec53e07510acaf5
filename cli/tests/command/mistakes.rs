//! Bad input: what is said about it, and what is not shown.

use crate::bed::Bed;

/// For each command something wrong, its exit code, and words that help.
const MISTAKES: &[(&[&str], i32, &[&str])] = &[
    (&[], 2, &["Usage"]),
    (&["fly"], 2, &["unrecognized subcommand"]),
    (&["--url", "pigeon://roof", "stats"], 2, &["unknown scheme", "sqlite:"]),
    (&["--url", "", "stats"], 2, &["--url", "ANYQUEUE_URL"]),
    (&["--url", "sqlite:jobs.db?colour=red", "stats"], 2, &["colour", "synchronous"]),
    (&["push"], 2, &["QUEUE"]),
    (&["push", "no spaces", "x"], 2, &["A-Z a-z 0-9"]),
    (&["push", "q", "x", "--priority", "77"], 2, &["priority 77", "0 (least urgent) to 9"]),
    (&["push", "q", "x", "--delay", "soon"], 2, &["soon"]),
    (&["push", "q", "x", "--header", "nothing"], 2, &["name=value"]),
    (&["push", "q", "x", "--header", "anyqueue-x=1"], 2, &["reserved"]),
    (&["push", "q", "--ndjson", "--priority", "3"], 2, &["cannot be used with"]),
    (&["push", "q", "--lines", "no-such-file"], 2, &["no-such-file"]),
    (&["push", "--lines", "mail"], 2, &["QUEUE is missing", "mail was taken for the file of --lines"]),
    (&["push", "--ndjson", "mail", "--json"], 2, &["mail was taken for the file of --ndjson"]),
    (&["push", "--lines"], 2, &["QUEUE is missing"]),
    (&["pull", "q", "--max", "0"], 2, &["0"]),
    (&["pull", "q", "--delay", "1s"], 2, &["--settle postponed"]),
    (&["pull", "q", "--reason", "x"], 2, &["--settle poisonous"]),
    (&["peek", "q", "--id", "seven"], 2, &["UUID"]),
    (&["stats", "--rounds", "2"], 2, &["--watch"]),
    (&["stats", "a b"], 2, &["A-Z a-z 0-9"]),
    (&["pause"], 2, &["QUEUE"]),
    (&["resume", "a/b"], 2, &["A-Z a-z 0-9"]),
    (&["purge", "q"], 2, &["--yes"]),
    (&["dead"], 2, &["redrive"]),
    (&["dead", "list", "q", "--id", "x"], 2, &["UUID"]),
    (&["dead", "show", "q"], 2, &["ID"]),
    (&["dead", "show", "q", "00000000-0000-7000-8000-000000000000"], 4, &[]),
    (&["dead", "redrive", "q", "--older-than", "yesterday"], 2, &["yesterday"]),
    (&["dead", "purge", "q"], 2, &["--dry-run", "--yes"]),
    (&["work", "q"], 2, &["--exec"]),
    (&["work", "q", "--exec", "true", "--slots", "0"], 2, &["--slots"]),
    (&["work", "q", "--exec", "true", "--dead-on", "300"], 2, &["300"]),
    (&["work", "q", "q", "--exec", "true"], 2, &["named twice"]),
    (&["move", "sqlite:jobs.db"], 2, &["TO"]),
    (&["move", "sqlite:jobs.db", "sqlite:jobs.db", "q"], 2, &["the same"]),
    (&["move", "sqlite:jobs.db", "sqlite:b.db", "q", "r", "--as", "s"], 2, &["--as"]),
    (&["move", "sqlite:none.db", "sqlite:b.db", "q"], 1, &["none.db"]),
    (&["doctor", "pigeon://roof"], 2, &["unknown scheme"]),
    (&["bench", "--tasks", "0"], 2, &["--tasks"]),
    (&["completions", "tcsh"], 2, &["bash"]),
    (&["man", "--dir"], 2, &["DIR"]),
];

#[tokio::test]
async fn mistakes_are_answered_with_what_to_do() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "there"]).await;
    for (arguments, code, words) in MISTAKES {
        let ran = bed.run(arguments).await;
        assert_eq!(ran.code, Some(*code), "{arguments:?}: {ran:#?}");
        for word in *words {
            assert!(ran.err.contains(word), "{arguments:?}: {word:?} is not in {}", ran.err);
        }
    }
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0], "no mistake changed anything");
}

#[tokio::test]
async fn looking_creates_nothing() {
    let bed = Bed::new();
    for arguments in [["stats", "q"], ["peek", "q"], ["pull", "q"], ["pause", "q"]] {
        let ran = bed.run(&arguments).await.ended_with(1);
        assert!(ran.err.contains("jobs.db"), "{arguments:?}: {ran:?}");
    }
    assert!(!bed.path("jobs.db").exists());
}

#[tokio::test]
async fn passwords_are_never_shown() {
    let bed = Bed::at("postgres://app:hunter2@127.0.0.1:1/db");
    for arguments in [
        vec!["stats"],
        vec!["doctor"],
        vec!["doctor", "--json"],
        vec!["push", "redis://:hunter2@127.0.0.1:1/", "x"],
        vec!["push", "q", "--priority", "redis://:hunter2@h/"],
        vec!["stats", "--nonsense", "amqp://u:hunter2@h/"],
        vec!["--url", "amqp://u:hunter2@127.0.0.1:1/%2f", "stats", "q"],
        vec!["--url", "redis://u:hunter2@127.0.0.1:1/?nonsense=1", "stats"],
        vec!["--url", "postgres://u:hunter2@", "stats"],
        vec!["move", "redis://u:hunter2@127.0.0.1:1/", "postgres://u:hunter2@127.0.0.1:1/", "q"],
        vec!["bench", "redis://u:hunter2@127.0.0.1:1/"],
        vec!["--url", "postgres://u:hun'hunter2@127.0.0.1:1/", "stats"],
        vec!["push", "postgres://u:a hunter2@h/", "x"],
        vec!["--url", "postgres:u:hunter2@127.0.0.1:1/", "stats"],
        vec!["move", "postgres:u:hunter2@h/", "redis:u:hunter2@h/", "q"],
        vec!["stats", "q?password=hunter2"],
        vec!["--help"],
        vec!["stats", "--help"],
    ] {
        let ran = bed.run(&arguments).await;
        assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{arguments:?}: {ran:?}");
        let help = arguments.contains(&"--help");
        assert_eq!(ran.code == Some(0), help, "{arguments:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_url_with_a_password_need_not_stand_in_the_arguments() {
    let bed = Bed::at("env:SOURCE");
    let run = async |arguments: &[&str]| {
        let mut command = bed.command(arguments);
        command.env("SOURCE", "sqlite:a.db").env("TARGET", "sqlite:b.db").env("EMPTY", "");
        crate::bed::ended(command.spawn().unwrap()).await
    };
    run(&["push", "q", "x"]).await.ended_with(0);
    run(&["move", "env:SOURCE", "env:TARGET", "q"]).await.ended_with(0);
    assert_eq!(run(&["pull", "q", "--url", "env:TARGET"]).await.ended_with(0).out, "x\n");
    for name in ["env:MISSING", "env:EMPTY"] {
        let ran = run(&["move", name, "env:TARGET", "q"]).await.ended_with(2);
        assert!(ran.err.contains("is not set"), "{ran:?}");
    }
}
