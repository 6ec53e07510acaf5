//! Help, completions and manual pages.

use crate::bed::Bed;

/// The commands that a page of help lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed.map_while(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn each_command_has_help_with_an_example() {
    let bed = Bed::new();
    let mut left = commands(&bed.ok(&["--help"]).await.out);
    let mut seen = 0;
    while let Some(command) = left.pop() {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = bed.ok(&arguments).await.out;
        let below = commands(&help);
        if below.is_empty() {
            seen += 1;
            let example = format!("anyqueue {command}");
            assert!(help.contains("Example") && help.contains(&example), "{command}: {help}");
        }
        left.extend(below.iter().map(|name| format!("{command} {name}")));
    }
    assert!(seen >= 18, "{seen} commands are too few: has the list been read?");
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
        assert!(script.contains("redrive") && script.contains("max-ready"), "{shell}");
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
