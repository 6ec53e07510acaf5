//! A process that can have no more threads.

use anyqueue::ErrorKind;
use anyqueue_sqlite::SqliteQueue;

/// Tells the copy of this program that is to run short of memory for threads.
const SHORT: &str = "ANYQUEUE_TEST_SHORT_OF_THREADS";
/// Less than a thread's stack, and enough to open a file.
const SPARE_BYTES: u64 = 1 << 20;

#[test]
fn a_file_opened_where_no_thread_can_be_had_is_an_error() {
    if std::env::var_os(SHORT).is_some() {
        return open_without_threads();
    }
    let name = "threads::a_file_opened_where_no_thread_can_be_had_is_an_error";
    let mut copy = std::process::Command::new(std::env::current_exe().unwrap());
    let end = copy.args([name, "--exact", "--nocapture"]).env(SHORT, "1").status().unwrap();
    assert!(end.success(), "{end}");
}

/// On one thread of tokio's own that is there already.
fn open_without_threads() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        tokio::task::spawn_blocking(|| {}).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        if !limit_memory() {
            return;
        }
        let error = SqliteQueue::open(dir.path().join("q.db")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    });
}

/// `false` where there is no command for it.
fn limit_memory() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kibibytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = format!("--as={}:", kibibytes * 1024 + SPARE_BYTES);
    let own = format!("--pid={}", std::process::id());
    std::process::Command::new("prlimit").args([limit, own]).status().is_ok_and(|end| end.success())
}
