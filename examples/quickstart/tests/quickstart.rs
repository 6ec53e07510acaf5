//! Tests the quickstart as its user sees it, with kills, against `sha256sum`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyqueue::{Browsed, Page, PartitionId, Queue};
use anyqueue_sqlite::SqliteQueue;
use tempfile::TempDir;

/// A folder with a tree of files in `tree`.
struct Place(TempDir);

impl Place {
    fn with_files(count: usize) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for number in 0..count {
            place.write(format!("tree/{}/file {number}", number % 7), &vec![b'x'; number * 37]);
        }
        place
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: impl AsRef<Path>, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The lines of the finished list, in byte order.
    fn list(&self) -> Vec<Vec<u8>> {
        sorted_lines(&fs::read(self.path("SHA256SUMS")).unwrap())
    }

    /// What `sha256sum` prints for all files in the tree, in byte order.
    fn expected(&self) -> Vec<Vec<u8>> {
        let script = "find -L tree -type f -print0 | xargs -0 sha256sum";
        let output = Command::new("sh").args(["-c", script]).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        sorted_lines(&output.stdout)
    }

    /// Starts the program and kills it (-9) as soon as `ripe` returns true. Fails if it ends before that, or
    /// nothing happens for a minute.
    fn kill_when(&self, ripe: impl Fn() -> bool) {
        let mut child = self.spawn(&["tree"]);
        let deadline = Instant::now() + Duration::from_mins(1);
        while !ripe() {
            assert!(Instant::now() < deadline, "nothing happens");
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            std::thread::sleep(Duration::from_micros(200)); // between looks at another process's file
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A look at the sums that interrupted runs have stored.
struct Stored {
    runtime: tokio::runtime::Runtime,
    queue: Queue,
    sums: PartitionId,
}

impl Stored {
    /// Returns `None` until a run has pushed.
    fn of(place: &Place) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (queue, files) = runtime.block_on(async {
            let file = SqliteQueue::open(place.path("SHA256SUMS.queue")).await.ok()?;
            let queue = Queue::new(file).unwrap();
            let partitions = queue.partitions(Page::of(10)).await.ok()?;
            let files = partitions.into_iter().find(|partition| partition.name().starts_with("files"))?;
            Some((queue, files))
        })?;
        let sums = PartitionId::new(&files.name().replace("files", "sums")).unwrap();
        Some(Self { runtime, queue, sums })
    }

    fn count(&self) -> usize {
        let counts = self.runtime.block_on(self.queue.counts(&self.sums)).unwrap();
        usize::try_from(counts.ready.unwrap()).unwrap()
    }

    /// Paths with their sums.
    fn sums(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut lines = Vec::<Browsed>::new();
        loop {
            let after = lines.last().map(|line| line.message.id());
            let page =
                self.runtime.block_on(self.queue.browse(&self.sums, Page::of(1000).after(after))).unwrap();
            if page.is_empty() {
                break;
            }
            lines.extend(page);
        }
        let entry = |line: &[u8]| (OsStr::from_bytes(&line[66..line.len() - 1]).into(), line[..64].to_vec());
        lines.iter().map(|line| entry(line.message.payload())).collect()
    }
}

fn sorted_lines(text: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.sort();
    lines
}

/// Compares the lists, and shows some of the lines that differ as text.
#[track_caller]
fn assert_same(list: &[Vec<u8>], expected: &[Vec<u8>]) {
    let show = |lines: Vec<&&Vec<u8>>| -> Vec<_> {
        lines.iter().take(5).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    let (in_list, wanted) = (list.iter().collect::<BTreeSet<_>>(), expected.iter().collect::<BTreeSet<_>>());
    let missing: Vec<_> = wanted.difference(&in_list).collect();
    let extra: Vec<_> = in_list.difference(&wanted).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {:?}, extra {:?}", show(missing), show(extra));
    assert_eq!(list.len(), expected.len(), "each file exactly once");
}

#[test]
fn the_list_is_what_sha256sum_prints_whatever_the_names() {
    let place = Place::with_files(500);
    for name in
        [&b"back\\slash"[..], b"new\nline", b"return\rhere", b" spaces ", b"\xff\xfe not text", b"-n", b"*"]
    {
        place.write(Path::new("tree/odd").join(OsStr::from_bytes(name)), name);
    }
    place.write(format!("tree/{}/{}", "long".repeat(60), "name".repeat(60)), b"a path longer than 256 bytes");
    place.write("tree/empty", b"");
    place.write("tree/large", &(0..5_000_003_u32).map(|number| number.to_le_bytes()[1]).collect::<Vec<_>>());
    symlink("large", place.path("tree/link")).unwrap();
    symlink(".", place.path("tree/link to a directory")).unwrap();

    let output = place.run(&["tree"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "not a terminal, so quiet: {output:?}");
    // `find -L` would walk the linked directory too, or call it a loop.
    fs::remove_file(place.path("tree/link to a directory")).unwrap();
    assert_same(&place.list(), &place.expected());
    assert_eq!(place.list().len(), 511);
    assert_eq!(Stored::of(&place).map_or(0, |stored| stored.count()), 0, "the list has them");
}

#[test]
fn its_own_files_are_not_summed_and_a_new_run_sees_what_changed() {
    let place = Place::with_files(20);
    let arguments = ["tree", "--out", "tree/sums", "--queue", "tree/queue"];
    for _ in 0..2 {
        assert!(place.run(&arguments).status.success());
        let names = String::from_utf8(fs::read(place.path("tree/sums")).unwrap()).unwrap();
        assert_eq!(names.lines().count(), 20, "{names}");
    }
    place.write("tree/0/file 0", b"changed");
    place.write("tree/new", b"new");
    fs::remove_file(place.path("tree/1/file 1")).unwrap();
    assert!(place.run(&arguments).status.success());
    let list = sorted_lines(&fs::read(place.path("tree/sums")).unwrap());
    for own in ["sums", "queue"] {
        fs::remove_file(place.path("tree").join(own)).unwrap();
    }
    assert_same(&list, &place.expected());
}

#[test]
fn killed_at_any_moment_the_list_is_exact_and_nothing_is_summed_twice() {
    let place = Place::with_files(1500);
    place.kill_when(|| place.path("SHA256SUMS.queue").exists()); // while it sets up
    place.kill_when(|| place.path("SHA256SUMS.queue-wal").exists()); // while it pushes
    place.kill_when(|| Stored::of(&place).is_some_and(|stored| stored.count() > 0)); // as soon as it works
    let stored = Stored::of(&place).unwrap();
    let mut done = BTreeMap::new();
    for _ in 0..6 {
        place.kill_when(|| stored.count() > done.len() + 60);
        let now = stored.sums();
        for (path, sum) in &done {
            assert_eq!(now.get(path), Some(sum), "what was done stays done");
        }
        // If one of these files were summed again, it would get another sum.
        for path in now.keys().filter(|path| !done.contains_key(*path)) {
            fs::write(place.path(path), b"changed after it was summed").unwrap();
        }
        done = now;
    }
    assert!(done.len() < 1500, "the last run has work left: {} are done", done.len());
    let output = place.run(&["tree"]);
    assert!(output.status.success(), "{output:?}");

    let mut expected = place.expected();
    for line in &mut expected {
        let path = Path::new(OsStr::from_bytes(&line[66..line.len() - 1]));
        if let Some(sum) = done.get(path) {
            line[..64].copy_from_slice(sum);
        }
    }
    expected.sort();
    assert_same(&place.list(), &expected);
}

#[test]
fn what_cannot_be_read_is_named_with_its_reason_and_redriven() {
    let place = Place::with_files(30);
    // Nobody can read it, not even root.
    symlink("nowhere", place.path("tree/broken")).unwrap();

    for attempt in ["first", "without --redrive"] {
        let output = place.run(&["tree"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{attempt}: {told}");
        assert!(told.contains("quickstart: tree/broken: No such file or directory"), "{attempt}: {told}");
        assert_eq!(told.matches("tree/broken").count(), 1, "{attempt}: one message for one file: {told}");
        assert!(told.contains("--redrive"), "{attempt}: {told}");
        assert_eq!(place.list().len(), 30, "{attempt}: the others are listed");
    }

    place.write("tree/nowhere", b"there it is");
    let output = place.run(&["tree", "--redrive"]);
    assert!(output.status.success(), "{output:?}");
    assert_same(&place.list(), &place.expected());
    assert_eq!(place.list().len(), 32, "with the link and what it leads to");
}

#[test]
fn the_queue_can_be_shared_with_an_unfinished_list_of_another_directory() {
    let place = Place::with_files(5);
    place.write("other/file", b"x");
    symlink("nowhere", place.path("tree/broken")).unwrap();
    assert_eq!(place.run(&["tree"]).status.code(), Some(1), "unfinished");
    assert!(place.run(&["other"]).status.success());
    assert_eq!(place.list().len(), 1, "only what is in the other directory");
    assert_eq!(place.run(&["tree"]).status.code(), Some(1));
    assert_eq!(place.list().len(), 5);
}

#[test]
fn a_second_run_at_the_same_time_is_refused() {
    let place = Place::with_files(5);
    let lock = fs::File::create(place.path("SHA256SUMS.queue")).unwrap();
    lock.lock().unwrap();
    let output = place.run(&["tree"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("SHA256SUMS.queue: another run"), "{told}");
    drop(lock);
    assert!(place.run(&["tree"]).status.success());
}

#[test]
fn a_directory_that_is_not_there_is_an_error_and_leaves_an_old_list_alone() {
    let place = Place::with_files(1);
    place.write("SHA256SUMS", b"old");
    let output = place.run(&["treee"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("treee: No such file"), "{told}");
    assert_eq!(fs::read(place.path("SHA256SUMS")).unwrap(), b"old");
}
