//! `cargo xtask setup`: installs what is missing. Running it again changes nothing.

mod places;
mod tools;

use std::fs;
use std::path::Path;

use places::{environment, node_modules};
use tools::{Source, TOOLS, Tool};

use crate::workspace::{Result, command, root, run, succeeds};

/// The files that npm needs in such a folder.
const NPM_FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs the packages given as arguments without starting their services: the tests start their own
/// servers, on their own ports. Debian asks `policy-rc.d` before it starts a service; if the machine already
/// has that file, it is left alone.
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

/// Installs by each means that this machine has. The caller reports what is still missing.
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
            Source::Npm(project) if succeeds("npm", &["--version"]) => install_node(project)?,
            Source::Rustup(_) | Source::Npm(_) | Source::Apt(_) => {}
        }
    }
    Ok(())
}

fn install_packages(tools: &[&Tool]) -> Result<()> {
    let names = |tool: &&Tool| match tool.from {
        Source::Apt(names) => names,
        Source::Rustup(_) | Source::Pip(_) | Source::Npm(_) => &[],
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
    clear(&folder)?;
    run(command("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = command("env");
    pip.arg(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet"]);
    run(pip.args(packages))
}

fn install_node(project: &str) -> Result<()> {
    let Some(folder) = node_modules(project) else { return Ok(()) };
    let (from, unfinished) = (root().join(project), folder.with_extension("unfinished"));
    clear(&unfinished)?;
    let failed = |error: std::io::Error| format!("cannot fill {}: {error}", unfinished.display());
    fs::create_dir_all(&unfinished).map_err(failed)?;
    for file in NPM_FILES {
        fs::copy(from.join(file), unfinished.join(file)).map_err(failed)?;
    }
    // Programs of the packages themselves are not run.
    let mut npm = command("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&unfinished);
    run(&mut npm)?;
    clear(&folder)?;
    fs::rename(&unfinished, &folder).map_err(|error| format!("cannot fill {}: {error}", folder.display()))
}

/// Clears what an interrupted installation left, which would be mistaken for a complete one.
fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("cannot clear {}: {error}", folder.display()))?;
    }
    Ok(())
}

/// Returns what to put before a command so that it runs as root without a question; `None` if that is
/// impossible.
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
        Source::Npm(project) => match node_modules(project) {
            Some(folder) => {
                let folder = folder.display();
                format!(
                    "mkdir -p {folder} && cp {project}/package*.json {folder} && npm ci --ignore-scripts --prefix {folder}"
                )
            }
            None => "set HOME, where it is installed".to_owned(),
        },
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
