//! `cargo xtask setup`: installs what is missing. Running it again changes nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

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
    /// These Python packages in a virtual environment of their own, which has the first one's name.
    Pip(&'static [&'static str]),
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
    Tool {
        what: "PostgreSQL",
        found: postgres_found,
        from: Source::Apt(&["postgresql"]),
        why: "the tests start private servers of it",
    },
    Tool {
        what: "PgBouncer",
        // Debian puts it where only root's PATH goes.
        found: || found_at("/usr/sbin/pgbouncer") || succeeds("pgbouncer", &["--version"]),
        from: Source::Apt(&["pgbouncer"]),
        why: "the tests put it between a client and PostgreSQL",
    },
    Tool {
        what: "Redis",
        found: || succeeds("redis-server", &["--version"]),
        from: Source::Apt(&["redis-server"]),
        why: "the tests start private servers of it",
    },
    Tool {
        what: "RabbitMQ",
        found: || found_at("/usr/lib/rabbitmq/bin/rabbitmq-server"),
        from: Source::Apt(&["rabbitmq-server"]),
        why: "the tests start private servers of it",
    },
    Tool {
        what: "Chromium with its driver",
        found: || succeeds("chromium", &["--version"]) && succeeds("chromedriver", &["--version"]),
        from: Source::Apt(&["chromium", "chromium-driver"]),
        why: "the tests look at the service's pages with it",
    },
    Tool {
        what: "Python with virtual environments",
        found: || succeeds("python3", &["-c", "import ensurepip, venv"]),
        from: Source::Apt(&["python3-venv"]),
        why: "installs ministack, and runs the tests of the client for Python",
    },
    Tool {
        what: "ministack",
        found: || environment(MINISTACK).is_some_and(|folder| folder.join("bin/uvicorn").exists()),
        from: Source::Pip(MINISTACK),
        why: "the tests start private servers of it, in the place of Amazon SQS",
    },
];

/// The version that the tests are known to pass with, for which `anyqueue-testkit` looks, and what serves it faster than the
/// server that it brings along.
const MINISTACK: &[&str] = &["ministack==1.5.33", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0"];

/// Installs the packages given as arguments without starting their services: the tests start servers of their own, on
/// ports of their own. Debian asks `policy-rc.d` before it starts any; one that the machine already has is left alone.
const APT_INSTALL: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
apt-get update
apt-get install -y --no-install-recommends "$@"
"#;

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
    for tool in tools {
        println!("setup: {} is missing ({})", tool.what, tool.why);
    }
    install_packages(tools)?;
    for tool in tools {
        match tool.from {
            Source::Rustup(component) if succeeds("rustup", &["--version"]) => {
                run(command("rustup").args(["component", "add", component]))?;
            }
            Source::Pip(packages) => install_python(packages)?,
            Source::Rustup(_) | Source::Apt(_) => {}
        }
    }
    Ok(())
}

fn install_packages(tools: &[&Tool]) -> Result<()> {
    let names = |tool: &&Tool| match tool.from {
        Source::Apt(names) => names,
        Source::Rustup(_) | Source::Pip(_) => &[],
    };
    let packages: Vec<&str> = tools.iter().flat_map(names).copied().collect();
    if !packages.is_empty()
        && succeeds("apt-get", &["--version"])
        && let Some(prefix) = root_prefix()
    {
        println!("setup: installs {}", packages.join(" "));
        run(prefixed(prefix, &["sh", "-c", APT_INSTALL, "setup"]).args(packages))?;
    }
    Ok(())
}

fn install_python(packages: &[&str]) -> Result<()> {
    let Some(folder) = environment(packages) else { return Ok(()) };
    // What an interrupted installation left would be taken for whole.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("cannot clear {}: {error}", folder.display()))?;
    }
    run(command("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = command("env");
    pip.arg(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet"]);
    run(pip.args(packages))
}

/// The virtual environment of Python packages, among the user's data: the checkouts of the project share it.
fn environment(packages: &[&str]) -> Option<PathBuf> {
    let data = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".local/share")))?;
    let name = packages.first()?.replace("==", "-");
    Some(data.join("anyqueue").join(name))
}

/// Debian keeps the servers of all versions out of the PATH.
fn postgres_found() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut servers = versions.map(|version| version.path().join("bin/postgres"));
    servers.any(|server| server.exists()) || succeeds("postgres", &["--version"])
}

fn found_at(path: &str) -> bool {
    Path::new(path).exists()
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
        Source::Pip(packages) => match environment(packages) {
            Some(folder) => {
                let (folder, packages) = (folder.display(), packages.join(" "));
                format!("python3 -m venv {folder} && {folder}/bin/pip install {packages}")
            }
            None => "set HOME, where it is installed".to_owned(),
        },
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
