//! Each example does what it says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_same_program_runs_on_every_backend() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("jobs.db").display());
    for (url, name) in [("memory:", "memory"), (&*file, "sqlite"), (&*file, "sqlite")] {
        let output = run(env!("CARGO_BIN_EXE_swap_backend"), &[url]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let expected = format!(
            "backend: {name}\npushed: ready 100, leased 0\nprocessed: 100\ndone: ready 0, leased 0\n"
        );
        assert_eq!(text(&output.stdout), expected, "{url}");
    }
}

#[test]
fn an_unknown_backend_is_refused_with_the_known_ones() {
    let output = run(env!("CARGO_BIN_EXE_swap_backend"), &["pigeon://roof"]);
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains("memory:") && told.contains("sqlite:"), "{told}");
}

#[test]
fn an_adapter_of_ones_own_gets_the_rest_from_core() {
    let output = run(env!("CARGO_BIN_EXE_custom_adapter"), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    let (refused, others) = lines.split_last().unwrap();
    let expected = ["received \"hello\"", "1 received", "dead: nobody to greet", "redriven: 1", "back: 1"];
    assert_eq!(others, expected);
    assert!(refused.contains("no priorities") && refused.contains("unsupported"), "{refused}");
}
