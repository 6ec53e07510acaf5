//! `cargo xtask setup`: installs what is missing. Running it again changes nothing.

use crate::workspace::{Result, command, run, succeeds};

/// Something that building or testing needs on the machine.
struct Tool {
    what: &'static str,
    found: fn() -> bool,
    from: Source,
    why: &'static str,
}

/// Where a tool comes from.
enum Source {
    /// These Debian packages.
    Apt(&'static [&'static str]),
    /// This component of the Rust toolchain.
    Rustup(&'static str),
}

/// Everything that is needed. A new server or tool is one more row.
const TOOLS: &[Tool] = &[
    Tool {
        what: "a C compiler with its headers",
        // Linking Rust needs `cc` too, so mostly it is the headers that are missing.
        found: || succeeds("cc", &["-x", "c", "-fsyntax-only", "-include", "stdlib.h", "/dev/null"]),
        from: Source::Apt(&["gcc", "libc6-dev"]),
        why: "compiles the SQLite that anyqueue-sqlite carries",
    },
    Tool {
        what: "rustfmt",
        found: || succeeds("cargo", &["fmt", "--version"]),
        from: Source::Rustup("rustfmt"),
        why: "checks the formatting",
    },
    Tool {
        what: "clippy",
        found: || succeeds("cargo", &["clippy", "--version"]),
        from: Source::Rustup("clippy"),
        why: "checks the code",
    },
];

/// Installs what is missing, or says what to install by hand.
pub(crate) fn run_setup() -> Result<()> {
    install(&missing(TOOLS))?;
    let still_missing = missing(TOOLS);
    if !still_missing.is_empty() {
        return Err(by_hand(&still_missing));
    }
    let names: Vec<_> = TOOLS.iter().map(|tool| tool.what).collect();
    println!("setup: everything is here ({})", names.join(", "));
    Ok(())
}

fn missing(tools: &[Tool]) -> Vec<&Tool> {
    tools.iter().filter(|tool| !(tool.found)()).collect()
}

/// Installs by each means that this machine has. What stays missing is the caller's to report.
fn install(tools: &[&Tool]) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for tool in tools {
        println!("setup: {} is missing ({})", tool.what, tool.why);
        match tool.from {
            Source::Apt(names) => packages.extend(names),
            Source::Rustup(component) if succeeds("rustup", &["--version"]) => {
                run(command("rustup").args(["component", "add", component]))?;
            }
            Source::Rustup(_) => {}
        }
    }
    if !packages.is_empty()
        && succeeds("apt-get", &["--version"])
        && let Some(prefix) = root_prefix()
    {
        run(&mut prefixed(prefix, &["apt-get", "update"]))?;
        let mut install = prefixed(prefix, &["apt-get", "install", "-y", "--no-install-recommends"]);
        run(install.args(packages))?;
    }
    Ok(())
}

/// What a command needs in front to run as root without asking anybody; `None` where it cannot.
fn root_prefix() -> Option<&'static [&'static str]> {
    // Packages must not stop to ask questions; sudo drops the environment, hence `env`.
    const AS_ROOT: &[&str] = &["env", "DEBIAN_FRONTEND=noninteractive"];
    const WITH_SUDO: &[&str] = &["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive"];
    if succeeds("sh", &["-c", "test $(id -u) = 0"]) {
        Some(AS_ROOT)
    } else if succeeds("sudo", &["-n", "true"]) {
        Some(WITH_SUDO)
    } else {
        None
    }
}

fn prefixed(prefix: &[&str], arguments: &[&str]) -> std::process::Command {
    let (program, before) = prefix.split_first().unwrap_or((&"env", &[]));
    let mut command = command(program);
    command.args(before).args(arguments);
    command
}

fn by_hand(tools: &[&Tool]) -> String {
    let how = |tool: &&Tool| match tool.from {
        Source::Apt(packages) => format!("on Debian: apt-get install {}", packages.join(" ")),
        Source::Rustup(component) => format!("rustup component add {component}"),
    };
    let lines: Vec<_> =
        tools.iter().map(|tool| format!("\n  {} ({}); {}", tool.what, tool.why, how(tool))).collect();
    format!("please install by hand, then run `cargo xtask setup` again:{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Tool =
        Tool { what: "true", found: || true, from: Source::Rustup("true"), why: "is there" };
    const ABSENT: Tool = Tool {
        what: "a server",
        found: || false,
        from: Source::Apt(&["some-server", "its-client"]),
        why: "runs its tests",
    };

    #[test]
    fn only_what_is_not_found_is_missing() {
        let tools = [PRESENT, ABSENT];
        let missing = missing(&tools);
        assert_eq!(missing.iter().map(|tool| tool.what).collect::<Vec<_>>(), ["a server"]);
    }

    #[test]
    fn a_missing_tool_is_reported_with_what_why_and_how() {
        let text = by_hand(&[&ABSENT]);
        for part in ["a server", "runs its tests", "apt-get install some-server its-client"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}
