//! Runs test programs side by side, as many as the machine has room for. `cargo test` runs one after the
//! other, and most of them spend their time waiting.

mod digest;
mod list;
mod needs;
mod one;
mod room;
mod schedule;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use self::list::Program;
use self::needs::Needs;
use self::one::{Counts, Ended, Limits};
use self::schedule::{Job, Schedule, Share};
use crate::workspace::{Result, root};

pub(crate) use self::list::note;

/// All that `cargo test --workspace --all-targets` runs.
pub(crate) const ALL: &[&str] = &["--workspace", "--all-targets"];
/// What the quick run chooses from; it runs only those suites that need no server.
pub(crate) const QUICK: &[&str] = &["--workspace", "--lib", "--bins", "--test", SUITE];

const SUITE: &str = "conformance";
/// The test targets that run the suite.
const SUITES: &[&str] = &[SUITE, "beside", "cluster", "fifo"];
/// How many seconds late the suites allow the machine to be, because other programs run beside them. The
/// faults are found with the usual two.
const SCHEDULING: (&str, &str) = ("ANYQUEUE_CONFORMANCE_SCHEDULING", "6");
/// The backends without a server.
const LOCAL: &[&str] = &["anyqueue-memory", "anyqueue-sqlite"];

/// Runs every test program.
pub(crate) fn run_all() -> Result<()> {
    let programs = list::list(ALL)?;
    let names: Vec<String> = programs.iter().map(Program::name).collect();
    let unknown = needs::unknown(&names);
    if !unknown.is_empty() {
        return Err(format!(
            "xtask/src/programs/needs.rs has programs that do not exist: {}",
            unknown.join(", ")
        ));
    }
    run(&programs)
}

/// Runs the unit tests, and the suites of the backends without a server.
pub(crate) fn run_quick() -> Result<()> {
    let mut programs = list::list(QUICK)?;
    programs.retain(|program| program.target != SUITE || LOCAL.contains(&program.package.as_str()));
    run(&programs)
}

/// Runs the programs whose name contains this text.
pub(crate) fn run_only(text: &str) -> Result<()> {
    let mut programs = list::list(ALL)?;
    programs.retain(|program| program.name().contains(text));
    if programs.is_empty() {
        Err(format!("no test program has {text:?} in its name"))
    } else {
        run(&programs)
    }
}

/// Runs each of these programs to its end, even if one fails.
fn run(programs: &[Program]) -> Result<()> {
    let places = Places::new()?;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let jobs = programs.iter().enumerate().map(|(index, program)| job(index, Needs::of(&program.name())));
    let mut schedule = Schedule::new(cores, jobs.collect());
    println!(
        "{} programs on {cores} cores, with their servers' files in {}; what they say is kept in {}",
        programs.len(),
        places.temporary.display(),
        places.output.display()
    );
    let begin = Instant::now();
    let mut account = Account::default();
    let (sender, receiver) = sync_channel(programs.len());
    thread::scope(|scope| {
        while !schedule.is_over() {
            while let Some(job) = schedule.begin() {
                let Some(program) = programs.get(job.index) else { continue };
                let (sender, places) = (sender.clone(), &places);
                scope.spawn(move || run_one(job.index, program, places, &sender));
            }
            // This thread holds a sender too, so there is always one.
            let Ok((index, ended)) = receiver.recv() else { break };
            schedule.ended(index);
            if let Some(program) = programs.get(index) {
                account.add(program, &ended, &places.output_of(program));
            }
        }
    });
    // Each program's own folder is gone, or a failure to remove it was reported.
    for folder in [&places.temporary, &places.on_disk] {
        let _ = fs::remove_dir(folder);
    }
    account.close(programs.len(), begin.elapsed())
}

fn job(index: usize, needs: Needs) -> Job {
    Job { index, share: needs.share, seconds: needs.seconds }
}

fn run_one(index: usize, program: &Program, places: &Places, sender: &SyncSender<(usize, Ended)>) {
    let mut command = program.command();
    command.args(Needs::of(&program.name()).threads.map(|threads| format!("--test-threads={threads}")));
    if SUITES.contains(&program.target.as_str()) {
        command.env(SCHEDULING.0, SCHEDULING.1);
    }
    let temporary = places.temporary_of(program).join(index.to_string());
    let ended = one::run(command, &places.output_of(program), &temporary, Limits::USUAL);
    // The receiver waits for as many results as there are programs.
    let _ = sender.send((index, ended));
}

/// Where the programs' files are.
struct Places {
    output: PathBuf,
    /// A folder for each program's temporary files. Short: paths of sockets are bounded.
    temporary: PathBuf,
    /// The same, on a disk, for programs that measure and have the machine to themselves.
    on_disk: PathBuf,
}

impl Places {
    fn new() -> Result<Self> {
        let output = root().join("target/programs");
        let fault = |error: std::io::Error| format!("cannot empty {}: {error}", output.display());
        if output.exists() {
            fs::remove_dir_all(&output).map_err(fault)?;
        }
        fs::create_dir_all(&output).map_err(fault)?;
        let name = format!("anyqueue-{}", std::process::id());
        let on_disk = std::env::temp_dir().join(&name);
        let temporary = room::in_memory().map_or_else(|| on_disk.clone(), |folder| folder.join(&name));
        Ok(Self { output, temporary, on_disk })
    }

    fn temporary_of(&self, program: &Program) -> &Path {
        if Needs::of(&program.name()).share == Share::Alone { &self.on_disk } else { &self.temporary }
    }

    fn output_of(&self, program: &Program) -> PathBuf {
        self.output.join(format!("{}.txt", program.file_stem()))
    }
}

/// The results of the programs so far.
#[derive(Default)]
struct Account {
    ended: usize,
    counts: Counts,
    /// How long they would have taken one after the other.
    took: Duration,
    failed: Vec<String>,
}

impl Account {
    /// Reports how a program ended. The output of a failed one is shown completely.
    fn add(&mut self, program: &Program, ended: &Ended, output: &Path) {
        self.ended += 1;
        self.counts = self.counts.and(ended.counts);
        self.took += ended.took;
        let verdict = if ended.faults.is_empty() { "ok    " } else { "FAILED" };
        println!("{:>7.1} s  {verdict}  {}  {}", ended.took.as_secs_f64(), ended.counts, program.name());
        if ended.faults.is_empty() {
            return;
        }
        let faults = ended.faults.join("; ");
        let said = fs::read(output).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        println!("---- {} said:\n{}", program.name(), said.trim_end());
        println!("---- {}: {faults}; all that it said is above", program.name());
        self.failed.push(format!("{}: {faults}{}", program.name(), digest::of(&said)));
    }

    fn close(self, planned: usize, took: Duration) -> Result<()> {
        println!(
            "{} programs, {}, in {:.1} s; one after the other {:.1} s",
            self.ended,
            self.counts.to_string().trim_start(),
            took.as_secs_f64(),
            self.took.as_secs_f64()
        );
        if self.ended != planned {
            return Err(format!("{} of {planned} programs were not run", planned.abs_diff(self.ended)));
        }
        match self.failed.as_slice() {
            [] => Ok(()),
            failed => Err(format!("{} programs failed:\n  {}", failed.len(), failed.join("\n  "))),
        }
    }
}
