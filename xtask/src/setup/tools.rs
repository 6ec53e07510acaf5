//! What building and testing need on the machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::places::{environment, node_modules};
use crate::workspace::{root, succeeds};

/// Something that building or testing needs on the machine.
pub(super) struct Tool {
    pub(super) what: &'static str,
    pub(super) found: fn() -> bool,
    pub(super) from: Source,
    pub(super) why: &'static str,
}

/// Where a tool comes from.
pub(super) enum Source {
    /// These Debian packages.
    Apt(&'static [&'static str]),
    /// This component of the Rust toolchain.
    Rustup(&'static str),
    /// These Python packages, in a virtual environment of their own that is named after the first one.
    Pip(&'static [&'static str]),
    /// What the npm lock file in this folder of the project names, installed in a folder of the same name.
    Npm(&'static str),
}

/// Everything that is needed. A new server or tool is one more row.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        what: "a C compiler with its headers",
        // Linking Rust needs `cc` too, so usually the headers are what is missing.
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
        // Debian puts it where only root's PATH leads.
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
    Tool {
        what: "curl and jq",
        found: || succeeds("curl", &["--version"]) && succeeds("jq", &["--version"]),
        from: Source::Apt(&["curl", "jq"]),
        why: "the worker in shell runs on them",
    },
    Tool {
        what: "Node.js with fetch, and npm",
        found: || {
            let has_fetch = ["-e", "process.exit(typeof fetch === 'function' ? 0 : 1)"];
            succeeds("node", &has_fetch) && succeeds("npm", &["--version"])
        },
        from: Source::Apt(&["nodejs", "npm"]),
        why: "runs the example in TypeScript, and what compiles it",
    },
    Tool {
        what: "TypeScript",
        found: || node_modules_found(TYPESCRIPT),
        from: Source::Npm(TYPESCRIPT),
        why: "makes types of the service's description, and compiles the example against them",
    },
];

/// The example whose lock file names them; its test, `server/tests/http/typescript.rs`, looks for them too.
const TYPESCRIPT: &str = "clients/typescript";

/// The version that the tests are known to pass with, which `anyqueue-testkit` looks for, and what serves it
/// faster than the server that it comes with.
const MINISTACK: &[&str] = &["ministack==1.5.33", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0"];

/// Returns whether the packages are installed in the versions of the lock file.
fn node_modules_found(project: &str) -> bool {
    let lock = |folder: PathBuf| fs::read(folder.join("package-lock.json")).ok();
    let installed = node_modules(project).and_then(lock);
    installed.is_some() && installed == lock(root().join(project))
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
