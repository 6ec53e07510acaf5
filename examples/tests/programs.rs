//! Checks that each example does what it says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use anyqueue_testkit::{Ministack, Postgres, Program, RabbitMq, Redis, start_if_installed};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_same_program_runs_in_memory_and_on_a_file() {
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

/// Runs the program on the server of a backend, if that is installed. To test all of them, set
/// `ANYQUEUE_REQUIRE_SERVERS`, which makes a missing one an error.
async fn runs_on(name: &str, program: impl Program, url: impl Fn(&str) -> String) {
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let url = url(server.url());
    let output = tokio::task::spawn_blocking(move || run(env!("CARGO_BIN_EXE_swap_backend"), &[&url]));
    let output = output.await.unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert!(
        lines.starts_with(&format!("backend: {name}\n")) && lines.contains("processed: 100\n"),
        "{lines}"
    );
}

#[tokio::test]
async fn the_same_program_runs_on_postgres() {
    runs_on("postgres", Postgres::new(), str::to_owned).await;
}

#[tokio::test]
async fn the_same_program_runs_on_redis() {
    runs_on("redis", Redis::new(), str::to_owned).await;
}

#[tokio::test]
async fn the_same_program_runs_on_rabbitmq() {
    runs_on("rabbitmq", RabbitMq::new(), str::to_owned).await;
}

#[tokio::test]
async fn the_same_program_runs_on_sqs() {
    let url = |endpoint: &str| format!("sqs://test:test@us-east-1/swap?endpoint={endpoint}&levels=1");
    runs_on("sqs", Ministack::new(), url).await;
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
