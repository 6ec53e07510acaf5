//! What the command says when it cannot start a server.

use tokio::process::Command;
use tokio::time::timeout;

use crate::fixture::LIMIT;

async fn refusal(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyqueue-testkit"));
    command.args(arguments).env("PATH", "").kill_on_drop(true);
    let output = timeout(LIMIT, command.output()).await.unwrap().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_program_that_is_not_installed_is_named_with_what_to_do() {
    let said = refusal(&["redis"]).await;
    assert!(said.contains("needs redis-server: run `cargo xtask setup`"), "{said}");
}

#[tokio::test]
async fn an_unknown_server_is_answered_with_those_that_are_known() {
    for arguments in [&["pigeon"][..], &[]] {
        let said = refusal(arguments).await;
        assert!(said.contains("redis"), "{said}");
    }
}
