//! A PostgreSQL server of the tests' own, or one that somebody already runs.

#![allow(clippy::expect_used, reason = "a test cannot go on without its server")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Points the tests at a server that is there already.
const URL: &str = "ANYQUEUE_TEST_POSTGRES_URL";
/// A superuser may not run the server.
const SERVER_USER: &str = "postgres";
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// A running server. A private one ends with this value, and its data with it.
pub(crate) struct Server {
    url: String,
    private: Option<Private>,
}

struct Private {
    process: Child,
    directory: TempDir,
    port: u16,
}

impl Server {
    /// The server that the environment names, or a private one; `None`, said loudly, if there is neither.
    ///
    /// # Panics
    /// In CI, where a server must be found, and if a private one does not start.
    pub(crate) fn find() -> Option<Self> {
        if let Ok(url) = std::env::var(URL) {
            return Some(Self { url, private: None });
        }
        let Some(programs) = programs() else {
            let text =
                format!("not run: needs a PostgreSQL server (apt-get install postgresql, or set {URL})");
            assert!(std::env::var_os("CI").is_none(), "{text}");
            eprintln!("{text}");
            return None;
        };
        Some(Self::start(&programs))
    }

    fn start(programs: &Path) -> Self {
        let directory = TempDir::with_prefix("anyqueue-postgres-").expect("a temporary directory");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a free port")
            .local_addr()
            .expect("its number")
            .port();
        if is_root() {
            let owned = Command::new("chown").arg(SERVER_USER).arg(directory.path()).status();
            assert!(
                owned.is_ok_and(|status| status.success()),
                "the directory cannot be given to {SERVER_USER}"
            );
        }
        let initdb = as_server_user(&programs.join("initdb"))
            .arg("-D")
            .arg(directory.path().join("data"))
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .stdout(Stdio::null())
            .status();
        assert!(initdb.is_ok_and(|status| status.success()), "initdb failed");
        let process = launch(programs, directory.path(), port);
        let server = Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            private: Some(Private { process, directory, port }),
        };
        server.wait_until_ready();
        server
    }

    /// How to connect.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn wait_until_ready(&self) {
        let private = self.private.as_ref().expect("a private server");
        let ready = programs().expect("the programs").join("pg_isready");
        let begin = Instant::now();
        loop {
            let mut command = Command::new(&ready);
            command.args(["-q", "-h", "127.0.0.1", "-p", &private.port.to_string()]);
            if command.status().is_ok_and(|status| status.success()) {
                return;
            }
            assert!(begin.elapsed() < STARTS_WITHIN, "the server does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        let path = self.private.as_ref().map(|private| private.directory.path().join("log"));
        path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(private) = &mut self.private {
            // SIGINT: end all sessions, then stop. Whatever is left is killed.
            let id = private.process.id().to_string();
            let _ = Command::new("kill").args(["-INT", &id]).status();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(5) {
                if private.process.try_wait().is_ok_and(|status| status.is_some()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = private.process.kill();
            let _ = private.process.wait();
        }
    }
}

fn launch(programs: &Path, directory: &Path, port: u16) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log");
    as_server_user(&programs.join("postgres"))
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"])
        .arg(directory)
        .args(["-c", "max_connections=500", "-c", "recovery_init_sync_method=syncfs"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server starts")
}

fn as_server_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SERVER_USER, "--regid", SERVER_USER, "--clear-groups"]).arg(program);
    command
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// The directory of the newest server that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(|path| number(path));
    newest.map(|path| path.join("bin")).filter(|path| path.join("postgres").exists())
}
