//! A folder with an SQLite queue, and the binary run in it.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// No command of a test takes as long; one that does has hung.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
/// The shortest and the longest pause between two looks at something that has no event to wait for.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The URL of a broker that the tests share, each with a prefix of its own: to start one takes four seconds of a
/// core. `None` where there is none, which was said.
#[cfg(feature = "rabbitmq")]
pub(crate) async fn rabbitmq() -> Option<&'static str> {
    use anyqueue_testkit::{Provided, RabbitMq, provide};
    static SHARED: tokio::sync::OnceCell<Provided> = tokio::sync::OnceCell::const_new();
    SHARED.get_or_try_init(|| provide(RabbitMq::new())).await.unwrap().url()
}

pub(crate) struct Bed {
    folder: TempDir,
    pub(crate) url: String,
}

/// How a command ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// As text.
impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\nout: {}\nerr: {}", self.code, self.out, self.err)
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }

    /// The objects that it wrote, one on each line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(read).collect()
    }

    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::at("sqlite:jobs.db")
    }

    /// With another URL than that of the file.
    pub(crate) fn at(url: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: url.to_owned() }
    }

    /// A place of a test's own on a server, by the option of its URL that names one.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn within(url: &str, option: &str, what: &str) -> Self {
        let separator = if url.contains('?') { '&' } else { '?' };
        Self::at(&format!("{url}{separator}{option}={what}_{}", std::process::id()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyqueue"));
        self.place(command.args(arguments));
        command
    }

    /// The same, begun with another way of meeting the end of the terminal than that of whoever runs the tests: `default` or `ignore`.
    #[cfg(target_os = "linux")]
    pub(crate) fn command_that_meets_hangups(&self, how: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.arg(format!("--{how}-signal=HUP")).arg(env!("CARGO_BIN_EXE_anyqueue")).args(arguments);
        self.place(&mut command);
        command
    }

    /// In the folder, with the queue, and with ends that the test holds.
    pub(crate) fn place(&self, command: &mut Command) {
        command.current_dir(self.folder.path()).kill_on_drop(true);
        command
            .env("ANYQUEUE_URL", &self.url)
            // What the suite allows a busy machine.
            .env("ANYQUEUE_CONFORMANCE_SCHEDULING", "6")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    /// Runs it to its end, whatever that is.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, b"").await
    }

    /// The same with something on its standard input.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // One that does not read its input is fine.
        tokio::spawn(async move { stdin.write_all(&input).await });
        ended(child).await
    }

    /// Runs it; it must succeed.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> Ran {
        self.run(arguments).await.ended_with(0)
    }

    /// The counts of a queue: ready, delayed, leased, dead.
    pub(crate) async fn counts(&self, queue: &str) -> [u64; 4] {
        let row = self.ok(&["stats", queue, "--json"]).await.objects().remove(0);
        ["ready", "delayed", "leased", "dead"].map(|state| row[state].as_u64().unwrap())
    }

    /// Waits until a file is there, and returns what it holds once that ends a line.
    pub(crate) async fn line_of(&self, name: &str) -> String {
        let path = self.path(name);
        until(&format!("{name} has a line"), async || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
        .await
    }
}

/// Waits for its end.
pub(crate) async fn ended(child: Child) -> Ran {
    match tokio::time::timeout(PATIENCE, child.wait_with_output()).await {
        Ok(output) => Ran::of(output.unwrap()),
        Err(late) => panic!("a command has hung: {late}"),
    }
}

/// Looks until there is something that stays. A look can be a command, and commands one after the other would take the processor from what is
/// waited for: so each pause is three times as long as the look was, within bounds.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    look_until(what, look, |took| (took * 3).clamp(PAUSE, LONGEST_PAUSE)).await
}

/// The same for what passes, or for a look that is a step to it: the pauses are short.
pub(crate) async fn soon<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    look_until(what, look, |_| PAUSE).await
}

async fn look_until<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
    pause: impl Fn(Duration) -> Duration,
) -> T {
    let since = Instant::now();
    loop {
        let looked = Instant::now();
        if let Some(found) = look().await {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(pause(looked.elapsed())).await;
    }
}

/// Looks until there is something, and fails when a look that began later than this finds nothing. How long a look takes does not count: a command
/// that looks takes seconds on a busy machine.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) async fn within<T>(bound: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    until(what, async || {
        let began = since.elapsed();
        let found = look().await;
        assert!(found.is_some() || began <= bound, "{what}: within {bound:?}, but not after {began:?}");
        found
    })
    .await
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// These numbers, one on each line.
pub(crate) fn numbers(numbers: std::ops::Range<usize>) -> Vec<u8> {
    numbers.flat_map(|number| format!("{number}\n").into_bytes()).collect()
}
