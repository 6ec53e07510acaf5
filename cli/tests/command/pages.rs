//! Help, completions and manual pages.

use crate::bed::Bed;

const COMMANDS: [&str; 14] = [
    "push",
    "pull",
    "peek",
    "work",
    "stats",
    "dead list",
    "dead redrive",
    "pause",
    "resume",
    "purge",
    "move",
    "doctor",
    "bench",
    "completions",
];

#[tokio::test]
async fn each_command_has_help_with_an_example() {
    let bed = Bed::new();
    for command in COMMANDS {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = bed.ok(&arguments).await.out;
        assert!(
            help.contains("Example") && help.contains(&format!("anyqueue {command}")),
            "{command}: {help}"
        );
    }
    let help = bed.ok(&["--help"]).await.out;
    for part in ["Exit codes", "URLs", "Examples", "ANYQUEUE_URL"] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
}

#[tokio::test]
async fn completions_know_the_commands() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = bed.ok(&["completions", shell]).await.out;
        assert!(
            script.contains("redrive") && script.contains("--max-ready") || script.contains("max-ready"),
            "{shell}"
        );
    }
}

#[tokio::test]
async fn manual_pages_are_written() {
    let bed = Bed::new();
    let page = bed.ok(&["man"]).await.out;
    assert!(page.contains(".TH anyqueue 1") && page.contains("sqlite:jobs.db"), "{page}");
    bed.ok(&["man", "--dir", "pages"]).await;
    for name in ["anyqueue.1", "anyqueue-push.1", "anyqueue-dead-redrive.1"] {
        assert!(bed.path("pages").join(name).exists(), "{name}");
    }
}
